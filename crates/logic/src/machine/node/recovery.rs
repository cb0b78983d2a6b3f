//! Values that are gone, or that nobody here can say: they are sought, and made again, when somebody wants them.
//!
//! One after another are asked: the process that submitted the task ([`FromNode::Rebuild`]); the node that has named the
//! object; all other nodes, which may have copies; and last the records of tasks, here and in the cluster. By these a
//! process that waits for the value adopts its task ([`FromNode::Adopt`]).
//!
//! What another node held here when it died lingers for a while, so that those to whom it had named it can find it.
//!
//! Invariants:
//! 1. What is sought, and what lingers, is known.
//! 2. Only other nodes that live are waited for.

use super::{Node, NodeEffect, OnRecord};
use crate::directory::Value;
use crate::{Effects, Time};
use aktis_protocol::control::{FromNode, SharedValue};
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::{Failure, FailureKind, NodeId, ObjectId, ProcessSlot, ProgramId};
use std::collections::{BTreeMap, BTreeSet};

/// How long other nodes may take to say that they know an object.
pub(super) const SEARCH_MICROSECONDS_MAX: u64 = 3_000_000;

/// How long a promise may be on its way when all other nodes and the control store have said that they do not know an object.
const PROMISE_MICROSECONDS_MAX: u64 = 500_000;

/// How long an object stays after the other node that held it died: until everybody has heard of that death, and looked
/// for what the dead one had named to him.
const LINGER_MICROSECONDS: u64 = 10_000_000;

/// Who is asked for a lost value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    /// The process that submitted its task.
    Maker,
    /// The node that has named it.
    Namer,
    /// All other nodes.
    Others,
    /// Whoever knows how its task can be run again.
    Records,
    /// The process that has adopted its task.
    Adopter,
}

#[derive(Debug)]
struct Search {
    step: Step,
    /// What those are told who wait, if it is not found.
    failure: Failure,
    /// Those who were asked for it, and have not said that they do not know it.
    silent: BTreeSet<ProcessSlot>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Losses {
    searches: BTreeMap<ObjectId, Search>,
    lingering: BTreeMap<ObjectId, Time>,
}

impl Losses {
    pub(super) fn deadlines(&self) -> impl Iterator<Item = Time> {
        self.lingering.values().copied()
    }

    /// Whether the value of the object is sought.
    pub(super) fn is_sought(&self, object: ObjectId) -> bool {
        self.searches.contains_key(&object)
    }

    /// The object has a value, or is not known any more.
    pub(super) fn end_search(&mut self, object: ObjectId) {
        self.searches.remove(&object);
    }

    pub(super) fn forget_object(&mut self, object: ObjectId) {
        self.searches.remove(&object);
        self.lingering.remove(&object);
    }
}

fn unknown(object: ObjectId) -> Failure {
    let text = format!("the object {object} is unknown: every process that could say its value is dead");
    Failure::new(FailureKind::Lost, text)
}

fn copies_lost(object: ObjectId, nodes: &[NodeId], gone: bool) -> Failure {
    let nodes: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    let why = match (&nodes[..], gone) {
        ([], _) => "no node has a copy of it any more".to_owned(),
        ([node], true) => format!("its only copy was on node {node}, which is gone"),
        ([node], false) => {
            format!("its only copy was on node {node}, which is out of reach, or has it no more")
        }
        (nodes, true) => format!("its copies were on nodes {}, which are gone", nodes.join(", ")),
        (nodes, false) => {
            format!(
                "its copies were on nodes {}, which are out of reach, or have it no more",
                nodes.join(", ")
            )
        }
    };
    Failure::new(FailureKind::Lost, format!("the object {object} is lost: {why}"))
}

impl Node {
    /// Somebody asks for an object whose copies are all gone.
    pub(super) fn note_lost_value(&mut self, object: ObjectId) {
        let stored = |value: &Value| matches!(value, Value::Known(SharedValue::Stored { .. }));
        if self.directory.value(object).is_some_and(stored) && self.memory.copies.readable(object).is_empty()
        {
            let text = format!("object {object} is not in the store any more");
            self.directory.lose(object, Failure::new(FailureKind::Lost, text));
        }
    }

