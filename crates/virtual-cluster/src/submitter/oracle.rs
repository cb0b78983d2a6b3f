//! What must hold: a simple book of all errands, kept without looking at the machine.
//!
//! It is told each event before the machine is, and says which effects must come out. It searches where the
//! machine keeps lists, so that the two can hardly be wrong in the same way.

use super::errand::{Errand, Fate, Need, Order};
use aktis_logic::machine::submitter::{
    ActorIndex, Cancelled, LaneIndex, Place, Repeat, Route, Stage, SubmitterConfig,
};
use aktis_protocol::{Failure, FailureKind, ObjectId, ProcessSlot, TaskKey};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Effects that must come out of the machine for the last event.
#[derive(Debug, Default)]
pub(super) struct Expected {
    /// These fail for a reason of their own. One that is also in `for_input` may fail either way.
    pub(super) failed: BTreeMap<usize, FailureKind>,
    /// These fail for an input.
    pub(super) for_input: BTreeSet<usize>,
    /// These tickets are not needed any more.
    pub(super) dropped: BTreeSet<usize>,
    /// The places of these actors are free.
    pub(super) closed: BTreeSet<ActorIndex>,
    /// These records are gone.
    pub(super) forgotten: BTreeSet<usize>,
}

/// An actor, as its caller must see it.
pub(super) struct Callee {
    pub(super) place: Place,
    pub(super) closing: bool,
}

/// The book. See the module.
pub(super) struct Oracle {
    config: SubmitterConfig,
    pub(super) errands: Vec<Errand>,
    /// What must be on record.
    pub(super) on_record: BTreeSet<usize>,
    pub(super) numbers: BTreeMap<TaskKey, usize>,
    /// Finished errands whose tickets are kept, oldest first.
    lineage: VecDeque<usize>,
    pub(super) things: BTreeMap<ObjectId, Fate>,
    pub(super) actors: BTreeMap<ActorIndex, Callee>,
    pub(super) expected: Expected,
}

impl Oracle {
    pub(super) fn new(config: SubmitterConfig) -> Self {
        Self {
            config,
            errands: Vec::new(),
            on_record: BTreeSet::new(),
            numbers: BTreeMap::new(),
            lineage: VecDeque::new(),
            things: BTreeMap::new(),
            actors: BTreeMap::new(),
            expected: Expected::default(),
        }
    }

    /// What became of an input.
    pub(super) fn fate(&self, need: Need) -> Fate {
        match need {
            Need::Errand(number, _) => self.errands[number].fate,
            Need::Thing(object) => self.things[&object],
        }
    }

    /// The errands that are not finished, in the order of submission.
    pub(super) fn open(&self) -> impl Iterator<Item = usize> {
        self.on_record.iter().copied().filter(|&number| self.errands[number].is_open())
    }

    /// The calls of an actor that are not finished, in the order of submission.
    pub(super) fn open_calls(&self, actor: ActorIndex) -> impl Iterator<Item = usize> {
        self.open().filter(move |&number| self.errands[number].order.route == Route::Actor(actor))
    }

    /// How many inputs an errand waits for.
    pub(super) fn missing(&self, number: usize) -> usize {
        self.errands[number].awaits.len()
    }

    /// The inputs of an order that are not there.
    fn open_needs(&self, order: &Order) -> Vec<Need> {
        order.needs.iter().copied().filter(|need| self.fate(*need) == Fate::Open).collect()
    }

    /// How far an errand must be.
    pub(super) fn stage(&self, number: usize) -> Stage {
        match self.errands[number] {
            Errand { fate: Fate::Value | Fate::Failed, .. } => Stage::Finished,
            Errand { taken: true, .. } => Stage::Taken,
            Errand { sent: Some(position), .. } => Stage::Sent { position },
            _ if self.missing(number) > 0 => Stage::Waiting,
            _ => Stage::Queued,
        }
    }

    /// What could be sent into a lane.
    pub(super) fn sendable(&self, lane: LaneIndex) -> Vec<usize> {
        let in_lane = |number: &usize| self.errands[*number].order.route == Route::Lane(lane);
        self.open().filter(in_lane).filter(|number| self.stage(*number) == Stage::Queued).collect()
    }

    /// The one call that may be sent to an actor, and where to.
    pub(super) fn next_call(&self, actor: ActorIndex) -> Option<(usize, ProcessSlot)> {
        let Place::Alive(process) = self.actors.get(&actor)?.place else { return None };
        let first = self.open_calls(actor).find(|number| self.errands[*number].sent.is_none())?;
        (self.stage(first) == Stage::Queued).then_some((first, process))
    }

