//! What local processes want of the other node, and what they answer it.

use super::local_node::answer_message;
use super::received::Received;
use super::{Claimed, LocalAnswer, LocalEvent, LocalNode, RemoteNode, Sent, UNQUEUED_MICROSECONDS_MAX};
use crate::lease_pool::HeldLease;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::hot::{CANCEL_FORCE, CANCEL_RECURSIVE, CallHeader, MessageKind, TaskHeader, ValueForm};
use aktis_protocol::peer::{Frame, PeerArgument, PeerCall, PeerValue, Ticket, fitting};
use aktis_protocol::{Failure, FailureKind, ProcessSlot, ShapeId, TaskKey, control};
use std::collections::BTreeMap;

/// Tasks that one look at the lanes takes at most for a shape, so that frames and answers are not kept waiting.
const CLAIMS_MAX: usize = 64;

impl<N: LocalNode> RemoteNode<N> {
    /// Deals with an event at once, whether or not the link has room.
    pub fn on_event(&mut self, event: LocalEvent) {
        match event {
            LocalEvent::Call { from, kind: MessageKind::ActorCall, key, header, arguments } => {
                self.send_call(from, key, &header, &arguments);
            }
            // Actors that are created, released or killed by messages live in the processes of one node.
            LocalEvent::Call { .. } => {}
            LocalEvent::TaskMessage { from, kind, key, index } => self.send_about(from, kind, key, index),
            LocalEvent::Answer { ticket, from, kind, index, answer } => {
                self.send_answer(ticket, from, kind, index, answer);
            }
            LocalEvent::Failed { ticket, failure } => self.send_failure(ticket, failure),
            LocalEvent::Order(order) => self.on_order(order),
            LocalEvent::ActorChanged { actor, place } => self.on_actor_changed(actor, place),
            LocalEvent::Ready { object } => self.on_ready(object),
            LocalEvent::ProcessDied(process) => self.on_process_died(process),
        }
    }

    fn on_order(&mut self, order: FromNode) {
        match order {
            FromNode::LeaseGranted { lease } => {
                let returned = self.leases.grant(self.now, lease);
                self.return_lease(returned);
            }
            FromNode::LeaseRevoked { shape } => {
                let returned = self.leases.revoke(shape);
                self.return_lease(returned);
            }
            FromNode::HandBack { shape } => self.return_unstarted(shape),
            FromNode::ShapeTold { shape, definition } => self.send(Frame::Shape { shape, definition }),
            FromNode::HostActor { spec, incarnation, .. } => self.send_actor(*spec, incarnation),
            FromNode::EndActor { actor, ending } => self.end_actor_there(actor, ending),
            FromNode::CancelWanted(cancel) => self.send(Frame::CancelObject(cancel)),
            FromNode::ValueWanted { object } => self.send(Frame::ValueWanted { object }),
            FromNode::Freed { object, count } => self.release_import(object, count),
            FromNode::ActorInherited { actor } => self.send_inherited(actor),
            // The node answers one import by this, and may count on a later one.
            FromNode::ActorKnown { actor } => self.release_imports(actor, 1),
            FromNode::ActorReleased { actor, count } => self.release_imports(actor, count),
            FromNode::ActorLost { actor, cause } => self.lose_hosted_actor(actor, cause),
            FromNode::ActorWanted { actor } => self.send(Frame::ActorSought { actor }),
            FromNode::KillActor { actor, restart } => self.send(Frame::KillActor { actor, restart }),
            FromNode::Sought { object } => self.send(Frame::Sought { object }),
            FromNode::Shutdown => self.node_ends = true,
            _ => {}
        }
    }

    /// Claims as many tasks as there are idle leases, and sends them.
    pub(super) fn claim_tasks(&mut self) -> bool {
        let mut progress = false;
        for shape in self.idle_shapes() {
            for _ in 0..CLAIMS_MAX {
                let Some(held) = self.leases.take(shape) else { break };
                let cell = self.cells.pop();
                let Some(claimed) = self.node.claim(shape, cell) else {
                    self.cells.extend(cell);
                    let returned = self.leases.put_unused(held);
                    self.return_lease(returned);
                    break;
                };
                self.send_task(claimed, held, cell);
                progress = true;
            }
        }
        progress
    }