    /// The value of an object is gone from where it was, or whoever was to say it is. If somebody waits for it, it is
    /// made again, if it can be.
    pub(super) fn on_value_lost(
        &mut self,
        now: Time,
        object: ObjectId,
        failure: Failure,
        out: &mut Effects<NodeEffect>,
    ) {
        self.directory.lose(object, failure);
        self.note_stored_value(object, out);
        if self.directory.is_awaited(object) && self.directory.is_lost(object) {
            return self.make_again(now, object, out);
        }
        self.tell_loss(now, object, out);
    }

    /// Those who wait for a value are told that there is none, if that is so.
    fn tell_loss(&mut self, now: Time, object: ObjectId, out: &mut Effects<NodeEffect>) {
        if matches!(self.directory.value(object), Some(Value::Known(_))) {
            let waiting = self.directory.take_subscribers(object);
            self.tell_value(object, waiting, out);
            let freed = self.directory.collect(vec![object]);
            self.free(now, freed, out);
        }
    }

    /// Somebody waits for the value of an object that is lost.
    pub(super) fn make_again(&mut self, now: Time, object: ObjectId, out: &mut Effects<NodeEffect>) {
        let Some(Value::Known(SharedValue::Failed(failure))) = self.directory.value(object) else { return };
        let failure = failure.clone();
        self.directory.seek(object);
        self.search(now, object, Step::Maker, failure, out);
    }

    /// Somebody waits for the value of an object that nobody here has promised.
    pub(super) fn seek_unknown(&mut self, now: Time, object: ObjectId, out: &mut Effects<NodeEffect>) {
        self.search(now, object, Step::Others, unknown(object), out);
    }

    /// Asks the next one who may have a value or have it made again; if there is none, it is lost.
    fn search(
        &mut self,
        now: Time,
        object: ObjectId,
        first: Step,
        failure: Failure,
        out: &mut Effects<NodeEffect>,
    ) {
        // It may be in the store here by now: who was asked for it may have found that, too.
        self.note_stored_value(object, out);
        if matches!(self.directory.value(object), Some(Value::Known(SharedValue::Stored { .. }))) {
            return;
        }
        let steps = [Step::Maker, Step::Namer, Step::Others, Step::Records];
        for step in steps.into_iter().filter(|step| *step >= first) {
            if let Some(silent) = self.take_step(now, object, step, out) {
                self.losses.searches.insert(object, Search { step, failure, silent });
                return;
            }
        }
        self.losses.searches.remove(&object);
        self.orphans.remove(&object);
        self.directory.lose(object, failure);
        self.tell_loss(now, object, out);
    }

    /// Asks somebody; gives the nodes that are to answer, or nothing if nobody can be asked so.
    fn take_step(
        &mut self,
        now: Time,
        object: ObjectId,
        step: Step,
        out: &mut Effects<NodeEffect>,
    ) -> Option<BTreeSet<ProcessSlot>> {
        match step {
            Step::Maker => {
                let maker = self.directory.maker(object).filter(|maker| !self.is_peer(*maker))?;
                self.directory.promise(object, maker);
                self.send(maker, FromNode::Rebuild { object }, out);
            }
            Step::Namer => {
                let peer = self.peers.namer(object)?;
                self.directory.promise(object, peer);
                self.peers.ask_again(object);
                self.send(peer, FromNode::ValueWanted { object }, out);
            }
            Step::Others => {
                self.directory.seek(object);
                let asked = self.ask_others(object, out);
                if asked.is_empty() {
                    return None;
                }
                self.orphans.insert(object, Time(now.0 + SEARCH_MICROSECONDS_MAX));
                return Some(asked);
            }
            Step::Records => {
                self.adopters(object).next()?;
                if let Some(task) = self.records.of(object).cloned() {
                    return self.adopt(object, &task, out).then(BTreeSet::new);
                }
                if !self.places.is_clustered() {
                    return None;
                }
                self.directory.seek(object);
                out.push(NodeEffect::SeekRecord { object });
            }
            Step::Adopter => return None,
        }
        Some(BTreeSet::new())
    }

