//! Names of actors, where other nodes have some too: claimed for the whole cluster, and sought in it.
//!
//! Invariant: a claim that has no answer yet belongs to an actor of this node that has the name here.

use super::actors::{Actor, name_taken};
use super::process_table::HOST;
use super::{Node, NodeEffect};
use crate::{Effects, Time};
use aktis_protocol::actors::FoundActor;
use aktis_protocol::control::{FromNode, RequestId};
use aktis_protocol::{ActorId, ProcessSlot, ProgramId};
use std::collections::BTreeMap;

/// Somebody who asks for a name.
type Asker = (ProcessSlot, RequestId);

/// Claims that have no answer yet, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Claims(BTreeMap<String, (ActorId, Vec<Asker>)>);

impl Claims {
    /// Whether it is not certain yet that the name belongs to the actor of this node that has it here.
    pub(super) fn is_unanswered(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }
}

impl Node {
    /// An actor of this node is to have a name in the whole cluster.
    pub(super) fn claim_name(&mut self, name: &str, found: FoundActor, out: &mut Effects<NodeEffect>) {
        if self.places.is_clustered() {
            self.names.0.insert(name.to_owned(), (found.actor, Vec::new()));
            out.push(NodeEffect::ClaimName { name: name.to_owned(), found });
        }
    }

    /// Somebody asks for a name. True if he will be answered later: when it is certain that it is an actor's of this node,
    /// or that other nodes have been asked.
    pub(super) fn seek_name(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        name: &str,
        known: bool,
        out: &mut Effects<NodeEffect>,
    ) -> bool {
        if let Some((_, waiting)) = self.names.0.get_mut(name) {
            waiting.push((from, request));
            return true;
        }
        if known || !self.places.is_clustered() {
            return false;
        }
        out.push(NodeEffect::SeekName { to: from, request, name: name.to_owned() });
        true
    }

    /// Somebody asks for all names. True if other nodes are asked.
    pub(super) fn seek_names(
        &mut self,
        from: ProcessSlot,
        request: RequestId,
        out: &mut Effects<NodeEffect>,
    ) -> bool {
        if self.places.is_clustered() {
            out.push(NodeEffect::SeekNames { to: from, request });
        }
        self.places.is_clustered()
    }

    /// The cluster has given an actor its name, or another has it.
    pub(super) fn on_name_claimed(
        &mut self,
        now: Time,
        name: &str,
        actor: ActorId,
        granted: bool,
        out: &mut Effects<NodeEffect>,
    ) {
        let waiting = match self.names.0.get(name) {
            Some((claimant, _)) if *claimant == actor => {
                self.names.0.remove(name).map(|(_, waiting)| waiting)
            }
            _ => None,
        };
        if !granted && self.actors.names.get(name) == Some(&actor) {
            self.kill_actor(now, actor, false, name_taken(name), out);
            // Whose it was, the cluster knows: it is not told.
            self.actors.freed_names.retain(|(freed, _)| freed != name);
            self.serve(now, out);
        }
        for (from, request) in waiting.unwrap_or_default() {
            if self.process_table.is_live(from) {
                self.on_name_wanted(from, request, name, out);
            }
        }
    }

    /// The cluster has said which actor has a name. The process that stands for its node holds it meanwhile; one that has
    /// come to be owned by this node since it was sought is known here.
    pub(super) fn on_name_found(
        &mut self,
        to: ProcessSlot,
        request: RequestId,
        found: Option<(ProcessSlot, FoundActor)>,
        out: &mut Effects<NodeEffect>,
    ) {
        if !self.process_table.is_live(to) {
            return;
        }
        let is_there = |node: &Self, peer, actor| match peer {
            HOST => node.actors.table.get(&actor).is_some_and(|known| !known.is_gone()),
            peer => node.process_table.is_live(peer),
        };
        let found = found.filter(|(peer, found)| is_there(self, *peer, found.actor));
        // A private name that is not this node's was known to the asker, and nobody can guess it.
        let found = found.filter(|(_, found)| self.may_find(to, found.actor)).map(|(peer, found)| {
            let fresh = || Actor::at_peer(found.actor, ProgramId::default(), peer);
            let known = self.actors.table.entry(found.actor).or_insert_with(fresh);
            known.holders.insert(to);
            if known.is_found_at(peer) {
                self.tell(found.actor, out);
            }
            found
        });
        self.send(to, FromNode::ActorFound { request, found }, out);
    }

    pub(super) fn on_names_found(
        &mut self,
        to: ProcessSlot,
        request: RequestId,
        names: Vec<String>,
        left_out: u32,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.process_table.is_live(to) {
            let names = names.into_iter().filter(|name| self.may_list(to, name)).collect();
            self.send(to, FromNode::Names { request, names, left_out }, out);
        }
    }

    /// Tells the cluster which names are free again.
    pub(super) fn free_names(&mut self, out: &mut Effects<NodeEffect>) {
        for (name, actor) in std::mem::take(&mut self.actors.freed_names) {
            if let Some((_, (_, waiting))) = self.names.0.remove_entry(&name) {
                waiting.into_iter().for_each(|(to, request)| self.on_name_found(to, request, None, out));
            }
            if self.places.is_clustered() {
                out.push(NodeEffect::FreeName { name, actor });
            }
        }
    }

    pub(super) fn check_names(&self) {
        for (name, (actor, _)) in &self.names.0 {
            assert_eq!(self.actors.names.get(name), Some(actor), "names invariant: {name}");
        }
    }
}
