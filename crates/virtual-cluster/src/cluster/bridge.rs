//! A process that stands for another node, as far as objects are concerned: what the threads of the daemon do, on the
//! same counts ([`Loans`]), with messages instead of shared memory.

use super::site::Site;
use crate::world::DRIVER;
use aktis_logic::loans::Loans;
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::peer::{Frame, Inside, PeerValue};
use aktis_protocol::{EntryRef, Failure, FailureKind, ObjectId, ProcessSlot};
use std::collections::BTreeMap;

/// What goes over a link.
#[derive(Clone, Debug)]
pub(super) enum Parcel {
    /// The argument of a task.
    Argument(ObjectId),
    /// The task with this argument is done.
    Done(ObjectId),
    /// The stored result of a task, which the receiver's driver has submitted.
    Result(ObjectId, u64, Inside),
    /// About objects that both sides know.
    Frame(Frame),
}

/// What the driver of a node and those who stand for others write to each other.
#[derive(Clone, Debug)]
pub(super) enum Letter {
    /// A task with this argument.
    Argument(ObjectId),
    /// It is done.
    Done(ObjectId),
    /// A stored result, which its receiver holds already.
    Result(ObjectId, EntryRef),
}

/// An object as one process knows it: how often it is referred to there, and what became of it.
#[derive(Debug, Default)]
struct Known {
    references: u32,
    asked: bool,
    value: Option<SharedValue>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Bridge {
    pub(super) slot: ProcessSlot,
    pub(super) loans: Loans<()>,
    known: BTreeMap<ObjectId, Known>,
    pub(super) letters_in: std::collections::VecDeque<Letter>,
    /// What is to be sent over the link.
    pub(super) sending: Vec<Parcel>,
}

impl Bridge {
    pub(super) fn new(slot: ProcessSlot) -> Self {
        Self {
            slot,
            loans: Loans::default(),
            known: BTreeMap::new(),
            letters_in: Default::default(),
            sending: Vec::new(),
        }
    }
}

impl Site {
    fn bridge(&mut self, other: usize) -> &mut Bridge {
        self.bridges.get_mut(&other).expect("there is a link")
    }

    fn say_for(&mut self, other: usize, message: ToNode) {
        let slot = self.bridge(other).slot;
        self.world.send(slot, message);
    }

    fn post(&mut self, other: usize, parcel: Parcel) {
        self.bridge(other).sending.push(parcel);
    }

    /// One reference more; the node hears of the first.
    fn hold(&mut self, other: usize, object: ObjectId) {
        let known = self.bridge(other).known.entry(object).or_default();
        known.references += 1;
        if known.references == 1 {
            self.say_for(other, ToNode::Held { object });
        }
    }

    /// One reference less; the node hears of the last.
    fn let_go(&mut self, other: usize, object: ObjectId) {
        let known = self.bridge(other).known.get_mut(&object).expect("it is referred to");
        known.references -= 1;
        if known.references == 0 {
            self.bridge(other).known.remove(&object);
            self.say_for(other, ToNode::Released { object });
        }
    }

    fn name(&mut self, other: usize, object: ObjectId) {
        if !self.bridge(other).loans.name_again(object) {
            self.hold(other, object);
            self.lend(other, object);
        }
    }

    /// The other side knows an object from now on, to which there is a reference for that.
    fn lend(&mut self, other: usize, object: ObjectId) {
        if self.bridge(other).loans.name(object, ()).is_some() {
            self.let_go(other, object);
        }
    }

    fn note(&mut self, other: usize, object: ObjectId, found: bool) {
        let holder = self.bridge(other).slot;
        self.say_for(other, ToNode::Promised { object, holder, found });
    }

    /// What is inside a value from the other side lives as long as the value does here.
    fn contain(&mut self, other: usize, container: ObjectId, holder: ProcessSlot, inside: Inside) {
        if inside.is_empty() {
            return;
        }
        for &object in &inside.objects {
            self.note(other, object, false);
            self.hold(other, object);
        }
        let (objects, actors) = (inside.objects.clone(), Vec::new());
        self.say_for(other, ToNode::Contains { container, holder, objects, actors });
        inside.objects.iter().for_each(|object| self.let_go(other, *object));
    }

