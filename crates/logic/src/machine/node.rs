//! The node: processes, leases, actors and shared objects of one machine.
//!
//! It decides who runs where, on what, and for how long things live; the tasks themselves go past it.
//! Its parts, each in a file of its own:
//!
//! - `process_table` and `processes`: which processes there are, and what follows from a death;
//! - `programs`: what workers run, for whose drivers, and when nobody needs it any more;
//! - `resources` and `groups`: what there is, and what of it is set aside for whom;
//! - `leases`, `lanes`, `shapes` and `granting`: who may run tasks of which shape, and who gets what is free;
//! - `actors`: where actors live, and whether they live again;
//! - `copies` and `memory`: the object store's space, on disk and in memory;
//! - `objects`: values that several processes know, and when nobody can ask for them any more;
//! - `recovery` and `records`: values that are gone, how they are found or made again, and by whom;
//! - `keys`: small values under names;
//! - `peers`: other nodes, each of which is a process here;
//! - `rights`: which job may name what;
//! - `places` and `parts`: what may run where, and what this node has of groups that are on several;
//! - `names`: names of actors, where other nodes have some too;
//! - `draining`: what is left to do before the node can leave without losing anything;
//! - `explain`, `state` and `report`: why something waits, in words, and how things stand, in rows.
//!
//! What the caller guarantees:
//! 1. Messages of one process come in the order it sent them, and a message that another one caused
//!    comes after it.
//! 2. `ProcessDied` comes after the last message of that process.
//! 3. Effects are carried out in order.

mod actors;
mod copies;
mod draining;
mod explain;
mod granting;
mod groups;
mod keys;
mod lanes;
mod leases;
mod memory;
mod messages;
mod names;
mod objects;
mod parts;
mod peers;
mod places;
mod process_table;
mod processes;
mod programs;
mod records;
mod recovery;
mod report;
mod resources;
mod rights;
mod shapes;
mod state;
mod view;
mod warnings;

use crate::directory::Directory;
use crate::planted::{NodeBug, Planted};
use crate::{Effects, Machine, Time};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::{Amount, ObjectId, ProcessSlot, Resources};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

pub use copies::{EntryState, SpillRefusal};
pub use draining::{DRAIN_QUIET_MICROSECONDS, DrainLeft, DrainProgress};
pub use granting::TENURE_MICROSECONDS_MIN;
pub use groups::GROUP_GRACE_MICROSECONDS;
pub use leases::{ANSWER_MICROSECONDS_MAX, FREE_SHAPE_LEASES_MAX, START_FAILURES_FREE};
pub use memory::{
    PINNED_WAIT_MICROSECONDS_MAX, ROOM_WAIT_MICROSECONDS_MAX, SPARED_MICROSECONDS,
    SPILL_ABOVE_PERCENT_DEFAULT,
};
pub use messages::{Guest, NodeConfig, NodeEffect, NodeInput, OnRecord, ProgramConfig, Verdict, WorkerKind};
pub use places::{PATIENCE_MICROSECONDS, WELCOME_MICROSECONDS};
pub use processes::{IDLE_MICROSECONDS_MAX, LEAVING_MICROSECONDS_MAX};
pub use programs::{
    PROGRAM_IDLE_MICROSECONDS_MAX, PROGRAM_KEPT_MICROSECONDS, PROGRAM_STUCK_MICROSECONDS_MAX,
    TEMPLATE_IDLE_MICROSECONDS_MAX,
};
pub use view::ProcessView;

/// Isolated workers of a program that are started ahead of demand at most, where there is no shared one.
pub const PRESTARTED_WORKERS_MAX: usize = 8;

/// The machine.
#[derive(Debug)]
pub struct Node {
    resources: resources::NodeResources,
    process_table: process_table::ProcessTable,
    programs: programs::Programs,
    /// How many workers of a default shape are kept though nothing is queued, where there is no shared one.
    prestarted: usize,
    /// The program that is there from the start.
    first_program: Option<ProgramConfig>,
    leases: leases::Leases,
    channels: BTreeSet<(ProcessSlot, ProcessSlot)>,
    /// Who waits for resources or for a process, the oldest first.
    claims: VecDeque<granting::Claim>,
    /// Since when claims lack resources, of those that have got nothing since.
    starving_since: BTreeMap<granting::Claim, Time>,
    /// Whether free CPUs may be handed out as default leases without demand.
    warm_due: bool,
    memory: memory::Memory,
    directory: Directory,
    /// Objects that somebody asks for and nobody has promised, and when they count as lost.
    orphans: BTreeMap<ObjectId, Time>,
    losses: recovery::Losses,
    records: records::Records,
    actors: actors::Actors,
    groups: groups::Groups,
    keys: keys::Keys,
    rights: rights::Rights,
    peers: peers::Peers,
    places: places::Places,
    warnings: warnings::Warnings,
    /// Set once the node is drained.
    draining: Option<draining::Draining>,
    /// Claims of names that have no answer yet.
    names: names::Claims,
    /// The bug that a test has planted, if any.
    pub planted: Planted<NodeBug>,
}