    /// The objects from elsewhere that open errands wait for.
    pub(super) fn awaited(&self) -> BTreeSet<ObjectId> {
        let needs = self.open().flat_map(|number| &self.errands[number].awaits);
        let awaited = |need: &Need| match *need {
            Need::Thing(object) => Some(object),
            Need::Errand(..) => None,
        };
        needs.filter_map(awaited).collect()
    }

    /// Bytes of the tickets of finished errands.
    pub(super) fn lineage_bytes(&self) -> usize {
        self.lineage.iter().map(|&number| self.errands[number].order.bytes as usize).sum()
    }

    pub(super) fn on_submitted(&mut self, order: Order, key: TaskKey) -> usize {
        let number = self.errands.len();
        assert!(self.numbers.insert(key, number).is_none(), "{key:?} is given twice");
        let awaits = self.open_needs(&order);
        self.errands.push(Errand::new(order, key, awaits));
        self.on_record.insert(number);
        number
    }

    pub(super) fn on_sent(&mut self, number: usize, position: u64) {
        let errand = &mut self.errands[number];
        assert!(errand.may_run_again(), "errand {number} ran {} times before", errand.runs);
        errand.runs += 1;
        errand.arrived = 0;
        errand.sent = Some(position);
    }

    /// What was queued is taken instead of being sent; what was sent was taken back.
    pub(super) fn on_taken(&mut self, number: usize) {
        if self.errands[number].sent.take().is_none() {
            self.on_sent(number, 0);
        }
        let errand = &mut self.errands[number];
        (errand.sent, errand.taken) = (None, true);
    }

    /// Says whether the answer must be kept.
    pub(super) fn on_returned(&mut self, number: usize, failed: bool) -> bool {
        let errand = &mut self.errands[number];
        if !errand.is_open() || !errand.awaits.is_empty() {
            return false;
        }
        errand.arrived += 1;
        if failed {
            self.expected.dropped.insert(number);
            self.finish(number, Fate::Failed);
        } else if errand.arrived >= errand.order.returns {
            self.finish_with_values(number);
        }
        self.sweep();
        true
    }

    pub(super) fn on_thing_resolved(&mut self, object: ObjectId, failed: bool) {
        self.things.insert(object, if failed { Fate::Failed } else { Fate::Value });
        self.settle(failed, |need| *need == Need::Thing(object));
        self.sweep();
    }

    /// Whether a finished errand can be run again.
    pub(super) fn repeat(&self, number: usize) -> Repeat {
        let errand = &self.errands[number];
        match (errand.fate, errand.order.route) {
            _ if !self.on_record.contains(&number) => Repeat::Forgotten,
            (Fate::Open, _) => Repeat::UnderWay,
            (_, Route::Actor(_)) => Repeat::Call,
            _ if !errand.ticket => Repeat::Forgotten,
            _ if errand.tries() > errand.order.retries => Repeat::NoRetryLeft { runs: errand.tries() },
            _ => Repeat::Possible,
        }
    }

    /// A value of a finished errand is gone: it is run again.
    pub(super) fn on_value_lost(&mut self, number: usize) {
        let awaits = self.open_needs(&self.errands[number].order);
        self.errands[number].begin_again(awaits);
        self.lineage.retain(|kept| *kept != number);
        self.sweep();
    }

    pub(super) fn on_lost(&mut self, number: usize, kind: FailureKind) {
        let errand = &mut self.errands[number];
        if !errand.is_open() || errand.sent.is_none() {
            return;
        }
        if errand.may_run_again() {
            errand.sent = None;
        } else {
            self.fail(number, kind);
        }
        self.sweep();
    }

    pub(super) fn on_cancelled(&mut self, number: usize) -> Cancelled {
        let found = match self.stage(number) {
            Stage::Finished => return Cancelled::TooLate,
            Stage::Waiting | Stage::Queued | Stage::Resting => Cancelled::BeforeStart,
            Stage::Sent { position } => Cancelled::Sent(self.errands[number].order.route, position),
            Stage::Taken => Cancelled::Taken,
        };
        self.on_failed(number, FailureKind::Cancelled);
        found
    }

    pub(super) fn on_failed(&mut self, number: usize, kind: FailureKind) {
        self.fail(number, kind);
        self.sweep();
    }

    pub(super) fn on_input_failed(&mut self, number: usize) {
        if self.errands[number].is_open() {
            self.expected.for_input.insert(number);
            self.finish(number, Fate::Failed);
        }
        self.sweep();
    }

