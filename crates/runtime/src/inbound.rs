//! What other processes send here: completions, stream items, calls of actors that live here.

use crate::bridge::read_answer;
use crate::codec::Value;
use crate::entry::{Entry, Later, Outcome, StoredAt};
use crate::payload::{Payload, Returns};
use crate::runtime::Inner;
use crate::submit::Shell;
use crate::worker::context::TaskContext;
use aktis_logic::machine::remote_node::LocalEvent;
use aktis_logic::machine::submitter::{Cancelled, Place, Route, Stage, Submitter, SubmitterEffect};
use aktis_protocol::control::{ObjectCancel, ToNode};
use aktis_protocol::hot::{
    CANCEL_FORCE, CANCEL_RECURSIVE, CallHeader, Message, MessageKind, Stored, ValueForm,
};
use aktis_protocol::{
    DeathCause, Failure, FailureKind, ObjectId, ProcessSlot, ShapeId, ShardIndex, TaskId, TaskKey,
};
use aktis_store::{Receiver, Running};
use parking_lot::MutexGuard;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use zerocopy::FromBytes;

/// How often a cancel is tried when there is no room for it.
const CANCEL_TRIES: u32 = 1000;

/// How a task is cancelled, as a message says it.
pub(crate) fn cancel_index(force: bool, recursive: bool) -> u32 {
    let bit = |wanted, bit| if wanted { bit } else { 0 };
    bit(recursive, CANCEL_RECURSIVE) | bit(force, CANCEL_FORCE)
}

/// The reading ends of the channels to this process.
#[derive(Default)]
pub(crate) struct Inbound {
    receivers: Vec<Option<Receiver>>,
    /// Kept empty, for its memory.
    spare: Later,
}

impl Inbound {
    fn receiver(&mut self, runtime: &Inner, from: ProcessSlot) -> Option<&mut Receiver> {
        let index = from.0 as usize;
        if self.receivers.len() <= index {
            self.receivers.resize_with(index + 1, || None);
        }
        let receiver = &mut self.receivers[index];
        if receiver.is_none() {
            *receiver = runtime.control.receiver(from);
        }
        receiver.as_mut()
    }
}

/// A shard whose lock is held while messages are taken in.
type Opened<'a> = (ShardIndex, MutexGuard<'a, Shell>);

/// An answer as it comes in a message.
pub(crate) struct Arrived<'a> {
    pub(crate) from: ProcessSlot,
    pub(crate) kind: MessageKind,
    pub(crate) key: TaskKey,
    pub(crate) index: u32,
    pub(crate) form: ValueForm,
    pub(crate) contains: bool,
    pub(crate) payload: &'a [u8],
}

impl Arrived<'_> {
    /// The outcome, and the object if the node counts this process as its holder.
    fn outcome(&self) -> (Outcome, Option<ObjectId>) {
        match self.form {
            ValueForm::Inline if self.contains => {
                let (object, bytes) = ObjectId::read_from_prefix(self.payload).expect("the id comes first");
                (Outcome::Inline(Value::inline(bytes)), Some(object))
            }
            ValueForm::Inline => (Outcome::Inline(Value::inline(self.payload)), None),
            ValueForm::Stored => {
                let stored = Stored::read_from_bytes(self.payload).expect("a stored value");
                let place = StoredAt::new(stored.entry);
                (Outcome::Stored { place, contains: self.contains }, Some(stored.object))
            }
            ValueForm::Failed => {
                let failure = aktis_protocol::control::decode(self.payload).unwrap_or_else(|error| {
                    Failure::new(FailureKind::Codec, format!("its failure could not be decoded: {error}"))
                });
                (Outcome::Failed(Arc::new(failure)), None)
            }
        }
    }
}

impl Inner {
    /// Takes in what has arrived, unless another thread is doing so; true if there was something.
    pub(crate) fn drain(self: &Arc<Self>) -> bool {
        if !self.control.has_inbound() || self.fork.is_forked() {
            return false;
        }
        let Some(inbound) = self.inbound.try_lock() else { return false };
        self.drain_with(inbound)
    }

