//! Calls of asynchronous methods: under way, suspended, woken, cancelled.

use crate::registry::CallFuture;
use crate::runtime::Inner;
use crate::worker::context::TaskContext;
use crate::worker::executor::{Executor, Runnable};
use crate::worker::mailbox::{Item, Mailbox};
use crate::worker::reply::Answer;
use crate::worker::run::{self, catch};
use aktis_protocol::hot::MessageKind;
use aktis_protocol::{ProcessSlot, TaskKey};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Wake, Waker};

/// A call of an asynchronous method that is under way.
pub(crate) struct AsyncCall {
    mailbox: Arc<Mailbox>,
    runtime: Weak<Inner>,
    function: &'static str,
    item: Item,
    exclusive: bool,
    pub(super) cancelled: Arc<AtomicBool>,
    exits: AtomicBool,
    /// How much it has submitted: the next one has the next number, whenever it goes on.
    children: AtomicU64,
    future: Mutex<Option<CallFuture>>,
}

impl AsyncCall {
    pub(super) fn new(
        mailbox: &Arc<Mailbox>,
        runtime: &Arc<Inner>,
        function: &'static str,
        item: Item,
        exclusive: bool,
        cancelled: Arc<AtomicBool>,
        future: CallFuture,
    ) -> Arc<Self> {
        Arc::new(Self {
            mailbox: mailbox.clone(),
            runtime: Arc::downgrade(runtime),
            function,
            item,
            exclusive,
            cancelled,
            exits: AtomicBool::new(false),
            children: AtomicU64::new(TaskContext::last_children()),
            future: Mutex::new(Some(future)),
        })
    }

    pub(super) fn note_exit(&self, exits: bool) {
        self.exits.fetch_or(exits, Ordering::AcqRel);
    }

    /// Whether it is the call with this key.
    pub(super) fn is(&self, from: ProcessSlot, key: TaskKey) -> bool {
        self.item.from == from && self.item.key == key
    }

    /// Remembers the call with its actor, so that it can be cancelled.
    pub(super) fn suspend(self: &Arc<Self>) {
        let mut state = self.mailbox.inner.lock();
        if state.suspended.len() == state.suspended.capacity() {
            state.suspended.retain(|call| call.strong_count() > 0);
        }
        state.suspended.push(Arc::downgrade(self));
    }

    /// Goes on with the call if it was cancelled before it could be woken for that.
    pub(super) fn heed_cancel(self: &Arc<Self>) {
        if self.cancelled.load(Ordering::Acquire) {
            self.clone().wake();
        }
    }

    /// Goes on with the call; answers when it is done. False if it is not.
    pub(crate) fn poll(self: &Arc<Self>, runtime: &Arc<Inner>, executor: &Executor) -> bool {
        #[cfg(feature = "tokio")]
        let _tokio = super::tokio::enter();
        let mut slot = self.future.lock();
        let Some(future) = slot.as_mut() else { return true };
        let waker = Waker::from(self.clone());
        let context = self.mailbox.context(runtime, &self.item);
        let before = context.enter(self.function, self.cancelled.clone());
        TaskContext::set_children(self.children.load(Ordering::Relaxed));
        let polled = catch(|| Ok(future.as_mut().poll(&mut Context::from_waker(&waker))));
        let result = match polled {
            Ok(Poll::Pending) => {
                self.note_exit(run::leave(runtime, before));
                self.children.store(TaskContext::last_children(), Ordering::Relaxed);
                return false;
            }
            Ok(Poll::Ready(result)) => result,
            Err(panic) => Err(panic),
        };
        // Dropping the future ends its hold on the actor's state, before others may start.
        let dropped = slot.take();
        drop(slot);
        let _ = catch(|| {
            drop(dropped);
            Ok(())
        });
        let result = result.map_err(|failure| failure.or_at(self.function, self.item.task));
        let answer = Answer::new(runtime, context.from, context.object(), result);
        self.note_exit(run::leave(runtime, before));
        answer.send(runtime, context.from, MessageKind::Returned, context.key, 0);
        if self.exits.load(Ordering::Acquire) {
            self.mailbox.exit(runtime, executor);
        }
        self.mailbox.done(runtime, executor, self.item.group, self.exclusive);
        true
    }
}

impl Wake for AsyncCall {
    fn wake(self: Arc<Self>) {
        if let Some(runtime) = self.runtime.upgrade()
            && let Some(executor) = &runtime.executor
        {
            executor.push_runnable(&runtime, Runnable::Future(self.clone()));
        }
    }
}
