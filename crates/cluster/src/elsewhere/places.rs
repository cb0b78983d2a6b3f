//! Questions to the placer, and its answers: where tasks and actors may run, and what becomes of placement groups.

use super::Elsewhere;
use aktis_logic::machine::node::{NodeInput, Verdict};
use aktis_protocol::control::RequestId;
use aktis_protocol::placement::{Demand, FromPlacer, Input, ToPlacer};
use aktis_protocol::{ActorId, FunctionId, Near, NodeId, ProcessSlot, Shape, ShapeId};
use std::collections::{BTreeSet, HashMap};

/// Requests of the placer with this bit are about actors, others about shapes.
const ACTOR_REQUEST: RequestId = 1 << 31;

/// Reasons that were told and are not told again.
const REASONS_KEPT: usize = 1024;

/// See the module.
#[derive(Default)]
pub(super) struct Places {
    actors: HashMap<RequestId, ActorId>,
    next_actor: RequestId,
    /// Why something waits, as the log says.
    reasons: BTreeSet<String>,
}

impl Elsewhere {
    pub(super) fn place_tasks(&self, shape: ShapeId, definition: Shape, count: u32, function: FunctionId) {
        let Shape { resources: needs, group, strategy, near, priority, .. } = definition;
        let inputs = self.inputs(near);
        let demand = Demand { needs, group, strategy, count, priority, function, inputs };
        if !self.tell_placer(ToPlacer::PlaceWanted { request: shape.0, demand }) {
            self.on_verdict(shape.0, Verdict::Unknown, (0, 0));
        }
    }

    pub(super) fn say_done(&self, shape: ShapeId, peer: Option<ProcessSlot>, count: u32) {
        let node = match peer {
            Some(peer) => self.neighbours.known_node_of(peer),
            None => Some(self.me),
        };
        if let Some(node) = node {
            // If that cannot be said, the placer has forgotten it anyway.
            self.tell_placer(ToPlacer::PlaceUnused { request: shape.0, node, count });
        }
    }

    pub(super) fn place_actor(&self, actor: ActorId, demand: Demand) {
        let mut places = self.places.lock();
        places.next_actor = places.next_actor.wrapping_add(1) & !ACTOR_REQUEST;
        let request = places.next_actor | ACTOR_REQUEST;
        places.actors.insert(request, actor);
        drop(places);
        if !self.tell_placer(ToPlacer::PlaceWanted { request, demand }) {
            self.on_verdict(request, Verdict::Unknown, (0, 0));
        }
    }

    /// What is read, as the placer knows it.
    pub(super) fn inputs(&self, near: Option<Near>) -> Vec<Input> {
        let Some(Near { peer, bytes }) = near else { return Vec::new() };
        let holder = match peer {
            Some(peer) => self.neighbours.known_node_of(peer),
            None => Some(self.me),
        };
        let input = |holder: NodeId| Input { bytes, holders: vec![holder] };
        holder.map(input).into_iter().collect()
    }

    pub(super) fn withdraw(&self, shape: ShapeId) {
        self.tell_placer(ToPlacer::PlaceWithdrawn { request: shape.0 });
    }

    pub(super) fn withdraw_actor(&self, actor: ActorId) {
        let mut places = self.places.lock();
        let found = places.actors.iter().find(|(_, known)| **known == actor).map(|(request, _)| *request);
        if let Some(request) = found {
            places.actors.remove(&request);
            drop(places);
            self.tell_placer(ToPlacer::PlaceWithdrawn { request });
        }
    }

    /// The placer has said something.
    pub(crate) fn on_placer(&self, message: FromPlacer) {
        match message {
            FromPlacer::Placed { request, node, count, slots, .. } => {
                if self.is_withdrawn(request) {
                    // If that cannot be said, the placer has forgotten it anyway.
                    self.tell_placer(ToPlacer::PlaceUnused { request, node, count });
                    return;
                }
                let verdict = match self.neighbours.slot_of(node) {
                    _ if node == self.me => Verdict::Here,
                    Some(peer) => Verdict::There(peer),
                    None => Verdict::Unlinked,
                };
                self.on_verdict(request, verdict, (count, slots));
            }
            FromPlacer::Waiting { request, reason, lasting } => {
                self.complain(&reason);
                self.on_verdict(request, Verdict::Later { reason, lasting }, (0, 0));
            }
            FromPlacer::Impossible { request, reason } => {
                self.on_verdict(request, Verdict::Never(reason), (0, 0));
            }
            FromPlacer::Refused { request, .. } => self.on_verdict(request, Verdict::Unknown, (0, 0)),
            FromPlacer::GroupChanged { .. }
            | FromPlacer::Reserve { .. }
            | FromPlacer::Commit { .. }
            | FromPlacer::Return { .. } => self.host.feed(NodeInput::GroupTold { message }),
        }
    }

    /// Says once for each reason that something waits for more than time.
    fn complain(&self, reason: &str) {
        let mut places = self.places.lock();
        if places.reasons.len() >= REASONS_KEPT {
            places.reasons.clear();
        }
        if places.reasons.insert(reason.to_owned()) {
            eprintln!("aktis: something waits for a node: {reason}");
        }
    }

    fn is_withdrawn(&self, request: RequestId) -> bool {
        request & ACTOR_REQUEST != 0 && !self.places.lock().actors.contains_key(&request)
    }

    fn on_verdict(&self, request: RequestId, verdict: Verdict, (count, slots): (u32, u32)) {
        if request & ACTOR_REQUEST == 0 {
            return self.host.feed(NodeInput::Placed { shape: ShapeId(request), verdict, count, slots });
        }
        let mut places = self.places.lock();
        let waits = matches!(verdict, Verdict::Later { .. });
        let actor = match waits {
            true => places.actors.get(&request).copied(),
            false => places.actors.remove(&request),
        };
        drop(places);
        if let Some(actor) = actor {
            self.host.feed(NodeInput::ActorPlaced { actor, verdict });
        }
    }

    /// Nobody will answer what was asked.
    pub(super) fn forget_places(&self) {
        self.places.lock().actors.clear();
        self.host.feed(NodeInput::PlacesLost);
    }
}
