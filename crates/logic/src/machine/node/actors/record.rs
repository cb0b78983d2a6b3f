//! What is known of each actor.

use super::super::leases::StartFailures;
use crate::ledger::Allocation;
use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::{ActorId, Failure, FailureKind, GroupId, NodeId, ProcessSlot, ProgramId, limits};
use std::collections::{BTreeMap, BTreeSet};

/// What becomes of an actor that is being ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum Then {
    /// It is dead, and its holders know.
    Dead(Failure),
    /// It lives again; the text says why it had to end.
    Restart(String),
    /// It is known here by its handles only, until the node that owns it says more; the text says why.
    HandBack(String),
    /// It lives elsewhere, for this reason. Until its host has answered the calls that it has, it takes calls.
    Move(String),
    /// Nobody holds it.
    Forgotten,
}

/// Which node decides about an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Ownership {
    /// This one.
    Own,
    /// It lives here for the node that this process stands for.
    ForPeer(ProcessSlot),
    /// It is known here by its handles, and reached through the process that stands for that node.
    AtPeer(ProcessSlot),
    /// It lived here for that node, to which there is no link, and is detached. If that node leaves the cluster, this one owns
    /// it; if it is back, it has given the actor up.
    Orphaned(NodeId),
    /// One that is gone, or was out of reach for too long. What was of the actor here has ended; whoever brings it from
    /// another node again owns it.
    Lost,
}

/// How far an actor has come.
#[derive(Debug)]
pub(in super::super) enum Life {
    /// It has no host yet.
    Waiting {
        /// Why it has to start again, if it lived before.
        after: Option<String>,
        /// What it waits for, as its holders were told.
        told: String,
    },
    /// Its host has been chosen; `asked` once it was told to construct the actor.
    Starting { host: ProcessSlot, allocation: Allocation, asked: bool },
    /// It takes calls.
    Alive { host: ProcessSlot, allocation: Allocation },
    /// Its host has been told to end it.
    Ending { host: ProcessSlot, allocation: Allocation, then: Then },
    /// It is gone for good.
    Dead(Failure),
}

#[derive(Debug)]
pub(in super::super) struct Actor {
    pub(in super::super) spec: ActorSpec,
    pub(in super::super) ownership: Ownership,
    pub(in super::super) holders: BTreeSet<ProcessSlot>,
    /// The process of this node that created it.
    pub(in super::super) creator: Option<ProcessSlot>,
    /// How many known objects contain a handle.
    pub(in super::super) containers: u32,
    pub(in super::super) restarts_left: u32,
    pub(in super::super) incarnation: u32,
    /// Deaths of its process before it was constructed, in a row.
    pub(in super::super) start_failures: StartFailures,
    pub(in super::super) life: Life,
    /// For one owned by another node: why it takes no calls for now, as far as that node has said.
    pub(in super::super) away: Option<String>,
    /// For one owned by another node: how often that node has named it to this one.
    pub(in super::super) named: u64,
    /// For a detached one owned by this node: the node that it was lost with, and may live on. If this node is given
    /// up before there is a link to that one again, it owns the actor.
    pub(in super::super) successor: Option<NodeId>,
    /// Whether the cluster knows that it lives on another node.
    pub(in super::super) abroad: bool,
    /// Whether it was owned by another node before: nodes that were cut off may still know it from there.
    pub(in super::super) inherited: bool,
}

impl Actor {
    pub(in super::super) fn new(spec: ActorSpec, life: Life) -> Self {
        let restarts_left = spec.restarts_max;
        Self {
            spec,
            ownership: Ownership::Own,
            holders: BTreeSet::new(),
            creator: None,
            containers: 0,
            restarts_left,
            incarnation: 0,
            start_failures: StartFailures::default(),
            life,
            away: None,
            named: 0,
            successor: None,
            abroad: false,
            inherited: false,
        }
    }

    /// An actor that is owned by another node, and known here by its handles. That node says when it takes calls: it
    /// may have to be constructed first, and that here.
    pub(in super::super) fn at_peer(actor: ActorId, program: ProgramId, peer: ProcessSlot) -> Self {
        let mut known = Self::new(light_spec(actor, program), Life::Dead(unknown()));
        known.live_at(peer);
        known
    }

    /// The actor is owned by the node that this process stands for.
    pub(super) fn live_at(&mut self, peer: ProcessSlot) {
        if self.ownership != Ownership::AtPeer(peer) {
            self.named = 0;
        }
        self.ownership = Ownership::AtPeer(peer);
        self.life = Life::Alive { host: peer, allocation: Allocation::default() };
        self.away = Some("the node that has it has not said yet whether it takes calls".to_owned());
    }

