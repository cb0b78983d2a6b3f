//! Virtual lanes and workers: what was sent, who has it, and which answers are on their way.

use super::errand::Ticket;
use super::{Trial, cause};
use crate::random::Random;
use aktis_logic::machine::submitter::{ActorIndex, LaneIndex, Place, Route, Stage, Submitter};
use aktis_protocol::{Failure, FailureKind, ProcessSlot};
use std::collections::{BTreeMap, VecDeque};

/// Calls that one worker has at most.
const CALLS_MAX: usize = 6;

#[derive(Clone, Copy, Debug)]
struct Answer {
    number: usize,
    failed: bool,
}

/// An errand that a worker has, and how many returns it has sent.
#[derive(Clone, Copy, Debug)]
struct Run {
    number: usize,
    answered: u32,
}

#[derive(Default)]
struct Worker {
    runs: Vec<Run>,
    answers: VecDeque<Answer>,
}

#[derive(Default)]
struct Lane {
    queue: VecDeque<usize>,
    capacity: usize,
    position: u64,
}

/// All workers and the lanes that they pull from.
pub(super) struct Workers {
    lanes: BTreeMap<LaneIndex, Lane>,
    workers: BTreeMap<ProcessSlot, Worker>,
    /// What threads of the submitting process run themselves.
    here: Vec<Run>,
    /// Answers that come late or twice.
    ghosts: Vec<Answer>,
}

impl Workers {
    pub(super) fn new(lanes: &[LaneIndex], random: &mut Random) -> Self {
        let lane = |capacity| Lane { capacity, ..Lane::default() };
        Self {
            lanes: lanes.iter().map(|index| (*index, lane(1 + random.below(5) as usize))).collect(),
            workers: (1..4).map(|slot| (ProcessSlot(slot), Worker::default())).collect(),
            here: Vec::new(),
            ghosts: Vec::new(),
        }
    }

    pub(super) fn any_lane(&self, random: &mut Random) -> LaneIndex {
        LaneIndex(random.below(self.lanes.len() as u64) as u32)
    }

    pub(super) fn any_slot(&self, random: &mut Random) -> ProcessSlot {
        ProcessSlot(1 + random.below(self.workers.len() as u64) as u32)
    }

    pub(super) fn has_ghosts(&self) -> bool {
        !self.ghosts.is_empty()
    }

    /// Takes an errand out of its lane, if nobody has claimed it.
    pub(super) fn take_back(&mut self, number: usize) {
        for lane in self.lanes.values_mut() {
            lane.queue.retain(|queued| *queued != number);
        }
    }

    fn is_in_lane(&self, number: usize) -> bool {
        self.lanes.values().any(|lane| lane.queue.contains(&number))
    }

    fn worker(&mut self, slot: ProcessSlot) -> &mut Worker {
        self.workers.get_mut(&slot).expect("slots are not given back")
    }
}

impl Trial {
    /// Sends tasks into a lane, as many as fit.
    pub(super) fn flush_a_lane(&mut self) {
        let lane = self.workers.any_lane(&mut self.random);
        loop {
            let sendable = self.oracle.sendable(lane);
            assert!(self.machine.lane_backlog(lane) >= sendable.len(), "the backlog counts what waits");
            let Some(key) = self.machine.next_in_lane(lane) else {
                assert!(sendable.is_empty(), "{lane:?} gives none of {sendable:?}");
                return;
            };
            let number = self.oracle.numbers[&key];
            assert!(sendable.contains(&number), "{lane:?} gives errand {number}, not one of {sendable:?}");
            if self.random.chance(2) {
                self.refuse(number);
                continue;
            }
            let queue = self.workers.lanes.get_mut(&lane).expect("an open lane");
            if queue.queue.len() >= queue.capacity {
                return;
            }
            queue.position += 1;
            queue.queue.push_back(number);
            let position = queue.position;
            self.oracle.on_sent(number, position);
            self.tell("a task sent", |machine, _| machine.on_sent(lane, key, position));
        }
    }

    /// An errand turns out to be too large to be sent.
    fn refuse(&mut self, number: usize) {
        let failure = Failure::new(FailureKind::Codec, "it is too large");
        let key = self.oracle.errands[number].key;
        self.oracle.on_failed(number, FailureKind::Codec);
        self.tell("a refusal", |machine, effects| machine.fail(key, failure, effects));
    }

