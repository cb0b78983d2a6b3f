//! Objects that more than one process may know: their values, who holds them, and what they contain.
//!
//! Invariants:
//! 1. An object is known while a process holds it, a container holds it, somebody waits for its value, it lingers, or it
//!    is code that the node keeps.
//! 2. The containers of an object are exactly the known objects that list it among their contents.
//! 3. `held` is the reverse of all holders.
//! 4. Nobody waits for a value that is there.
//! 5. Whoever can have a value made again is named as its maker, and lives.

use aktis_protocol::control::SharedValue;
use aktis_protocol::{ActorId, EntryRef, Failure, FailureKind, ObjectId, ProcessSlot, ProgramId};
use std::collections::{BTreeMap, BTreeSet};

/// What is known of an object's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// None yet; `owner` is the process that is to say it.
    Pending {
        /// `None` if nobody has said that it exists, or its owner is dead.
        owner: Option<ProcessSlot>,
    },
    /// The value, or why there is none.
    Known(SharedValue),
}

#[derive(Debug)]
struct Object {
    value: Value,
    /// Who submitted the task that made its value, and may have it run again.
    maker: Option<ProcessSlot>,
    /// Whether the maker is told when nobody can ask for it any more.
    is_left: bool,
    holders: BTreeSet<ProcessSlot>,
    /// How many known objects contain it.
    containers: u32,
    objects: BTreeSet<ObjectId>,
    actors: BTreeSet<ActorId>,
    subscribers: BTreeSet<ProcessSlot>,
    /// Whether it stays for a while though nobody holds it.
    lingers: bool,
    /// Whether the node keeps it for a program.
    is_kept: bool,
    /// The program whose processes made it; none if another node named it, or nobody has said that it exists.
    job: Option<ProgramId>,
}

impl Object {
    fn unknown() -> Self {
        Self {
            value: Value::Pending { owner: None },
            maker: None,
            is_left: false,
            holders: BTreeSet::new(),
            containers: 0,
            objects: BTreeSet::new(),
            actors: BTreeSet::new(),
            subscribers: BTreeSet::new(),
            lingers: false,
            is_kept: false,
            job: None,
        }
    }

    fn is_unreachable(&self) -> bool {
        let is_referred_to = !self.holders.is_empty() || self.containers > 0 || !self.subscribers.is_empty();
        !(is_referred_to || self.lingers || self.is_kept)
    }
}

/// What went with the last reference to something.
#[derive(Debug, Default, PartialEq, Eq)]
#[must_use = "freed objects have memory, freed actors a process"]
pub struct Freed {
    /// Objects that nobody can ask for any more.
    pub objects: Vec<ObjectId>,
    /// Actors that one object less contains; once per such object.
    pub actors: Vec<ActorId>,
    /// Makers that have left one of the objects to others, and are to be told.
    pub makers: Vec<(ObjectId, ProcessSlot)>,
}

/// The table of objects.
#[derive(Debug, Default)]
pub struct Directory {
    objects: BTreeMap<ObjectId, Object>,
    held: BTreeMap<ProcessSlot, BTreeSet<ObjectId>>,
}

impl Directory {
    /// How many objects are known.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether no object is known.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// Whether the object is known.
    pub fn knows(&self, object: ObjectId) -> bool {
        self.objects.contains_key(&object)
    }

    /// What is known of the object's value.
    pub fn value(&self, object: ObjectId) -> Option<&Value> {
        self.objects.get(&object).map(|known| &known.value)
    }

    /// The program whose processes made the object, if that is known here.
    pub fn job(&self, object: ObjectId) -> Option<ProgramId> {
        self.objects.get(&object)?.job
    }