    /// The processes that could run the task of an object for which somebody waits, if it is of their program: those who
    /// wait themselves, and those who hold it, since others may wait through other nodes.
    fn adopters(&self, object: ObjectId) -> impl Iterator<Item = (ProcessSlot, ProgramId)> {
        let is_awaited = self.directory.is_awaited(object);
        let holders = self.directory.holders(object).filter(move |_| is_awaited);
        let here = self.directory.subscribers(object).chain(holders);
        here.filter(|process| self.process_table.is_live(*process))
            .filter_map(|process| Some((process, self.program_of(process)?)))
    }

    /// Has somebody run the task of an object for which somebody waits; false if nobody can.
    fn adopt(&mut self, object: ObjectId, task: &RecordedTask, out: &mut Effects<NodeEffect>) -> bool {
        let adopter = self.adopters(object).find(|(_, program)| *program == task.program);
        let Some((adopter, _)) = adopter else { return false };
        self.directory.promise(object, adopter);
        self.orphans.remove(&object);
        self.send(adopter, FromNode::Adopt { object, lineage: task.lineage.clone() }, out);
        true
    }

    /// Another node does not know an object that it was asked for.
    pub(super) fn on_not_known(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        out: &mut Effects<NodeEffect>,
    ) {
        let Some(search) = self.losses.searches.get_mut(&object) else { return };
        if search.silent.remove(&from) && search.silent.is_empty() && search.step == Step::Others {
            self.seek_record(now, object, out);
        }
    }

    /// No other node knows the object. If no record of its task is found either, it is still waited for: somebody may
    /// promise it. So it is if only other nodes wait, and nobody here holds it: then they seek it themselves.
    fn seek_record(&mut self, now: Time, object: ObjectId, out: &mut Effects<NodeEffect>) {
        if !self.directory.is_awaited(object) {
            self.orphans.remove(&object);
            return self.search_on(now, object, out);
        }
        if !self.places.is_clustered() || self.adopters(object).next().is_none() {
            return self.await_promise(now, object);
        }
        let adopted = match self.records.of(object).cloned() {
            Some(task) => self.adopt(object, &task, out),
            None => {
                out.push(NodeEffect::SeekRecord { object });
                false
            }
        };
        if let Some(search) = self.losses.searches.get_mut(&object) {
            search.step = if adopted { Step::Adopter } else { Step::Records };
        }
    }

    /// The cluster has said what it knows of an object.
    pub(super) fn on_record_found(
        &mut self,
        now: Time,
        object: ObjectId,
        found: OnRecord,
        out: &mut Effects<NodeEffect>,
    ) {
        if self.losses.searches.get(&object).is_none_or(|search| search.step != Step::Records) {
            return;
        }
        let adopted = match &found {
            OnRecord::Task(task) => task.task == object.task() && self.adopt(object, task, out),
            OnRecord::Copies { .. } | OnRecord::Nothing => false,
        };
        let Some(search) = self.losses.searches.get_mut(&object) else { return };
        if adopted {
            search.step = Step::Adopter;
            return;
        }
        if let OnRecord::Copies { nodes, gone } = found {
            search.failure = copies_lost(object, &nodes, gone);
            if gone {
                self.orphans.remove(&object);
            }
        }
        self.await_promise(now, object);
        if !self.orphans.contains_key(&object) {
            self.search_on(now, object, out);
        }
    }

    /// Nobody is left to be asked for an object: only a promise that is on its way may still come.
    fn await_promise(&mut self, now: Time, object: ObjectId) {
        if let Some(due) = self.orphans.get_mut(&object) {
            *due = Time(due.0.min(now.0 + PROMISE_MICROSECONDS_MAX));
        }
    }

    /// Whoever was asked cannot help.
    fn search_on(&mut self, now: Time, object: ObjectId, out: &mut Effects<NodeEffect>) {
        let Some(Search { step, failure, .. }) = self.losses.searches.remove(&object) else { return };
        let next = match step {
            Step::Maker => Step::Namer,
            Step::Namer => Step::Others,
            Step::Others => Step::Records,
            Step::Records | Step::Adopter => Step::Adopter,
        };
        self.search(now, object, next, failure, out);
    }

