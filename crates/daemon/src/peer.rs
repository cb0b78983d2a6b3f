//! The shell around the proxy for another node: it carries frames and events to the machine
//! (`logic::machine::remote_node`), and sends what lies in the machine's outbox.
//!
//! One thread at a time steps the machine: the link's, which has just read frames or looks for more, or the proxy's own,
//! which sleeps until a local process wants something. The thread that has learnt of an event deals with it, so that no
//! other thread has to be woken.
//!
//! Invariant: a thread that steps the machine waits neither for the other side nor for room on the link. The link's own
//! thread may be the one that would have to make room.

mod local;
mod poller;

use aktis_logic::Time;
use aktis_logic::machine::remote_node::{BACKLOG_MICROSECONDS_MAX, LocalProcesses, RemoteNode};
use aktis_protocol::control::ToNode;
use aktis_protocol::peer::Frame;
use aktis_protocol::{ActorId, DeathCause, ObjectId, ProgramId, ShapeId};
use aktis_runtime::Handle;
use aktis_runtime::bridge::Bridge;
use local::LocalProcess;
pub(crate) use local::Programs;
use parking_lot::Mutex;
pub(crate) use poller::LinkPoller;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long the proxy's thread sleeps at most.
const SLEEP: Duration = Duration::from_millis(100);
/// How long it sleeps while a local process, or the link, has no room.
const STUCK: Duration = Duration::from_millis(1);

/// The way to the other node.
pub(crate) trait Wire: Send + Sync {
    /// Sends a frame, after those before it, at the next flush or before. One that cannot be sent is lost with the
    /// link, which its owner learns.
    fn send(&self, frame: &Frame);

    /// Has all frames sent that were not yet.
    fn flush(&self);

    /// Whether there is room for much more.
    fn has_room(&self) -> bool;
}

/// What follows when an actor is known here.
type Then = Box<dyn FnOnce() + Send>;

/// What waits for the thread that steps the machine next.
#[derive(Default)]
struct Pending {
    frames: Vec<Frame>,
    /// Actors of the other node that were looked up by their names.
    sought: Vec<ActorId>,
    /// Programs that were added to the node, or could not be.
    added: Vec<(ProgramId, Result<(), String>)>,
}

/// What other threads leave for the proxy.
pub(crate) struct Inbox {
    bridge: Bridge,
    pending: Mutex<Pending>,
    /// Why the link is gone, if it is.
    ended: Mutex<Option<String>>,
    /// What follows when actors are known here.
    found: Mutex<BTreeMap<ActorId, Vec<Then>>>,
}

impl Inbox {
    fn add(&self, add: impl FnOnce(&mut Pending)) {
        add(&mut self.pending.lock());
        self.bridge.queue().wake();
    }

    fn on_program_added(&self, program: ProgramId, outcome: Result<(), String>) {
        self.add(|pending| pending.added.push((program, outcome)));
    }

    fn on_actor_found(&self, actor: ActorId) {
        let then = self.found.lock().remove(&actor);
        then.into_iter().flatten().for_each(|then| then());
    }
}

/// The machine. However it ends, no process waits for what it would have done, and nothing is held for the other side.
struct Machine(RemoteNode<LocalProcess>);

impl Deref for Machine {
    type Target = RemoteNode<LocalProcess>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Machine {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Before anything is released: others may look for it.
        self.0.local().tell(ToNode::NodeGone);
        let found = std::mem::take(&mut *self.0.local().inbox.found.lock());
        drop(found);
    }
}

/// The proxy for another node, as other threads reach it. See the module.
pub(crate) struct Proxy {
    bridge: Bridge,
    wire: Arc<dyn Wire>,
    programs: Arc<dyn Programs>,
    began: Instant,
    inbox: Arc<Inbox>,
    /// The machine, while the link lives. It belongs to the thread that has the lock.
    machine: Mutex<Option<Machine>>,
}

impl Proxy {
    pub(crate) fn new(bridge: Bridge, wire: Arc<dyn Wire>, programs: Arc<dyn Programs>) -> Arc<Self> {
        let inbox = Inbox {
            bridge: bridge.clone(),
            pending: Mutex::default(),
            ended: Mutex::default(),
            found: Mutex::default(),
        };
        let (inbox, machine) = (Arc::new(inbox), Mutex::new(None));
        Arc::new(Self { bridge, wire, programs, began: Instant::now(), inbox, machine })
    }

    /// The runtime of the proxy.
    pub(crate) fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// Frames have arrived: they are dealt with at once, unless another thread steps the machine.
    pub(crate) fn receive(&self, frames: Vec<Frame>) {
        let mut present = self.machine.try_lock();
        if let Some(machine) = present.as_deref_mut().and_then(Option::as_mut) {
            self.turn(machine, frames);
            return;
        }
        self.inbox.add(|pending| pending.frames.extend(frames));
    }

    /// An actor of the other node was found by its name: `then` is called when it is known here, if ever.
    pub(crate) fn seek_actor(&self, actor: ActorId, then: Then) {
        self.inbox.found.lock().entry(actor).or_default().push(then);
        self.inbox.add(|pending| pending.sought.push(actor));
    }