impl Node {
    /// A node with nothing on it but the process that it lives in.
    pub fn new(config: NodeConfig) -> Self {
        Self {
            memory: memory::Memory::new(&config),
            programs: programs::Programs::default(),
            prestarted: whole_cpus(&config.resources).min(PRESTARTED_WORKERS_MAX),
            first_program: config.driver,
            resources: resources::NodeResources::new(config.resources),
            process_table: process_table::ProcessTable::new(config.driver.map(|driver| driver.program)),
            leases: leases::Leases::default(),
            channels: BTreeSet::new(),
            claims: VecDeque::new(),
            starving_since: BTreeMap::new(),
            warm_due: false,
            directory: Directory::default(),
            orphans: BTreeMap::new(),
            losses: recovery::Losses::default(),
            records: records::Records::default(),
            actors: actors::Actors::default(),
            groups: groups::Groups::default(),
            keys: keys::Keys::default(),
            rights: rights::Rights::default(),
            peers: peers::Peers::default(),
            places: places::Places::new(config.node, config.labels),
            warnings: warnings::Warnings::default(),
            draining: None,
            names: names::Claims::default(),
            planted: Planted::default(),
        }
    }

    /// Orders the first workers.
    pub fn start(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        if let Some(program) = self.first_program.take() {
            self.on_program_added(now, program, out);
        }
    }

    fn on_received(&mut self, now: Time, from: ProcessSlot, message: ToNode, out: &mut Effects<NodeEffect>) {
        if let ToNode::Started = message {
            return self.on_started(now, from, out);
        }
        if !self.process_table.is_live(from) {
            return;
        }
        let Some(message) = self.admit(from, message, out) else { return };
        let made = self.newly_made(now, from, &message, out);
        self.on_admitted(now, from, message, out);
        if let Some((object, job)) = made {
            self.directory.set_job(object, job);
        }
    }

