//! What the nodes of a virtual cluster do: ask for places, send tasks there, and run what comes.

use super::host::{Host, Wish};
use super::task::{Fate, Kind, Object, ObjectIndex, Task, TaskIndex};
use super::{Cluster, Decision, Event};
use aktis_logic::Time;
use aktis_protocol::placement::{Demand, FromPlacer, Input, LinkRow, Strategy, ToPlacer};
use aktis_protocol::{Epoch, GroupId, NodeId};
use std::collections::BTreeSet;

impl Cluster {
    pub(super) fn on_submit(&mut self, task: TaskIndex) {
        let Task { home, kind, .. } = self.tasks[task.0].clone();
        if !self.hosts[&home].is_alive() {
            self.ended += usize::from(self.tasks[task.0].fate != Fate::Lost);
            self.tasks[task.0].fate = Fate::Lost;
            return;
        }
        self.tasks[task.0].fate = Fate::Queued;
        if self.manner.decision == Decision::Random {
            return self.send_anywhere(task);
        }
        self.host(home).lane(&kind).tasks.push_back(task);
        self.start(home);
        if self.host(home).lane(&kind).asked == 0 {
            self.ask(home, &kind);
        }
    }

    /// A task goes to any node that could run it, whatever is known about it.
    fn send_anywhere(&mut self, task: TaskIndex) {
        let needs = self.tasks[task.0].kind.needs.clone();
        let count = self.hosts.len() as u64;
        let able = |host: &Host| host.total.covers(&needs);
        let Some((to, epoch)) = (0..1_000).find_map(|_| {
            let place = self.random.below(count);
            let host = &self.hosts[&NodeId::from_words([7, place + 1])];
            host.epoch.filter(|_| able(host)).map(|epoch| (host.node, epoch))
        }) else {
            return;
        };
        let known = &mut self.tasks[task.0];
        (known.fate, known.attempt) = (Fate::Sent(to), known.attempt + 1);
        let (home, attempt) = (known.home, known.attempt);
        self.post(home, to, Event::Forwarded(to, epoch, vec![(task, attempt)]));
    }

    /// Asks the placer for places for all tasks of a lane.
    fn ask(&mut self, node: NodeId, kind: &Kind) {
        let host = self.host(node);
        let lane = host.lane(kind);
        let count = lane.tasks.len() as u32;
        let (request, asked) = (lane.request, std::mem::replace(&mut lane.asked, count));
        if count == 0 {
            host.lanes.remove(kind);
        }
        match count {
            _ if count == asked => return,
            0 => return self.tell_placer(node, ToPlacer::PlaceWithdrawn { request }),
            _ => {}
        }
        let input = |object: &ObjectIndex| {
            let Object { bytes, holders } = &self.objects[object.0];
            Input { bytes: *bytes, holders: holders.iter().copied().collect() }
        };
        let inputs = match self.manner.tells_inputs {
            true => kind.inputs.iter().map(input).collect(),
            false => Vec::new(),
        };
        let Kind { function, needs, group, strategy, .. } = kind.clone();
        let demand = Demand { needs, group, strategy, count, priority: 0, function, inputs };
        self.tell_placer(node, ToPlacer::PlaceWanted { request, demand });
    }

    pub(super) fn report(&mut self, node: NodeId) {
        let speed = self.manner.bandwidth;
        let members = self.membership.members().filter(|_| self.manner.tells_links);
        let links = members.map(|(from, _)| LinkRow { from, bytes_per_second: speed }).collect();
        let host = self.hosts.get_mut(&node).expect("there is such a node");
        let mut report = host.report(&self.tasks, links);
        self.estimates.rewrite(self.manner.estimator, &mut report);
        let host = self.host(node);
        if host.reported.as_ref() != Some(&report) {
            host.reported = Some(report.clone());
            self.tell_placer(node, ToPlacer::Reported { report });
        }
        let lanes: Vec<Kind> = self.hosts[&node].lanes.keys().cloned().collect();
        lanes.iter().for_each(|kind| self.ask(node, kind));
    }

