//! The references of one wanderer: what it makes, writes, reads, gives away and drops.

use super::{Around, Letter};
use aktis_protocol::control::{FromNode, RequestId, SharedValue, ToNode};
use aktis_protocol::{EntryRef, ObjectId, ProcessSlot, SessionId, TaskId};
use std::collections::{BTreeMap, BTreeSet};

/// How far a reference has come.
#[derive(Clone, Debug, Default)]
struct Reference {
    /// Whether the node knows of it.
    announced: bool,
    /// Whether this process has to say its value.
    promised: bool,
    /// Where it is in the store, if it is.
    entry: Option<EntryRef>,
    /// Whether this process still uses it.
    used: bool,
    /// To whom it is on its way.
    sent_to: Vec<ProcessSlot>,
}

/// What a wanderer asked the node for.
#[derive(Clone, Debug)]
enum Question {
    Space(ObjectId),
    Restore(ObjectId),
}

/// Everything one wanderer has to do with objects.
#[derive(Debug, Default)]
pub struct Belongings {
    references: BTreeMap<ObjectId, Reference>,
    questions: BTreeMap<RequestId, Question>,
    /// Space that was granted and is not sealed.
    writing: BTreeMap<ObjectId, EntryRef>,
    pins: Vec<EntryRef>,
    /// Values that the node is to tell.
    awaited: BTreeSet<ObjectId>,
    /// Objects that the node freed while this wanderer referred to them.
    pub freed_while_held: Vec<ObjectId>,
    /// Contents of the boxes that this wanderer made.
    pub boxes: Vec<(ObjectId, Vec<ObjectId>)>,
}

impl Belongings {
    /// The objects that the node should know because of this process.
    pub fn announced(&self) -> impl Iterator<Item = ObjectId> {
        self.references.iter().filter(|(_, reference)| reference.announced).map(|(&object, _)| object)
    }

    /// The objects on their way from here to somebody.
    pub fn on_the_way(&self) -> Vec<ObjectId> {
        let sent = self.references.iter().filter(|(_, reference)| !reference.sent_to.is_empty());
        sent.map(|(&object, _)| object).collect()
    }

    /// Whether nothing is left, and nothing unanswered.
    pub fn are_gone(&self) -> bool {
        self.references.is_empty()
            && self.questions.is_empty()
            && self.writing.is_empty()
            && self.awaited.is_empty()
    }

    /// One random thing.
    pub fn act(&mut self, around: &mut Around<'_>) {
        match around.random.below(12) {
            0 | 1 => self.make(around),
            2 | 3 => self.want_space(around),
            4 => self.seal_one(around),
            5 | 6 => self.give_one(around),
            7 => self.pin_one(around),
            8 => self.unpin_one(around),
            9 => self.box_some(around),
            10 => self.await_or_resolve(around),
            _ => self.drop_one(around),
        }
    }

    /// Tidies up: nothing new, and everything ends.
    pub fn close(&mut self, around: &mut Around<'_>) {
        self.unpin_one(around);
        self.seal_one(around);
        self.resolve_one(around);
        for _ in 0..4 {
            self.drop_one(around);
        }
    }

    fn pick(&self, around: &mut Around<'_>) -> Option<ObjectId> {
        let used: Vec<_> =
            self.references.iter().filter(|(_, r)| r.used).map(|(&object, _)| object).collect();
        around.random.pick(&used)
    }

    fn make(&mut self, around: &mut Around<'_>) {
        let object = fresh(around);
        self.references.insert(object, Reference { used: true, ..Reference::default() });
    }

    fn ask(&mut self, question: Question) -> RequestId {
        let request = self.questions.keys().last().map_or(0, |last| last + 1);
        self.questions.insert(request, question);
        request
    }

    fn want_space(&mut self, around: &mut Around<'_>) {
        if self.questions.len() + self.writing.len() > 4 {
            return;
        }
        let object = fresh(around);
        let bytes = 1 + around.random.below(300 << 10);
        let request = self.ask(Question::Space(object));
        around.tell(ToNode::ExtentWanted { request, object, bytes });
    }

