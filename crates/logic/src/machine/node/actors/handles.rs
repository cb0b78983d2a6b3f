//! Handles that travel, are dropped, or are used to kill; and names.

use super::super::granting::Claim;
use super::super::process_table::Process;
use super::super::{Node, NodeEffect};
use super::lifecycle::found;
use super::record::{Actor, Life, Ownership, Then, light_spec, unknown};
use crate::ledger::Allocation;
use crate::{Effects, Time};
use aktis_protocol::actors::{ActorPlace, Ending};
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::{ActorId, Failure, FailureKind, ProcessSlot, limits};

/// Why an actor starts again, though its process is well.
pub(super) const KILLED: &str = "restarting after it was killed";

/// What a name takes in a message besides itself, at most.
const NAME_BYTES: usize = 8;

impl Node {
    pub(in super::super) fn on_actor_escaped(
        &mut self,
        from: ProcessSlot,
        actor: ActorId,
        host: ProcessSlot,
        out: &mut Effects<NodeEffect>,
    ) {
        let program = self.program_of(host).unwrap_or_default();
        // A worker that is being started will find the actor among its first messages.
        let lives = self.process_table.get(host).is_some_and(Process::is_not_dead);
        let at_peer = self.is_peer(host);
        let fresh = || match lives {
            true if at_peer => Actor::at_peer(actor, program, host),
            true => {
                let life = Life::Alive { host, allocation: Allocation::default() };
                Actor::new(light_spec(actor, program), life)
            }
            false => {
                let failure =
                    Failure::new(FailureKind::ActorCrashed(Some(0)), "the actor died with its process");
                Actor::new(light_spec(actor, program), Life::Dead(failure))
            }
        };
        let known = self.actors.table.entry(actor).or_insert_with(fresh);
        // A node that knows the actor from here may depend on this one: if each took the other for the owner, calls would wait
        // for ever.
        let knew_it = !known.holders.insert(from);
        let found = lives && at_peer && !knew_it && known.is_found_at(host);
        let is_counted =
            from == host && known.ownership == Ownership::AtPeer(host) && known.host() == Some(host);
        known.named += u64::from(is_counted);
        if found {
            self.tell(actor, out);
        } else if known.host() != Some(host) {
            self.tell_one(actor, from, out);
        }
        if host == from && self.is_peer(from) && !is_counted {
            self.send(from, FromNode::ActorKnown { actor }, out);
        }
    }

    /// The node that owns an actor need not hold it for this one any more.
    pub(super) fn release_imports(&mut self, actor: ActorId, out: &mut Effects<NodeEffect>) {
        let Some(known) = self.actors.table.get_mut(&actor) else { return };
        let Ownership::AtPeer(peer) = known.ownership else { return };
        let count = std::mem::take(&mut known.named);
        if count > 0 && self.process_table.is_live(peer) {
            self.send(peer, FromNode::ActorReleased { actor, count }, out);
        }
    }

    pub(in super::super) fn on_actor_held(
        &mut self,
        from: ProcessSlot,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        match self.actors.table.get_mut(&actor) {
            Some(known) => {
                known.holders.insert(from);
                self.tell_one(actor, from, out);
            }
            None => {
                let place = ActorPlace::Dead(unknown());
                self.send(from, FromNode::ActorChanged { actor, place }, out);
            }
        }
    }

    /// An actor that the node does not know was known to its dead creator alone.
    pub(in super::super) fn on_actor_orphaned(
        &mut self,
        from: ProcessSlot,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.actors.table.contains_key(&actor) {
            self.send(from, FromNode::EndActor { actor, ending: Ending::Now }, out);
        }
    }

    pub(in super::super) fn on_actor_released(
        &mut self,
        now: Time,
        from: ProcessSlot,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        if let Some(known) = self.actors.table.get_mut(&actor) {
            known.holders.remove(&from);
        }
        self.end_if_unreachable(now, actor, out);
    }

    /// An actor that nobody can call ends, after the calls it has.
    pub(in super::super) fn end_if_unreachable(
        &mut self,
        now: Time,
        actor: ActorId,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.actors.table.get(&actor).is_some_and(Actor::is_unreachable) {
            return;
        }
        self.actors.free_name(actor);
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        match &mut known.life {
            Life::Dead(_) | Life::Waiting { .. } => {
                self.actors.table.remove(&actor);
                self.forget_place(actor);
                self.claims.retain(|claim| *claim != Claim::Actor(actor));
                self.serve(now, out);
            }
            Life::Ending { then, .. } => {
                if let Then::Restart(_) | Then::HandBack(_) | Then::Move(_) = then {
                    *then = Then::Forgotten;
                }
            }
            Life::Starting { .. } | Life::Alive { .. } => match known.ownership {
                // It lives on there. That node may name it again before it hears of this, which is then a new import: there is no
                // end to wait for, and no call to fail.
                Ownership::AtPeer(_) => {
                    self.release_imports(actor, out);
                    self.actors.table.remove(&actor);
                }
                Ownership::Own | Ownership::ForPeer(_) | Ownership::Orphaned(_) | Ownership::Lost => {
                    self.order_end(actor, Ending::AfterCalls, Then::Forgotten, out);
                }
            },
        }
    }