    /// A process says something that it may say.
    fn on_admitted(&mut self, now: Time, from: ProcessSlot, message: ToNode, out: &mut Effects<NodeEffect>) {
        match message {
            ToNode::Started => {}
            ToNode::Detached => self.on_detached(now, from, out),
            ToNode::LaneWanted { request, shape, shard } => {
                self.on_lane_wanted(from, request, &shape, shard, out);
            }
            ToNode::ChannelWanted { request, to } => self.on_channel_wanted(from, request, to, out),
            ToNode::LaneActive { lane } => self.on_lane_active(now, lane, out),
            ToNode::LeaseReturned { lease } => self.on_lease_returned(now, from, lease, out),
            ToNode::LeaseBlocked { lease, blocked } => self.on_lease_blocked(now, from, lease, blocked, out),
            ToNode::StateWanted { request, what } => self.on_state_wanted(from, request, what, out),
            // Between the daemon and its processes: nothing is to be decided.
            ToNode::Answered { .. } | ToNode::OutputWanted | ToNode::ExplainWanted { .. } => {}
            ToNode::ShapeQuestion { request, lane } => self.on_shape_question(from, request, lane, out),

            ToNode::ExtentWanted { request, object, bytes } => {
                self.memory.on_extent_wanted(now, from, request, object, bytes, out);
            }
            ToNode::Sealed { object, holder } => self.on_sealed(now, from, object, holder, out),
            ToNode::Abandoned { object } => self.memory.on_abandoned(now, from, object, out),
            ToNode::RestoreWanted { request, object } => {
                self.memory.on_restore_wanted(now, from, request, object, out);
            }
            ToNode::Escaped { object, value } => self.on_escaped(from, object, value, out),
            ToNode::Resolved { object, value } => self.on_resolved(now, from, object, value, out),
            ToNode::Held { object } => self.on_held(from, object, out),
            ToNode::CancelWanted(cancel) => self.on_cancel_wanted(from, cancel, out),
            ToNode::Released { object } => self.on_released(now, from, object, out),
            ToNode::LeftToOthers { object } => self.on_left_to_others(now, from, object, out),
            ToNode::CodeKept { object } => self.on_code_kept(now, from, object, out),
            ToNode::Contains { container, holder, objects, actors } => {
                self.on_contains(now, container, holder, objects, actors, out);
            }
            ToNode::Recorded { tasks } => self.on_recorded(tasks, out),
            ToNode::Subscribed { object } => self.on_subscribed(now, from, object, out),
            ToNode::Promised { object, holder, found } => self.on_promised(from, object, holder, found, out),
            ToNode::Imported { request, object, bytes, holder, named } => {
                let import = peers::Imported { object, bytes, holder, named };
                self.on_imported(from, request, import, out);
            }
            ToNode::NodeGone => self.on_node_gone(now, from),
            ToNode::NotKnown { object } => self.on_not_known(now, from, object, out),
            ToNode::LookupWanted { request, object } => {
                self.on_lookup_wanted(now, from, request, object, out)
            }
            ToNode::OriginWanted { request, object } => {
                let peer = self.origin_of(object);
                self.send(from, FromNode::Origin { request, peer }, out);
            }
            ToNode::ContentsWanted { request, object } => {
                let (objects, actors) = self.directory.contents(object);
                self.send(from, FromNode::Contents { request, objects, actors }, out);
            }

            ToNode::ActorWanted { spec } => self.on_actor_wanted(now, from, *spec, out),
            ToNode::ActorArgumentsReady(actor) => self.on_actor_arguments_ready(now, actor, out),
            ToNode::ActorStarted { actor, incarnation } => {
                self.on_actor_started(from, actor, incarnation, out);
            }
            ToNode::ActorEnded { actor, failure } => self.on_actor_ended(now, from, actor, failure, out),
            ToNode::ActorLost { actor, incarnation, cause } => {
                self.on_actor_lost(now, from, actor, incarnation, cause.as_ref(), out);
            }
            ToNode::ActorEscaped { actor, host } => self.on_actor_escaped(from, actor, host, out),
            ToNode::ActorInherited { actor } => self.on_actor_inherited(from, actor, out),
            ToNode::ActorHeld { actor } => self.on_actor_held(from, actor, out),
            ToNode::ActorOrphaned { actor } => self.on_actor_orphaned(from, actor, out),
            ToNode::ActorReleased { actor } => self.on_actor_released(now, from, actor, out),
            ToNode::ActorKilled { actor, restart, request } => {
                self.on_actor_killed(now, from, actor, restart, out);
                if let Some(request) = request {
                    self.send(from, FromNode::KillTaken(request), out);
                }
            }
            ToNode::TaskLost { submitter, key, attempt, cause } => {
                if self.process_table.is_live(submitter) {
                    self.send(submitter, FromNode::TaskLost { process: from, key, attempt, cause }, out);
                }
            }
            ToNode::ActorAway { actor, away } => self.on_actor_away(from, actor, away, out),
            ToNode::ActorBack { actor } => self.on_actor_back(from, actor, out),
            ToNode::NameWanted { request, name } => self.on_name_wanted(from, request, &name, out),
            ToNode::NamesWanted { request, namespace } => {
                self.on_names_wanted(from, request, namespace, out);
            }

            ToNode::LaneForgotten { lane } => self.on_lane_forgotten(from, lane),
            ToNode::GroupWanted { spec } => self.on_group_wanted(now, from, spec, out),
            ToNode::GroupWatched { group } => self.on_group_watched(from, group, out),
            ToNode::GroupRemoved { group } => {
                self.remove_group_everywhere(now, group, "it was removed", out);
            }

            ToNode::KeyAsked { request, question } => self.on_key_asked(from, request, question, out),

            ToNode::WorkerKilled { process, .. } => self.on_worker_killed(process, out),
            ToNode::DeathHandled { process } => self.on_death_handled(from, process, out),
        }
    }

    fn send(&self, to: ProcessSlot, message: FromNode, out: &mut Effects<NodeEffect>) {
        debug_assert!(self.process_table.is_live(to), "{to} is sent {message:?}");
        out.push(NodeEffect::Send { to, message });
    }
}

fn whole_cpus(resources: &Resources) -> usize {
    (resources.get(aktis_protocol::resources::CPU).0 / Amount::ONE.0) as usize
}

impl Machine for Node {
    type Input = NodeInput;
    type Effect = NodeEffect;

