//! Tasks that were cancelled and may run on: no process waits for them, but they have to end when their submitter has.

use super::{LocalNode, RemoteNode};
use aktis_protocol::peer::{Frame, Ticket};
use aktis_protocol::{ProcessSlot, TaskId, TaskKey};
use std::collections::BTreeMap;
use std::collections::VecDeque;

/// How many are remembered for one submitter, and of the other side: the latest.
const CANCELLED_KEPT: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Cancels {
    /// By the process that had submitted them.
    there: BTreeMap<ProcessSlot, VecDeque<Ticket>>,
    here: VecDeque<(Ticket, TaskId, TaskKey)>,
}

impl<N: LocalNode> RemoteNode<N> {
    /// A local process has cancelled what was sent for it.
    pub(super) fn send_cancel(&mut self, from: ProcessSlot, ticket: Ticket, recursive: bool, force: bool) {
        remember(self.cancels.there.entry(from).or_default(), ticket);
        self.send(Frame::Cancel { ticket, recursive, force });
    }

    /// A local process has ended: what it had cancelled ends now.
    pub(super) fn end_cancelled(&mut self, process: ProcessSlot) {
        for ticket in self.cancels.there.remove(&process).unwrap_or_default() {
            self.send(Frame::Cancel { ticket, recursive: true, force: true });
        }
    }

    pub(super) fn on_cancel(&mut self, ticket: Ticket, recursive: bool, force: bool) {
        if let Some(received) = self.received.get(ticket) {
            let (task, key) = (received.task, received.key);
            remember(&mut self.cancels.here, (ticket, task, key));
            return self.cancel(key, force, recursive);
        }
        let cancelled = self.cancels.here.iter().position(|(cancelled, ..)| *cancelled == ticket);
        match cancelled.and_then(|place| self.cancels.here.remove(place)) {
            Some((_, task, key)) if force => self.node.kill_worker_of(task, key),
            Some(_) => {}
            None => self.cancel_waiting(ticket),
        }
    }
}

fn remember<T>(kept: &mut VecDeque<T>, new: T) {
    if kept.len() >= CANCELLED_KEPT {
        kept.pop_front();
    }
    kept.push_back(new);
}
