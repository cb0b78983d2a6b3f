//! Objects: putting, opening stored ones, and references that travel inside values.

use crate::codec::{Encoded, Value};
use crate::entry::{Entry, Outcome, StoredAt};
use crate::error::Error;
use crate::handle::{ActorHandle, Handle};
use crate::runtime::Inner;
use crate::worker::FETCHING;
use crate::worker::context::TaskContext;
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::hot::Stored;
use aktis_protocol::{EntryRef, Failure, FailureKind, ObjectId, ProcessSlot};
use aktis_store::{Pin, PinError};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

/// A stored value, pinned in memory. The object itself lives while `held` does, or, for an argument that is
/// only used during its task, while the submitter holds it.
pub(crate) struct Pinned {
    pin: Pin,
    object: ObjectId,
    held: OnceLock<Handle>,
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        &self.pin
    }
}

impl Pinned {
    /// Keeps the object beyond the task that got it as an argument.
    pub(crate) fn keep(&self, runtime: &Arc<Inner>) {
        let _ = self.held.set(runtime.adopt_object(self.object));
    }
}

/// A value that is there, but not in memory, is waited for at least so long, whatever the caller's time is.
const RESTORE_TIME_MIN: Duration = Duration::from_millis(100);

/// How whoever wants to read a stored object waits until it is in memory; without limit, if nothing is said.
#[derive(Clone, Copy, Default)]
pub(crate) struct Patience {
    /// Until when.
    pub(crate) deadline: Option<Instant>,
    /// What the caller said.
    pub(crate) timeout: Duration,
    /// Whether others may use the CPU of the task meanwhile.
    pub(crate) yields: bool,
}

impl Patience {
    /// Of one who waits for so long at most, from now on.
    pub(crate) fn new(timeout: Option<Duration>) -> Self {
        // A time that no clock reaches is none.
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self { deadline, timeout: timeout.unwrap_or_default(), yields: true }
    }

    /// What is left of the time.
    pub(crate) fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// How an encoded value was placed.
pub(crate) enum Placed {
    /// It travels in messages.
    Inline(Encoded),
    /// It is in the store.
    Stored(Stored),
}

impl Inner {
    /// Makes an object of a value.
    pub(crate) fn put(self: &Arc<Self>, value: Encoded) -> Result<Handle, Error> {
        self.put_at(value, self.tuning.inline_bytes_max)
    }

    /// Makes an object of a value in the store, however small it is.
    pub(crate) fn put_stored(self: &Arc<Self>, value: Encoded) -> Result<Handle, Error> {
        self.put_at(value, 0)
    }

    fn put_at(self: &Arc<Self>, value: Encoded, inline_max: usize) -> Result<Handle, Error> {
        self.check_usable()?;
        self.check_own(value.handles())?;
        self.check_own_actors(value.actors())?;
        let id = self.next_task().returns(0);
        let contains = value.contains();
        if contains {
            self.tell_contents(id, self.me, &value);
        }
        let placed =
            if value.len() <= inline_max { Placed::Inline(value) } else { self.store(id, self.me, value)? };
        let (outcome, stored) = match placed {
            Placed::Inline(value) => (Outcome::Inline(value.into_value()), false),
            Placed::Stored(stored) => {
                (Outcome::Stored { place: StoredAt::new(stored.entry), contains }, true)
            }
        };
        let entry = Arc::new(Entry::with_outcome(id, self.clone(), outcome));
        if stored || contains {
            entry.set_known();
            self.known.lock().insert(id, Arc::downgrade(&entry));
        } else {
            self.unlisted.add(&entry);
        }
        Ok(Handle { entry })
    }

    /// Refuses references of another session: their places mean something else here.
    pub(crate) fn check_own(self: &Arc<Self>, handles: &[Handle]) -> Result<(), Error> {
        let own = |handle: &Handle| handle.entry.runtime().is_none_or(|runtime| Arc::ptr_eq(runtime, self));
        match handles.iter().find(|handle| !own(handle)) {
            None => Ok(()),
            Some(other) => Err(Error::Invalid(format!(
                "object {} belongs to another session\nhint: get its value there, and pass that",
                other.id()
            ))),
        }
    }

    /// Refuses handles of actors of another session.
    pub(crate) fn check_own_actors(self: &Arc<Self>, actors: &[ActorHandle]) -> Result<(), Error> {
        match actors.iter().find(|actor| !Arc::ptr_eq(&actor.entry.runtime, self)) {
            None => Ok(()),
            Some(other) => Err(Error::Invalid(format!("actor {} belongs to another session", other.id()))),
        }
    }

