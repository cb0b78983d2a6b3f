//! What local processes want of the other node, and what they answer it.

use super::received::Received;
use super::{FULL, Peer, Sent};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::hot::{CANCEL_FORCE, CANCEL_RECURSIVE, CallHeader, MessageKind, TaskHeader, ValueForm};
use aktis_protocol::peer::{Frame, PeerArgument, PeerCall, PeerValue, Ticket, fitting};
use aktis_protocol::{Failure, FailureKind, LeaseId, ProcessSlot, ShapeId, TaskKey, control};
use aktis_runtime::bridge::{Bridge, BridgeAnswer, BridgeEvent, Claimed, to_peer};
use std::collections::HashMap;
use std::time::Instant;

/// Tasks that one look at the lanes takes at most for a shape, so that frames and answers are not kept waiting.
const CLAIMS_MAX: usize = 64;

impl Peer {
    pub(super) fn on_event(&mut self, event: BridgeEvent) {
        match event {
            BridgeEvent::Call { from, kind: MessageKind::ActorCall, key, header, arguments } => {
                self.send_call(from, key, &header, &arguments);
            }
            // Actors that are created, released or killed by messages live in the processes of one node.
            BridgeEvent::Call { .. } => {}
            BridgeEvent::TaskMessage { from, kind, key, index } => self.send_about(from, kind, key, index),
            BridgeEvent::Answer { ticket, from, kind, index, answer } => {
                self.send_answer(ticket, from, kind, index, answer);
            }
            BridgeEvent::Failed { ticket, failure } => self.send_failure(ticket, failure),
            BridgeEvent::Order(order) => self.on_order(order),
            BridgeEvent::ActorChanged { actor, place } => self.on_actor_changed(actor, place),
            BridgeEvent::Ready { object } => self.on_ready(object),
            BridgeEvent::ProcessDied(process) => self.on_process_died(process),
        }
    }

    fn on_order(&mut self, order: FromNode) {
        match order {
            FromNode::LeaseGranted { lease } => {
                let idle = self.idle.entry(lease.shape).or_default();
                idle.leases.push(lease.lease);
                (idle.since, idle.once) = (Some(Instant::now()), lease.once);
            }
            FromNode::LeaseRevoked { shape } => {
                let idle = self.idle.entry(shape).or_default();
                match idle.leases.pop() {
                    Some(lease) => self.bridge.return_lease(lease),
                    None => idle.revoked += 1,
                }
            }
            FromNode::HandBack { shape } => self.hand_back(shape),
            FromNode::ShapeTold { shape, definition } => self.wire.send(&Frame::Shape { shape, definition }),
            FromNode::HostActor { spec, incarnation, .. } => self.send_actor(*spec, incarnation),
            FromNode::EndActor { actor, now } => self.end_actor_there(actor, now),
            FromNode::ValueWanted { object } => self.wire.send(&Frame::ValueWanted { object }),
            FromNode::Freed { object, count } => self.release_import(object, count),
            FromNode::ActorInherited { actor } => self.say_inherited(actor),
            FromNode::ActorKnown { actor } => self.release_actor(actor),
            FromNode::ActorReleased { actor, count } => self.release_named(actor, count),
            FromNode::ActorLost { actor, cause } => self.lose_hosted_actor(actor, cause),
            FromNode::ActorWanted { actor } => self.wire.send(&Frame::ActorSought { actor }),
            FromNode::KillActor { actor, restart } => self.wire.send(&Frame::KillActor { actor, restart }),
            FromNode::Sought { object } => self.wire.send(&Frame::Sought { object }),
            FromNode::Shutdown => self.doorway.end("the node ends"),
            _ => {}
        }
    }

    /// Claims as many tasks as there are idle leases, and sends them.
    pub(super) fn claim_tasks(&mut self) -> bool {
        let mut progress = false;
        let shapes: Vec<_> = self.idle.keys().copied().collect();
        for shape in shapes {
            for _ in 0..CLAIMS_MAX {
                let Some(lease) = self.idle.get_mut(&shape).and_then(|idle| idle.leases.pop()) else { break };
                let cell = self.cells.pop();
                let Some(claimed) = self.bridge.claim(shape, cell) else {
                    self.cells.extend(cell);
                    self.idle.entry(shape).or_default().leases.push(lease);
                    break;
                };
                self.send_task(claimed, (shape, lease), cell);
                progress = true;
            }
        }
        progress
    }

    fn send_task(&mut self, claimed: Claimed, lease: (ShapeId, LeaseId), cell: Option<usize>) {
        let Claimed { submitter, header, arguments } = claimed;
        let ticket = self.ticket();
        let (returns_left, streams) = (header.returns.max(1), header.stream_ahead > 0);
        self.by_key.insert((submitter, header.key), ticket);
        let (from, key, actor, lease_held) = (Some(submitter), header.key, None, Some(lease));
        let TaskHeader { task, function, attempt, stream_ahead, returns, kind, .. } = header;
        let sent = Sent { from, key, attempt, actor, lease: lease_held, cell, returns_left, streams };
        self.sent.insert(ticket, sent);
        let call = |arguments| PeerCall { task, function, attempt, stream_ahead, returns, kind, arguments };
        let Some(call) = self.call_to_send(ticket, &arguments, call) else { return };
        self.wire.send(&Frame::Task { ticket, shape: lease.0, call });
    }

