//! What finds places for tasks and actors while the control process is away: a placer of this node's own.
//!
//! It knows the nodes that this one has links to, and what they have; what of that is free, it does not. So what it places
//! may have to wait there. It is forgotten when the control process is back.

use super::{ControlClient, ControlClientEffect};
use crate::machine::placer::{Placer, PlacerEffect, PlacerInput};
use crate::{Effects, Machine, Time};
use aktis_protocol::placement::{FromPlacer, NodeInfo, NodeReport, ToPlacer};
use aktis_protocol::{Epoch, NodeId};
use std::collections::BTreeSet;

/// See the module.
#[derive(Debug)]
pub(super) struct StandIn {
    placer: Placer,
    me: (NodeId, Epoch),
    /// The nodes that the control process has told of, and whether there are links to them.
    others: Vec<(NodeInfo, bool)>,
}

impl StandIn {
    /// One for the node `own`, which has nothing to give: it asks for what it lacks.
    fn new(now: Time, own: NodeInfo, others: Vec<NodeInfo>, is_linked: impl Fn(&NodeId) -> bool) -> Self {
        let mut stand_in = Self {
            placer: Placer::new(),
            me: (own.node, own.epoch),
            others: others.into_iter().map(|info| (info, false)).collect(),
        };
        stand_in.step(now, PlacerInput::NodeJoined { info: own });
        let own = ToPlacer::Reported { report: NodeReport::default() };
        stand_in.receive(now, stand_in.me, own);
        stand_in.suppose(now, is_linked);
        stand_in
    }

    /// Looks which of the others there are links to, and supposes that all that those have is free.
    fn suppose(&mut self, now: Time, is_linked: impl Fn(&NodeId) -> bool) -> Vec<FromPlacer> {
        let (mut messages, mut changes) = (Vec::new(), Vec::new());
        for (info, was_linked) in &mut self.others {
            let is_linked = is_linked(&info.node);
            match (std::mem::replace(was_linked, is_linked), is_linked) {
                (false, true) => changes.push(PlacerInput::NodeJoined { info: info.clone() }),
                (true, false) => changes.push(PlacerInput::NodeLeft { node: info.node }),
                (false, false) | (true, true) => {}
            }
        }
        for change in changes {
            messages.extend(self.step(now, change));
        }
        let linked = self.others.iter().filter(|(_, is_linked)| *is_linked);
        for info in linked.map(|(info, _)| info.clone()).collect::<Vec<_>>() {
            let (available, usable) = (info.resources.clone(), info.resources);
            let report = NodeReport { available, usable, ..NodeReport::default() };
            messages.extend(self.receive(now, (info.node, info.epoch), ToPlacer::Reported { report }));
        }
        messages
    }

    fn receive(&mut self, now: Time, (from, epoch): (NodeId, Epoch), message: ToPlacer) -> Vec<FromPlacer> {
        self.step(now, PlacerInput::Received { from, epoch, message })
    }

    fn step(&mut self, now: Time, input: PlacerInput) -> Vec<FromPlacer> {
        let mut effects = Vec::new();
        self.placer.step(now, input, &mut effects);
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

impl ControlClient {
    /// Says something to the placer of this node's own; false if that has no answer to it.
    pub(super) fn tell_stand_in(
        &mut self,
        now: Time,
        message: ToPlacer,
        out: &mut Effects<ControlClientEffect>,
    ) -> bool {
        use ToPlacer::{PlaceUnused, PlaceWanted, PlaceWithdrawn};
        if !matches!(message, PlaceUnused { .. } | PlaceWanted { .. } | PlaceWithdrawn { .. }) {
            return false;
        }
        if self.stand_in.is_none() {
            let Some(epoch) = self.epoch() else { return false };
            let own = NodeInfo { epoch, ..self.own.clone() };
            let others = self.nodes().cloned().collect();
            self.stand_in = Some(StandIn::new(now, own, others, |node| self.linked_nodes.contains(node)));
        }
        let Some(stand_in) = &mut self.stand_in else { return false };
        let messages = stand_in.receive(now, stand_in.me, message);
        messages.into_iter().for_each(|message| self.on_placer(now, message, out));
        true
    }

    /// The links to other nodes were looked at, as they are at each tick while the control process is away.
    pub(super) fn on_links_seen(
        &mut self,
        now: Time,
        nodes: BTreeSet<NodeId>,
        out: &mut Effects<ControlClientEffect>,
    ) {
        self.linked_nodes = nodes;
        let Some(stand_in) = &mut self.stand_in else { return };
        let mut messages = stand_in.suppose(now, |node| self.linked_nodes.contains(node));
        messages.extend(stand_in.step(now, PlacerInput::Ticked));
        messages.into_iter().for_each(|message| self.on_placer(now, message, out));
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
        stand_in.receive(Time(0), stand_in.me, ToPlacer::PlaceWanted { request: cpus as u32, demand })
    }

    fn is_placed(messages: &[FromPlacer], at: NodeId) -> bool {
        matches!(messages, [FromPlacer::Placed { node, .. }] if *node == at)
    }

    #[test]
    fn what_another_node_has_is_given_and_what_none_has_is_not() {
        let mut stand_in = StandIn::new(Time(0), info(1, 8), vec![info(2, 1), info(3, 4)], |_| true);
        let placed = want(&mut stand_in, 3);
        assert!(is_placed(&placed, info(3, 4).node), "{placed:?}");
        let waits = want(&mut stand_in, 8);
        assert!(matches!(waits[..], [FromPlacer::Waiting { request: 8, .. }]), "{waits:?}");
    }

    #[test]
    fn nothing_is_given_to_a_node_without_a_link() {
        let (two, three) = (info(2, 4), info(3, 4));
        let mut stand_in =
            StandIn::new(Time(0), info(1, 0), vec![two.clone(), three.clone()], |node| *node == two.node);
        for _ in 0..4 {
            let placed = want(&mut stand_in, 1);
            assert!(is_placed(&placed, two.node), "{placed:?}");
        }
        // The one dies, the other is found again.
        stand_in.suppose(Time(0), |node| *node == three.node);
        let placed = want(&mut stand_in, 2);
        assert!(is_placed(&placed, three.node), "{placed:?}");
        stand_in.suppose(Time(0), |_| false);
        let waits = want(&mut stand_in, 4);
        assert!(matches!(waits[..], [FromPlacer::Waiting { .. }]), "{waits:?}");
    }
}
