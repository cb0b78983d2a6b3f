//! Names of actors, for the whole cluster.
//!
//! Nodes say which names their actors have, and all of them whenever they join. Here it is decided who has a name, and it
//! is kept. So a name outlives the control process, and is free when its node is gone. That of a detached actor which lives
//! on another node is kept a little longer: that has it in its care then, and claims the name.

use super::send;
use super::state::State;
use super::tables::NAME_BYTES_MAX;
use aktis_io::Link;
use aktis_logic::Time;
use aktis_protocol::actors::FoundActor;
use aktis_protocol::member::{FromControl, NamedActor};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::{ActorId, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// How long the name of a detached actor is kept for the node that it lives on, after the one has left in whose care it was:
/// until that node has heard of it, and said so.
const ESTATE_MICROSECONDS: u64 = 1_000_000;

/// The node in whose care an actor lives, and what those learn who find it.
pub(super) type Home = (NodeId, FoundActor);

/// Which actor has which name.
#[derive(Default)]
pub(super) struct Names {
    homes: BTreeMap<String, Home>,
    /// The same names, by the nodes in whose care their actors live.
    by_node: BTreeSet<(NodeId, String)>,
}

impl Names {
    /// As they are on disk. Gives those too whose nodes are not: they have left, and nobody would free their names.
    pub(super) fn new(homes: Vec<(String, Home)>, nodes: &[NodeInfo]) -> (Self, Vec<String>) {
        let members: BTreeSet<NodeId> = nodes.iter().map(|info| info.node).collect();
        let (homes, left): (Vec<_>, Vec<_>) =
            homes.into_iter().partition(|(_, (node, _))| members.contains(node));
        let by_node = homes.iter().map(|(name, (node, _))| (*node, name.clone())).collect();
        let names = Self { homes: homes.into_iter().collect(), by_node };
        (names, left.into_iter().map(|(name, _)| name).collect())
    }

    /// An actor is to have a name; false if another has it. It may come into the care of another node so, if it `moves`.
    fn claim(&mut self, name: &str, home: &Home, moves: bool) -> bool {
        if name.len() > NAME_BYTES_MAX {
            return false;
        }
        if let Some((node, found)) = self.homes.get(name) {
            if found.actor != home.1.actor || *node != home.0 && !moves {
                return false;
            }
            self.by_node.remove(&(*node, name.to_owned()));
        }
        self.homes.insert(name.to_owned(), home.clone());
        self.by_node.insert((home.0, name.to_owned()));
        true
    }

    /// Frees a name that this actor has in the care of this node; false if it has not.
    fn free(&mut self, name: &str, node: NodeId, actor: ActorId) -> bool {
        let has = self.homes.get(name).is_some_and(|(home, found)| *home == node && found.actor == actor);
        if has {
            self.by_node.remove(&(node, name.to_owned()));
            self.homes.remove(name);
        }
        has
    }

    pub(super) fn find(&self, name: &str) -> Option<Home> {
        self.homes.get(name).cloned()
    }

    pub(super) fn all(&self) -> Vec<String> {
        self.homes.keys().cloned().collect()
    }

    /// The names in a node's care, with the actors that have them.
    fn of_node(&self, node: NodeId) -> Vec<(String, FoundActor)> {
        let own = self.by_node.range((node, String::new())..).take_while(|(home, _)| *home == node);
        own.map(|(_, name)| (name.clone(), self.homes[name].1.clone())).collect()
    }
}

impl State {
    /// A node that joins has told all names that are in its care. Another one that has one of these meanwhile keeps it.
    pub(super) fn on_names_told(&mut self, node: NodeId, link: &Link, names: Vec<NamedActor>) {
        let is_told = |name: &str, found: &FoundActor| {
            names.iter().any(|told| told.name == name && told.found.actor == found.actor)
        };
        self.free_names_of(node, |name, found| !is_told(name, found));
        self.estates.retain(|(_, left)| *left != node);
        names.into_iter().for_each(|actor| self.claim_name(node, link, actor, false));
    }

    /// A membership is over. The names of actors that live on other nodes are for those, for a while.
    pub(super) fn on_names_left(&mut self, now: Time, node: NodeId) {
        self.free_names_of(node, |_, found| !found.abroad);
        self.estates.push_back((Time(now.0 + ESTATE_MICROSECONDS), node));
    }

    /// Time has passed: what nobody has claimed of a node that has left is free.
    pub(super) fn free_estates(&mut self, now: Time) {
        while let Some((_, node)) = self.estates.pop_front_if(|(due, _)| *due <= now) {
            self.free_names_of(node, |_, _| true);
        }
    }

    fn free_names_of(&mut self, node: NodeId, is_free: impl Fn(&str, &FoundActor) -> bool) {
        let mut free = self.names.of_node(node);
        free.retain(|(name, found)| is_free(name, found));
        for (name, found) in &free {
            self.names.free(name, node, found.actor);
        }
        if let Some(tables) = &self.tables {
            tables.free_names(free.iter().map(|(name, _)| name.as_str()));
        }
    }

    /// An actor is to live in a node's care, for the first time or from now on.
    pub(super) fn on_name_claimed(&mut self, node: NodeId, link: &Link, actor: NamedActor) {
        self.claim_name(node, link, actor, true);
    }

    fn claim_name(&mut self, node: NodeId, link: &Link, actor: NamedActor, moves: bool) {
        let Some(tables) = &self.tables else { return };
        if !self.members.has_joined(node, link) {
            // It has left, which freed all its names. If it joins again, it says all anew.
            return;
        }
        let NamedActor { name, found } = actor;
        let (actor, home, link) = (found.actor, (node, found), link.clone());
        if !self.names.claim(&name, &home, moves) {
            return send(&link, &FromControl::NameClaimed { name, actor, granted: false });
        }
        let claimed = name.clone();
        tables.keep_name(&name, &home, move |granted| {
            send(&link, &FromControl::NameClaimed { name: claimed, actor, granted });
        });
    }

    pub(super) fn on_name_freed(&mut self, name: &str, node: NodeId, actor: ActorId) {
        if let Some(tables) = self.tables.as_ref().filter(|_| self.names.free(name, node, actor)) {
            tables.free_names([name]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{Epoch, SessionId, TaskId};

    fn home(node: u64, actor: u64) -> Home {
        let actor = ActorId::created_by(TaskId::root(SessionId(1)).child(actor));
        (
            NodeId::from_words([node, 0]),
            FoundActor { actor, type_name: String::new(), details: Vec::new(), abroad: false },
        )
    }

    fn info(node: u64) -> NodeInfo {
        NodeInfo {
            node: NodeId::from_words([node, 0]),
            epoch: Epoch(1),
            address: ([127, 0, 0, 1], 1).into(),
            labels: Default::default(),
            resources: Default::default(),
        }
    }

    #[test]
    fn names_of_nodes_that_are_gone_are_free() {
        let homes = vec![("a".to_owned(), home(1, 1)), ("b".to_owned(), home(2, 2))];
        let (mut names, left) = Names::new(homes, &[info(1)]);
        assert_eq!((names.all(), left), (vec!["a".to_owned()], vec!["b".to_owned()]));
        assert!(names.claim("b", &home(1, 3), true));
    }

    #[test]
    fn a_name_belongs_to_one_actor_until_it_is_freed() {
        let (mut names, _) = Names::new(vec![("a".to_owned(), home(1, 1))], &[info(1)]);
        assert!(!names.claim("a", &home(2, 2), true));
        assert!(
            !names.claim("a", &home(2, 1), false),
            "the same actor, and a node that had it in its care before"
        );
        assert!(names.claim("a", &home(2, 1), true), "the same actor, in another node's care");
        assert_eq!(names.of_node(NodeId::from_words([1, 0])), []);
        assert_eq!(names.find("a"), Some(home(2, 1)));
        let (node, actor) = (home(2, 1).0, home(2, 1).1.actor);
        assert!(!names.free("a", node, home(2, 2).1.actor) && !names.free("a", home(1, 1).0, actor));
        assert!(names.free("a", node, actor));
        assert!(names.claim("a", &home(2, 2), true));
        assert!(names.by_node.len() == 1 && names.all() == ["a"]);
        assert!(!names.claim(&"x".repeat(NAME_BYTES_MAX + 1), &home(1, 3), true));
    }
}