    /// Processes of this program made a known object.
    pub fn set_job(&mut self, object: ObjectId, job: ProgramId) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.job = Some(job);
        }
    }

    /// The program is forgotten: what its processes made is that of another program, or of none.
    pub fn pass_on(&mut self, gone: ProgramId, successor: Option<ProgramId>) {
        for known in self.objects.values_mut().filter(|known| known.job == Some(gone)) {
            known.job = successor;
        }
    }

    /// The processes that hold references to the object.
    pub fn holders(&self, object: ObjectId) -> impl Iterator<Item = ProcessSlot> {
        self.objects.get(&object).into_iter().flat_map(|known| known.holders.iter().copied())
    }

    /// `process` holds a reference from now on. Saying it twice is saying it once.
    pub fn hold(&mut self, object: ObjectId, process: ProcessSlot) {
        self.entry(object).holders.insert(process);
        self.held.entry(process).or_default().insert(object);
    }

    /// `process` holds no reference any more, and waits for no value.
    pub fn release(&mut self, object: ObjectId, process: ProcessSlot) -> Freed {
        if let Some(known) = self.objects.get_mut(&object) {
            known.holders.remove(&process);
            known.subscribers.remove(&process);
            // Who has no reference any more has forgotten the task, too, unless it has said otherwise.
            known.maker = known.maker.filter(|maker| *maker != process || known.is_left);
        }
        if let Some(held) = self.held.get_mut(&process) {
            held.remove(&object);
        }
        self.collect(vec![object])
    }

    /// `maker` holds no reference any more, but can have the value made again while anybody can ask for it.
    pub fn leave(&mut self, object: ObjectId, maker: ProcessSlot) -> Freed {
        let known = self.entry(object);
        (known.maker, known.is_left) = (Some(maker), true);
        self.release(object, maker)
    }

    /// `owner` has a reference to the object in circulation and will say its value, if not now.
    /// Returns those who wait for the value, if it is there.
    pub fn escape(
        &mut self,
        object: ObjectId,
        owner: ProcessSlot,
        value: Option<SharedValue>,
    ) -> Vec<ProcessSlot> {
        self.hold(object, owner);
        if let Some(value) = value {
            return self.resolve(object, value);
        }
        let known = self.entry(object);
        if known.value.may_be_replaced() {
            known.value = Value::Pending { owner: Some(owner) };
        }
        Vec::new()
    }

    /// `owner` can say the value of a known object, without holding it; false if somebody else does, or has.
    pub fn promise(&mut self, object: ObjectId, owner: ProcessSlot) -> bool {
        let known = self.entry(object);
        let free = match known.value {
            Value::Pending { owner } => owner.is_none(),
            Value::Known(_) => known.value.may_be_replaced(),
        };
        if free {
            known.value = Value::Pending { owner: Some(owner) };
        }
        free
    }

    /// `maker` holds a reference from now on, and may have the value made again if it is lost.
    pub fn hold_as_maker(&mut self, object: ObjectId, maker: ProcessSlot) {
        self.hold(object, maker);
        self.entry(object).maker = Some(maker);
    }

    /// Who may have the value of an object made again.
    pub fn maker(&self, object: ObjectId) -> Option<ProcessSlot> {
        self.objects.get(&object)?.maker
    }

    /// The maker of an object, which was asked for its value, cannot have it made again. Somebody else may.
    pub fn forget_maker(&mut self, object: ObjectId) {
        if let Some(known) = self.objects.get_mut(&object) {
            (known.maker, known.is_left) = (None, false);
        }
    }

    /// Whether the maker of an object is to say its value.
    pub fn is_with_maker(&self, object: ObjectId) -> bool {
        let owed =
            |known: &Object| known.maker.is_some() && known.value == Value::Pending { owner: known.maker };
        self.objects.get(&object).is_some_and(owed)
    }

    /// The value of an object is gone from where it was; a value that is known without that place stays. Those who
    /// wait are still to be told.
    pub fn lose(&mut self, object: ObjectId, failure: Failure) {
        let Some(known) = self.objects.get_mut(&object) else { return };
        if !matches!(known.value, Value::Known(SharedValue::Inline { .. } | SharedValue::Failed(_))) {
            known.value = Value::Known(SharedValue::Failed(failure));
        }
    }

    /// The value of an object is in another copy than was said.
    pub fn move_value(&mut self, object: ObjectId, by_now: EntryRef) {
        if let Some(known) = self.objects.get_mut(&object)
            && let Value::Known(SharedValue::Stored { entry, .. }) = &mut known.value
        {
            *entry = by_now;
        }
    }

    /// The value of a lost object may still be found: nobody in particular is to say it.
    pub fn seek(&mut self, object: ObjectId) {
        if let Some(known) = self.objects.get_mut(&object).filter(|known| known.value.may_be_replaced()) {
            known.value = Value::Pending { owner: None };
        }
    }

    /// Whether the object had a value, or was to have one, and it was lost.
    pub fn is_lost(&self, object: ObjectId) -> bool {
        let lost = |known: &Object| match &known.value {
            Value::Known(SharedValue::Failed(failure)) => failure.kind == FailureKind::Lost,
            _ => false,
        };
        self.objects.get(&object).is_some_and(lost)
    }

    /// Those who wait for the value, which is there, or will not be.
    pub fn take_subscribers(&mut self, object: ObjectId) -> Vec<ProcessSlot> {
        let known = self.objects.get_mut(&object);
        known.map(|known| std::mem::take(&mut known.subscribers).into_iter().collect()).unwrap_or_default()
    }

    /// Those who wait for the value.
    pub fn subscribers(&self, object: ObjectId) -> impl Iterator<Item = ProcessSlot> {
        self.objects.get(&object).into_iter().flat_map(|known| known.subscribers.iter().copied())
    }

    /// The objects that a process holds.
    pub fn held_by(&self, process: ProcessSlot) -> Vec<ObjectId> {
        self.held.get(&process).into_iter().flatten().copied().collect()
    }

    /// The node keeps a known object for a program from now on; false if it does already, or the object is unknown.
    pub fn keep(&mut self, object: ObjectId) -> bool {
        self.objects.get_mut(&object).is_some_and(|known| !std::mem::replace(&mut known.is_kept, true))
    }

    /// The node does not keep an object any more.
    pub fn stop_keeping(&mut self, object: ObjectId) -> Freed {
        if let Some(known) = self.objects.get_mut(&object) {
            known.is_kept = false;
        }
        self.collect(vec![object])
    }

    /// A known object stays for a while though nobody holds it, or does so no more: then it is to be collected.
    pub fn set_lingering(&mut self, object: ObjectId, lingers: bool) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.lingers = lingers;
        }
    }

    /// Whoever was to say the value of an object does not.
    pub fn disown(&mut self, object: ObjectId) {
        if let Some(known) = self.objects.get_mut(&object)
            && matches!(known.value, Value::Pending { .. })
        {
            known.value = Value::Pending { owner: None };
        }
    }

    /// Whether its value is known to hold references.
    pub fn contains_something(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|known| !(known.objects.is_empty() && known.actors.is_empty()))
    }

    /// The references inside its value, as far as somebody has said.
    pub fn contents(&self, object: ObjectId) -> (Vec<ObjectId>, Vec<ActorId>) {
        let Some(known) = self.objects.get(&object) else { return Default::default() };
        (known.objects.iter().copied().collect(), known.actors.iter().copied().collect())
    }

    /// Whether somebody waits for the value.
    pub fn is_awaited(&self, object: ObjectId) -> bool {
        self.objects.get(&object).is_some_and(|known| !known.subscribers.is_empty())
    }

    /// The object has a value. The first one stays, unless it only said that the value was lost: a task
    /// that runs again makes the same objects again. Returns those who wait for it.
    pub fn resolve(&mut self, object: ObjectId, value: SharedValue) -> Vec<ProcessSlot> {
        let Some(known) = self.objects.get_mut(&object) else { return Vec::new() };
        if known.value.may_be_replaced() {
            known.value = Value::Known(value);
        }
        std::mem::take(&mut known.subscribers).into_iter().collect()
    }

    /// The value of `container` holds these, as long as it lives. Returns the actors it did not hold before.
    pub fn contain(
        &mut self,
        container: ObjectId,
        objects: impl IntoIterator<Item = ObjectId>,
        actors: impl IntoIterator<Item = ActorId>,
    ) -> Vec<ActorId> {
        for object in objects {
            if object != container && self.entry(container).objects.insert(object) {
                self.entry(object).containers += 1;
            }
        }
        let known = self.entry(container);
        actors.into_iter().filter(|&actor| known.actors.insert(actor)).collect()
    }

    /// `process` wants to know the value, which is lost: it waits while it is sought.
    pub fn await_lost(&mut self, object: ObjectId, process: ProcessSlot) {
        if let Some(known) = self.objects.get_mut(&object) {
            known.subscribers.insert(process);
        }
    }

    /// `process` wants to know the value: here it is, or the process is remembered.
    pub fn subscribe(&mut self, object: ObjectId, process: ProcessSlot) -> Option<SharedValue> {
        let known = self.entry(object);
        match &known.value {
            Value::Known(value) => Some(value.clone()),
            Value::Pending { .. } => {
                known.subscribers.insert(process);
                None
            }
        }
    }

    /// The objects of which `process` is to say the value.
    pub fn owed_by(&self, process: ProcessSlot) -> Vec<ObjectId> {
        let owed = |known: &Object| known.value == Value::Pending { owner: Some(process) };
        self.objects.iter().filter(|(_, known)| owed(known)).map(|(&object, _)| object).collect()
    }

    /// The processes that are to say the values of objects.
    pub fn owing(&self) -> BTreeSet<ProcessSlot> {
        let owner = |known: &Object| match known.value {
            Value::Pending { owner } => owner,
            Value::Known(_) => None,
        };
        self.objects.values().filter_map(owner).collect()
    }

    /// `process` is dead: it holds nothing and waits for nothing any more.
    pub fn forget_process(&mut self, process: ProcessSlot) -> Freed {
        let mut touched: Vec<ObjectId> = self.held.remove(&process).into_iter().flatten().collect();
        for (&object, known) in &mut self.objects {
            known.maker = known.maker.filter(|maker| *maker != process);
            if known.subscribers.remove(&process) {
                touched.push(object);
            }
        }
        for object in &touched {
            if let Some(known) = self.objects.get_mut(object) {
                known.holders.remove(&process);
            }
        }
        self.collect(touched)
    }

    /// Frees those of `suspects` that nobody can reach, and what only they contained. A worklist, since
    /// chains of containers may be as long as a user likes.
    pub fn collect(&mut self, mut suspects: Vec<ObjectId>) -> Freed {
        let mut freed = Freed::default();
        while let Some(object) = suspects.pop() {
            if !self.objects.get(&object).is_some_and(Object::is_unreachable) {
                continue;
            }
            let Some(gone) = self.objects.remove(&object) else { continue };
            for inner in gone.objects {
                if let Some(known) = self.objects.get_mut(&inner) {
                    known.containers -= 1;
                    suspects.push(inner);
                }
            }
            freed.objects.push(object);
            freed.makers.extend(gone.maker.filter(|_| gone.is_left).map(|maker| (object, maker)));
            freed.actors.extend(gone.actors);
        }
        freed
    }

    fn entry(&mut self, object: ObjectId) -> &mut Object {
        self.objects.entry(object).or_insert_with(Object::unknown)
    }

    /// How many known objects contain each actor.
    pub fn contained_actors(&self) -> BTreeMap<ActorId, u32> {
        let mut counts = BTreeMap::new();
        for actor in self.objects.values().flat_map(|known| &known.actors) {
            *counts.entry(*actor).or_default() += 1;
        }
        counts
    }

    /// Panics if an invariant is broken, or a process that is not `is_live` is named.
    pub fn check(&self, is_live: impl Fn(ProcessSlot) -> bool) {
        let mut containers = BTreeMap::<ObjectId, u32>::new();
        for inner in self.objects.values().flat_map(|known| &known.objects) {
            *containers.entry(*inner).or_default() += 1;
        }
        let mut holdings = 0;
        for (object, known) in &self.objects {
            assert!(!known.is_unreachable(), "directory invariant 1: {object}");
            let counted = containers.get(object).copied().unwrap_or(0);
            assert_eq!(known.containers, counted, "directory invariant 2: {object}");
            for holder in &known.holders {
                assert!(is_live(*holder), "{object} is held by the dead process {holder}");
                assert!(self.held[holder].contains(object), "directory invariant 3: {object}");
            }
            holdings += known.holders.len();
            assert!(known.maker.is_none_or(&is_live), "directory invariant 5: {object}");
            if let Value::Pending { owner: Some(owner) } = known.value {
                assert!(is_live(owner), "{object} is owned by the dead process {owner}");
            }
            let waits = matches!(known.value, Value::Known(_)) && !known.subscribers.is_empty();
            assert!(!waits, "directory invariant 4: {object}");
        }
        assert_eq!(holdings, self.held.values().map(BTreeSet::len).sum::<usize>(), "directory invariant 3");
    }
}

