//! This node as a member of the cluster: its link to the control process.
//!
//! The link is dialled again for as long as it takes. Whatever came of it, the node joins again, and is told who else is
//! there; meanwhile it goes on with the nodes that it knows.

use crate::control::MEMBER_GREETING;
use crate::elsewhere::Elsewhere;
use crate::neighbours::Neighbours;
use aktis_io::{DialError, Endpoint, Frames, Link, LinkEnd, LinkEvents};
use aktis_protocol::control::{decode, encode};
use aktis_protocol::limits::{NODE_HEARTBEAT_MICROSECONDS, NODE_REPORT_MICROSECONDS};
use aktis_protocol::member::{FromControl, ToControl};
use aktis_protocol::placement::{NodeInfo, ToPlacer};
use aktis_protocol::{Epoch, Labels, NodeId, Resources};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// The pause between two attempts to reach the control process.
const DIAL_AGAIN: Duration = Duration::from_millis(100);

/// What a node says about itself.
#[derive(Clone)]
pub(crate) struct About {
    /// Where other nodes reach it.
    pub(crate) address: SocketAddr,
    pub(crate) labels: Labels,
    pub(crate) resources: Resources,
}

/// See the module.
pub(crate) struct Member {
    about: About,
    control: (NodeId, SocketAddr),
    endpoint: Weak<Endpoint>,
    neighbours: Arc<Neighbours>,
    elsewhere: Arc<Elsewhere>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    epoch: Option<Epoch>,
    nodes: BTreeMap<NodeId, NodeInfo>,
    closing: bool,
}

impl Member {
    /// Joins for the first time, and stays a member until [`Self::close`].
    pub(crate) fn join(
        about: About,
        control: (NodeId, SocketAddr),
        endpoint: &Arc<Endpoint>,
        neighbours: Arc<Neighbours>,
        elsewhere: Arc<Elsewhere>,
    ) -> Result<Arc<Self>, DialError> {
        let member = Arc::new(Self {
            about,
            control,
            endpoint: Arc::downgrade(endpoint),
            neighbours,
            elsewhere,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        member.elsewhere.set_member(&member);
        member.dial(endpoint)?;
        let other = member.clone();
        let spawned = std::thread::Builder::new().name("aktis-member".into()).spawn(move || other.run());
        if spawned.is_err() {
            member.close();
        }
        Ok(member)
    }

    /// Waits until the control process has welcomed this node; false if that takes too long.
    pub(crate) fn wait_welcome(&self, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        let deadline = Instant::now() + timeout;
        while state.epoch.is_none() {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return false;
            }
        }
        true
    }

    /// The other members, as far as this one was told.
    pub(crate) fn nodes(&self) -> Vec<NodeInfo> {
        self.state.lock().nodes.values().cloned().collect()
    }

    /// Whether the control process is there.
    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().epoch.is_some()
    }

    /// Sends something to the control process; false if it is away.
    pub(crate) fn send(&self, message: &ToControl) -> bool {
        let state = self.state.lock();
        let welcomed = state.link.as_ref().filter(|_| state.epoch.is_some());
        welcomed.is_some_and(|link| link.send(encode(message)).is_ok())
    }

    /// Sends something to the placer; false if the control process is away.
    pub(crate) fn send_placer(&self, message: ToPlacer) -> bool {
        let state = self.state.lock();
        let (Some(link), Some(epoch)) = (&state.link, state.epoch) else { return false };
        link.send(encode(&ToControl::Placer { epoch, message })).is_ok()
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        if let Some(link) = state.link.take() {
            link.close("the node ends");
        }
        drop(state);
        self.changed.notify_all();
    }

    fn dial(self: &Arc<Self>, endpoint: &Endpoint) -> Result<(), DialError> {
        let (node, address) = self.control;
        let link = endpoint.dial(node, address, MEMBER_GREETING.to_vec(), |link| {
            self.state.lock().link = Some(link.clone());
            Box::new(FromControlProcess { member: self.clone(), link: link.clone() })
        })?;
        self.say_joined(&link);
        Ok(())
    }