    /// Somebody says that a value is lost. True if it is not, as far as this node can tell: somebody else is to say it,
    /// or others are asked now, for a process of this node that waits.
    pub(super) fn on_said_lost(
        &mut self,
        now: Time,
        from: ProcessSlot,
        object: ObjectId,
        failure: &Failure,
        out: &mut Effects<NodeEffect>,
    ) -> bool {
        let Some(Value::Pending { owner }) = self.directory.value(object) else { return false };
        if owner.is_some_and(|owner| owner != from) || owner.is_none() && self.losses.is_sought(object) {
            return true;
        }
        if !self.places.is_clustered() || self.adopters(object).next().is_none() {
            return false;
        }
        if self.directory.is_with_maker(object) {
            // It knows nothing of the task any more.
            self.directory.forget_maker(object);
        }
        let by_owner = if self.is_peer(from) { Step::Namer } else { Step::Maker };
        let step = self.losses.searches.get(&object).map_or(by_owner, |search| search.step);
        let search = Search { step, failure: failure.clone(), silent: BTreeSet::new() };
        self.losses.searches.insert(object, search);
        self.directory.disown(object);
        self.search_on(now, object, out);
        true
    }

    pub(super) fn on_orphans_due(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        for (object, _) in self.orphans.extract_if(.., |_, due| *due <= now).collect::<Vec<_>>() {
            match self.losses.is_sought(object) {
                true => self.search_on(now, object, out),
                false => self.search(now, object, Step::Records, unknown(object), out),
            }
        }
    }

    // The death of another node.

    /// What another node held here stays for a while after its death.
    pub(super) fn linger(&mut self, now: Time, dead: ProcessSlot) {
        for object in self.directory.held_by(dead) {
            let inline = |value: &Value| matches!(value, Value::Known(SharedValue::Inline { .. }));
            if self.memory.has(object) || self.directory.value(object).is_some_and(inline) {
                self.directory.set_lingering(object, true);
                self.losses.lingering.insert(object, Time(now.0 + LINGER_MICROSECONDS));
            }
        }
    }

    pub(super) fn on_lingering_due(&mut self, now: Time, out: &mut Effects<NodeEffect>) {
        let due = self.losses.lingering.extract_if(.., |_, due| *due <= now).map(|(object, _)| object);
        let due: Vec<_> = due.collect();
        for &object in &due {
            self.directory.set_lingering(object, false);
        }
        let freed = self.directory.collect(due);
        self.free(now, freed, out);
    }

    /// A node that had named these objects is dead: others may have them, and hold them for this node from now on.
    pub(super) fn on_namer_died(
        &mut self,
        now: Time,
        dead: NodeId,
        named: Vec<ObjectId>,
        out: &mut Effects<NodeEffect>,
    ) {
        for object in named.into_iter().filter(|object| self.directory.knows(*object)).collect::<Vec<_>>() {
            // What a process of this node can have made again is its business.
            if self.directory.maker(object).is_some() || self.records.of(object).is_some() {
                continue;
            }
            self.claim(object, out);
            if self.directory.is_lost(object) {
                let text =
                    format!("the object {object} is lost: it was known from node {dead}, which is gone");
                self.search(now, object, Step::Others, Failure::new(FailureKind::Lost, text), out);
            }
        }
    }

    /// A process is dead: it will not answer.
    pub(super) fn forget_silent(&mut self, now: Time, dead: ProcessSlot, out: &mut Effects<NodeEffect>) {
        let answered = self.losses.searches.iter_mut().filter_map(|(object, search)| {
            let was_last = search.silent.remove(&dead) && search.silent.is_empty();
            (was_last && search.step == Step::Others).then_some(*object)
        });
        for object in answered.collect::<Vec<_>>() {
            self.seek_record(now, object, out);
        }
    }

    pub(super) fn check_losses(&self) {
        for (object, search) in &self.losses.searches {
            assert!(self.directory.knows(*object), "losses invariant 1: {object}");
            for peer in &search.silent {
                assert!(self.process_table.is_live(*peer), "losses invariant 2: {object} of {peer}");
            }
        }
        for object in self.losses.lingering.keys() {
            assert!(self.directory.knows(*object), "losses invariant 1: {object}");
        }
    }
}