    /// Writes a value into the store if it is too large to travel. `holder` holds it from then on.
    pub(crate) fn place(
        self: &Arc<Self>,
        object: ObjectId,
        holder: ProcessSlot,
        value: Encoded,
    ) -> Result<Placed, Error> {
        if value.len() <= self.tuning.inline_bytes_max {
            return Ok(Placed::Inline(value));
        }
        self.store(object, holder, value)
    }

    fn store(
        self: &Arc<Self>,
        object: ObjectId,
        holder: ProcessSlot,
        value: Encoded,
    ) -> Result<Placed, Error> {
        let bytes = value.len() as u64;
        let entry = match self.request(|request| ToNode::ExtentWanted { request, object, bytes })? {
            FromNode::ExtentGranted { entry, .. } => entry,
            FromNode::ExtentDenied { failure, .. } => return Err(failure.into()),
            other => {
                return Err(Error::System(format!("the node answered {other:?} to a request for memory")));
            }
        };
        let mut extent = match self.arena.write(entry) {
            Ok(extent) => extent,
            Err(error) => {
                self.send_to_node(ToNode::Abandoned { object });
                return Err(Error::Store(error.to_string()));
            }
        };
        value.write_to(&mut extent[..bytes as usize]);
        extent.seal();
        self.send_to_node(ToNode::Sealed { object, holder });
        Ok(Placed::Stored(Stored { object, entry }))
    }

    /// Pins a stored object, bringing it back from wherever it is if need be.
    fn pin(self: &Arc<Self>, stored: Stored, patience: Patience) -> Result<Pin, Error> {
        let Stored { object, mut entry } = stored;
        loop {
            match self.arena.pin(entry) {
                Ok(pin) => return Ok(pin),
                Err(error @ PinError::Unreadable(_)) => return Err(Error::Store(error.to_string())),
                Err(PinError::Gone | PinError::NotResident) => {
                    let begin = Instant::now();
                    let restored = self.restore(object, patience)?;
                    FETCHING.set(FETCHING.get() + begin.elapsed());
                    match restored {
                        FromNode::Restored { outcome: Ok(by_now), .. } => entry = by_now,
                        FromNode::Restored { outcome: Err(failure), .. } => return Err(failure.into()),
                        other => {
                            return Err(Error::System(format!("the node answered {other:?} to a restore")));
                        }
                    }
                }
            }
        }
    }

    /// Asks for a stored object that is on another node. The answer finds nobody who waits.
    pub(crate) fn fetch(&self, object: ObjectId, entry: EntryRef) {
        if self.arena.elsewhere(entry).is_some() {
            let request = self.replies.next_request();
            self.send_to_node(ToNode::RestoreWanted { request, object });
        }
    }

    /// Has an object brought into memory, which may take as long as another node does to send it.
    fn restore(self: &Arc<Self>, object: ObjectId, patience: Patience) -> Result<FromNode, Error> {
        let deadline = patience.deadline.map(|deadline| deadline.max(Instant::now() + RESTORE_TIME_MIN));
        let mut blocked = None;
        let look = || {
            if TaskContext::is_cancelled() {
                let text = "the task that waits was cancelled";
                return Err(Failure::new(FailureKind::Cancelled, text).into());
            }
            if crate::hooks::interrupted() {
                return Err(Error::Interrupted);
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return Err(Error::TimedOut(patience.timeout));
            }
            if patience.yields && blocked.is_none() {
                // If so many threads wait that none is left, this one keeps its CPU.
                blocked = self.executor.as_ref().and_then(|executor| executor.enter_blocked(self).ok());
            }
            Ok(())
        };
        self.request_unless(|request| ToNode::RestoreWanted { request, object }, deadline, look)
    }

    /// The value of a stored object that this process holds.
    pub(crate) fn open_held(
        self: &Arc<Self>,
        stored: Stored,
        handle: Handle,
        patience: Patience,
    ) -> Result<Value, Error> {
        let pin = self.pin(stored, patience)?;
        let held = OnceLock::from(handle);
        Ok(Value::pinned(Arc::new(Pinned { pin, object: stored.object, held })))
    }

    /// The value of a stored argument, which the submitter holds while the task runs. If it was lost, it is waited for
    /// as any other value is. The task keeps its CPU meanwhile: another would only wait for memory, too.
    pub(crate) fn open_argument(self: &Arc<Self>, stored: Stored) -> Result<Value, Error> {
        let pin = match self.pin(stored, Patience::default()) {
            Err(error) if is_loss(&error) => return self.hold_object(stored.object).get(None),
            pin => pin?,
        };
        let pinned = Arc::new(Pinned { pin, object: stored.object, held: OnceLock::new() });
        TaskContext::add_pinned(&pinned);
        Ok(Value::pinned(pinned))
    }