    fn step(&mut self, now: Time, input: NodeInput, out: &mut Effects<NodeEffect>) {
        match input {
            NodeInput::Received { from, message } => self.on_received(now, from, message, out),
            NodeInput::ProgramAdded(program) => self.on_program_added(now, program, out),
            NodeInput::Attached { guest, pid } => self.on_attached(now, guest, pid, out),
            NodeInput::WorkerSpawned { process, pid } => self.on_worker_spawned(process, pid),
            NodeInput::ProcessDied { process, cause } => self.on_process_died(now, process, &cause, out),
            NodeInput::ProcessLeft { process, cause } => self.on_process_left(now, process, &cause, out),
            NodeInput::LaneDemand { lane, queued } => self.on_lane_demand(now, lane, queued, out),
            NodeInput::Spilled { entry, outcome } => self.memory.on_spilled(now, entry, outcome, out),
            NodeInput::Reserved { entry, outcome } => self.on_reserved(now, entry, outcome, out),
            NodeInput::Restored { entry, outcome } => self.on_restored(now, entry, outcome, out),
            NodeInput::Placed { shape, verdict, count, slots } => {
                self.on_placed(now, shape, verdict, (count, slots), out);
            }
            NodeInput::ActorPlaced { actor, verdict } => self.on_actor_placed(now, actor, verdict, out),
            NodeInput::GroupTold { message } => self.on_group_told(now, message, out),
            NodeInput::PlacerCame => self.on_placer_came(now, out),
            NodeInput::PlacesLost => self.on_places_lost(now, out),
            NodeInput::NameClaimed { name, actor, granted } => {
                self.on_name_claimed(now, &name, actor, granted, out);
            }
            NodeInput::NameFound { to, request, found } => self.on_name_found(to, request, found, out),
            NodeInput::NamesFound { to, request, names, left_out } => {
                self.on_names_found(to, request, names, left_out, out);
            }
            NodeInput::KeyAnswered { to, request, answer } => self.on_key_answered(to, request, answer, out),
            NodeInput::RecordFound { object, found } => self.on_record_found(now, object, found, out),
            NodeInput::NodeLeft { node } => self.on_node_left(now, node, out),
            NodeInput::NodeBack { node } => self.on_node_back(now, node, out),
            NodeInput::Expelled => self.on_expelled(now, out),
            NodeInput::Drain { patience_microseconds } => self.on_drain(now, patience_microseconds, out),
            NodeInput::ObjectsHandedOver { peer, objects } => self.on_objects_handed_over(peer, &objects),
            NodeInput::MembershipLost => self.on_membership_lost(out),
            NodeInput::Ticked => {}
        }
        self.on_time(now, out);
        self.tidy_groups(now, out);
        self.free_names(out);
        self.tidy_shapes(out);
        self.tell_locations(out);
    }

    fn next_wakeup(&self) -> Option<Time> {
        let orphans = self.orphans.values().copied();
        self.process_deadlines()
            .chain(self.program_deadlines())
            .chain(self.groups.deadlines())
            .chain(orphans)
            .chain(self.losses.deadlines())
            .chain(self.places.deadlines())
            .chain(self.memory.next_wakeup())
            .chain(self.drain_deadline())
            .min()
    }

    fn check(&self) {
        self.process_table.check();
        self.leases.check(&self.process_table);
        let leased = self.leases.leases.values().map(|lease| &lease.allocation);
        self.resources.check(leased.chain(self.actors.allocations()).chain(self.groups.allocations()));
        self.check_groups();
        self.memory.check(|process| self.process_table.is_live(process));
        self.directory.check(|process| self.process_table.is_live(process));
        self.check_actors();
        self.check_claims();
        self.check_programs();
        self.rights.check(&self.programs);
        self.keys.check();
        self.check_peers();
        self.check_losses();
        self.check_records();
        self.check_places();
        self.check_names();
        for (from, to) in &self.channels {
            assert!(self.process_table.get(*from).is_some() && self.process_table.get(*to).is_some());
        }
        for object in self.orphans.keys() {
            assert!(self.directory.knows(*object), "{object} is an orphan and unknown");
        }
    }
}

impl Node {
    /// Whatever is due by now. Deadlines are looked at on every step, so that a machine that is never
    /// idle needs no ticks.
    fn on_time(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        if self.next_wakeup().is_none_or(|due| now < due) {
            return;
        }
        self.memory.on_ticked(now, out);
        self.on_groups_due(now, out);
        self.on_programs_due(now, out);
        self.on_processes_due(now, out);
        self.hand_back_actors(now, out);
        self.on_orphans_due(now, out);
        self.on_lingering_due(now, out);
        self.on_drain_due(now, out);
    }
}