    /// Seals for itself, or for another process as its result; or gives up.
    fn seal_one(&mut self, around: &mut Around<'_>) {
        let Some((object, entry)) = self.writing.pop_first() else { return };
        if around.random.chance(10) {
            return around.tell(ToNode::Abandoned { object });
        }
        let holder = around.random.pick(around.peers).filter(|_| around.random.chance(50));
        around.tell(ToNode::Sealed { object, holder: holder.unwrap_or(around.me) });
        match holder {
            Some(holder) => around.write(holder, Letter::Result(object, entry)),
            None => self.receive(object, Some(entry)),
        }
    }

    fn receive(&mut self, object: ObjectId, entry: Option<EntryRef>) {
        let reference = self.references.entry(object).or_default();
        reference.used = true;
        reference.announced = true;
        reference.entry = entry.or(reference.entry);
    }

    /// The node learns of a reference before others may see it.
    fn announce(&mut self, around: &mut Around<'_>, object: ObjectId) {
        let reference = self.references.get_mut(&object).expect("only own references are announced");
        let first = !std::mem::replace(&mut reference.announced, true);
        let value = match reference.entry {
            Some(entry) => Some(SharedValue::Stored { entry, contains: false }),
            None => around.random.chance(50).then(inline),
        };
        if first || reference.entry.is_some() {
            reference.promised = value.is_none();
            around.tell(ToNode::Escaped { object, value });
        }
    }

    fn give_one(&mut self, around: &mut Around<'_>) {
        let (Some(object), Some(peer)) = (self.pick(around), around.random.pick(around.peers)) else {
            return;
        };
        self.announce(around, object);
        let reference = self.references.get_mut(&object).expect("it was picked");
        reference.sent_to.push(peer);
        around.write(peer, Letter::Reference(object, reference.entry));
    }

    fn pin_one(&mut self, around: &mut Around<'_>) {
        let Some(object) = self.pick(around) else { return };
        let Some(entry) = self.references[&object].entry else { return };
        self.pin(around, object, entry);
    }

    fn pin(&mut self, around: &mut Around<'_>, object: ObjectId, entry: EntryRef) {
        if around.index.pin(entry, around.me) {
            self.pins.push(entry);
        } else if self.questions.len() < 4 {
            let request = self.ask(Question::Restore(object));
            around.tell(ToNode::RestoreWanted { request, object });
        }
    }

    fn unpin_one(&mut self, around: &mut Around<'_>) {
        if let Some(entry) = self.pins.pop() {
            around.index.unpin(entry, around.me);
        }
    }

    fn box_some(&mut self, around: &mut Around<'_>) {
        let inside: BTreeSet<_> = (0..3).filter_map(|_| self.pick(around)).collect();
        if inside.is_empty() {
            return;
        }
        for object in &inside {
            self.announce(around, *object);
        }
        let container = fresh(around);
        let objects: Vec<_> = inside.into_iter().collect();
        self.boxes.push((container, objects.clone()));
        self.receive(container, None);
        around.tell(ToNode::Contains { container, holder: around.me, objects, actors: Vec::new() });
    }

    fn await_or_resolve(&mut self, around: &mut Around<'_>) {
        if around.random.chance(50) {
            return self.resolve_one(around);
        }
        let Some(object) = self.pick(around) else { return };
        if self.references[&object].announced && self.awaited.insert(object) {
            around.tell(ToNode::Subscribed { object });
        }
    }

    fn resolve_one(&mut self, around: &mut Around<'_>) {
        let promised = self.references.iter_mut().find(|(_, reference)| reference.promised);
        if let Some((&object, reference)) = promised {
            reference.promised = false;
            around.tell(ToNode::Resolved { object, value: inline() });
        }
    }

    /// A reference goes once it is not used, not promised, not awaited and not on its way. Its value may
    /// still be read.
    fn drop_one(&mut self, around: &mut Around<'_>) {
        if let Some(object) = self.pick(around) {
            let awaited = self.awaited.contains(&object);
            self.references.get_mut(&object).expect("it was picked").used = awaited;
        }
        self.release_unused(around);
    }