    /// Tells the host of a starting or living actor to end it.
    pub(in super::super) fn order_end(
        &mut self,
        actor: ActorId,
        ending: Ending,
        then: Then,
        out: &mut Effects<NodeEffect>,
    ) {
        let known = self.actors.table.get_mut(&actor).expect("the actor is known");
        let (host, allocation, asked) = match &mut known.life {
            Life::Starting { host, allocation, asked } => (*host, std::mem::take(allocation), *asked),
            Life::Alive { host, allocation } => (*host, std::mem::take(allocation), true),
            Life::Waiting { .. } | Life::Ending { .. } | Life::Dead(_) => return,
        };
        let isolated = known.spec.isolated;
        known.life = Life::Ending { host, allocation, then };
        // A process that runs nothing else need not be asked.
        if isolated && (ending == Ending::Now || !asked) && !self.is_peer(host) {
            out.push(NodeEffect::KillWorker { process: host });
        } else if self.process_table.is_live(host) {
            self.send(host, FromNode::EndActor { actor, ending }, out);
        }
    }

    pub(in super::super) fn on_actor_killed(
        &mut self,
        now: Time,
        from: ProcessSlot,
        actor: ActorId,
        restart: bool,
        out: &mut Effects<NodeEffect>,
    ) {
        let ownership = self.actors.table.get(&actor).map(|known| known.ownership);
        if let Some(Ownership::ForPeer(peer) | Ownership::AtPeer(peer)) = ownership
            && peer != from
        {
            if restart {
                self.suspend(actor, peer, out);
            }
            return self.send(peer, FromNode::KillActor { actor, restart }, out);
        }
        let killed = Failure::new(FailureKind::ActorDied, "the actor was killed");
        self.kill_actor(now, actor, restart, killed, out);
        self.serve(now, out);
    }

    /// Ends an actor now, for this reason if it does not live again.
    pub(in super::super) fn kill_actor(
        &mut self,
        now: Time,
        actor: ActorId,
        restart: bool,
        killed: Failure,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(known) = self.actors.table.get_mut(&actor) else { return };
        known.cancel_move();
        match &mut known.life {
            Life::Dead(_) => {}
            Life::Waiting { .. } if restart => match known.ownership {
                Ownership::ForPeer(_) => {
                    self.claims.retain(|claim| *claim != Claim::Actor(actor));
                    self.hand_back(now, actor, KILLED.into(), false, out);
                }
                Ownership::Own | Ownership::AtPeer(_) | Ownership::Orphaned(_) | Ownership::Lost => {}
            },
            Life::Waiting { .. } => {
                self.claims.retain(|claim| *claim != Claim::Actor(actor));
                self.on_gone(now, actor, killed, out);
            }
            Life::Ending { then: then @ (Then::Restart(_) | Then::HandBack(_)), .. } if !restart => {
                *then = Then::Dead(killed);
                self.actors.free_name(actor);
                self.tell(actor, out);
            }
            Life::Ending { .. } => {}
            Life::Starting { .. } | Life::Alive { .. } => {
                let then = if restart && matches!(known.ownership, Ownership::ForPeer(_)) {
                    Then::HandBack(KILLED.into())
                } else if restart && known.take_restart() {
                    Then::Restart(KILLED.into())
                } else {
                    self.actors.free_name(actor);
                    Then::Dead(killed)
                };
                self.order_end(actor, Ending::Now, then, out);
                self.tell(actor, out);
            }
        }
    }

    pub(in super::super) fn on_name_wanted(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        name: &str,
        out: &mut Effects<NodeEffect>,
    ) {
        let actor = self.actors.names.get(name).copied().filter(|&actor| self.may_find(from, actor));
        let found = actor.map(|actor| found(&self.actors.table[&actor].spec));
        if self.seek_name(from, request, name, found.is_some(), out) {
            return;
        }
        self.send(from, FromNode::ActorFound { request, found }, out);
    }

    pub(in super::super) fn on_names_wanted(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        namespace: String,
        out: &mut Effects<NodeEffect>,
    ) {
        self.note_namespace(from, namespace);
        if self.seek_names(from, request, out) {
            return;
        }
        let mut bytes = 0;
        let fits = |name: &&String| {
            bytes += name.len() + NAME_BYTES;
            bytes <= limits::CONTROL_MESSAGE_BYTES_MAX
        };
        let listed: Vec<&String> =
            self.actors.names.keys().filter(|name| self.may_list(from, name)).collect();
        let names: Vec<String> = listed.iter().copied().take_while(fits).cloned().collect();
        let left_out = (listed.len() - names.len()) as u32;
        self.send(from, FromNode::Names { request, names, left_out }, out);
    }
}