    /// A reference to an object that was found inside a value.
    pub(crate) fn adopt_object(self: &Arc<Self>, object: ObjectId) -> Handle {
        let mut known = self.known.lock();
        if let Some(entry) = known.get(&object).and_then(Weak::upgrade) {
            drop(known);
            self.announce(&entry);
            return Handle { entry };
        }
        let entry = Arc::new(Entry::new(object, self.clone()));
        entry.set_known();
        entry.set_escaped();
        known.insert(object, Arc::downgrade(&entry));
        self.outbox.extend([ToNode::Held { object }, ToNode::Subscribed { object }]);
        drop(known);
        self.flush_outbox();
        Handle { entry }
    }

    /// A reference to an object that this process holds for others: its value is asked for when somebody wants it.
    pub(crate) fn hold_object(self: &Arc<Self>, object: ObjectId) -> Handle {
        let mut known = self.known.lock();
        if let Some(entry) = known.get(&object).and_then(Weak::upgrade) {
            return Handle { entry };
        }
        let entry = Arc::new(Entry::new(object, self.clone()));
        entry.set_known();
        entry.set_escaped();
        entry.set_unasked();
        known.insert(object, Arc::downgrade(&entry));
        self.outbox.push(ToNode::Held { object });
        drop(known);
        self.flush_outbox();
        Handle { entry }
    }

    /// A reference to an object that was found inside the value of `container`.
    ///
    /// It borrows the container's hold on the object: the node hears of it only when a thread waits for it.
    pub(crate) fn adopt_inside(self: &Arc<Self>, object: ObjectId, container: Handle) -> Handle {
        let mut known = self.known.lock();
        if let Some(entry) = known.get(&object).and_then(Weak::upgrade) {
            // Dropping the container may take the same lock.
            drop(known);
            return Handle { entry };
        }
        let entry = Arc::new(Entry::new(object, self.clone()));
        entry.set_escaped();
        entry.borrow_from(container);
        known.insert(object, Arc::downgrade(&entry));
        Handle { entry }
    }

    /// Somebody wants to know more of an object than its id: a borrowed reference becomes one that the node knows.
    pub(crate) fn announce(&self, entry: &Entry) {
        if entry.take_unasked() {
            return self.send_to_node(ToNode::Subscribed { object: entry.id });
        }
        let Some(lender) = entry.take_lender() else { return };
        entry.set_known();
        let object = entry.id;
        self.outbox.extend([ToNode::Held { object }, ToNode::Subscribed { object }]);
        self.flush_outbox();
        drop(lender);
    }

    /// The last reference to an object that the node has not heard of is gone.
    pub(crate) fn forget_object(&self, object: ObjectId, entry: &Entry) {
        let mut known = self.known.lock();
        if known.get(&object).is_some_and(|other| std::ptr::eq(other.as_ptr(), entry)) {
            known.remove(&object);
        }
    }

    /// A reference is written into a value: the node must know the object. False if it does already.
    pub(crate) fn escape_object(&self, entry: &Arc<Entry>) -> bool {
        if !entry.set_escaped() {
            return false;
        }
        let object = entry.id;
        let mut known = self.known.lock();
        known.insert(object, Arc::downgrade(entry));
        entry.set_known();
        self.outbox.push(ToNode::Escaped { object, value: entry.escape_value() });
        drop(known);
        self.flush_outbox();
        true
    }

    /// The last reference to an object that the node knows is gone.
    pub(crate) fn release_object(&self, object: ObjectId, entry: &Entry) {
        let mut known = self.known.lock();
        match known.get(&object) {
            Some(other) if !std::ptr::eq(other.as_ptr(), entry) => return, // A newer entry holds it on.
            Some(_) => {
                known.remove(&object);
            }
            None => {}
        }
        self.outbox.push(ToNode::Released { object });
        drop(known);
        self.flush_outbox();
    }
}

/// The objects and actors inside a value.
pub(crate) fn inner_references(value: &Encoded) -> (Vec<ObjectId>, Vec<aktis_protocol::ActorId>) {
    let objects = value.handles().iter().map(Handle::id).collect();
    let actors = value.actors().iter().map(crate::handle::ActorHandle::id).collect();
    (objects, actors)
}

/// Whether this says that a value which was there is lost.
pub(crate) fn is_loss(error: &Error) -> bool {
    matches!(error, Error::Failed(failure) if failure.kind == FailureKind::Lost)
}