    fn send_task(&mut self, claimed: Claimed, held: HeldLease, cell: Option<usize>) {
        let Claimed { submitter, header, arguments } = claimed;
        let ticket = self.ticket();
        let (returns_left, streams) = (header.returns.max(1), header.stream_ahead > 0);
        self.by_key.insert((submitter, header.key), ticket);
        let (from, key, actor, shape) = (Some(submitter), header.key, None, held.shape);
        let TaskHeader { task, function, attempt, stream_ahead, returns, kind, .. } = header;
        let sent = Sent { from, key, attempt, actor, lease: Some(held), cell, returns_left, streams };
        self.sent.insert(ticket, sent);
        let call = |arguments| PeerCall { task, function, attempt, stream_ahead, returns, kind, arguments };
        let Some(call) = self.call_to_send(ticket, &arguments, call) else { return };
        self.send(Frame::Task { ticket, shape, call });
    }

    fn send_call(&mut self, from: ProcessSlot, key: TaskKey, header: &CallHeader, arguments: &[u8]) {
        if !self.reaches_actor(header.actor) {
            // The caller made this call before it heard of the actor's end. The other node has nothing left to say about the
            // actor and would drop the call without an answer, so the call would be kept here until the link ends. The caller
            // decides about it when the node tells of the actor, as about the calls that were sent before.
            return;
        }
        let ticket = self.ticket();
        let (returns_left, streams) = (header.returns.max(1), header.stream_ahead > 0);
        self.by_key.insert((from, key), ticket);
        let (actor, lease, cell) = (Some(header.actor), None, None);
        let &CallHeader { task, function, attempt, stream_ahead, returns, .. } = header;
        let sent = Sent { from: Some(from), key, attempt, actor, lease, cell, returns_left, streams };
        self.sent.insert(ticket, sent);
        let kind = 0;
        let call = |arguments| PeerCall { task, function, attempt, stream_ahead, returns, kind, arguments };
        let Some(call) = self.call_to_send(ticket, arguments, call) else { return };
        let (actor, group, aways) = (header.actor, header.group as u16, self.actors.aways_received);
        self.send(Frame::Call { ticket, actor, group, aways, call });
    }

    /// A call that was recorded as sent, with all that its arguments refer to exported. If it cannot be sent, its submitter
    /// is told why.
    fn call_to_send(
        &mut self,
        ticket: Ticket,
        arguments: &[u8],
        call: impl FnOnce(Vec<PeerArgument>) -> PeerCall,
    ) -> Option<PeerCall> {
        let call = self.node.arguments_in(arguments).map(call);
        match call.and_then(|call| call.check().map(|()| call).map_err(str::to_owned)) {
            Ok(call) => {
                self.export_arguments(&call.arguments);
                Some(call)
            }
            Err(problem) => {
                self.refuse_sent(ticket, &problem);
                None
            }
        }
    }

    /// Something cannot be sent: its submitter learns why.
    fn refuse_sent(&mut self, ticket: Ticket, problem: &str) {
        let Some(sent) = self.sent.get(&ticket) else { return };
        let kind = if sent.streams { MessageKind::StreamEnded } else { MessageKind::Returned };
        let message = answer_message(kind, ValueForm::Failed, false, 0, sent.key);
        let text = format!("it could not be sent to another node: {problem}");
        let bytes = control::encode(&Failure::new(FailureKind::Codec, text));
        let (from, about) = (sent.from, sent.about(true));
        self.settle_sent(ticket);
        if let Some(from) = from {
            self.post(from, message, bytes, about);
        }
    }

    fn send_about(&mut self, from: ProcessSlot, kind: MessageKind, key: TaskKey, index: u32) {
        let Some(&ticket) = self.by_key.get(&(from, key)) else { return };
        match kind {
            MessageKind::Cancel => {
                let (recursive, force) = (index & CANCEL_RECURSIVE != 0, index & CANCEL_FORCE != 0);
                self.send_cancel(from, ticket, recursive, force);
            }
            MessageKind::StreamCredit => self.send(Frame::StreamCredit { ticket, index }),
            MessageKind::StreamClosed => self.send(Frame::StreamClosed { ticket }),
            _ => {}
        }
    }

