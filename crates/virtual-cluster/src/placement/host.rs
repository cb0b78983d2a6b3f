//! A virtual node of a virtual cluster: lanes of what was submitted there, and a queue of what it was given to run.
//!
//! It is a simple node on purpose: what it runs starts in order of arrival, and whoever is first and does not fit
//! holds up the others. What is under test is where things are sent.

use super::task::{Kind, ObjectIndex, Task, TaskIndex};
use aktis_logic::{Time, estimate};
use aktis_protocol::placement::{LinkRow, NodeReport, QueueRow, RunTimes, Strategy};
use aktis_protocol::{Epoch, FunctionId, GroupId, Labels, NodeId, Resources};
use std::collections::{BTreeMap, VecDeque};

/// Tasks of one kind that were submitted here and have no place yet.
#[derive(Clone, Debug, Default)]
pub(super) struct Lane {
    pub(super) tasks: VecDeque<TaskIndex>,
    /// Its name in demands.
    pub(super) request: u32,
    /// For how many the placer was asked and has not answered.
    pub(super) asked: u32,
    /// What the placer said last about why they wait.
    pub(super) told: Option<String>,
}

/// A bundle of a placement group.
#[derive(Clone, Debug)]
pub(super) struct Bundle {
    pub(super) resources: Resources,
    pub(super) free: Resources,
    pub(super) committed: bool,
}

/// What a running task holds.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) attempt: u32,
    /// The bundle whose resources it uses, or none for the node's own.
    bundle: Option<(GroupId, u32)>,
}

/// A wish to set bundles aside that waits until they are free.
#[derive(Clone, Debug)]
pub(super) struct Wish {
    pub(super) group: GroupId,
    pub(super) attempt: u32,
    pub(super) bundles: Vec<(u32, Resources)>,
}

/// The virtual node.
#[derive(Clone, Debug)]
pub struct Host {
    /// Which.
    pub node: NodeId,
    /// All that it has.
    pub total: Resources,
    /// What is said about it.
    pub labels: Labels,
    /// Its membership while it is alive.
    pub epoch: Option<Epoch>,
    /// How often it has died: what happens to an earlier life does not matter.
    pub life: u32,
    pub(super) free: Resources,
    pub(super) lanes: BTreeMap<Kind, Lane>,
    requests: u32,
    pub(super) queue: VecDeque<(TaskIndex, u32)>,
    pub(super) running: BTreeMap<TaskIndex, Running>,
    /// When the last object that is on its way here has come.
    pub(super) link_busy_until: Time,
    pub(super) pulls: BTreeMap<ObjectIndex, Time>,
    pub(super) bundles: BTreeMap<(GroupId, u32), Bundle>,
    pub(super) wishes: VecDeque<Wish>,
    pub(super) reported: Option<NodeReport>,
    /// Run times since the last report.
    runs: BTreeMap<FunctionId, BTreeMap<u8, u32>>,
}

impl Host {
    pub(super) fn new(node: NodeId, total: Resources, labels: Labels) -> Self {
        Self {
            node,
            free: total.clone(),
            total,
            labels,
            epoch: None,
            life: 0,
            lanes: BTreeMap::new(),
            requests: 0,
            queue: VecDeque::new(),
            running: BTreeMap::new(),
            link_busy_until: Time(0),
            pulls: BTreeMap::new(),
            bundles: BTreeMap::new(),
            wishes: VecDeque::new(),
            reported: None,
            runs: BTreeMap::new(),
        }
    }

    /// It is dead, and all that it had is gone.
    pub(super) fn die(&mut self) {
        let fresh = Self::new(self.node, self.total.clone(), self.labels.clone());
        *self = Self { life: self.life + 1, requests: self.requests, ..fresh };
    }

    pub(super) fn is_alive(&self) -> bool {
        self.epoch.is_some()
    }

    /// How many bundles are set aside here.
    pub fn bundle_count(&self) -> usize {
        self.bundles.len()
    }

    /// The lane for tasks of this kind; a new one gets the next number.
    pub(super) fn lane(&mut self, kind: &Kind) -> &mut Lane {
        let request = &mut self.requests;
        self.lanes.entry(kind.clone()).or_insert_with(|| {
            *request += 1;
            Lane { request: *request, ..Lane::default() }
        })
    }

    /// Whether something that names this group can run here.
    pub(super) fn has_group(&self, group: GroupId) -> bool {
        self.bundles.range((group, 0)..=(group, u32::MAX)).next().is_some()
    }