    pub(super) fn on_placer_message(&mut self, node: NodeId, message: FromPlacer) {
        match message {
            FromPlacer::Placed { request, node: to, epoch, count, .. } => {
                self.on_placed(node, request, to, epoch, count)
            }
            FromPlacer::Impossible { request, .. } => self.on_impossible(node, request),
            FromPlacer::Waiting { request, reason, .. } => {
                let host = self.host(node);
                if let Some(lane) = host.lanes.values_mut().find(|lane| lane.request == request) {
                    assert_ne!(lane.told.as_deref(), Some(reason.as_str()), "{node} was told that already");
                    lane.told = Some(reason);
                }
            }
            FromPlacer::Refused { request, .. } => {
                let host = self.host(node);
                let lane = host.lanes.values_mut().find(|lane| lane.request == request);
                lane.into_iter().for_each(|lane| lane.asked = 0);
            }
            FromPlacer::GroupChanged { group, state, nodes, .. } => {
                self.groups.insert(group, (state, nodes));
            }
            FromPlacer::Reserve { group, attempt, bundles, .. } => {
                let wish = Wish { group, attempt, bundles };
                if self.random.chance(self.manner.refusals_percent) {
                    let outcome = Err("it does not feel like it".to_owned());
                    return self.tell_placer(node, ToPlacer::Reserved { group, attempt, outcome });
                }
                self.host(node).wishes.push_back(wish);
                self.start(node);
            }
            FromPlacer::Commit { group, .. } => {
                let bundles = self.host(node).bundles.iter_mut().filter(|((one, _), _)| *one == group);
                let committed = bundles.map(|(_, bundle)| bundle.committed = true).count();
                assert!(committed > 0, "{node} is to commit what it has not set aside of {group}");
                self.start(node);
            }
            FromPlacer::Return { group, bundles } => {
                for task in self.host(node).give_back(group, &bundles) {
                    self.on_submit(task);
                }
                self.tell_placer(node, ToPlacer::Returned { group });
                self.start(node);
            }
        }
    }

    /// The tasks of a lane end without having run.
    fn on_impossible(&mut self, node: NodeId, request: u32) {
        let ended = self.host(node).lanes.extract_if(.., |_, lane| lane.request == request);
        let ended: Vec<TaskIndex> = ended.flat_map(|(_, lane)| lane.tasks).collect();
        if ended.is_empty() {
            return;
        }
        for task in ended {
            self.ended += 1;
            self.tasks[task.0].fate = Fate::Impossible;
        }
        // The placer may have been asked for more of them meanwhile.
        self.tell_placer(node, ToPlacer::PlaceWithdrawn { request });
    }

    /// Tasks of a lane may go somewhere.
    fn on_placed(&mut self, node: NodeId, request: u32, to: NodeId, epoch: Epoch, count: u32) {
        let host = self.host(node);
        let Some(lane) = host.lanes.values_mut().find(|lane| lane.request == request) else { return };
        lane.told = None;
        lane.asked = lane.asked.saturating_sub(count);
        let going = lane.tasks.len().min(count as usize);
        let going: Vec<TaskIndex> = lane.tasks.drain(..going).collect();
        let unused = count - going.len() as u32;
        if unused > 0 {
            self.tell_placer(node, ToPlacer::PlaceUnused { request, node: to, count: unused });
        }
        let send = |cluster: &mut Self, task: TaskIndex| {
            let known = &mut cluster.tasks[task.0];
            (known.fate, known.attempt) = (Fate::Sent(to), known.attempt + 1);
            (task, known.attempt)
        };
        let going = going.into_iter().map(|task| send(self, task)).collect();
        match to == node {
            true => self.on_forwarded(to, epoch, going),
            false => self.post(node, to, Event::Forwarded(to, epoch, going)),
        }
    }

    pub(super) fn on_forwarded(&mut self, to: NodeId, epoch: Epoch, tasks: Vec<(TaskIndex, u32)>) {
        if self.hosts[&to].epoch != Some(epoch) {
            // The link is dead: whoever sent them finds out at once, or with the lapse of the lease.
            for (task, attempt) in tasks {
                let known = &self.tasks[task.0];
                if known.fate == Fate::Sent(to) && known.attempt == attempt {
                    self.on_submit(task);
                }
            }
            return;
        }
        for (task, attempt) in tasks {
            let came = self.pull(to, task);
            let life = self.hosts[&to].life;
            self.plan(came, Event::InputsCame(to, life, task, attempt));
        }
    }