    fn send_answer(
        &mut self,
        ticket: Ticket,
        from: ProcessSlot,
        kind: MessageKind,
        index: u32,
        answer: LocalAnswer,
    ) {
        let Some(received) = self.received.get_mut(ticket) else {
            // The other side has given the task up.
            return self.drop_answer(&answer);
        };
        received.producer = Some(from);
        let failed = matches!(answer, LocalAnswer::Failed(_));
        let done = match kind {
            MessageKind::Returned => failed || received.on_returned(index),
            MessageKind::StreamEnded => true,
            _ => false,
        };
        // What it holds stays until the answer itself is held.
        let _done = done.then(|| self.received.remove(ticket));
        if kind == MessageKind::StreamEnded {
            let failure = match answer {
                LocalAnswer::Failed(failure) => Some(fitting(failure)),
                _ => None,
            };
            return self.send(Frame::StreamEnded { ticket, index, failure });
        }
        let value = self.value_to_send(answer).fitting();
        let frame = match kind {
            MessageKind::StreamItem => Frame::StreamItem { ticket, index, value },
            _ => Frame::Returned { ticket, index, value },
        };
        self.send(frame);
    }

    /// A task or call of the other node ended without an answer. If a process died, the other side decides whether
    /// it is run again.
    fn send_failure(&mut self, ticket: Ticket, failure: Failure) {
        let Some(received) = self.received.remove(ticket) else { return };
        let Received { streams, actor, .. } = received;
        let of_life = matches!(
            failure.kind,
            FailureKind::ActorDied | FailureKind::ActorCrashed(_) | FailureKind::WorkerDied(_)
        );
        if of_life {
            self.release_unanswered(&received);
        }
        if of_life && actor.is_some_and(|actor| self.on_call_lost(actor, &failure)) {
            return;
        }
        if let FailureKind::WorkerDied(cause) = failure.kind {
            return self.send(Frame::TaskLost { ticket, cause: Some(cause) });
        }
        let failure = fitting(failure);
        let frame = match streams {
            true => Frame::StreamEnded { ticket, index: 0, failure: Some(failure) },
            false => Frame::Returned { ticket, index: 0, value: PeerValue::Failed(failure) },
        };
        self.send(frame);
    }

    /// Returns tasks of the other side that no worker has begun: they would wait here for too long.
    fn return_unstarted(&mut self, shape: ShapeId) {
        let tasks = self.received.iter().filter(|(_, received)| received.actor.is_none());
        let tickets: BTreeMap<TaskKey, Ticket> =
            tasks.map(|(ticket, received)| (received.key, ticket)).collect();
        let keys: Vec<TaskKey> = tickets.keys().copied().collect();
        for key in self.node.withdraw(shape, &keys) {
            let ticket = tickets[&key];
            self.received.remove(ticket);
            self.send(Frame::TaskLost { ticket, cause: None });
        }
    }

    /// Returns tasks of the other side that found no queue here for too long; gives whether there were any.
    pub(super) fn return_unqueued(&mut self) -> bool {
        let now = self.now;
        let mut progress = false;
        while let Some((_, ticket)) = self
            .unqueued
            .pop_front_if(|(since, _)| now.0.saturating_sub(since.0) >= UNQUEUED_MICROSECONDS_MAX)
        {
            self.send(Frame::TaskLost { ticket, cause: None });
            progress = true;
        }
        progress
    }

    /// The other node has no room for tasks of this shape.
    pub(super) fn return_idle_leases(&mut self, shape: ShapeId) {
        for held in self.leases.take_idle(shape) {
            self.return_lease(Some(held.lease));
        }
    }

    /// A local process died: no process wants what was sent for it. Its place is not used again before that is settled.
    fn on_process_died(&mut self, process: ProcessSlot) {
        for (ticket, sent) in self.sent.iter_mut().filter(|(_, sent)| sent.from == Some(process)) {
            // The answer finds no process, but the lease is in use until it comes.
            sent.from = None;
            self.by_key.remove(&(process, sent.key));
            self.outbox.push(Frame::Cancel { ticket: *ticket, recursive: true, force: true });
        }
        self.end_cancelled(process);
        self.backlog.forget(&self.node, process);
        self.node.tell(ToNode::DeathHandled { process });
    }

    fn send_actor(&mut self, mut spec: aktis_protocol::actors::ActorSpec, incarnation: u32) {
        let bytes = std::mem::take(&mut spec.arguments);
        let arguments = match self.node.arguments_in(&bytes) {
            Ok(arguments) => arguments,
            Err(problem) => {
                let text =
                    format!("its constructor's arguments could not be sent to another node: {problem}");
                let failure = Failure::new(FailureKind::ActorDied, text);
                return self.node.tell(ToNode::ActorEnded { actor: spec.actor, failure });
            }
        };
        self.export_arguments(&arguments);
        self.actors.hosted_there.insert(spec.actor, incarnation);
        self.send(Frame::HostActor { spec: Box::new(spec), arguments, incarnation });
    }
}
