//! Tasks and calls of other nodes that run here: the driver is their worker.

use super::memory::Run;
use super::site::{OBJECT_BYTES_MAX, Question, Site};
use crate::random::Random;
use crate::world::{DRIVER, killed};
use aktis_logic::machine::remote_node::{LocalAnswer, LocalEvent, LocalNode};
use aktis_protocol::control::{ToNode, encode};
use aktis_protocol::hot::{MessageKind, Stored};
use aktis_protocol::peer::{Inside, PeerArgument};
use aktis_protocol::{EntryRef, Failure, FailureKind, ObjectId, TaskKey};

/// The result of a run that is to be stored.
#[derive(Clone, Debug)]
pub(super) struct Result {
    key: TaskKey,
    inside: Inside,
}

impl Site {
    /// One run begins or ends.
    pub(super) fn work(&mut self, random: &mut Random, faults: bool) {
        let memory = self.memory.borrow();
        let can_go_on = |run: &&Run| run.begun || run.proxy.are_known(&run.arguments);
        let ready: Vec<TaskKey> =
            memory.runs.iter().filter(|run| !run.stores).filter(can_go_on).map(|run| run.key).collect();
        drop(memory);
        let Some(key) = random.pick(&ready) else { return };
        let mut memory = self.memory.borrow_mut();
        let run = memory.runs.iter_mut().find(|run| run.key == key).expect("it was picked");
        if !std::mem::replace(&mut run.begun, true) {
            let arguments = run.call.arguments.clone();
            drop(memory);
            return self.begin_run(&arguments, random);
        }
        drop(memory);
        self.end_run(key, random, faults);
    }

    /// A run begins: the worker holds handles of the actors inside its arguments, and keeps some objects.
    fn begin_run(&mut self, arguments: &[PeerArgument], random: &mut Random) {
        for argument in arguments {
            let objects = match argument {
                PeerArgument::Object(object) => std::slice::from_ref(object),
                PeerArgument::Value { inside, .. } => {
                    inside.actors.iter().for_each(|actor| self.hold_handle(*actor));
                    &inside.objects
                }
            };
            for &object in objects.iter().filter(|_| random.chance(50)) {
                self.tell(ToNode::Held { object });
                self.references.entry(object).or_default().used = true;
            }
        }
    }

    /// A run ends, with some result.
    fn end_run(&mut self, key: TaskKey, random: &mut Random, faults: bool) {
        let mut inside = Inside::default();
        for _ in 0..random.below(3) {
            inside.objects.extend(self.pick(random).filter(|object| !inside.objects.contains(object)));
        }
        if random.chance(30) {
            inside.actors.extend(self.pick_handle(random));
        }
        let mut memory = self.memory.borrow_mut();
        let run = memory.runs.iter_mut().find(|run| run.key == key).expect("it was picked");
        let (object, holder, cancelled) = (run.call.task.returns(0), run.proxy.slot, run.cancelled);
        let choice = if cancelled { 0 } else { 1 + random.below(10) };
        run.stores = choice > 7;
        drop(memory);
        match choice {
            0 => self.answer(key, LocalAnswer::Failed(Failure::new(FailureKind::Cancelled, "cancelled"))),
            1 => self.answer(key, LocalAnswer::Failed(Failure::new(FailureKind::InputFailed, "a bug"))),
            2 if faults => self.lose_run(key),
            3..=7 if !inside.is_empty() => {
                let Inside { objects, actors } = inside.clone();
                self.tell(ToNode::Contains { container: object, holder, objects, actors });
                self.answer(key, LocalAnswer::Inline(encode(&inside), Some(object)));
            }
            8.. => {
                let bytes = 1 + random.below(OBJECT_BYTES_MAX);
                let question = Question::Space(object, Some(Result { key, inside }));
                self.ask(question, |request| ToNode::ExtentWanted { request, object, bytes });
            }
            _ => self.answer(key, LocalAnswer::Inline(encode(&Inside::default()), None)),
        }
    }

    pub(super) fn on_space_for_result(&mut self, object: ObjectId, entry: EntryRef, result: Result) {
        let holder =
            self.memory.borrow().runs.iter().find(|run| run.key == result.key).map(|run| run.proxy.slot);
        // What it refers to may have been dropped meanwhile.
        let still_held = result.inside.objects.iter().all(|object| self.references.contains_key(object))
            && result.inside.actors.iter().all(|actor| self.tasks.handles.contains_key(actor));
        let Some(holder) = holder else { return self.tell(ToNode::Abandoned { object }) };
        let contains = still_held && !result.inside.is_empty();
        if contains {
            let Inside { objects, actors } = result.inside;
            self.tell(ToNode::Contains { container: object, holder, objects, actors });
        }
        self.tell(ToNode::Sealed { object, holder });
        self.answer(result.key, LocalAnswer::Stored(Stored { object, entry }, contains));
    }

    pub(super) fn on_no_space(&mut self, result: &Result) {
        let failure = Failure::new(FailureKind::Store, "there is no space");
        self.answer(result.key, LocalAnswer::Failed(failure));
    }

    /// The worker answers: the run is over, if it was not before.
    fn answer(&mut self, key: TaskKey, answer: LocalAnswer) {
        let run = self.memory.borrow_mut().take_run(key);
        let Some(run) = run else { return };
        let (ticket, kind) = (run.ticket, MessageKind::Returned);
        run.proxy.push_event(LocalEvent::Answer { ticket, from: DRIVER, kind, index: 0, answer });
    }

    /// The worker of a run dies, as far as its submitter is concerned; calls end with their actor.
    fn lose_run(&mut self, key: TaskKey) {
        let run = self.memory.borrow_mut().take_run(key);
        let Some(run) = run else { return };
        let kind = match run.actor {
            Some(_) => FailureKind::InputFailed,
            None => FailureKind::WorkerDied(killed(DRIVER)),
        };
        let failure = Failure::new(kind, "its worker died");
        run.proxy.push_event(LocalEvent::Failed { ticket: run.ticket, failure });
    }
}
