//! Questions to the placer, and its answers: where tasks and actors may run, and what becomes of placement groups.

use super::{ControlClient, ControlClientEffect};
use crate::machine::node::{NodeInput, Verdict};
use crate::{Effects, Time};
use aktis_protocol::control::RequestId;
use aktis_protocol::placement::{Demand, FromPlacer, ToPlacer};
use aktis_protocol::{ActorId, NodeId, ShapeId};
use std::collections::{BTreeMap, BTreeSet};

/// Requests of the placer with this bit are about actors, others about shapes.
const ACTOR_REQUEST: RequestId = 1 << 31;

/// Reasons that the log has, and that are not repeated there.
const REASONS_KEPT: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Places {
    actors_by_request: BTreeMap<RequestId, ActorId>,
    last_actor_request: RequestId,
    /// Why something waits, as the log says.
    logged_reasons: BTreeSet<String>,
}

impl ControlClient {
    pub(super) fn on_places_wanted(
        &mut self,
        now: Time,
        shape: ShapeId,
        demand: Demand,
        out: &mut Effects<ControlClientEffect>,
    ) {
        if !self.tell_placer(now, ToPlacer::PlaceWanted { request: shape.0, demand }, out) {
            self.on_verdict(shape.0, Verdict::Unknown, out);
        }
    }

    pub(super) fn on_actor_place_wanted(
        &mut self,
        now: Time,
        actor: ActorId,
        demand: Demand,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let places = &mut self.places;
        places.last_actor_request = places.last_actor_request.wrapping_add(1) & !ACTOR_REQUEST;
        let request = places.last_actor_request | ACTOR_REQUEST;
        places.actors_by_request.insert(request, actor);
        if !self.tell_placer(now, ToPlacer::PlaceWanted { request, demand }, out) {
            self.on_verdict(request, Verdict::Unknown, out);
        }
    }

    pub(super) fn on_actor_place_withdrawn(
        &mut self,
        now: Time,
        actor: ActorId,
        out: &mut Effects<ControlClientEffect>,
    ) {
        let requests = &mut self.places.actors_by_request;
        let found = requests.iter().find(|(_, wanted)| **wanted == actor).map(|(request, _)| *request);
        if let Some(request) = found {
            requests.remove(&request);
            self.tell_placer(now, ToPlacer::PlaceWithdrawn { request }, out);
        }
    }

    /// The placer has said something.
    pub(super) fn on_placer(
        &mut self,
        now: Time,
        message: FromPlacer,
        out: &mut Effects<ControlClientEffect>,
    ) {
        match message {
            FromPlacer::Placed { request, node, count, slots, .. } => {
                if self.is_withdrawn(request) {
                    // If that cannot be said, the placer has forgotten it anyway.
                    self.tell_placer(now, ToPlacer::PlaceUnused { request, node, count }, out);
                    return;
                }
                self.on_placed(request, node, (count, slots), out);
            }
            FromPlacer::Waiting { request, reason, lasting } => {
                self.log_wait(&reason, out);
                self.on_verdict(request, Verdict::Later { reason, lasting }, out);
            }
            FromPlacer::Impossible { request, reason } => {
                self.on_verdict(request, Verdict::Never(reason), out);
            }
            FromPlacer::Refused { request, .. } => self.on_verdict(request, Verdict::Unknown, out),
            FromPlacer::GroupChanged { .. }
            | FromPlacer::Reserve { .. }
            | FromPlacer::Commit { .. }
            | FromPlacer::Return { .. } => {
                out.push(ControlClientEffect::ToNode(NodeInput::GroupTold { message }));
            }
        }
    }

    /// Logs each reason once that something waits for more than time.
    fn log_wait(&mut self, reason: &str, out: &mut Effects<ControlClientEffect>) {
        let logged = &mut self.places.logged_reasons;
        if logged.len() >= REASONS_KEPT {
            logged.clear();
        }
        if logged.insert(reason.to_owned()) {
            out.push(ControlClientEffect::Log { text: format!("something waits for a node: {reason}") });
        }
    }

    fn is_withdrawn(&self, request: RequestId) -> bool {
        request & ACTOR_REQUEST != 0 && !self.places.actors_by_request.contains_key(&request)
    }

    fn on_placed(
        &mut self,
        request: RequestId,
        node: NodeId,
        (count, slots): (u32, u32),
        out: &mut Effects<ControlClientEffect>,
    ) {
        let is_here = node == self.me();
        if request & ACTOR_REQUEST != 0 {
            let Some(actor) = self.places.actors_by_request.remove(&request) else { return };
            let verdict = Verdict::Here;
            return out.push(match is_here {
                true => ControlClientEffect::ToNode(NodeInput::ActorPlaced { actor, verdict }),
                false => ControlClientEffect::PlaceActor { actor, node },
            });
        }
        let (shape, verdict) = (ShapeId(request), Verdict::Here);
        out.push(match is_here {
            true => ControlClientEffect::ToNode(NodeInput::Placed { shape, verdict, count, slots }),
            false => ControlClientEffect::PlaceTasks { shape, node, count, slots },
        });
    }

    /// Nothing was placed.
    fn on_verdict(&mut self, request: RequestId, verdict: Verdict, out: &mut Effects<ControlClientEffect>) {
        if request & ACTOR_REQUEST == 0 {
            let input = NodeInput::Placed { shape: ShapeId(request), verdict, count: 0, slots: 0 };
            return out.push(ControlClientEffect::ToNode(input));
        }
        let requests = &mut self.places.actors_by_request;
        let actor = match matches!(verdict, Verdict::Later { .. }) {
            true => requests.get(&request).copied(),
            false => requests.remove(&request),
        };
        if let Some(actor) = actor {
            out.push(ControlClientEffect::ToNode(NodeInput::ActorPlaced { actor, verdict }));
        }
    }

    /// The placer will not answer what it was asked.
    pub(super) fn forget_places(&mut self, out: &mut Effects<ControlClientEffect>) {
        self.places.actors_by_request.clear();
        out.push(ControlClientEffect::ToNode(NodeInput::PlacesLost));
    }
}
