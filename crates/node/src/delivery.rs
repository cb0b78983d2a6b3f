//! Brings the node's answers to the driver, in order, on whichever thread has time.
//!
//! Invariants:
//! 1. Answers are delivered in the order in which they were queued, one at a time.
//! 2. Nobody waits for another's delivery: who finds one going on leaves his answers to it.
//! 3. No lock of the node is held while the driver's code runs: it may call the node again.

use aktis_protocol::control::FromNode;
use parking_lot::Mutex;
use std::collections::VecDeque;

/// What takes the node's answers in the driver.
pub type Deliver = Box<dyn Fn(FromNode) + Send + Sync>;

pub(crate) struct Delivery {
    deliver: Deliver,
    queue: Mutex<VecDeque<FromNode>>,
    turn: Mutex<()>,
}

impl Delivery {
    pub(crate) fn new(deliver: Deliver) -> Self {
        Self { deliver, queue: Mutex::default(), turn: Mutex::new(()) }
    }

    /// Adds an answer; it goes out with the next [`Self::run`].
    pub(crate) fn push(&self, message: FromNode) {
        self.queue.lock().push_back(message);
    }

    /// Delivers what is queued, unless somebody is at it.
    pub(crate) fn run(&self) {
        // Asked again after the turn was given back: who came meanwhile has left without delivering.
        while !self.queue.lock().is_empty() {
            let Some(_turn) = self.turn.try_lock() else { return };
            while let Some(message) = self.next() {
                (self.deliver)(message);
            }
        }
    }

    fn next(&self) -> Option<FromNode> {
        self.queue.lock().pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, OnceLock};

    fn message(request: u32) -> FromNode {
        FromNode::ShapeExplained { request, text: String::new() }
    }

    #[test]
    fn answers_arrive_once_and_in_order_also_when_delivery_causes_more() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let again: Arc<OnceLock<Arc<Delivery>>> = Arc::default();
        let (seen_there, again_there) = (seen.clone(), again.clone());
        let delivery = Arc::new(Delivery::new(Box::new(move |message_seen| {
            let first = seen_there.lock().is_empty();
            seen_there.lock().push(message_seen);
            if first {
                let delivery = again_there.get().expect("set");
                delivery.push(message(3));
                delivery.run();
            }
        })));
        assert!(again.set(delivery.clone()).is_ok());
        delivery.push(message(1));
        delivery.push(message(2));
        delivery.run();
        assert_eq!(*seen.lock(), [message(1), message(2), message(3)]);
    }

    #[test]
    fn nothing_stays_behind_when_many_threads_deliver() {
        let seen = Arc::new(Mutex::new(0));
        let seen_there = seen.clone();
        let delivery = Delivery::new(Box::new(move |_| *seen_there.lock() += 1));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for request in 0..1000 {
                        delivery.push(message(request));
                        delivery.run();
                    }
                });
            }
        });
        assert_eq!(*seen.lock(), 4000);
    }
}
