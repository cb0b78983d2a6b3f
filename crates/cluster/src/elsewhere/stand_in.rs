//! What finds places for tasks and actors while the control process is away: a placer of this node's own.
//!
//! It knows the nodes that this one knows, and what they have; what of that is free, it does not. So what it places may have
//! to wait there. It is forgotten when the control process is back.

use super::Elsewhere;
use crate::member::Member;
use aktis_logic::machine::placer::{Placer, PlacerEffect, PlacerInput};
use aktis_logic::{Machine, Time};
use aktis_protocol::placement::{FromPlacer, NodeInfo, NodeReport, ToPlacer};
use aktis_protocol::{Epoch, NodeId};
use std::time::Instant;

/// See the module.
pub(super) struct StandIn {
    placer: Placer,
    began: Instant,
    me: (NodeId, Epoch),
    others: Vec<NodeInfo>,
}

impl StandIn {
    /// One for the node `own`, which has nothing to give: it asks for what it lacks.
    fn new(own: NodeInfo, others: Vec<NodeInfo>) -> Self {
        let mut stand_in = Self {
            placer: Placer::new(),
            began: Instant::now(),
            me: (own.node, own.epoch),
            others: others.clone(),
        };
        for info in others.into_iter().chain([own]) {
            stand_in.step(PlacerInput::NodeJoined { info });
        }
        let own = ToPlacer::Reported { report: NodeReport::default() };
        stand_in.receive(stand_in.me, own);
        stand_in.suppose();
        stand_in
    }

    /// Supposes that all that the others have is free.
    fn suppose(&mut self) -> Vec<FromPlacer> {
        let mut messages = Vec::new();
        for info in self.others.clone() {
            let (available, usable) = (info.resources.clone(), info.resources);
            let report = NodeReport { available, usable, ..NodeReport::default() };
            messages.extend(self.receive((info.node, info.epoch), ToPlacer::Reported { report }));
        }
        messages
    }

    fn receive(&mut self, (from, epoch): (NodeId, Epoch), message: ToPlacer) -> Vec<FromPlacer> {
        self.step(PlacerInput::Received { from, epoch, message })
    }

    fn step(&mut self, input: PlacerInput) -> Vec<FromPlacer> {
        let mut effects = Vec::new();
        self.placer.step(Time(self.began.elapsed().as_micros() as u64), input, &mut effects);
        let to_me = |PlacerEffect::Send { to, message }| (to == self.me.0).then(|| unsure(message));
        effects.into_iter().filter_map(to_me).collect()
    }
}

/// Nodes that have come since the control process is away are not known.
fn unsure(message: FromPlacer) -> FromPlacer {
    match message {
        FromPlacer::Impossible { request, reason } => FromPlacer::Waiting { request, reason, lasting: false },
        message => message,
    }
}

impl Elsewhere {
    /// Says something to the placer of this node's own; false if that has no answer to it.
    pub(super) fn tell_stand_in(&self, member: &Member, message: ToPlacer) -> bool {
        use ToPlacer::{PlaceUnused, PlaceWanted, PlaceWithdrawn};
        if !matches!(message, PlaceUnused { .. } | PlaceWanted { .. } | PlaceWithdrawn { .. }) {
            return false;
        }
        let mut stand_in = self.stand_in.lock();
        if stand_in.is_none() {
            let Some((own, others)) = member.known() else { return false };
            *stand_in = Some(StandIn::new(own, others));
        }
        let Some(placer) = &mut *stand_in else { return false };
        let messages = placer.receive(placer.me, message);
        drop(stand_in);
        messages.into_iter().for_each(|message| self.on_placer(message));
        true
    }

    /// Time has passed while the control process is away.
    pub(super) fn wake_stand_in(&self) {
        let mut stand_in = self.stand_in.lock();
        let Some(placer) = &mut *stand_in else { return };
        let mut messages = placer.suppose();
        messages.extend(placer.step(PlacerInput::Ticked));
        drop(stand_in);
        messages.into_iter().for_each(|message| self.on_placer(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::placement::Demand;
    use aktis_protocol::{Amount, Resources};

    fn info(number: u64, cpus: u64) -> NodeInfo {
        NodeInfo {
            node: NodeId::from_words([number, 0]),
            epoch: Epoch(number),
            address: ([127, 0, 0, 1], 1).into(),
            labels: Default::default(),
            resources: Resources::none().with("CPU", Amount::units(cpus)),
        }
    }

    #[test]
    fn what_another_node_has_is_given_and_what_none_has_is_not() {
        let mut stand_in = StandIn::new(info(1, 8), vec![info(2, 1), info(3, 4)]);
        let mut want = |cpus| {
            let needs = Resources::none().with("CPU", Amount::units(cpus));
            let demand = Demand { needs, count: 1, ..Demand::default() };
            stand_in.receive(stand_in.me, ToPlacer::PlaceWanted { request: cpus as u32, demand })
        };
        let placed = want(3);
        assert!(
            matches!(placed[..], [FromPlacer::Placed { request: 3, node, .. }] if node == info(3, 4).node),
            "{placed:?}"
        );
        let waits = want(8);
        assert!(matches!(waits[..], [FromPlacer::Waiting { request: 8, .. }]), "{waits:?}");
    }
}