    /// Sends calls to an actor of which somebody said that it may be callable.
    pub(super) fn flush_an_actor(&mut self) {
        let wanted: Vec<_> = self.to_flush.iter().copied().collect();
        let Some(actor) = self.random.pick(&wanted) else { return };
        loop {
            let found = self.machine.next_call(actor);
            let found = found.map(|(key, process)| (self.oracle.numbers[&key], process));
            assert_eq!(found, self.oracle.next_call(actor), "the next call of {actor:?}");
            let Some((number, process)) = found else {
                self.to_flush.remove(&actor);
                return;
            };
            if self.workers.worker(process).runs.len() >= CALLS_MAX {
                return;
            }
            if self.random.chance(2) {
                self.refuse(number);
            } else if self.send_call(actor, number, process) {
                return;
            }
        }
    }

    /// Says whether it was the last one.
    fn send_call(&mut self, actor: ActorIndex, number: usize, process: ProcessSlot) -> bool {
        let errand = &self.oracle.errands[number];
        let (key, is_last) = (errand.key, errand.order.returns == 0);
        self.oracle.on_sent(number, 0);
        self.tell("a call sent", |machine, _| machine.on_call_sent(actor, key));
        if is_last {
            self.on_answer(Answer { number, failed: false });
            self.close_actor(actor);
        } else {
            self.workers.worker(process).runs.push(Run { number, answered: 0 });
        }
        is_last
    }

    /// A worker takes a task from a lane.
    pub(super) fn claim(&mut self) {
        let lane = self.workers.any_lane(&mut self.random);
        let slot = self.workers.any_slot(&mut self.random);
        let lane = self.workers.lanes.get_mut(&lane).expect("an open lane");
        if let Some(number) = lane.queue.pop_front() {
            self.workers.worker(slot).runs.push(Run { number, answered: 0 });
        }
    }

    /// A thread of the submitting process waits for a task that nobody has begun, and runs it itself.
    pub(super) fn take(&mut self) {
        let in_lane = |number: &usize| self.workers.is_in_lane(*number);
        let is_task = |number: &usize| matches!(self.oracle.errands[*number].order.route, Route::Lane(_));
        let is_queued = |number: &usize| self.oracle.stage(*number) == Stage::Queued;
        let open = self.oracle.open().filter(is_task);
        let candidates: Vec<_> = open.filter(|number| is_queued(number) || in_lane(number)).collect();
        let Some(number) = self.random.pick(&candidates) else { return };
        self.workers.take_back(number);
        self.workers.here.push(Run { number, answered: 0 });
        let key = self.oracle.errands[number].key;
        self.oracle.on_taken(number);
        self.tell("a task taken", |machine, _| machine.on_taken(key));
    }

    /// What a thread of the submitting process runs itself has one more return.
    pub(super) fn answer_here(&mut self) {
        let count = self.workers.here.len() as u64;
        if count == 0 {
            return;
        }
        let place = self.random.below(count) as usize;
        let failed = self.random.chance(4);
        let run = &mut self.workers.here[place];
        run.answered += 1;
        let Run { number, answered } = *run;
        if failed || answered >= self.oracle.errands[number].order.returns {
            self.workers.here.swap_remove(place);
        }
        self.on_answer(Answer { number, failed });
    }

    /// A worker has one more return of something that it runs.
    pub(super) fn answer(&mut self) {
        let slot = self.workers.any_slot(&mut self.random);
        let failed = self.random.chance(4);
        let worker = self.workers.workers.get_mut(&slot).expect("slots are not given back");
        if worker.runs.is_empty() {
            return;
        }
        let place = self.random.below(worker.runs.len() as u64) as usize;
        let run = &mut worker.runs[place];
        run.answered += 1;
        let (number, answered) = (run.number, run.answered);
        worker.answers.push_back(Answer { number, failed });
        if failed || answered == self.oracle.errands[number].order.returns {
            worker.runs.swap_remove(place);
            if self.random.chance(15) {
                self.workers.ghosts.push(Answer { number, failed });
            }
        }
    }