    fn release_unused(&mut self, around: &mut Around<'_>) {
        let questions = &self.questions;
        let asked = |object: &ObjectId| {
            questions.values().any(|question| matches!(question, Question::Restore(asked) if asked == object))
        };
        let unused = |object: &ObjectId, reference: &mut Reference| {
            !reference.used && !reference.promised && reference.sent_to.is_empty() && !asked(object)
        };
        for (object, reference) in self.references.extract_if(.., unused).collect::<Vec<_>>() {
            if reference.announced {
                let is_left = around.random.chance(20);
                around.tell(if is_left {
                    ToNode::LeftToOthers { object }
                } else {
                    ToNode::Released { object }
                });
            }
        }
    }

    pub(super) fn on_letter(&mut self, around: &mut Around<'_>, from: ProcessSlot, letter: Letter) {
        match letter {
            Letter::Reference(object, entry) => {
                self.receive(object, entry);
                around.tell(ToNode::Held { object });
                around.write(from, Letter::Arrived(object));
            }
            Letter::Arrived(object) => self.on_arrived(around, object, from),
            Letter::Result(object, entry) => self.receive(object, Some(entry)),
        }
    }

    fn on_arrived(&mut self, around: &mut Around<'_>, object: ObjectId, peer: ProcessSlot) {
        let Some(reference) = self.references.get_mut(&object) else { return };
        if let Some(position) = reference.sent_to.iter().position(|to| *to == peer) {
            reference.sent_to.swap_remove(position);
        }
        self.release_unused(around);
    }

    pub(super) fn on_peer_died(&mut self, around: &mut Around<'_>, peer: ProcessSlot) {
        for reference in self.references.values_mut() {
            reference.sent_to.retain(|to| *to != peer);
        }
        self.release_unused(around);
    }

    /// Answers about objects; other messages are given back.
    pub(super) fn on_message(&mut self, around: &mut Around<'_>, message: FromNode) -> Option<FromNode> {
        match message {
            FromNode::ExtentGranted { request, entry } => match self.answered(request) {
                Question::Space(object) => {
                    self.writing.insert(object, entry);
                }
                other => panic!("space was granted for {other:?}"),
            },
            FromNode::ExtentDenied { request, .. } => match self.answered(request) {
                Question::Space(_) => {}
                other => panic!("space was denied for {other:?}"),
            },
            FromNode::Restored { request, outcome } => match self.answered(request) {
                Question::Restore(object) => self.on_restored(around, object, outcome.is_ok()),
                other => panic!("{other:?} was restored"),
            },
            FromNode::ObjectResolved { object, .. } => {
                assert!(self.awaited.remove(&object), "{object} was told and not asked for");
            }
            FromNode::Freed { object, .. } => {
                // A reference may have come from a process that died meanwhile; the checker knows which.
                let is_held = self.references.get(&object).is_some_and(|reference| reference.announced);
                self.freed_while_held.extend(is_held.then_some(object));
            }
            FromNode::Rebuild { object } => around.tell(ToNode::Resolved { object, value: inline() }),
            other => return Some(other),
        }
        None
    }

    fn on_restored(&mut self, around: &mut Around<'_>, object: ObjectId, in_memory: bool) {
        let wanted = self.references.get(&object).filter(|reference| in_memory && reference.used);
        if let Some(entry) = wanted.and_then(|reference| reference.entry)
            && around.index.pin(entry, around.me)
        {
            self.pins.push(entry);
        }
        self.release_unused(around);
    }

    fn answered(&mut self, request: RequestId) -> Question {
        self.questions.remove(&request).expect("every question is answered once")
    }
}

fn fresh(around: &mut Around<'_>) -> ObjectId {
    TaskId::root(SessionId(around.random.number())).child(0).returns(0)
}

fn inline() -> SharedValue {
    SharedValue::Inline { bytes: vec![1], contains: false }
}
