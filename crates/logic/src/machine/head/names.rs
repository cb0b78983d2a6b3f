//! Names of actors, for the whole cluster.
//!
//! Nodes claim names for the actors that they own, and tell all of them whenever they join. The head decides which actor
//! has a name, and writes that down. So a name outlives the control process, and is free when its node is gone. The name of
//! a detached actor that lives on another node is kept a little longer: that node takes the actor over, and claims the name.

use super::rows::{HeadWrite, NAME_BYTES_MAX};
use super::{Head, HeadEffect, NameClaim};
use crate::LinkId;
use crate::planted::HeadBug;
use crate::{Effects, Time};
use aktis_protocol::actors::FoundActor;
use aktis_protocol::member::{FromControl, NamedActor};
use aktis_protocol::{ActorId, NodeId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How long the name of a detached actor is kept for the node that it lives on, after its owner has left: until that node
/// has heard of it, and said so.
const TAKEOVER_MICROSECONDS: u64 = 1_000_000;

/// The node that owns an actor, and what a lookup of its name returns.
pub type ActorHome = (NodeId, FoundActor);

#[derive(Debug)]
struct NameEntry {
    home: ActorHome,
    /// The claim that it comes from: the one of an earlier claim changes nothing any more.
    claim: u64,
}

/// Which actor has which name.
#[derive(Debug, Default)]
pub(super) struct Names {
    entries_by_name: BTreeMap<String, NameEntry>,
    /// The same names, by the nodes that own their actors.
    by_node: BTreeSet<(NodeId, String)>,
    /// Nodes whose memberships are over, and when the names go that no other node has claimed.
    kept_for_takeover: VecDeque<(Time, NodeId)>,
    /// The number of the last claim.
    last_claim: u64,
}

impl Names {
    /// The names that are on disk. Gives those of nodes that are no members, too: nobody else would free them.
    pub(super) fn new(names: Vec<(String, ActorHome)>, members: &BTreeSet<NodeId>) -> (Self, Vec<String>) {
        let (kept, free): (Vec<_>, Vec<_>) =
            names.into_iter().partition(|(_, (node, _))| members.contains(node));
        let by_node = kept.iter().map(|(name, (node, _))| (*node, name.clone())).collect();
        let entries_by_name =
            kept.into_iter().map(|(name, home)| (name, NameEntry { home, claim: 0 })).collect();
        let names = Self { entries_by_name, by_node, ..Self::default() };
        (names, free.into_iter().map(|(name, _)| name).collect())
    }

    /// Gives an actor a name, and the number of the claim; `None` if another actor has it. The actor may come to be owned
    /// by another node so, if it `moves`.
    fn claim(&mut self, name: &str, home: &ActorHome, moves: bool) -> Option<u64> {
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        if let Some(NameEntry { home: (node, found), .. }) = self.entries_by_name.get(name) {
            if found.actor != home.1.actor || *node != home.0 && !moves {
                return None;
            }
            self.by_node.remove(&(*node, name.to_owned()));
        }
        self.last_claim += 1;
        let entry = NameEntry { home: home.clone(), claim: self.last_claim };
        self.entries_by_name.insert(name.to_owned(), entry);
        self.by_node.insert((home.0, name.to_owned()));
        Some(self.last_claim)
    }

    /// Frees a name that this actor has owned by this node; false if it has not.
    fn free(&mut self, name: &str, node: NodeId, actor: ActorId) -> bool {
        let has = self
            .entries_by_name
            .get(name)
            .is_some_and(|NameEntry { home: (home, found), .. }| *home == node && found.actor == actor);
        if has {
            self.by_node.remove(&(node, name.to_owned()));
            self.entries_by_name.remove(name);
        }
        has
    }

    pub(super) fn find(&self, name: &str) -> Option<ActorHome> {
        self.entries_by_name.get(name).map(|entry| entry.home.clone())
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.entries_by_name.keys().cloned().collect()
    }

    /// The names owned by a node, with the actors that have them.
    fn of_node(&self, node: NodeId) -> Vec<(String, FoundActor)> {
        let own = self.by_node.range((node, String::new())..).take_while(|(home, _)| *home == node);
        own.map(|(_, name)| (name.clone(), self.entries_by_name[name].home.1.clone())).collect()
    }

    pub(super) fn next_wakeup(&self) -> Option<Time> {
        self.kept_for_takeover.front().map(|(due, _)| *due)
    }

    pub(super) fn check(&self) {
        let homes = self.entries_by_name.iter().map(|(name, entry)| (entry.home.0, name.clone()));
        assert_eq!(homes.collect::<BTreeSet<_>>(), self.by_node, "head invariant 3");
        let kept: BTreeSet<NodeId> = self.kept_for_takeover.iter().map(|(_, node)| *node).collect();
        assert_eq!(kept.len(), self.kept_for_takeover.len(), "head invariant 6");
    }
}

impl Head {
    /// A node that joins has told all names that it owns. Another node that has one of these meanwhile keeps it.
    pub(super) fn on_names_told(
        &mut self,
        node: NodeId,
        link: LinkId,
        names: Vec<NamedActor>,
        out: &mut Effects<HeadEffect>,
    ) {
        let told: BTreeSet<(&str, ActorId)> =
            names.iter().map(|told| (told.name.as_str(), told.found.actor)).collect();
        let keeps_all = self.planted.has(HeadBug::KeptNames);
        self.free_names_of(node, |name, found| !keeps_all && !told.contains(&(name, found.actor)), out);
        self.names.kept_for_takeover.retain(|(_, left)| *left != node);
        names.into_iter().for_each(|actor| self.claim_name(node, link, actor, false, out));
    }

    /// A membership is over. The names of actors that live on other nodes are kept for those, for a while.
    pub(super) fn on_names_left(&mut self, now: Time, node: NodeId, out: &mut Effects<HeadEffect>) {
        self.free_names_of(node, |_, found| !found.abroad, out);
        self.names.kept_for_takeover.push_back((Time(now.0 + TAKEOVER_MICROSECONDS), node));
    }

    /// Time has passed: the names that no node has claimed from one that has left are free.
    pub(super) fn free_kept_names(&mut self, now: Time, out: &mut Effects<HeadEffect>) {
        while let Some((_, node)) = self.names.kept_for_takeover.pop_front_if(|(due, _)| *due <= now) {
            self.free_names_of(node, |_, _| true, out);
        }
    }

    fn free_names_of(
        &mut self,
        node: NodeId,
        is_free: impl Fn(&str, &FoundActor) -> bool,
        out: &mut Effects<HeadEffect>,
    ) {
        let mut free = self.names.of_node(node);
        free.retain(|(name, found)| is_free(name, found));
        for (name, found) in &free {
            self.names.free(name, node, found.actor);
        }
        if !free.is_empty() {
            let names = free.into_iter().map(|(name, _)| name).collect();
            out.push(HeadEffect::Write(HeadWrite::NamesFreed { names }));
        }
    }

    /// An actor is to have a name owned by a node, which has joined over this link.
    pub(super) fn claim_name(
        &mut self,
        node: NodeId,
        link: LinkId,
        actor: NamedActor,
        moves: bool,
        out: &mut Effects<HeadEffect>,
    ) {
        let NamedActor { name, found } = actor;
        let (actor, home) = (found.actor, (node, found));
        let Some(number) = self.names.claim(&name, &home, moves) else {
            let message = FromControl::NameClaimed { name, actor, granted: false };
            return out.push(HeadEffect::Send { link, message });
        };
        let claim = NameClaim { name, node, actor, link, number };
        out.push(HeadEffect::Write(HeadWrite::Name { claim, home }));
    }

    /// A claim is on disk, or the tables have refused it. It is not answered if the name was freed or claimed again since,
    /// nor if its node has left, or has joined over another link: then that node tells all names anew.
    pub(super) fn on_name_written(
        &mut self,
        claim: &NameClaim,
        is_kept: bool,
        out: &mut Effects<HeadEffect>,
    ) {
        let NameClaim { name, node, actor, link, number } = claim;
        let answers_all = self.planted.has(HeadBug::OvertakenClaim);
        let is_last = |entry: &NameEntry| entry.claim == *number;
        if !answers_all && !self.names.entries_by_name.get(name).is_some_and(is_last) {
            return;
        }
        if !is_kept && self.names.free(name, *node, *actor) {
            // A row of an earlier claim may be there.
            out.push(HeadEffect::Write(HeadWrite::NamesFreed { names: vec![name.clone()] }));
        }
        if self.members.has_joined(*node, *link) {
            let (name, actor) = (name.clone(), *actor);
            let message = FromControl::NameClaimed { name, actor, granted: is_kept };
            out.push(HeadEffect::Send { link: *link, message });
        }
    }

    pub(super) fn on_name_freed(
        &mut self,
        name: String,
        node: NodeId,
        actor: ActorId,
        out: &mut Effects<HeadEffect>,
    ) {
        if self.names.free(&name, node, actor) {
            out.push(HeadEffect::Write(HeadWrite::NamesFreed { names: vec![name] }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{SessionId, TaskId};

    fn home(node: u64, actor: u64) -> ActorHome {
        let actor = ActorId::created_by(TaskId::root(SessionId(1)).child(actor));
        (
            NodeId::from_words([node, 0]),
            FoundActor { actor, type_name: String::new(), details: Vec::new(), abroad: false },
        )
    }

    fn members(node: u64) -> BTreeSet<NodeId> {
        [NodeId::from_words([node, 0])].into()
    }

    #[test]
    fn names_of_departed_nodes_are_free() {
        let on_disk = vec![("a".to_owned(), home(1, 1)), ("b".to_owned(), home(2, 2))];
        let (mut names, free) = Names::new(on_disk, &members(1));
        assert_eq!((names.all(), free), (vec!["a".to_owned()], vec!["b".to_owned()]));
        assert!(names.claim("b", &home(1, 3), true).is_some());
        names.check();
    }

    #[test]
    fn a_name_belongs_to_one_actor_until_it_is_freed() {
        let (mut names, _) = Names::new(vec![("a".to_owned(), home(1, 1))], &members(1));
        assert_eq!(names.claim("a", &home(2, 2), true), None);
        assert_eq!(
            names.claim("a", &home(2, 1), false),
            None,
            "the same actor, and a node that owned it before"
        );
        assert!(names.claim("a", &home(2, 1), true).is_some(), "the same actor, owned by another node");
        assert_eq!(names.of_node(NodeId::from_words([1, 0])), []);
        assert_eq!(names.find("a"), Some(home(2, 1)));
        let (node, actor) = (home(2, 1).0, home(2, 1).1.actor);
        assert!(!names.free("a", node, home(2, 2).1.actor) && !names.free("a", home(1, 1).0, actor));
        assert!(names.free("a", node, actor));
        assert!(names.claim("a", &home(2, 2), true).is_some());
        assert!(names.by_node.len() == 1 && names.all() == ["a"]);
        assert_eq!(names.claim(&"x".repeat(NAME_BYTES_MAX + 1), &home(1, 3), true), None);
        names.check();
    }
}