    fn send_call(&mut self, from: ProcessSlot, key: TaskKey, header: &CallHeader, arguments: &[u8]) {
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
        let (actor, group, aways) = (header.actor, header.group as u16, self.actors.aways_heard);
        self.wire.send(&Frame::Call { ticket, actor, group, aways, call });
    }

    /// A call that was noted as sent, with all that its arguments refer to kept; if it cannot be sent, its submitter has
    /// learnt why.
    fn call_to_send(
        &mut self,
        ticket: Ticket,
        arguments: &[u8],
        call: impl FnOnce(Vec<PeerArgument>) -> PeerCall,
    ) -> Option<PeerCall> {
        let call = to_peer(arguments).map(call);
        match call.and_then(|call| call.check().map(|()| call).map_err(str::to_owned)) {
            Ok(call) => {
                self.name_arguments(&call.arguments);
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
        let message = Bridge::answer_message(kind, ValueForm::Failed, false, 0, sent.key);
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
            MessageKind::StreamCredit => self.wire.send(&Frame::StreamCredit { ticket, index }),
            MessageKind::StreamClosed => self.wire.send(&Frame::StreamClosed { ticket }),
            _ => {}
        }
    }

    fn send_answer(
        &mut self,
        ticket: Ticket,
        from: ProcessSlot,
        kind: MessageKind,
        index: u32,
        answer: BridgeAnswer,
    ) {
        let Some(received) = self.received.get_mut(ticket) else {
            // The other side has given it up.
            return self.drop_answer(&answer);
        };
        received.producer = Some(from);
        let failed = matches!(answer, BridgeAnswer::Failed(_));
        let done = match kind {
            MessageKind::Returned => failed || received.on_returned(index),
            MessageKind::StreamEnded => true,
            _ => false,
        };
        // What it holds stays until the answer itself is held.
        let _done = done.then(|| self.received.remove(ticket));
        if kind == MessageKind::StreamEnded {
            let failure = match answer {
                BridgeAnswer::Failed(failure) => Some(fitting(failure)),
                _ => None,
            };
            return self.wire.send(&Frame::StreamEnded { ticket, index, failure });
        }
        let value = self.value_to_send(answer).fitting();
        let frame = match kind {
            MessageKind::StreamItem => Frame::StreamItem { ticket, index, value },
            _ => Frame::Returned { ticket, index, value },
        };
        self.wire.send(&frame);
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
            return self.wire.send(&Frame::TaskLost { ticket, cause: Some(cause) });
        }
        let failure = fitting(failure);
        let frame = match streams {
            true => Frame::StreamEnded { ticket, index: 0, failure: Some(failure) },
            false => Frame::Returned { ticket, index: 0, value: PeerValue::Failed(failure) },
        };
        self.wire.send(&frame);
    }

    /// Tasks of the other side that wait here for too long go back to it.
    fn hand_back(&mut self, shape: ShapeId) {
        let tasks = self.received.iter().filter(|(_, received)| received.actor.is_none());
        let tickets: HashMap<TaskKey, Ticket> =
            tasks.map(|(ticket, received)| (received.key, ticket)).collect();
        let keys: Vec<TaskKey> = tickets.keys().copied().collect();
        for key in self.bridge.withdraw(shape, &keys) {
            let ticket = tickets[&key];
            self.received.remove(ticket);
            self.wire.send(&Frame::TaskLost { ticket, cause: None });
        }
    }

    /// Tasks of the other side that found no queue here go back to it; gives whether there were any.
    pub(super) fn hand_back_unqueued(&mut self) -> bool {
        let is_due = |(since, _): &(Instant, Ticket)| since.elapsed() >= FULL;
        let count = self.full.iter().take_while(|waiting| is_due(waiting)).count();
        for (_, ticket) in self.full.drain(..count) {
            self.wire.send(&Frame::TaskLost { ticket, cause: None });
        }
        count > 0
    }

    /// A local process died: nobody wants what was sent for it. Its place is not used again before that is settled.
    fn on_process_died(&mut self, process: ProcessSlot) {
        for (ticket, sent) in self.sent.iter_mut().filter(|(_, sent)| sent.from == Some(process)) {
            // The answer finds nobody, but the lease is in use until it comes.
            sent.from = None;
            self.by_key.remove(&(process, sent.key));
            self.wire.send(&Frame::Cancel { ticket: *ticket, recursive: true, force: true });
        }
        self.end_cancelled(process);
        self.unsent.forget(&self.bridge, process);
        self.bridge.send(ToNode::DeathHandled { process });
    }

    fn send_actor(&mut self, mut spec: aktis_protocol::actors::ActorSpec, incarnation: u32) {
        let bytes = std::mem::take(&mut spec.arguments);
        let arguments = match to_peer(&bytes) {
            Ok(arguments) => arguments,
            Err(problem) => {
                let text =
                    format!("its constructor's arguments could not be sent to another node: {problem}");
                let failure = Failure::new(FailureKind::ActorDied, text);
                return self.bridge.send(ToNode::ActorEnded { actor: spec.actor, failure });
            }
        };
        self.name_arguments(&arguments);
        self.actors.hosted_there.insert(spec.actor, incarnation);
        self.wire.send(&Frame::HostActor { spec: Box::new(spec), arguments, incarnation });
    }
}