    fn say_joined(&self, link: &Link) {
        let About { address, labels, resources } = self.about.clone();
        // If it cannot be said, the link is over, and so is this attempt.
        let _ = link.send(encode(&ToControl::Joined {
            address,
            labels,
            resources,
            names: self.elsewhere.named(),
        }));
    }

    /// Heartbeats, reports, and the next link when there is none.
    fn run(self: Arc<Self>) {
        let report_every = Duration::from_micros(NODE_REPORT_MICROSECONDS);
        let mut last_heartbeat = Instant::now();
        let mut last_report = None;
        loop {
            let mut state = self.state.lock();
            if state.closing {
                return;
            }
            let (link, epoch) = (state.link.clone(), state.epoch);
            let pause = if link.is_some() { report_every } else { DIAL_AGAIN };
            self.changed.wait_for(&mut state, pause);
            if state.closing {
                return;
            }
            drop(state);
            let Some(link) = link else {
                let Some(endpoint) = self.endpoint.upgrade() else { return };
                if self.state.lock().link.is_none() {
                    // It may be away for long: nothing is said about each attempt.
                    let _ = self.dial(&endpoint);
                }
                continue;
            };
            let Some(epoch) = epoch else { continue };
            if last_heartbeat.elapsed().as_micros() as u64 >= NODE_HEARTBEAT_MICROSECONDS {
                last_heartbeat = Instant::now();
                let _ = link.send(encode(&ToControl::Heartbeat { epoch }));
            }
            let report = self.elsewhere.report();
            if last_report.as_ref() != Some(&(epoch, report.clone())) {
                self.send_placer(ToPlacer::Reported { report: report.clone() });
                last_report = Some((epoch, report));
            }
        }
    }

    fn on_message(self: &Arc<Self>, link: &Link, message: FromControl) {
        match message {
            FromControl::Welcome { epoch, nodes } => {
                let mut state = self.state.lock();
                state.epoch = Some(epoch);
                state.nodes = nodes.iter().map(|info| (info.node, info.clone())).collect();
                drop(state);
                self.neighbours.on_members(&nodes);
                // What was asked before belongs to a membership that is over.
                self.elsewhere.on_control_back();
                self.changed.notify_all();
            }
            FromControl::Expelled => {
                // The others have given this node up: nothing of what is between them and it counts any more.
                self.state.lock().epoch = None;
                self.neighbours.reset();
                self.say_joined(link);
            }
            FromControl::NodeJoined { info } => {
                self.state.lock().nodes.insert(info.node, info.clone());
                self.neighbours.on_joined(&info);
            }
            FromControl::NodeLeft { node, epoch } => {
                let mut state = self.state.lock();
                let is_current = state.nodes.get(&node).is_some_and(|info| info.epoch <= epoch);
                if is_current {
                    state.nodes.remove(&node);
                }
                drop(state);
                if is_current {
                    self.neighbours.on_left(node);
                }
            }
            FromControl::Placer { message } => self.elsewhere.on_placer(message),
            FromControl::NameClaimed { name, actor, granted } => {
                self.elsewhere.on_name_claimed(name, actor, granted);
            }
            FromControl::NameFound { request, found } => self.elsewhere.on_name_found(request, found),
            FromControl::Names { request, names } => self.elsewhere.on_names(request, names),
        }
    }
}

struct FromControlProcess {
    member: Arc<Member>,
    link: Link,
}

impl LinkEvents for FromControlProcess {
    fn on_frames(&mut self, frames: Frames<'_>) {
        for frame in frames {
            match decode::<FromControl>(frame) {
                Ok(message) => self.member.on_message(&self.link, message),
                Err(error) => return self.link.close(&format!("a message could not be decoded: {error}")),
            }
        }
    }

    fn on_closed(&mut self, _end: &LinkEnd) {
        let mut state = self.member.state.lock();
        if state.link.as_ref().is_some_and(|link| link.is_same(&self.link)) {
            state.link = None;
            state.epoch = None;
        }
        drop(state);
        self.member.changed.notify_all();
        self.member.elsewhere.on_control_away();
    }
}