    fn import(
        &mut self,
        other: usize,
        object: ObjectId,
        bytes: u64,
        holder: ProcessSlot,
        named: bool,
    ) -> Result<EntryRef, Failure> {
        let slot = self.bridge(other).slot;
        let question = ToNode::Imported { request: 1, object, bytes, holder, named };
        let is_answer = |answer: &FromNode| matches!(answer, FromNode::ImportedAs { .. });
        match self.world.ask(slot, question, is_answer) {
            FromNode::ImportedAs { entry, .. } => entry,
            other => unreachable!("{other:?}"),
        }
    }

    /// The references inside a value, which are named with it.
    fn inside(&mut self, other: usize, object: ObjectId) -> Inside {
        let slot = self.bridge(other).slot;
        let is_answer = |answer: &FromNode| matches!(answer, FromNode::Contents { .. });
        let answer = self.world.ask(slot, ToNode::ContentsWanted { request: 2, object }, is_answer);
        let FromNode::Contents { objects, actors, .. } = answer else { unreachable!("{answer:?}") };
        objects.iter().for_each(|object| self.name(other, *object));
        Inside { objects, actors }
    }

    /// A letter of the driver.
    pub(super) fn on_letter_to_bridge(&mut self, other: usize, letter: Letter) {
        match letter {
            Letter::Argument(object) => {
                self.name(other, object);
                self.post(other, Parcel::Argument(object));
            }
            Letter::Done(object) => {
                self.let_go(other, object);
                self.post(other, Parcel::Done(object));
            }
            Letter::Result(object, entry) => {
                // Whoever made it has said that this process holds it.
                let known = self.bridge(other).known.entry(object).or_default();
                known.references += 1;
                known.value = Some(SharedValue::Stored { entry, contains: false });
                self.lend(other, object);
                let inside = self.inside(other, object);
                let bytes = self.world.index.get(entry).expect("it is held").bytes;
                self.post(other, Parcel::Result(object, bytes, inside));
            }
        }
    }

    pub(super) fn on_parcel(&mut self, other: usize, parcel: Parcel) {
        match parcel {
            Parcel::Argument(object) => {
                self.note(other, object, false);
                self.hold(other, object);
                self.letters_to_driver.push_back((other, Letter::Argument(object)));
            }
            Parcel::Done(object) => self.letters_to_driver.push_back((other, Letter::Done(object))),
            Parcel::Result(object, bytes, inside) => match self.import(other, object, bytes, DRIVER, true) {
                Ok(entry) => {
                    self.contain(other, object, DRIVER, inside);
                    self.letters_to_driver.push_back((other, Letter::Result(object, entry)));
                }
                Err(failure) => panic!("{object} is refused: {failure}"),
            },
            Parcel::Frame(frame) => self.on_frame(other, frame),
        }
    }