    /// Another node knows an actor whose owner was out of reach: it may live after all. Whether that is so.
    pub(in super::super) fn is_found_at(&mut self, peer: ProcessSlot) -> bool {
        let found = self.ownership == Ownership::Lost && matches!(self.life, Life::Dead(_));
        if found {
            self.live_at(peer);
        }
        found
    }

    /// Uses up one restart; false if none is left.
    pub(in super::super) fn take_restart(&mut self) -> bool {
        let may = self.restarts_left > 0;
        self.restarts_left -= u32::from(may && self.restarts_left != limits::FOR_EVER);
        may
    }

    /// Where it is, as holders are told.
    pub(in super::super) fn place(&self) -> ActorPlace {
        match &self.life {
            Life::Waiting { after, told } => ActorPlace::Pending(match after {
                Some(after) if told.is_empty() => after.clone(),
                Some(after) => format!("{after}; {told}"),
                None => told.clone(),
            }),
            Life::Starting { .. } => ActorPlace::Pending("it is being constructed".into()),
            Life::Alive { host, .. } => match &self.away {
                Some(reason) => ActorPlace::Pending(reason.clone()),
                None => self.alive_in(*host),
            },
            Life::Ending { host, then: Then::Move(_), .. } => self.alive_in(*host),
            Life::Ending { then: Then::Dead(failure), .. } | Life::Dead(failure) => {
                ActorPlace::Dead(failure.clone())
            }
            Life::Ending { then: Then::Restart(after) | Then::HandBack(after), .. } => {
                ActorPlace::Pending(after.clone())
            }
            Life::Ending { then: Then::Forgotten, .. } => ActorPlace::Dead(forgotten()),
        }
    }

    fn alive_in(&self, process: ProcessSlot) -> ActorPlace {
        ActorPlace::Alive { process, incarnation: self.incarnation, remembers: self.spec.log.is_some() }
    }

    /// The actor stays where it is, if its host was to end it for another place.
    pub(super) fn cancel_move(&mut self) {
        if let Life::Ending { host, allocation, then: Then::Move(_) } = &mut self.life {
            let (host, allocation) = (*host, std::mem::take(allocation));
            self.life = Life::Alive { host, allocation };
        }
    }

    /// The life of the actor is over, and the next one waits for a place, for this reason.
    pub(super) fn begin_next_life(&mut self, after: String) {
        self.incarnation = self.spec.lives.max(self.incarnation + 1);
        self.life = Life::Waiting { after: Some(after), told: String::new() };
    }

    pub(in super::super) fn host(&self) -> Option<ProcessSlot> {
        match &self.life {
            Life::Starting { host, .. } | Life::Alive { host, .. } | Life::Ending { host, .. } => Some(*host),
            Life::Waiting { .. } | Life::Dead(_) => None,
        }
    }

    pub(in super::super) fn allocation(&self) -> Option<&Allocation> {
        match &self.life {
            Life::Starting { allocation, .. }
            | Life::Alive { allocation, .. }
            | Life::Ending { allocation, .. } => Some(allocation),
            Life::Waiting { .. } | Life::Dead(_) => None,
        }
    }

    pub(in super::super) fn is_alive(&self) -> bool {
        matches!(self.life, Life::Alive { .. })
    }

    pub(in super::super) fn is_ending(&self) -> bool {
        matches!(self.life, Life::Ending { .. })
    }

    pub(in super::super) fn is_gone(&self) -> bool {
        let gone = |then: &Then| matches!(then, Then::Dead(_) | Then::Forgotten);
        match &self.life {
            Life::Dead(_) => true,
            Life::Ending { then, .. } => gone(then),
            Life::Waiting { .. } | Life::Starting { .. } | Life::Alive { .. } => false,
        }
    }

    pub(in super::super) fn is_unreachable(&self) -> bool {
        self.holders.is_empty() && self.containers == 0 && (!self.spec.detached || self.is_gone())
    }
}

/// The failure of calls to an actor that ended because nobody held it.
pub(in super::super) fn forgotten() -> Failure {
    Failure::new(FailureKind::ActorDied, "the actor ended when its last handle was gone")
}

/// The failure of calls to an actor that the node does not know.
pub(in super::super) fn unknown() -> Failure {
    Failure::new(FailureKind::ActorDied, "the actor is gone: it ended, and nobody held a handle")
}

/// The table of actors.
#[derive(Debug, Default)]
pub(in super::super) struct Actors {
    pub(in super::super) table: BTreeMap<ActorId, Actor>,
    /// Names of actors that are not gone.
    pub(in super::super) names: BTreeMap<String, ActorId>,
    /// Names that became free, and whose they were, for other nodes to know.
    pub(in super::super) freed_names: Vec<(String, ActorId)>,
}

impl Actors {
    pub(in super::super) fn is_waiting(&self, actor: ActorId) -> bool {
        self.table.get(&actor).is_some_and(|known| matches!(known.life, Life::Waiting { .. }))
    }