    /// Takes in all that had arrived before the call, waiting for another thread that is doing so.
    pub(crate) fn drain_fully(self: &Arc<Self>) {
        self.drain_with(self.inbound.lock());
    }

    fn drain_with(self: &Arc<Self>, mut inbound: MutexGuard<'_, Inbound>) -> bool {
        self.pump.drained();
        let mut later = std::mem::take(&mut inbound.spare);
        let mut progress = false;
        self.control.take_inbound(|from| {
            // What a dead process has left is taken in when its death is told; after that its channel is
            // given to others, and must not be kept open here.
            if self.control.is_alive(from) {
                progress |= self.drain_from(&mut inbound, from, &mut later);
            }
        });
        drop(inbound);
        later.run(self);
        if let Some(mut inbound) = self.inbound.try_lock() {
            inbound.spare = later;
        }
        progress
    }

    fn drain_from(self: &Arc<Self>, inbound: &mut Inbound, from: ProcessSlot, later: &mut Later) -> bool {
        let Some(receiver) = inbound.receiver(self, from) else { return false };
        let mut shell: Option<Opened<'_>> = None;
        let mut progress = false;
        while receiver
            .pop(|message, payload| self.on_message(from, message, payload, &mut shell, later))
            .is_some()
        {
            progress = true;
        }
        if let Some((_, mut shell)) = shell {
            // Completions mean that there is room for more.
            shell.flush(self, later);
        }
        progress
    }