    pub(super) fn on_handle_dropped(&mut self, number: usize) {
        self.errands[number].handles -= 1;
        self.sweep();
    }

    pub(super) fn on_actor_restarting(&mut self, actor: ActorIndex, kind: &FailureKind) {
        self.place(actor, Place::Pending);
        let sent = self.open_calls(actor).filter(|number| self.errands[*number].sent.is_some());
        for number in sent.collect::<Vec<_>>() {
            self.on_lost(number, kind.clone());
        }
        self.sweep();
    }

    pub(super) fn on_actor_dead(&mut self, actor: ActorIndex, failure: &Failure) {
        self.place(actor, Place::Dead(Box::new(failure.clone())));
        self.fail_all(self.open_calls(actor).collect(), &failure.kind);
    }

    pub(super) fn on_actor_closing(&mut self, actor: ActorIndex) {
        self.callee(actor).closing = true;
        self.sweep();
    }

    pub(super) fn on_closed(&mut self, kind: &FailureKind) {
        self.fail_all(self.open().collect(), kind);
    }

    /// A place that was freed a moment ago is nobody's: what happens to it does not matter.
    fn place(&mut self, actor: ActorIndex, place: Place) {
        if let Some(callee) = self.actors.get_mut(&actor) {
            callee.place = place;
        }
    }

    pub(super) fn callee(&mut self, actor: ActorIndex) -> &mut Callee {
        self.actors.get_mut(&actor).expect("an open actor")
    }

    /// All of them have a reason of their own; those that also wait for another may fail for that.
    fn fail_all(&mut self, numbers: Vec<usize>, kind: &FailureKind) {
        for &number in &numbers {
            self.fail(number, kind.clone());
        }
        self.expected.failed.extend(numbers.into_iter().map(|number| (number, kind.clone())));
        self.sweep();
    }

    fn fail(&mut self, number: usize, kind: FailureKind) {
        if self.errands[number].is_open() {
            self.expected.failed.insert(number, kind);
            self.finish(number, Fate::Failed);
        }
    }

    fn finish(&mut self, number: usize, fate: Fate) {
        let errand = &mut self.errands[number];
        errand.fate = fate;
        errand.ticket = false;
        errand.awaits.clear();
        self.settle(fate == Fate::Failed, |need| need.is_of(number));
    }

    /// An input is there for those that wait for it, or fails them.
    fn settle(&mut self, failed: bool, is_it: impl Fn(&Need) -> bool) {
        for user in self.open().collect::<Vec<_>>() {
            let errand = &mut self.errands[user];
            if !errand.is_open() || !errand.awaits.iter().any(&is_it) {
                continue;
            }
            errand.awaits.retain(|need| !is_it(need));
            if failed {
                self.expected.for_input.insert(user);
                self.finish(user, Fate::Failed);
            }
        }
    }

    fn finish_with_values(&mut self, number: usize) {
        self.finish(number, Fate::Value);
        let unused = self.is_unused(number);
        let errand = &mut self.errands[number];
        if !self.config.lineage || unused || matches!(errand.order.route, Route::Actor(_)) {
            self.expected.dropped.insert(number);
            return;
        }
        errand.ticket = true;
        self.lineage.push_back(number);
        while self.lineage_bytes() > self.config.lineage_bytes_max {
            let oldest = self.lineage.pop_front().expect("somebody takes the bytes");
            self.errands[oldest].ticket = false;
            self.expected.dropped.insert(oldest);
        }
    }

    /// Takes what nobody needs off the record, until nothing changes; then frees actors.
    fn sweep(&mut self) {
        while let Some(number) = self.on_record.iter().copied().find(|&number| self.is_unused(number)) {
            self.on_record.remove(&number);
            self.expected.forgotten.insert(number);
            if std::mem::take(&mut self.errands[number].ticket) {
                self.expected.dropped.insert(number);
            }
            self.lineage.retain(|kept| *kept != number);
        }
        let closing = self.actors.iter().filter(|(_, callee)| callee.closing).map(|(actor, _)| *actor);
        for actor in closing.collect::<Vec<_>>() {
            if self.open_calls(actor).next().is_none() {
                self.actors.remove(&actor);
                self.expected.closed.insert(actor);
            }
        }
    }

    fn is_unused(&self, number: usize) -> bool {
        let errand = &self.errands[number];
        let computed_from_it = || self.lineage.iter().any(|&user| self.errands[user].needs_errand(number));
        !errand.is_open() && errand.handles == 0 && !computed_from_it()
    }
}