    /// An answer of a worker arrives.
    pub(super) fn deliver(&mut self) {
        let slot = self.workers.any_slot(&mut self.random);
        if let Some(answer) = self.workers.worker(slot).answers.pop_front() {
            self.on_answer(answer);
        }
    }

    fn on_answer(&mut self, Answer { number, failed }: Answer) {
        let key = self.oracle.errands[number].key;
        let wanted = self.oracle.on_returned(number, failed);
        let kept = self.tell("an answer", |machine, effects| machine.on_returned(key, failed, effects));
        assert_eq!(kept, wanted, "whether the answer for errand {number} is kept");
    }

    /// An answer comes late or again. One of several returns never does while the errand is open: what a worker
    /// answered is read before its death is told.
    pub(super) fn haunt(&mut self) {
        let count = self.workers.ghosts.len() as u64;
        if count == 0 {
            return;
        }
        let ghost = self.workers.ghosts.swap_remove(self.random.below(count) as usize);
        let errand = &self.oracle.errands[ghost.number];
        if !errand.is_open() || errand.order.returns == 1 {
            self.on_answer(ghost);
        }
    }

    pub(super) fn kill_worker(&mut self) {
        let slot = self.workers.any_slot(&mut self.random);
        while let Some(answer) = self.workers.worker(slot).answers.pop_front() {
            self.on_answer(answer);
        }
        for run in std::mem::take(&mut self.workers.worker(slot).runs) {
            self.lose(run.number);
        }
        let actors = self.machine.actors_in(slot);
        let lives_there = |actor: &&ActorIndex| self.oracle.actors[*actor].place == Place::Alive(slot);
        let expected: Vec<_> = self.oracle.actors.keys().filter(lives_there).copied().collect();
        assert_eq!(actors, expected, "the actors in {slot:?}");
        for actor in actors {
            self.restart_or_end(actor);
        }
    }

    /// What a dead worker had is lost; its answer may still come. For a call, the actor's end says it all.
    fn lose(&mut self, number: usize) {
        let errand = &self.oracle.errands[number];
        let (key, is_call) = (errand.key, matches!(errand.order.route, Route::Actor(_)));
        let cause = cause();
        let attempt = self.machine.record(key).map_or(0, |record| record.attempt());
        if let Some(over) = attempt.checked_sub(1) {
            // Another worker that died had answered an earlier attempt.
            self.tell("an old loss", |machine, effects| machine.on_lost(key, over, Some(&cause), effects));
        }
        for _ in 0..1 + self.random.below(2) {
            if !is_call {
                self.oracle.on_lost(number, FailureKind::WorkerDied(cause.clone()));
            }
            self.tell("a loss", |machine, effects| machine.on_lost(key, attempt, Some(&cause), effects));
        }
        if self.random.chance(30) {
            self.workers.ghosts.push(Answer { number, failed: self.random.chance(20) });
        }
    }

    /// An actor is killed in its worker, which goes on.
    pub(super) fn restart_actor(&mut self) {
        let alive = self.oracle.actors.iter().filter_map(|(actor, callee)| match callee.place {
            Place::Alive(process) => Some((*actor, process)),
            _ => None,
        });
        let alive: Vec<_> = alive.collect();
        let Some((actor, process)) = self.random.pick(&alive) else { return };
        let is_lost = |run: &mut Run| self.oracle.errands[run.number].order.route == Route::Actor(actor);
        let worker = self.workers.workers.get_mut(&process).expect("slots are not given back");
        let lost: Vec<_> = worker.runs.extract_if(.., is_lost).collect();
        let late = lost.into_iter().filter(|_| self.random.chance(50));
        self.workers.ghosts.extend(late.map(|run| Answer { number: run.number, failed: false }));
        self.restart_or_end(actor);
    }

    fn restart_or_end(&mut self, actor: ActorIndex) {
        let failure = Submitter::<Ticket>::actor_failure(&cause(), None);
        if self.random.chance(30) {
            return self.end_actor(actor, &failure);
        }
        self.oracle.on_actor_restarting(actor, &failure.kind);
        self.tell("a restart", |machine, effects| machine.on_actor_restarting(actor, &failure, effects));
    }
}
