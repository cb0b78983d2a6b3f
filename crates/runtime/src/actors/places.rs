//! Where actors are, as far as this process knows.

use super::ActorEntry;
use crate::runtime::Inner;
use aktis_logic::machine::submitter::Place;
use aktis_protocol::actors::ActorPlace;
use aktis_protocol::admin::IdPrefix;
use aktis_protocol::control::{FromNode, ToNode};
use std::sync::Arc;

impl Inner {
    /// Where an actor is, as far as this process knows.
    pub(crate) fn place_of(self: &Arc<Self>, actor: &ActorEntry) -> ActorPlace {
        let shell = self.submitter.lock();
        let place = match shell.machine.actor_place(actor.index) {
            Place::Pending => ActorPlace::Pending(String::new()),
            Place::Alive(process) => {
                ActorPlace::Alive { process: *process, incarnation: 0, remembers: false }
            }
            Place::Dead(failure) => ActorPlace::Dead((**failure).clone()),
        };
        drop(shell);
        self.run_deferred();
        place
    }

    /// Says where an actor is.
    pub(crate) fn explain_actor(self: &Arc<Self>, actor: &ActorEntry) -> String {
        let shell = self.submitter.lock();
        let place = shell.machine.actor_place(actor.index).clone();
        let pending = shell.actors[actor.index.0 as usize].pending.clone();
        drop(shell);
        self.run_deferred();
        match place {
            Place::Pending => {
                let reason = pending.as_deref().unwrap_or("its process is being started");
                format!("actor {} is not running: {reason}", actor.id)
            }
            Place::Alive(process) if self.is_elsewhere(process) => {
                let id = IdPrefix::of(actor.id.to_words());
                let told = self.request(|request| ToNode::ExplainWanted { request, id });
                let told =
                    if let Ok(FromNode::ShapeExplained { text, .. }) = told { text } else { String::new() };
                format!("actor {} lives on another node: {told}", actor.id)
            }
            Place::Alive(process) => {
                format!("actor {} lives in process {}", actor.id, self.control.pid(process))
            }
            Place::Dead(failure) => format!("actor {} is dead: {failure}", actor.id),
        }
    }
}