    /// When the inputs of a task are there: one after the other through the node's link, each once.
    fn pull(&mut self, to: NodeId, task: TaskIndex) -> Time {
        let mut came = self.now;
        for object in self.tasks[task.0].kind.inputs.clone() {
            let Object { bytes, holders } = &self.objects[object.0];
            if holders.is_empty() || holders.contains(&to) {
                came = came.max(self.hosts[&to].pulls.get(&object).copied().unwrap_or(self.now));
                continue;
            }
            let takes = bytes * 1_000_000 / self.manner.bandwidth;
            self.moved_bytes += bytes;
            let begins = self.hosts[&to].link_busy_until.max(self.now);
            let host = self.host(to);
            host.link_busy_until = Time(begins.0 + takes);
            host.pulls.insert(object, host.link_busy_until);
            came = came.max(host.link_busy_until);
            self.objects[object.0].holders.insert(to);
        }
        came
    }

    /// Whatever can start now, does: wishes of groups, then what is queued, then what was submitted here.
    pub(super) fn start(&mut self, node: NodeId) {
        while let Some(wish) = self.host(node).wishes.front().cloned() {
            if !self.host(node).reserve(&wish) {
                return;
            }
            self.host(node).wishes.pop_front();
            let Wish { group, attempt, .. } = wish;
            self.tell_placer(node, ToPlacer::Reserved { group, attempt, outcome: Ok(()) });
        }
        let mut blocked: BTreeSet<Option<GroupId>> = BTreeSet::new();
        let mut returned = Vec::new();
        for (task, attempt) in std::mem::take(&mut self.host(node).queue) {
            let Task { kind, run, fate, attempt: latest, .. } = self.tasks[task.0].clone();
            if fate != Fate::Sent(node) || latest != attempt {
                continue;
            }
            let pool = kind.group.map(|place| place.group);
            if pool.is_some_and(|group| !self.hosts[&node].has_group(group)) {
                returned.push(task);
                continue;
            }
            if !blocked.contains(&pool) && self.host(node).take(task, attempt, &kind) {
                let life = self.hosts[&node].life;
                self.after(run, Event::Finished(node, life, task, attempt));
            } else {
                blocked.insert(pool);
                self.host(node).queue.push_back((task, attempt));
            }
        }
        if blocked.is_empty() && self.manner.decision == Decision::BottomUp {
            self.start_local(node);
        }
        // What it was to use is gone.
        returned.into_iter().for_each(|task| self.on_submit(task));
    }

    /// Tasks that were submitted here, and need nothing from elsewhere, run here if there is nothing before them.
    fn start_local(&mut self, node: NodeId) {
        let is_local = |kind: &Kind| {
            let here = |object: &ObjectIndex| self.objects[object.0].holders.contains(&node);
            kind.strategy == Strategy::Default && kind.group.is_none() && kind.inputs.iter().all(here)
        };
        let kinds: Vec<Kind> =
            self.hosts[&node].lanes.keys().filter(|kind| is_local(kind)).cloned().collect();
        for kind in kinds {
            while let Some(&task) = self.host(node).lane(&kind).tasks.front() {
                let attempt = self.tasks[task.0].attempt + 1;
                if !self.host(node).take(task, attempt, &kind) {
                    break;
                }
                self.host(node).lane(&kind).tasks.pop_front();
                let known = &mut self.tasks[task.0];
                (known.fate, known.attempt) = (Fate::Sent(node), attempt);
                let (run, life) = (known.run, self.hosts[&node].life);
                self.after(run, Event::Finished(node, life, task, attempt));
            }
        }
    }

    pub(super) fn on_finished(&mut self, node: NodeId, life: u32, task: TaskIndex, attempt: u32) {
        let Task { kind, run, .. } = self.tasks[task.0].clone();
        let now = self.now;
        let host = self.host(node);
        if host.life != life || !host.finish(task, attempt, &kind) {
            return;
        }
        host.note_run(kind.function, run);
        let known = &mut self.tasks[task.0];
        if known.fate == Fate::Sent(node) && known.attempt == attempt {
            known.fate = Fate::Done(now);
            self.ended += 1;
        }
        self.start(node);
        let host = &self.hosts[&node];
        if host.running.is_empty() && host.queue.is_empty() {
            // It has run out of work, and says so at once.
            self.report(node);
        }
    }
}