impl Value {
    fn may_be_replaced(&self) -> bool {
        match self {
            Value::Pending { .. } => true,
            Value::Known(SharedValue::Failed(Failure { kind, .. })) => {
                matches!(kind, FailureKind::Lost | FailureKind::NotRebuilt(_))
            }
            Value::Known(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{SessionId, TaskId};

    const DRIVER: ProcessSlot = ProcessSlot(0);
    const WORKER: ProcessSlot = ProcessSlot(1);

    fn object(number: u64) -> ObjectId {
        TaskId::root(SessionId(1)).child(number).returns(0)
    }

    fn inline(byte: u8) -> SharedValue {
        SharedValue::Inline { bytes: vec![byte], contains: false }
    }

    fn lost() -> SharedValue {
        SharedValue::Failed(Failure::new(FailureKind::Lost, "lost"))
    }

    #[test]
    fn a_long_chain_of_containers_is_freed_with_its_head() {
        let mut directory = Directory::default();
        let actor = ActorId::created_by(TaskId::root(SessionId(1)).child(7));
        directory.hold(object(0), DRIVER);
        for number in 0..100_000 {
            directory.contain(object(number), [object(number + 1)], []);
        }
        assert_eq!(directory.contain(object(100_000), [], [actor]), [actor]);
        assert_eq!(directory.contain(object(100_000), [], [actor]), [], "counted once");
        let freed = directory.release(object(0), DRIVER);
        assert_eq!(freed.objects.len(), 100_001);
        assert_eq!(freed.actors, [actor]);
        assert!(directory.is_empty());
    }

    #[test]
    fn holding_before_and_after_escaping_is_the_same() {
        for hold_first in [true, false] {
            let mut directory = Directory::default();
            if hold_first {
                directory.hold(object(1), WORKER);
            }
            assert!(directory.escape(object(1), DRIVER, None).is_empty());
            directory.hold(object(1), WORKER);
            assert_eq!(directory.subscribe(object(1), WORKER), None);
            assert_eq!(directory.resolve(object(1), inline(1)), [WORKER]);
            assert_eq!(directory.release(object(1), DRIVER), Freed::default());
            assert_eq!(directory.release(object(1), WORKER).objects, [object(1)]);
        }
    }

    #[test]
    fn the_first_value_stays_but_a_lost_one_is_replaced() {
        let mut directory = Directory::default();
        directory.hold(object(1), WORKER);
        directory.escape(object(1), DRIVER, Some(lost()));
        directory.escape(object(1), WORKER, Some(inline(1)));
        directory.resolve(object(1), inline(2));
        assert_eq!(directory.value(object(1)), Some(&Value::Known(inline(1))));
    }

    #[test]
    fn a_maker_that_has_left_an_object_to_others_is_told_of_its_end() {
        let mut directory = Directory::default();
        directory.hold_as_maker(object(1), DRIVER);
        directory.hold(object(1), WORKER);
        assert_eq!(directory.leave(object(1), DRIVER), Freed::default());
        assert_eq!(directory.maker(object(1)), Some(DRIVER));
        let freed = directory.release(object(1), WORKER);
        assert_eq!((freed.objects, freed.makers), (vec![object(1)], vec![(object(1), DRIVER)]));
        // Also if nobody has it by then.
        assert_eq!(directory.leave(object(1), DRIVER).makers, [(object(1), DRIVER)]);
        assert!(directory.is_empty());
    }

    #[test]
    fn a_dead_process_holds_and_awaits_nothing() {
        let mut directory = Directory::default();
        directory.escape(object(1), WORKER, None);
        directory.subscribe(object(2), WORKER);
        assert_eq!(directory.owed_by(WORKER), [object(1)]);
        let freed = directory.forget_process(WORKER);
        assert_eq!(freed.objects.len(), 2);
        directory.check(|_| true);
    }
}