    fn on_frame(&mut self, other: usize, frame: Frame) {
        match frame {
            Frame::ValueWanted { object } => {
                let slot = self.bridge(other).slot;
                let is_answer = |answer: &FromNode| matches!(answer, FromNode::Origin { .. });
                let origin = self.world.ask(slot, ToNode::OriginWanted { request: 5, object }, is_answer);
                if matches!(origin, FromNode::Origin { peer: Some(peer), .. } if peer == slot) {
                    let value = PeerValue::Failed(Failure::new(FailureKind::Lost, "each asks the other"));
                    return self.post(other, Parcel::Frame(Frame::Value { object, value }));
                }
                if self.bridge(other).loans.get(object).is_some() {
                    self.renew(other, object);
                }
                self.say(other, object);
            }
            Frame::Value { object, value } => self.on_value(other, object, value),
            Frame::Sought { object } => {
                let slot = self.bridge(other).slot;
                let is_answer = |answer: &FromNode| matches!(answer, FromNode::LookedUp { .. });
                let answer = self.world.ask(slot, ToNode::LookupWanted { request: 3, object }, is_answer);
                if let FromNode::LookedUp { known: true, .. } = answer {
                    self.hold(other, object);
                    self.lend(other, object);
                    self.post(other, Parcel::Frame(Frame::Known { object }));
                } else {
                    self.post(other, Parcel::Frame(Frame::Unknown { object }));
                }
            }
            Frame::Unknown { object } => {
                self.say_for(other, ToNode::NotKnown { object });
            }
            Frame::Known { object } => {
                self.note(other, object, true);
                self.hold(other, object);
                self.let_go(other, object);
            }
            Frame::Released { object, count } => {
                if self.bridge(other).loans.on_released(object, count).is_some() {
                    self.let_go(other, object);
                }
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// A value that is gone is asked for again.
    fn renew(&mut self, other: usize, object: ObjectId) {
        let lost = match &self.bridges[&other].known[&object].value {
            Some(SharedValue::Stored { entry, .. }) => self.world.index.get(*entry).is_none(),
            Some(SharedValue::Failed(failure)) => failure.kind == FailureKind::Lost,
            _ => false,
        };
        if lost {
            let known = self.bridge(other).known.get_mut(&object).expect("it is lent");
            (known.value, known.asked) = (None, false);
        }
    }

    fn say(&mut self, other: usize, object: ObjectId) {
        let value = if self.bridge(other).loans.get(object).is_none() {
            let text = format!("object {object} is not known on the node that was asked for it");
            PeerValue::Failed(Failure::new(FailureKind::Lost, text))
        } else {
            let known = self.bridge(other).known.get_mut(&object).expect("it is lent");
            match known.value.clone() {
                None => {
                    if !std::mem::replace(&mut known.asked, true) {
                        self.say_for(other, ToNode::Subscribed { object });
                    }
                    return self.bridge(other).loans.on_wanted(object);
                }
                Some(SharedValue::Inline { bytes, .. }) => {
                    PeerValue::Inline { object, bytes, inside: self.inside(other, object) }
                }
                Some(SharedValue::Stored { entry, .. }) => match self.world.index.get(entry) {
                    Some(found) => {
                        let bytes = found.bytes;
                        PeerValue::Stored { object, bytes, inside: self.inside(other, object) }
                    }
                    None => PeerValue::Failed(Failure::new(FailureKind::Lost, "it is gone")),
                },
                Some(SharedValue::Failed(failure)) => PeerValue::Failed(failure),
            }
        };
        self.post(other, Parcel::Frame(Frame::Value { object, value }));
    }

    fn on_value(&mut self, other: usize, object: ObjectId, value: PeerValue) {
        self.hold(other, object);
        let me = self.bridge(other).slot;
        let value = match value {
            PeerValue::Inline { bytes, inside, .. } => {
                let contains = !inside.is_empty();
                self.contain(other, object, me, inside);
                SharedValue::Inline { bytes, contains }
            }
            PeerValue::Stored { bytes, inside, .. } => match self.import(other, object, bytes, me, false) {
                Ok(entry) => {
                    let contains = !inside.is_empty();
                    self.contain(other, object, me, inside);
                    SharedValue::Stored { entry, contains }
                }
                Err(failure) => SharedValue::Failed(failure),
            },
            PeerValue::Failed(failure) => SharedValue::Failed(failure),
        };
        self.say_for(other, ToNode::Resolved { object, value });
        self.let_go(other, object);
    }

    pub(super) fn on_mail_to_bridge(&mut self, other: usize, message: FromNode) {
        match message {
            FromNode::ValueWanted { object } => {
                self.post(other, Parcel::Frame(Frame::ValueWanted { object }));
            }
            FromNode::Freed { object, count } => {
                self.post(other, Parcel::Frame(Frame::Released { object, count }));
            }
            FromNode::Sought { object } => self.post(other, Parcel::Frame(Frame::Sought { object })),
            FromNode::ObjectResolved { object, value } => {
                if let Some(known) = self.bridge(other).known.get_mut(&object) {
                    known.value.get_or_insert(value);
                }
                if self.bridge(other).loans.take_wanted(object) {
                    self.say(other, object);
                }
            }
            FromNode::ProcessDied { process, .. } => self.say_for(other, ToNode::DeathHandled { process }),
            FromNode::Restored { .. } | FromNode::SharedWorker { .. } => {}
            other => unreachable!("{other:?}"),
        }
    }
}