    fn on_message<'a>(
        self: &'a Arc<Self>,
        from: ProcessSlot,
        message: &Message,
        payload: &[u8],
        shell: &mut Option<Opened<'a>>,
        later: &mut Later,
    ) {
        let Some(kind) = MessageKind::from_u8(message.kind) else { return };
        match kind {
            MessageKind::Returned | MessageKind::StreamItem | MessageKind::StreamEnded => {
                let shell = self.open_shard(message.key, shell, later);
                let Some(form) = ValueForm::from_u8(message.form) else { return };
                let (key, index, contains) = (message.key, message.index, message.contains != 0);
                let arrived = Arrived { from, kind, key, index, form, contains, payload };
                self.on_answer(shell, &arrived, later);
            }
            MessageKind::ActorCreate
            | MessageKind::ActorCall
            | MessageKind::ActorRelease
            | MessageKind::ActorKill => {
                *shell = None;
                self.bridge_message(from, kind, message, payload);
                if let (Some(executor), Ok((header, bytes))) =
                    (&self.executor, CallHeader::read_from_prefix(payload))
                {
                    executor.deliver(self, from, kind, message.key, &header, bytes);
                }
            }
            MessageKind::StreamCredit | MessageKind::StreamClosed | MessageKind::Cancel => {
                self.bridge_message(from, kind, message, payload);
                if let Some(executor) = &self.executor {
                    executor.on_task_message(from, kind, message.key, message.index);
                }
            }
        }
    }

    /// Locks the shard of a task, unless it is locked; one that was locked before is flushed.
    fn open_shard<'a, 'b>(
        self: &'a Arc<Self>,
        key: TaskKey,
        opened: &'b mut Option<Opened<'a>>,
        later: &mut Later,
    ) -> &'b mut Shell {
        let shard = self.submitter.of(key);
        if let Some((_, mut other)) = opened.take_if(|(index, _)| *index != shard.index) {
            other.flush(self, later);
        }
        &mut opened.get_or_insert_with(|| (shard.index, shard.lock())).1
    }

    /// A return value or a stream's item has arrived for a task of this process.
    pub(crate) fn on_answer(self: &Arc<Self>, shell: &mut Shell, arrived: &Arrived<'_>, later: &mut Later) {
        let (outcome, held) = arrived.outcome();
        let &Arrived { from, kind, key, index, .. } = arrived;
        let wanted = shell.machine.record(key).filter(|record| record.stage() != Stage::Finished);
        if wanted.is_none_or(|record| record.payload().is_none()) {
            // Cancelled, or answered before: nobody wants it.
            later.messages.extend(held.map(|object| ToNode::Released { object }));
            return;
        }
        if let Outcome::Failed(failure) = &outcome
            && failure.retriable
            && kind != MessageKind::StreamItem
            && shell.step(self, later, |machine, out| machine.on_attempt_failed(key, out))
        {
            return;
        }
        if kind == MessageKind::StreamItem {
            shell.note_item(key, index);
        }
        let Some(payload) = shell.machine.record(key).and_then(|record| record.payload()) else { return };
        let entry = match (&payload.returns, kind) {
            (Returns::Foreign(queue, ticket, _), _) => {
                let answer = read_answer(arrived.form, arrived.contains, arrived.payload);
                queue.push(LocalEvent::Answer { ticket: *ticket, from, kind, index, answer });
                if kind != MessageKind::StreamItem {
                    shell.on_returned(self, key, outcome.is_failed(), later);
                }
                return;
            }
            (Returns::One(entry), MessageKind::Returned) => entry.upgrade(),
            (Returns::Several(entries), MessageKind::Returned) => {
                entries.get(index as usize).and_then(Weak::upgrade)
            }
            (Returns::Stream(stream, _), _) => {
                let Some(stream) = stream.upgrade() else {
                    later.messages.extend(held.map(|object| ToNode::Released { object }));
                    if kind == MessageKind::StreamItem {
                        later.orphans.push((from, key));
                    } else {
                        shell.on_returned(self, key, false, later);
                    }
                    return;
                };
                if kind == MessageKind::StreamItem {
                    let is_first = stream.add(self, (from, key), index, outcome, held.is_some(), later);
                    if is_first && held.is_some() {
                        // The item stays on record as long as it is referenced.
                        shell.machine.on_handle_added(key);
                    }
                    if stream.has_given_all_again() {
                        later.orphans.push((from, key));
                    }
                    later.streams.push(stream);
                    return;
                }
                stream.end(outcome, later);
                later.streams.push(stream);
                shell.on_returned(self, key, false, later);
                return;
            }
            _ => None,
        };
        let failed = outcome.is_failed();
        if failed && let Returns::Several(_) = payload.returns {
            // One failure stands for all the returns.
            if let Outcome::Failed(failure) = &outcome {
                payload.returns.fail(failure, later);
            }
        }
        match entry {
            Some(entry) => self.settle(entry, outcome, held, later),
            None => later.messages.extend(held.map(|object| ToNode::Released { object })),
        }
        shell.on_returned(self, key, failed, later);
    }

    fn settle(&self, entry: Arc<Entry>, outcome: Outcome, held: Option<ObjectId>, later: &mut Later) {
        if held.is_some() {
            // It may have been found inside a value before its task was run again.
            later.entries.extend(entry.take_lender().map(|lender| lender.entry));
            entry.set_known();
            // By this the task is found that makes it again if it is lost. Another entry that is listed already stays so:
            // what the node says goes to it, and when it goes, the node is told.
            let mut known = self.known.lock();
            let listed = known.get(&entry.id).and_then(Weak::upgrade);
            match &listed {
                Some(listed) if !Arc::ptr_eq(listed, &entry) => listed.resolve(outcome.clone(), later),
                Some(_) => {}
                None => drop(known.insert(entry.id, Arc::downgrade(&entry))),
            }
            drop(known);
            later.entries.extend(listed);
        }
        entry.resolve(outcome, later);
        later.entries.push(entry);
    }

    /// Takes in what a process has sent, though it may be dead by now.
    pub(crate) fn drain_process(self: &Arc<Self>, from: ProcessSlot) {
        let mut later = Later::default();
        let mut inbound = self.inbound.lock();
        self.drain_from(&mut inbound, from, &mut later);
        drop(inbound);
        later.run(self);
    }

    /// A process of this node died: what it had of ours is sent elsewhere or fails.
    pub(crate) fn on_process_died(self: &Arc<Self>, dead: ProcessSlot, cause: &DeathCause) {
        let mut later = Later::default();
        // What it had answered before it died counts.
        let mut inbound = self.inbound.lock();
        self.drain_from(&mut inbound, dead, &mut later);
        if let Some(receiver) = inbound.receivers.get_mut(dead.0 as usize) {
            *receiver = None;
        }
        drop(inbound);
        *self.senders[dead.0 as usize].lock() = None;
        for shard in self.submitter.all() {
            let mut shell = shard.lock();
            let mut lost = shell.claimed_by(dead);
            let running = self.control.cells(dead).iter().filter_map(|cell| cell.get());
            let mine = running.filter(|cell| cell.submitter == self.me && cell.key.shard() == shard.index);
            lost.extend(mine.map(|cell| (cell.key, cell.attempt)));
            for (key, attempt) in lost {
                self.lose(&mut shell, key, attempt, Some(cause), &mut later);
            }
            if shard.index == self.submitter.first().index {
                self.on_host_died(&mut shell, dead, cause, &mut later);
            }
            shell.flush(self, &mut later);
            shell.wake_others(self);
        }
        // Who stands for another node has to see to what it has forwarded for the dead one first.
        match self.bridge.get() {
            Some(queue) => {
                queue.push(LocalEvent::ProcessDied(dead));
                queue.wake();
            }
            None => later.messages.push(ToNode::DeathHandled { process: dead }),
        }
        later.run(self);
        if let Some(executor) = &self.executor {
            executor.on_process_died(self, dead);
        }
    }

    /// The process of a task of this one died on another node, or that node hands it back; `process` had forwarded it.
    pub(crate) fn on_task_lost(
        self: &Arc<Self>,
        process: ProcessSlot,
        key: TaskKey,
        attempt: u32,
        cause: Option<&DeathCause>,
    ) {
        // What it had answered before it died counts.
        self.drain_process(process);
        let mut later = Later::default();
        let mut shell = self.submitter.of(key).lock();
        self.lose(&mut shell, key, attempt, cause, &mut later);
        shell.flush(self, &mut later);
        drop(shell);
        later.run(self);
        if let Some(queue) = self.bridge.get() {
            queue.wake();
        }
    }

    fn lose(
        self: &Arc<Self>,
        shell: &mut Shell,
        key: TaskKey,
        attempt: u32,
        cause: Option<&DeathCause>,
        later: &mut Later,
    ) {
        if let Some(payload) = shell.machine.record(key).and_then(|record| record.payload()) {
            payload.returns.hold(later);
        }
        shell.step(self, later, |machine, out| machine.on_lost(key, attempt, cause, out));
    }

    /// Cancels what a task has submitted and what is not finished: its children up to the one with the number `last`.
    pub(crate) fn cancel_children(self: &Arc<Self>, parent: TaskId, last: u64) {
        let numbers = TaskContext::numbers_up_to(last);
        let children: HashSet<TaskId> = numbers.map(|number| parent.child(number)).collect();
        let mut keys: Vec<TaskKey> = Vec::new();
        for shard in self.submitter.all() {
            let shell = shard.lock();
            let unfinished = shell.machine.records().filter(|(_, record)| record.stage() != Stage::Finished);
            let found = unfinished.filter(|(_, record)| children.contains(&record.task()));
            keys.extend(found.map(|(key, _)| key));
        }
        self.run_deferred();
        for key in keys {
            self.cancel(key, false, true);
        }
    }

    /// A borrower in another process cancels the task that makes an object of this one.
    pub(crate) fn cancel_maker_of(self: &Arc<Self>, cancel: ObjectCancel) {
        self.cancel_task(cancel.object.task(), cancel.force, cancel.recursive);
    }

    /// Cancels a task of this process; false if none with this id is unfinished.
    pub(crate) fn cancel_task(self: &Arc<Self>, task: TaskId, force: bool, recursive: bool) -> bool {
        let mut found = None;
        for shard in self.submitter.all() {
            let shell = shard.lock();
            let mut unfinished =
                shell.machine.records().filter(|(_, record)| record.stage() != Stage::Finished);
            found = found.or(unfinished.find(|(_, record)| record.task() == task).map(|(key, _)| key));
        }
        self.run_deferred();
        if let Some(key) = found {
            self.cancel(key, force, recursive);
        }
        found.is_some()
    }

    /// Ends those of these tasks that have this shape and that nobody has begun; gives which.
    pub(crate) fn withdraw(self: &Arc<Self>, shape: ShapeId, keys: &[TaskKey]) -> Vec<TaskKey> {
        let mut later = Later::default();
        let mut withdrawn = Vec::new();
        for &key in keys {
            let mut shell = self.submitter.of(key).lock();
            let Some(record) = shell.machine.record(key) else { continue };
            let is_free = match (record.stage(), record.route()) {
                _ if shell.shape_of(key) != Some(shape) => false,
                (Stage::Queued, _) => true,
                (Stage::Sent { position }, Route::Lane(lane)) => shell.take_back(lane, position),
                _ => false,
            };
            if is_free {
                shell.step(self, &mut later, |machine, out| machine.on_cancelled(key, out));
                shell.flush(self, &mut later);
                withdrawn.push(key);
            }
        }
        later.run(self);
        withdrawn
    }

    /// A finished task is not run again, whatever becomes of its values.
    pub(crate) fn forget_lineage(self: &Arc<Self>, key: TaskKey) {
        let mut later = Later::default();
        let mut shell = self.submitter.of(key).lock();
        shell.step(self, &mut later, |machine, out| machine.forget_lineage(key, out));
        drop(shell);
        later.run(self);
    }

    /// Asks for a task to end, wherever it is, and for what it has submitted if `recursive`. Gives who was not told,
    /// since it did not get on with what came before.
    pub(crate) fn cancel(
        self: &Arc<Self>,
        key: TaskKey,
        force: bool,
        recursive: bool,
    ) -> Option<ProcessSlot> {
        if self.tuning.cancel_asks
            && !force
            && let Some(process) = self.who_runs(key)
        {
            // The task is told, and what it makes of that is its outcome.
            let told = self.send_cancel(process, key, cancel_index(force, recursive));
            return (!told).then_some(process);
        }
        self.end_early(key, force, recursive, |machine, out| machine.on_cancelled(key, out))
    }

    /// A task was not done in the time that it had: it is cancelled, with what it has submitted.
    pub(crate) fn on_deadline_passed(self: &Arc<Self>, key: TaskKey, allowed: Duration) {
        let allowed = format!("{allowed:?}");
        self.end_early(key, false, true, |machine, out| machine.on_deadline_passed(key, &allowed, out));
    }

    fn end_early(
        self: &Arc<Self>,
        key: TaskKey,
        force: bool,
        recursive: bool,
        handler: impl FnOnce(&mut Submitter<Payload>, &mut Vec<SubmitterEffect<Payload>>) -> Cancelled,
    ) -> Option<ProcessSlot> {
        let mut later = Later::default();
        let mut shell = self.submitter.of(key).lock();
        let task = shell.machine.record(key).map(|record| record.task());
        let found = shell.step(self, &mut later, handler);
        let mut is_unseen = false;
        let sent_to = match found {
            Cancelled::Sent(Route::Lane(lane), position) if !shell.take_back(lane, position) => {
                let runs = self.who_runs(key);
                is_unseen = runs.is_none();
                runs
            }
            Cancelled::Taken => Some(self.me),
            Cancelled::Sent(Route::Actor(actor), _) => match shell.machine.actor_place(actor) {
                Place::Alive(process) => Some(*process),
                _ => None,
            },
            _ => None,
        };
        shell.flush(self, &mut later);
        drop(shell);
        if let (true, Some(process), Some(task)) = (force, sent_to, task) {
            later.messages.push(ToNode::WorkerKilled { process, task });
        }
        let how = cancel_index(force, recursive);
        let untold = sent_to.filter(|process| !self.send_cancel(*process, key, how));
        if is_unseen {
            // It is done, or another node has it: who stands for a node has more tasks than cells to show them.
            for process in self.processes().filter(|process| self.is_elsewhere(*process)) {
                self.send_cancel(process, key, how);
            }
        }
        later.run(self);
        untold
    }

    /// False if the process is there and was not told.
    fn send_cancel(self: &Arc<Self>, process: ProcessSlot, key: TaskKey, index: u32) -> bool {
        if process == self.me {
            if let Some(executor) = &self.executor {
                executor.on_task_message(self.me, MessageKind::Cancel, key, index);
            }
            return true;
        }
        let message =
            Message { kind: MessageKind::Cancel as u8, form: 0, contains: 0, reserved: 0, index, key };
        // The caller has its answer already; a receiver that does not get on with what came before is left alone.
        for _ in 0..CANCEL_TRIES {
            if self.push_message(process, &message, &[]) {
                self.control.notify(process);
                return true;
            }
            if self.is_closed() || !self.control.is_alive(process) {
                return true;
            }
            // The channel may have to be opened first.
            self.flush_outbox();
            self.drain();
            std::thread::sleep(std::time::Duration::from_micros(200));
        }
        false
    }

    /// Tells who runs a streaming task that nobody wants its items. If it is not told, it is at its next item.
    pub(crate) fn close_stream(&self, producer: ProcessSlot, key: TaskKey) {
        let kind = MessageKind::StreamClosed as u8;
        let message = Message { kind, form: 0, contains: 0, reserved: 0, index: 0, key };
        if producer != self.me && self.push_message(producer, &message, &[]) {
            self.control.notify(producer);
        }
    }

    /// The process that runs a task of this one now, if one does.
    pub(crate) fn who_runs(&self, key: TaskKey) -> Option<ProcessSlot> {
        self.running().find(|(_, running)| running.key == key).map(|(process, _)| process)
    }

    /// All tasks of this process that run, and where.
    pub(crate) fn all_running(&self) -> HashMap<TaskKey, ProcessSlot> {
        self.running().map(|(process, running)| (running.key, process)).collect()
    }

    /// All processes that are alive.
    fn processes(&self) -> impl Iterator<Item = ProcessSlot> {
        let processes = (0..aktis_protocol::limits::PROCESSES_MAX as u32).map(ProcessSlot);
        processes.filter(|process| self.control.is_alive(*process))
    }

    fn running(&self) -> impl Iterator<Item = (ProcessSlot, Running)> {
        let cells = self
            .processes()
            .flat_map(|process| self.control.cells(process).iter().map(move |cell| (process, cell)));
        let running = cells.filter_map(|(process, cell)| Some((process, cell.get()?)));
        running.filter(|(_, running)| running.submitter == self.me)
    }

    /// Appends a message to the channel to another process; false if there is no room, or no channel yet.
    /// The receiver is not notified.
    pub(crate) fn push_message(&self, to: ProcessSlot, message: &Message, parts: &[&[u8]]) -> bool {
        let mut sender = self.senders[to.0 as usize].lock();
        // The channel to a dead process will be given to others.
        if sender.is_none() && self.control.is_alive(to) {
            *sender = self.control.sender(to).map(Box::new);
        }
        match sender.as_mut() {
            Some(sender) => sender.push(message, parts),
            None => {
                let mut messages = Vec::new();
                self.want_channel_later(to, &mut messages);
                self.outbox.extend(messages);
                false
            }
        }
    }
}