    pub(in super::super) fn allocations(&self) -> impl Iterator<Item = &Allocation> {
        self.table.values().filter_map(Actor::allocation)
    }

    /// The actors that use the resources of a placement group, or are to.
    pub(in super::super) fn of_group(&self, group: GroupId) -> Vec<ActorId> {
        let inside = |known: &Actor| known.spec.group.is_some_and(|place| place.group == group);
        self.table.iter().filter(|(_, known)| inside(known)).map(|(&actor, _)| actor).collect()
    }

    /// The actors whose host is this process.
    pub(in super::super) fn hosted_by(&self, host: ProcessSlot) -> Vec<ActorId> {
        let here = |known: &Actor| known.host() == Some(host);
        self.table.iter().filter(|(_, known)| here(known)).map(|(&actor, _)| actor).collect()
    }

    /// The actors that end with this process.
    pub(in super::super) fn ending_with(&self, creator: ProcessSlot) -> Vec<ActorId> {
        let ends = |known: &Actor| known.spec.ends_with_creator && !known.spec.detached && !known.is_gone();
        self.made_by(creator).filter(|(_, known)| ends(known)).map(|(actor, _)| actor).collect()
    }

    /// The actors that are not placed before this process says so.
    pub(in super::super) fn held_back_by(&self, creator: ProcessSlot) -> Vec<ActorId> {
        self.made_by(creator)
            .filter(|(_, known)| known.spec.awaits_arguments)
            .map(|(actor, _)| actor)
            .collect()
    }

    /// The process is gone, and its number may be another's.
    pub(in super::super) fn forget_creator(&mut self, dead: ProcessSlot) {
        for known in self.table.values_mut().filter(|known| known.creator == Some(dead)) {
            known.creator = None;
        }
    }

    fn made_by(&self, creator: ProcessSlot) -> impl Iterator<Item = (ActorId, &Actor)> {
        let made_by_it = move |known: &Actor| known.creator == Some(creator);
        self.table.iter().filter(move |(_, known)| made_by_it(known)).map(|(&actor, known)| (actor, known))
    }

    /// The actors that live here for the node that a process stands for.
    pub(in super::super) fn hosted_for(&self, peer: ProcessSlot) -> Vec<ActorId> {
        let for_it = |known: &Actor| known.ownership == Ownership::ForPeer(peer);
        self.table.iter().filter(|(_, known)| for_it(known)).map(|(&actor, _)| actor).collect()
    }

    /// The actors that lived here for this node, to which there is no link.
    pub(in super::super) fn orphans_of(&self, node: NodeId) -> Vec<ActorId> {
        let of_it = |known: &Actor| known.ownership == Ownership::Orphaned(node);
        self.table.iter().filter(|(_, known)| of_it(known)).map(|(&actor, _)| actor).collect()
    }

    /// The actors without a host that may live in the shared worker of a program.
    pub(in super::super) fn waiting_for_shared(&self, program: ProgramId) -> Vec<ActorId> {
        let alike = |spec: &ActorSpec| spec.program == program && !spec.isolated;
        let waits = |known: &Actor| matches!(known.life, Life::Waiting { .. }) && alike(&known.spec);
        self.table.iter().filter(|(_, known)| waits(known)).map(|(&actor, _)| actor).collect()
    }

    /// One more object contains a handle. A handle of an actor that has ended and been forgotten keeps
    /// nothing alive, but is counted.
    pub(in super::super) fn contain(&mut self, actor: ActorId) {
        let known = self
            .table
            .entry(actor)
            .or_insert_with(|| Actor::new(light_spec(actor, ProgramId::default()), Life::Dead(unknown())));
        known.containers += 1;
    }

    /// One object less contains a handle.
    pub(in super::super) fn uncontain(&mut self, actor: ActorId) {
        if let Some(known) = self.table.get_mut(&actor) {
            known.containers -= 1;
        }
    }

    /// A dead process holds no handles. Returns the actors that it held.
    pub(in super::super) fn forget_holder(&mut self, dead: ProcessSlot) -> Vec<ActorId> {
        let held =
            self.table.iter_mut().filter_map(|(&actor, known)| known.holders.remove(&dead).then_some(actor));
        held.collect()
    }

    /// The actor's name may be used by others.
    pub(in super::super) fn free_name(&mut self, actor: ActorId) {
        let name = self.table.get(&actor).and_then(|known| known.spec.name.as_ref());
        if let Some(name) = name.filter(|&name| self.names.get(name) == Some(&actor)) {
            let name = name.clone();
            self.names.remove(&name);
            self.freed_names.push((name, actor));
        }
    }
}

/// What is known of an actor that its creator started by itself: it cannot be started again.
pub(in super::super) fn light_spec(actor: ActorId, program: ProgramId) -> ActorSpec {
    ActorSpec { actor, program, concurrency: 1, ..ActorSpec::default() }
}
