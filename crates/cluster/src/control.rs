//! The control process: who is in the cluster, and where things run. There is one in a cluster.
//!
//! Nodes keep a link to it. While it is away, they go on with what they have; when it is back, they join again and tell
//! it what it has to know.

mod members;
mod names;

use crate::daemon::DaemonError;
use aktis_io::{
    AdmitAll, Authority, Door, Endpoint, EndpointEvents, EndpointOptions, Frames, Identity, Link, LinkEnd,
    LinkEvents, Peer,
};
use aktis_logic::machine::placer::{Placer, PlacerEffect, PlacerInput};
use aktis_logic::membership::Membership;
use aktis_logic::{Machine, Time};
use aktis_protocol::control::{decode, encode};
use aktis_protocol::member::{FromControl, ToControl};
use aktis_protocol::{Epoch, NodeId};
use members::Members;
use names::Names;
use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The greeting of a link from a node.
pub(crate) const MEMBER_GREETING: &[u8] = b"member";

/// How long the thread sleeps at most.
const TICK_MAX: Duration = Duration::from_millis(500);

/// A control process, or rather its threads. It ends when this is dropped.
pub(crate) struct Control {
    shared: Arc<Shared>,
    endpoint: Option<Endpoint>,
    clock: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    /// Something is due earlier, or it is over.
    changed: Condvar,
    began: Instant,
}

struct State {
    membership: Membership,
    placer: Placer,
    members: Members,
    names: Names,
    closing: bool,
}

impl Control {
    /// Starts to listen for nodes, with the authority of this cluster.
    pub(crate) fn start(
        listen: SocketAddr,
        authority: Authority,
        identity: Identity,
    ) -> Result<Self, DaemonError> {
        // Epochs only grow, also over restarts: time does.
        let first = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_micros() as u64);
        let state = State {
            membership: Membership::new(Epoch(first)),
            placer: Placer::new(),
            members: Members::default(),
            names: Names::default(),
            closing: false,
        };
        let shared =
            Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new(), began: Instant::now() });
        let events = Arc::new(Events(Arc::downgrade(&shared)));
        let door = Door { authority: Arc::new(authority), admission: Arc::new(AdmitAll) };
        let options = EndpointOptions { door: Some(door), ..EndpointOptions::default() };
        let endpoint = Endpoint::bind(listen, identity, events, options)?;
        let clock = {
            let shared = shared.clone();
            let run = move || shared.run_clock();
            std::thread::Builder::new()
                .name("aktis-control".into())
                .spawn(run)
                .map_err(|source| DaemonError::System { what: "a thread", source })?
        };
        Ok(Self { shared, endpoint: Some(endpoint), clock: Some(clock) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.endpoint.as_ref().expect("open until dropped").address()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.changed.notify_all();
        drop(self.endpoint.take());
        if let Some(clock) = self.clock.take() {
            let _ = clock.join();
        }
    }
}

struct Events(Weak<Shared>);

impl EndpointEvents for Events {
    fn on_link(&self, peer: &Peer, greeting: &[u8], link: &Link) -> Result<Box<dyn LinkEvents>, String> {
        if greeting != MEMBER_GREETING {
            return Err("the control process talks to nodes only".to_owned());
        }
        let shared = self.0.upgrade().ok_or("the control process ends")?;
        Ok(Box::new(FromNodes { shared, node: peer.node, link: link.clone() }))
    }
}

struct FromNodes {
    shared: Arc<Shared>,
    node: NodeId,
    link: Link,
}

impl LinkEvents for FromNodes {
    fn on_frames(&mut self, frames: Frames<'_>) {
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        for frame in frames {
            match decode::<ToControl>(frame) {
                Ok(message) => state.on_message(now, self.node, &self.link, message),
                Err(error) => self.link.close(&format!("a message could not be decoded: {error}")),
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }

    fn on_closed(&mut self, _end: &LinkEnd) {
        let now = self.shared.now();
        let mut state = self.shared.state.lock();
        state.on_link_closed(now, self.node, &self.link);
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Shared {
    fn now(&self) -> Time {
        Time(self.began.elapsed().as_micros() as u64)
    }

    fn run_clock(&self) {
        let mut state = self.state.lock();
        while !state.closing {
            let now = self.now();
            state.on_time(now);
            let due =
                [state.membership.next_wakeup(), state.placer.next_wakeup()].into_iter().flatten().min();
            let pause = due.map_or(TICK_MAX, |due| Duration::from_micros(due.0.saturating_sub(now.0)));
            self.changed.wait_for(&mut state, pause.clamp(Duration::from_millis(1), TICK_MAX));
        }
    }
}

impl State {
    fn on_message(&mut self, now: Time, from: NodeId, link: &Link, message: ToControl) {
        match message {
            ToControl::Joined { address, labels, resources, names } => {
                self.on_joined(now, from, link, (address, labels, resources), names);
            }
            ToControl::Heartbeat { epoch } => {
                if self.membership.on_heartbeat(now, from, epoch).is_err() {
                    send(link, &FromControl::Expelled);
                }
            }
            ToControl::Placer { epoch, message } => {
                self.step(now, PlacerInput::Received { from, epoch, message });
            }
            ToControl::NameClaimed { actor } => {
                let (name, id) = (actor.name.clone(), actor.found.actor);
                let granted = self.names.claim(from, actor);
                send(link, &FromControl::NameClaimed { name, actor: id, granted });
            }
            ToControl::NameFreed { name, actor } => self.names.free(&name, actor),
            ToControl::NameWanted { request, name } => {
                let found = self.names.find(&name);
                send(link, &FromControl::NameFound { request, found });
            }
            ToControl::NamesWanted { request } => {
                let names = self.names.all();
                send(link, &FromControl::Names { request, names });
            }
        }
    }

    fn on_time(&mut self, now: Time) {
        for (node, epoch) in self.membership.lapse(now) {
            self.on_left(now, node, epoch);
        }
        if self.placer.next_wakeup().is_some_and(|due| due <= now) {
            self.step(now, PlacerInput::Ticked);
        }
    }

    fn step(&mut self, now: Time, input: PlacerInput) {
        let mut effects = Vec::new();
        self.placer.step(now, input, &mut effects);
        for PlacerEffect::Send { to, message } in effects {
            self.members.send(to, &FromControl::Placer { message });
        }
    }
}

/// Sends a message; if the link is full or gone, the node learns of that by itself.
fn send(link: &Link, message: &FromControl) {
    let _ = link.send(encode(message));
}