    /// The reference to an object that the other node knows.
    pub(crate) fn exported(&self, object: ObjectId) -> Option<Handle> {
        self.machine.lock().as_ref()?.exported(object).cloned()
    }

    /// The link is gone.
    pub(crate) fn end(&self, why: &str) {
        self.inbox.ended.lock().get_or_insert_with(|| why.to_owned());
        self.bridge.queue().wake();
    }

    /// The life of the proxy, until the link or the node ends; gives why. This thread does what no other does.
    pub(crate) fn run(&self) -> String {
        self.begin();
        let _leaving = Leaving(self);
        loop {
            // What came before the end is dealt with before it.
            let ended = self.inbox.ended.lock().clone();
            let mut present = self.machine.lock();
            let machine = present.as_mut().expect("no other thread takes it away");
            let progress = self.turn(machine, Vec::new());
            let closed = self.bridge.runtime().is_closed();
            if let Some(why) = ended.or_else(|| closed.then(|| "the node ends".into())) {
                let machine = present.take();
                drop(present);
                machine.into_iter().for_each(|machine| self.end_machine(machine, &gone(&why)));
                return why;
            }
            if progress {
                continue;
            }
            if !self.wire.has_room() {
                drop(present);
                self.bridge.pass_on(&[]);
                std::thread::sleep(STUCK);
                continue;
            }
            let timeout = if machine.has_backlog() { STUCK } else { self.until(machine.next_wakeup()) };
            let idle = machine.idle_shapes();
            self.bridge.pass_on(&idle);
            self.bridge.sleep(&idle, timeout, || drop(present));
        }
    }

    /// Makes the machine.
    fn begin(&self) {
        *self.machine.lock() = Some(Machine(RemoteNode::new(self.local(), self.bridge.cells())));
    }

    fn local(&self) -> LocalProcess {
        let (bridge, programs, inbox) = (self.bridge.clone(), self.programs.clone(), self.inbox.clone());
        LocalProcess { bridge, programs, inbox }
    }

    /// Gives the machine all that has happened, these frames first unless others have come before them; gives whether
    /// something has.
    fn turn(&self, machine: &mut Machine, frames: Vec<Frame>) -> bool {
        let now = self.now();
        // First, so that the thread that sleeps next notices whatever happens after this. As long as there is no room,
        // local processes are left to wait.
        if self.wire.has_room() {
            machine.add_events(self.bridge.take());
        }
        let Pending { frames: earlier, sought, added } = std::mem::take(&mut *self.inbox.pending.lock());
        let mut progress =
            !earlier.is_empty() || !frames.is_empty() || !sought.is_empty() || !added.is_empty();
        machine.begin_turn();
        for frame in earlier.into_iter().chain(frames) {
            machine.on_frame(now, frame);
            self.send(machine);
        }
        sought.into_iter().for_each(|actor| machine.seek_actor(actor));
        for (program, outcome) in added {
            machine.on_program_added(now, program, outcome);
        }
        progress |= machine.on_time(now);
        self.send(machine);
        while self.wire.has_room() && machine.on_room(now) {
            self.send(machine);
            progress = true;
        }
        progress |= self.wire.has_room() && machine.send_program_part();
        self.send(machine);
        if machine.node_ends() {
            self.end("the node ends");
        }
        if progress {
            self.wire.flush();
        }
        progress
    }

    fn send(&self, machine: &mut Machine) {
        for frame in machine.outbox().drain(..) {
            self.wire.send(&frame);
        }
    }

    fn idle_shapes(&self) -> Vec<ShapeId> {
        self.with_machine(|machine| machine.idle_shapes()).unwrap_or_default()
    }

    /// Does something with the machine, unless another thread has it.
    fn with_machine<T>(&self, work: impl FnOnce(&mut Machine) -> T) -> Option<T> {
        self.machine.try_lock().as_deref_mut().and_then(Option::as_mut).map(work)
    }

    /// The link has ended. A process that does not read at all must not keep the others from hearing of the death.
    fn end_machine(&self, mut machine: Machine, cause: &DeathCause) {
        let began = self.now();
        machine.on_link_ended(began, cause);
        let is_in_time = || self.now().0 < began.0 + BACKLOG_MICROSECONDS_MAX;
        while machine.has_backlog() && is_in_time() && !self.bridge.runtime().is_closed() {
            self.bridge.take();
            if !machine.on_time(self.now()) {
                std::thread::sleep(STUCK);
            }
        }
        machine.end(cause);
    }

    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }

    /// How long to sleep at most until a time.
    fn until(&self, wakeup: Option<Time>) -> Duration {
        let left = |wakeup: Time| Duration::from_micros(wakeup.0.saturating_sub(self.now().0));
        wakeup.map_or(SLEEP, |wakeup| left(wakeup).clamp(STUCK, SLEEP))
    }
}

/// How a proxy ends as a process of its node.
pub(crate) fn gone(why: &str) -> DeathCause {
    let text = format!("the node is gone: {why}");
    DeathCause { stderr_tail: vec![text], ..DeathCause::default() }
}

/// Drops the machine, also if its thread panicked.
struct Leaving<'a>(&'a Proxy);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let machine = self.0.machine.lock().take();
        drop(machine);
    }
}

#[cfg(test)]
mod tests;
