//! What a process is told that said or named what it may not.

use super::super::{Node, NodeEffect};
use crate::Effects;
use aktis_protocol::actors::ActorPlace;
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::{ActorId, Failure, FailureKind, ProcessSlot};

impl Node {
    /// Tells the sender of a message that may not be said, if it waits for an answer.
    pub(super) fn refuse(&self, from: ProcessSlot, message: &ToNode, out: &mut Effects<NodeEffect>) {
        let answer = match message {
            ToNode::Subscribed { object } => {
                let value = SharedValue::Failed(foreign(FailureKind::Store, &format!("the object {object}")));
                FromNode::ObjectResolved { object: *object, value }
            }
            ToNode::ExtentWanted { request, object, .. } => FromNode::ExtentDenied {
                request: *request,
                failure: foreign(FailureKind::Store, &format!("the object {object}")),
            },
            ToNode::RestoreWanted { request, object } => FromNode::Restored {
                request: *request,
                outcome: Err(foreign(FailureKind::Store, &format!("the object {object}"))),
            },
            ToNode::ActorHeld { actor } => dead(*actor),
            ToNode::ActorWanted { spec } => dead(spec.actor),
            ToNode::ActorKilled { request: Some(request), .. } => FromNode::KillTaken(*request),
            ToNode::LaneWanted { request, .. } => FromNode::LaneOpened {
                request: *request,
                lane: Err(foreign(FailureKind::Refused, "the program of these tasks")),
            },
            ToNode::ChannelWanted { request, to } => {
                FromNode::ChannelOpened { request: *request, to: *to, open: false }
            }
            ToNode::LookupWanted { request, .. } => FromNode::LookedUp { request: *request, known: false },
            ToNode::OriginWanted { request, .. } => FromNode::Origin { request: *request, peer: None },
            ToNode::ContentsWanted { request, .. } => {
                FromNode::Contents { request: *request, objects: Vec::new(), actors: Vec::new() }
            }
            ToNode::Imported { request, object, .. } => FromNode::ImportedAs {
                request: *request,
                entry: Err(foreign(FailureKind::Store, &format!("the object {object}"))),
            },
            _ => return,
        };
        self.send(from, answer, out);
    }
}

fn dead(actor: ActorId) -> FromNode {
    let failure = foreign(FailureKind::ActorDied, &format!("the actor {actor}"));
    FromNode::ActorChanged { actor, place: ActorPlace::Dead(failure) }
}

/// Why a job may not use something.
fn foreign(kind: FailureKind, what: &str) -> Failure {
    Failure::new(
        kind,
        format!(
            "permission denied: {what} belongs to another job\n\
             hint: get it through an actor with a name in a shared namespace, or start that job with share=True"
        ),
    )
}
