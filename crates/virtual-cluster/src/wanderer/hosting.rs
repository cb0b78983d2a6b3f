//! The leases and actors of one wanderer.

use super::Around;
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::actors::{ActorPlace, ActorSpec};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::resources::{CPU, GPU};
use aktis_protocol::state::StateKind;
use aktis_protocol::{
    ActorId, Amount, Failure, FailureKind, FunctionId, GroupId, GroupPlace, GroupSpec, GroupState, LaneId,
    LeaseId, ProgramId, Resources, SessionId, Shape, ShapeId, ShardIndex, TaskId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Everything one wanderer has to do with leases and actors.
#[derive(Debug)]
pub struct Hosting {
    kind: Option<WorkerKind>,
    program: Option<ProgramId>,
    leases: Vec<(LeaseId, ShapeId)>,
    blocked: BTreeSet<LeaseId>,
    /// Leases that the node asked for.
    asked: VecDeque<ShapeId>,
    /// Actors to construct, with their incarnation.
    to_construct: BTreeMap<ActorId, u32>,
    living: BTreeSet<ActorId>,
    to_end: BTreeSet<ActorId>,
    /// Groups that it made, and whether the node has said that they are gone.
    groups: BTreeMap<GroupId, bool>,
    /// Lanes that are open, and how many it waits for.
    lanes: BTreeSet<LaneId>,
    lanes_wanted: u32,
    /// Lanes that the node removed.
    removed_lanes: Vec<LaneId>,
    /// Handles, and whether the node has said that the actor is dead.
    handles: BTreeMap<ActorId, bool>,
}

impl Hosting {
    /// Nothing yet.
    pub fn new(kind: Option<WorkerKind>, program: Option<ProgramId>) -> Self {
        Self {
            kind,
            program,
            leases: Vec::new(),
            blocked: BTreeSet::new(),
            asked: VecDeque::new(),
            to_construct: BTreeMap::new(),
            living: BTreeSet::new(),
            to_end: BTreeSet::new(),
            groups: BTreeMap::new(),
            lanes: BTreeSet::new(),
            lanes_wanted: 0,
            removed_lanes: Vec::new(),
            handles: BTreeMap::new(),
        }
    }

    /// Whether no handle and no actor is left.
    pub fn is_over(&self) -> bool {
        self.handles.is_empty()
            && self.groups.is_empty()
            && self.to_construct.is_empty()
            && self.to_end.is_empty()
    }

    /// One random thing.
    pub fn act(&mut self, around: &mut Around<'_>) {
        match around.random.below(14) {
            0 => self.want_lane(around),
            1 => self.want_actor(around),
            2 => self.kill_actor(around),
            3 => self.release_actor(around),
            4 | 5 => self.attend_actors(around),
            6 => self.return_asked(around),
            7 => self.return_any(around),
            8 => self.want_group(around),
            9 => self.remove_group(around),
            10 => self.forget_lane(around),
            11 => ask(around),
            12 => self.give_up_lane(around),
            _ => self.block(around),
        }
    }

    /// Tidies up.
    pub fn close(&mut self, around: &mut Around<'_>) {
        self.release_actor(around);
        self.remove_group(around);
        self.forget_lane(around);
        self.attend_actors(around);
        self.return_asked(around);
        while let Some(lease) = self.blocked.pop_first() {
            around.tell(ToNode::LeaseBlocked { lease, blocked: false });
        }
        if self.kind == Some(WorkerKind::Isolated) {
            self.return_any(around);
        }
    }

    fn want_lane(&mut self, around: &mut Around<'_>) {
        let shape = Shape {
            resources: some_resources(around),
            isolated: around.random.chance(30),
            environment: some_environment(around),
            group: self.some_group(around),
            program: self.some_program(around),
            priority: some_priority(around),
            ..Shape::default()
        };
        let shard = ShardIndex(around.random.below(2) as u32);
        self.lanes_wanted += 1;
        around.tell(ToNode::LaneWanted { request: 0, shape, shard });
    }

    /// Its own; of one that has none, any, also one that the node does not know.
    fn some_program(&self, around: &mut Around<'_>) -> ProgramId {
        self.program.or_else(|| around.random.pick(&super::PROGRAMS)).expect("there are some")
    }

    fn want_group(&mut self, around: &mut Around<'_>) {
        if self.groups.len() > 3 {
            return;
        }
        let group = GroupId::created_by(TaskId::root(SessionId(around.random.number())).child(0));
        let bundles = (0..1 + around.random.below(2)).map(|_| some_resources(around)).collect();
        let name = around.random.chance(30).then(|| format!("group {}", around.random.below(2)));
        let spec = GroupSpec { group, bundles, name, ..GroupSpec::default() };
        self.groups.insert(group, false);
        around.tell(ToNode::GroupWanted { spec });
    }

    /// Sometimes one that is not there any more.
    fn some_group(&self, around: &mut Around<'_>) -> Option<GroupPlace> {
        if !around.random.chance(40) {
            return None;
        }
        let group = around.random.pick(&self.groups.keys().copied().collect::<Vec<_>>())?;
        Some(GroupPlace { group, bundle: around.random.chance(50).then(|| around.random.below(2) as u32) })
    }

    fn remove_group(&mut self, around: &mut Around<'_>) {
        let Some((group, _)) = self.groups.pop_first() else { return };
        around.tell(ToNode::GroupRemoved { group });
    }

    fn forget_lane(&mut self, around: &mut Around<'_>) {
        if let Some(lane) = self.removed_lanes.pop() {
            around.tell(ToNode::LaneForgotten { lane });
        }
    }

    /// An answer that is on its way may name a lane that is open already.
    fn give_up_lane(&mut self, around: &mut Around<'_>) {
        let lanes: Vec<_> = self.lanes.iter().copied().collect();
        if let Some(lane) = around.random.pick(&lanes).filter(|_| self.lanes_wanted == 0) {
            self.lanes.remove(&lane);
            around.tell(ToNode::LaneForgotten { lane });
        }
    }

    fn want_actor(&mut self, around: &mut Around<'_>) {
        if self.handles.len() > 3 {
            return;
        }
        let actor = ActorId::created_by(TaskId::root(SessionId(around.random.number())).child(0));
        let spec = ActorSpec {
            actor,
            program: self.some_program(around),
            constructor: FunctionId(1),
            arguments: Vec::new(),
            type_name: "Wandering".into(),
            name: around.random.chance(30).then(|| format!("name {}", around.random.below(3))),
            resources: if around.random.chance(50) { Resources::none() } else { some_resources(around) },
            placement: if around.random.chance(70) { Resources::none() } else { some_resources(around) },
            environment: some_environment(around),
            isolated: around.random.chance(30),
            detached: false,
            restarts_max: around.random.below(3) as u32,
            lives: 0,
            group: self.some_group(around),
            priority: some_priority(around),
            concurrency: 1,
            ..ActorSpec::default()
        };
        self.handles.insert(actor, false);
        around.tell(ToNode::ActorWanted { spec: Box::new(spec) });
    }

    fn handle(&self, around: &mut Around<'_>) -> Option<ActorId> {
        around.random.pick(&self.handles.keys().copied().collect::<Vec<_>>())
    }

    fn kill_actor(&mut self, around: &mut Around<'_>) {
        if let Some(actor) = self.handle(around) {
            let restart = around.random.chance(50);
            let request = around.random.chance(50).then_some(0);
            around.tell(ToNode::ActorKilled { actor, restart, request });
        }
    }

    fn release_actor(&mut self, around: &mut Around<'_>) {
        if let Some(actor) = self.handle(around) {
            self.handles.remove(&actor);
            around.tell(ToNode::ActorReleased { actor });
        }
    }

    /// Constructs or ends one actor.
    fn attend_actors(&mut self, around: &mut Around<'_>) {
        if let Some((actor, incarnation)) = self.to_construct.pop_first() {
            if around.random.chance(80) {
                self.living.insert(actor);
                around.tell(ToNode::ActorStarted { actor, incarnation });
            } else {
                self.end(around, actor, "its constructor failed");
            }
        } else if let Some(actor) = self.to_end.pop_first() {
            self.end(around, actor, "it was told to end");
        } else if around.random.chance(10)
            && let Some(actor) = self.living.first().copied()
        {
            self.end(around, actor, "it left");
        }
    }

    fn end(&mut self, around: &mut Around<'_>, actor: ActorId, why: &str) {
        self.living.remove(&actor);
        self.to_end.remove(&actor);
        let failure = Failure::new(FailureKind::ActorDied, why);
        around.tell(ToNode::ActorEnded { actor, failure });
    }

    fn return_asked(&mut self, around: &mut Around<'_>) {
        let Some(shape) = self.asked.pop_front() else { return };
        if let Some(position) = self.leases.iter().position(|(_, of)| *of == shape) {
            self.give_back(around, position);
        }
    }

    fn return_any(&mut self, around: &mut Around<'_>) {
        if !self.leases.is_empty() {
            let position = around.random.below(self.leases.len() as u64) as usize;
            self.give_back(around, position);
        }
    }

    fn give_back(&mut self, around: &mut Around<'_>, position: usize) {
        let (lease, _) = self.leases.swap_remove(position);
        self.blocked.remove(&lease);
        around.tell(ToNode::LeaseReturned { lease });
    }

    fn block(&mut self, around: &mut Around<'_>) {
        let Some(&(lease, _)) = self.leases.first() else { return };
        let blocked = self.blocked.insert(lease);
        if !blocked {
            self.blocked.remove(&lease);
        }
        around.tell(ToNode::LeaseBlocked { lease, blocked });
    }

    pub(super) fn on_message(&mut self, around: &mut Around<'_>, message: FromNode) {
        match message {
            FromNode::LeaseGranted { lease } => self.leases.push((lease.lease, lease.shape)),
            FromNode::LeaseRevoked { shape } => self.asked.push_back(shape),
            FromNode::HostActor { spec, incarnation, .. } => {
                let first = self.to_construct.insert(spec.actor, incarnation).is_none();
                assert!(first && !self.living.contains(&spec.actor), "{} lives twice here", spec.actor);
            }
            FromNode::EndActor { actor, .. } => {
                let here = self.living.contains(&actor);
                // It may have lived here for a wanderer that stands for another node.
                let stands_for_it = self.program.is_none();
                // One that ended by itself meanwhile has said so already.
                if here || stands_for_it || self.to_construct.remove(&actor).is_some() {
                    self.to_end.insert(actor);
                }
            }
            FromNode::ActorChanged { actor, place } => self.on_actor_changed(actor, &place),
            FromNode::LaneRemoved { lane, .. } => {
                // Of one that it gave up, it has said so already.
                self.removed_lanes.extend(self.lanes.take(&lane));
            }
            FromNode::GroupChanged { group, state } => {
                if let Some(gone) = self.groups.get_mut(&group) {
                    assert!(!*gone, "{group} is said to be {state:?} after it was removed");
                    *gone = matches!(state, GroupState::Removed(_));
                }
            }
            FromNode::StateTold { left_out, .. } => assert_eq!(left_out, 0),
            FromNode::LaneOpened { lane, .. } => {
                self.lanes_wanted -= 1;
                self.lanes.extend(lane);
            }
            // A wanderer that stands for another node knows no objects but those that all know.
            FromNode::SharedWorker { .. }
            | FromNode::Sought { .. }
            | FromNode::ActorInherited { .. }
            | FromNode::ActorKnown { .. }
            | FromNode::ActorLost { .. }
            | FromNode::Warned { .. }
            | FromNode::KillTaken(_)
            | FromNode::LanesUnwanted(_)
            | FromNode::ActorWanted { .. } => {}
            FromNode::KillActor { actor, restart } => {
                around.tell(ToNode::ActorKilled { actor, restart, request: None });
            }
            other => panic!("an unexpected message: {other:?}"),
        }
    }

    fn on_actor_changed(&mut self, actor: ActorId, place: &ActorPlace) {
        if let Some(dead) = self.handles.get_mut(&actor) {
            assert!(!*dead, "{actor} is said to be {place:?} after its death");
            *dead = matches!(place, ActorPlace::Dead(_));
        }
    }
}

fn ask(around: &mut Around<'_>) {
    use StateKind::{Actors, Groups, Objects, Resources, Store, Workers};
    let what = around.random.pick(&[Actors, Groups, Objects, Resources, Store, Workers]);
    around.tell(ToNode::StateWanted { request: 0, what: what.expect("there are some") });
}

fn some_environment(around: &mut Around<'_>) -> String {
    if around.random.chance(20) { "another".into() } else { String::new() }
}

fn some_priority(around: &mut Around<'_>) -> i32 {
    if around.random.chance(20) { around.random.below(3) as i32 - 1 } else { 0 }
}

fn some_resources(around: &mut Around<'_>) -> Resources {
    let mut resources = Resources::none();
    resources.set(CPU, Amount(around.random.below(5) * 5_000));
    if around.random.chance(30) {
        resources.set(GPU, Amount(around.random.below(5) * 5_000));
    }
    resources
}
