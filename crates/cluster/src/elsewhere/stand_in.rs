//! What finds places for tasks and actors while the control process is away: a placer of this node's own.
//!
//! It knows the nodes that this one has links to, and what they have; what of that is free, it does not. So what it places
//! may have to wait there. It is forgotten when the control process is back.

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
    /// The nodes that the control process has told of, and whether there are links to them.
    others: Vec<(NodeInfo, bool)>,
}

impl StandIn {
    /// One for the node `own`, which has nothing to give: it asks for what it lacks.
    fn new(own: NodeInfo, others: Vec<NodeInfo>, is_linked: impl Fn(NodeId) -> bool) -> Self {
        let mut stand_in = Self {
            placer: Placer::new(),
            began: Instant::now(),
            me: (own.node, own.epoch),
            others: others.into_iter().map(|info| (info, false)).collect(),
        };
        stand_in.step(PlacerInput::NodeJoined { info: own });
        let own = ToPlacer::Reported { report: NodeReport::default() };
        stand_in.receive(stand_in.me, own);
        stand_in.suppose(is_linked);
        stand_in
    }

    /// Looks which of the others there are links to, and supposes that all that those have is free.
    fn suppose(&mut self, is_linked: impl Fn(NodeId) -> bool) -> Vec<FromPlacer> {
        let (mut messages, mut changes) = (Vec::new(), Vec::new());
        for (info, was_linked) in &mut self.others {
            let is_linked = is_linked(info.node);
            match (std::mem::replace(was_linked, is_linked), is_linked) {
                (false, true) => changes.push(PlacerInput::NodeJoined { info: info.clone() }),
                (true, false) => changes.push(PlacerInput::NodeLeft { node: info.node }),
                (false, false) | (true, true) => {}
            }
        }
        for change in changes {
            messages.extend(self.step(change));
        }
        let linked = self.others.iter().filter(|(_, is_linked)| *is_linked);
        for info in linked.map(|(info, _)| info.clone()).collect::<Vec<_>>() {
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
        let to_me = |effect| match effect {
            PlacerEffect::Send { to, message } => (to == self.me.0).then(|| unsure(message)),
            // It is told of no groups.
            PlacerEffect::WriteGroup { .. } => None,
        };
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
            *stand_in = Some(StandIn::new(own, others, |node| self.neighbours.slot_of(node).is_some()));
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
        let mut messages = placer.suppose(|node| self.neighbours.slot_of(node).is_some());
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

    fn want(stand_in: &mut StandIn, cpus: u64) -> Vec<FromPlacer> {
        let needs = Resources::none().with("CPU", Amount::units(cpus));
        let demand = Demand { needs, count: 1, ..Demand::default() };
        stand_in.receive(stand_in.me, ToPlacer::PlaceWanted { request: cpus as u32, demand })
    }

    fn is_placed(messages: &[FromPlacer], at: NodeId) -> bool {
        matches!(messages, [FromPlacer::Placed { node, .. }] if *node == at)
    }

    #[test]
    fn what_another_node_has_is_given_and_what_none_has_is_not() {
        let mut stand_in = StandIn::new(info(1, 8), vec![info(2, 1), info(3, 4)], |_| true);
        let placed = want(&mut stand_in, 3);
        assert!(is_placed(&placed, info(3, 4).node), "{placed:?}");
        let waits = want(&mut stand_in, 8);
        assert!(matches!(waits[..], [FromPlacer::Waiting { request: 8, .. }]), "{waits:?}");
    }

    #[test]
    fn nothing_is_given_to_a_node_without_a_link() {
        let (two, three) = (info(2, 4), info(3, 4));
        let mut stand_in =
            StandIn::new(info(1, 0), vec![two.clone(), three.clone()], |node| node == two.node);
        for _ in 0..4 {
            let placed = want(&mut stand_in, 1);
            assert!(is_placed(&placed, two.node), "{placed:?}");
        }
        // The one dies, the other is found again.
        stand_in.suppose(|node| node == three.node);
        let placed = want(&mut stand_in, 2);
        assert!(is_placed(&placed, three.node), "{placed:?}");
        stand_in.suppose(|_| false);
        let waits = want(&mut stand_in, 4);
        assert!(matches!(waits[..], [FromPlacer::Waiting { .. }]), "{waits:?}");
    }
}