    /// Sets bundles aside, if all fit now.
    pub(super) fn reserve(&mut self, wish: &Wish) -> bool {
        let mut free = self.free.clone();
        for (_, bundle) in &wish.bundles {
            if !free.covers(bundle) {
                return false;
            }
            free.take(bundle);
        }
        self.free = free;
        for (index, bundle) in &wish.bundles {
            let (resources, free) = (bundle.clone(), bundle.clone());
            let before =
                self.bundles.insert((wish.group, *index), Bundle { resources, free, committed: false });
            assert!(before.is_none(), "bundle {index} of {} is set aside twice on {}", wish.group, self.node);
        }
        true
    }

    /// Gives bundles back. Tasks that run there are ended; they are returned.
    pub(super) fn give_back(&mut self, group: GroupId, bundles: &[u32]) -> Vec<TaskIndex> {
        self.wishes
            .retain(|wish| wish.group != group || !wish.bundles.iter().any(|(one, _)| bundles.contains(one)));
        let mut ended = Vec::new();
        for index in bundles {
            let Some(bundle) = self.bundles.remove(&(group, *index)) else { continue };
            self.free.add(&bundle.resources);
            let inside = self.running.iter().filter(|(_, running)| running.bundle == Some((group, *index)));
            ended.extend(inside.map(|(task, _)| *task));
        }
        self.running.retain(|task, _| !ended.contains(task));
        ended
    }

    /// Takes what a task needs, if it is there now.
    pub(super) fn take(&mut self, task: TaskIndex, attempt: u32, kind: &Kind) -> bool {
        let Kind { needs, group, .. } = kind;
        let bundle = match group {
            None if self.free.covers(needs) => {
                self.free.take(needs);
                None
            }
            None => return false,
            Some(place) => {
                let may = |(group, index): &(GroupId, u32)| {
                    *group == place.group && place.bundle.is_none_or(|one| one == *index)
                };
                let fits = |(key, bundle): &(&(GroupId, u32), &mut Bundle)| {
                    may(key) && bundle.committed && bundle.free.covers(needs)
                };
                let Some((key, bundle)) = self.bundles.iter_mut().find(fits) else { return false };
                bundle.free.take(needs);
                Some(*key)
            }
        };
        self.running.insert(task, Running { attempt, bundle });
        true
    }

    /// A task has run; false if it was ended before.
    pub(super) fn finish(&mut self, task: TaskIndex, attempt: u32, kind: &Kind) -> bool {
        let Some(running) = self.running.get(&task).filter(|running| running.attempt == attempt) else {
            return false;
        };
        match running.bundle {
            None => self.free.add(&kind.needs),
            Some(key) => self.bundles.get_mut(&key).expect("it runs there").free.add(&kind.needs),
        }
        self.running.remove(&task);
        true
    }

    pub(super) fn note_run(&mut self, function: FunctionId, microseconds: u64) {
        let buckets = self.runs.entry(function).or_default();
        *buckets.entry(estimate::bucket(microseconds)).or_default() += 1;
    }

    /// How it stands; run times are told once.
    pub(super) fn report(&mut self, tasks: &[Task], links: Vec<LinkRow>) -> NodeReport {
        let mut usable = self.total.clone();
        self.bundles.values().for_each(|bundle| usable.take(&bundle.resources));
        let mut rows: BTreeMap<(FunctionId, Resources, Option<GroupId>), QueueRow> = BTreeMap::new();
        let mut row = |task: TaskIndex, queued: u32, running: u32| {
            let Kind { function, needs, group, .. } = &tasks[task.0].kind;
            let key = (*function, needs.clone(), group.map(|place| place.group));
            let row = rows.entry(key).or_insert_with(|| QueueRow {
                needs: needs.clone(),
                group: *group,
                function: *function,
                priority: 0,
                queued: 0,
                running: 0,
            });
            row.queued += queued;
            row.running += running;
        };
        self.running.keys().for_each(|task| row(*task, 0, 1));
        self.queue.iter().for_each(|(task, _)| row(*task, 1, 0));
        let own =
            self.lanes.iter().filter(|(kind, _)| kind.strategy == Strategy::Default && kind.group.is_none());
        own.flat_map(|(_, lane)| &lane.tasks).for_each(|task| row(*task, 1, 0));
        let queues = rows.into_values().collect();
        let runs = std::mem::take(&mut self.runs).into_iter();
        let run_times =
            runs.map(|(function, buckets)| RunTimes { function, buckets: buckets.into_iter().collect() });
        let (available, run_times, unreachable) = (self.free.clone(), run_times.collect(), Vec::new());
        NodeReport { available, usable, queues, run_times, links, unreachable, is_draining: false }
    }
}
