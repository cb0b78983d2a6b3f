//! This node as a member of the cluster: its link to the control process.
//!
//! The link is dialled again for as long as it takes. Meanwhile the node goes on with the nodes that it knows. Then it joins
//! again, and keeps its membership if that has not ended.

use crate::control::{LEAVING, MEMBER_GREETING};
use crate::elsewhere::Elsewhere;
use crate::neighbours::Neighbours;
use crate::renewal::Renewal;
use aktis_io::{Endpoint, Frames, Link, LinkEnd, LinkEvents, SendError};
use aktis_protocol::control::{decode, encode};
use aktis_protocol::limits::{NODE_HEARTBEAT_MICROSECONDS, NODE_REPORT_MICROSECONDS};
use aktis_protocol::member::{FromControl, ToControl};
use aktis_protocol::placement::{NodeInfo, ToPlacer};
use aktis_protocol::{Epoch, Labels, NodeId, Resources};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

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
    renewal: Renewal,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    link: Option<Link>,
    /// Whether the control process has answered on that link.
    welcomed: bool,
    /// How often it has.
    welcomes: u64,
    /// The membership, which outlives its links.
    epoch: Option<Epoch>,
    /// The membership before, if that is over.
    last_epoch: Option<Epoch>,
    /// Since when the control process is away.
    away_since: Option<Instant>,
    /// Why the last attempt to reach it has failed.
    problem: Option<String>,
    nodes: BTreeMap<NodeId, NodeInfo>,
    closing: bool,
}

impl State {
    /// A membership is over; false if it is not the present one. Each heartbeat that came too late is answered so.
    fn on_expelled(&mut self, epoch: Epoch) -> bool {
        let is_present = self.epoch == Some(epoch);
        if is_present {
            (self.epoch, self.welcomed) = (None, false);
        }
        is_present
    }

    /// Where to say something, and in which membership, if the control process has answered.
    fn present(&self) -> Option<(&Link, Epoch)> {
        self.link.as_ref().filter(|_| self.welcomed).zip(self.epoch)
    }
}

impl Member {
    /// Joins for the first time, and stays a member until [`Self::close`].
    pub(crate) fn join(
        about: About,
        control: (NodeId, SocketAddr),
        endpoint: &Arc<Endpoint>,
        neighbours: Arc<Neighbours>,
        elsewhere: Arc<Elsewhere>,
        renewal: Renewal,
    ) -> Arc<Self> {
        let member = Arc::new(Self {
            about,
            control,
            endpoint: Arc::downgrade(endpoint),
            neighbours,
            elsewhere,
            renewal,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        member.elsewhere.set_member(&member);
        member.dial(endpoint);
        let other = member.clone();
        let spawned = std::thread::Builder::new().name("aktis-member".into()).spawn(move || other.run());
        if spawned.is_err() {
            member.close();
        }
        member
    }

    /// Waits until the control process has welcomed this node. If that takes too long, says what is in the way.
    pub(crate) fn wait_welcome(&self, timeout: Duration) -> Result<(), String> {
        let mut state = self.state.lock();
        let deadline = Instant::now() + timeout;
        while !state.welcomed {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return Err(state.problem.take().unwrap_or_else(|| "it is silent".to_owned()));
            }
        }
        Ok(())
    }

    /// The other members, as far as this one was told.
    pub(crate) fn nodes(&self) -> Vec<NodeInfo> {
        self.state.lock().nodes.values().cloned().collect()
    }

    /// This node and the others, as far as it was told, if it is a member.
    pub(crate) fn known(&self) -> Option<(NodeInfo, Vec<NodeInfo>)> {
        let state = self.state.lock();
        let (node, epoch) = (self.endpoint.upgrade()?.node(), state.epoch?);
        let About { address, labels, resources } = self.about.clone();
        let own = NodeInfo { node, epoch, address, labels, resources };
        Some((own, state.nodes.values().cloned().collect()))
    }

    /// How long the control process has been away, if it is.
    pub(crate) fn away(&self) -> Option<Duration> {
        let state = self.state.lock();
        (!state.welcomed).then(|| state.away_since.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    /// Sends something to the control process; false if it is away.
    pub(crate) fn send(&self, message: &ToControl) -> bool {
        let state = self.state.lock();
        let welcomed = state.link.as_ref().filter(|_| state.welcomed);
        welcomed.is_some_and(|link| send(link, message))
    }

    /// Sends something to the placer; false if the control process is away.
    pub(crate) fn send_placer(&self, message: ToPlacer) -> bool {
        let state = self.state.lock();
        state.present().is_some_and(|(link, epoch)| send(link, &ToControl::Placer { epoch, message }))
    }

    /// Says that this node is alive, in its membership of this moment: one that is over would be told so once more.
    fn send_heartbeat(&self) {
        let state = self.state.lock();
        if let Some((link, epoch)) = state.present() {
            send(link, &ToControl::Heartbeat { epoch });
        }
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closing = true;
        if let Some(link) = state.link.take() {
            link.close(LEAVING);
        }
        drop(state);
        self.changed.notify_all();
    }

    fn dial(self: &Arc<Self>, endpoint: &Endpoint) {
        let (node, address) = self.control;
        let dialled = endpoint.dial(node, address, MEMBER_GREETING.to_vec(), |link| {
            self.state.lock().link = Some(link.clone());
            Box::new(FromControlProcess { member: self.clone(), link: link.clone() })
        });
        match dialled {
            Ok(link) => self.say_joined(&link),
            // It may be away for long: nothing is said about each attempt.
            Err(error) => self.state.lock().problem = Some(error.to_string()),
        }
    }

    fn say_joined(&self, link: &Link) {
        let About { address, labels, resources } = self.about.clone();
        let held = self.state.lock().epoch;
        let names = self.elsewhere.named();
        if !send(link, &ToControl::Joined { held, address, labels, resources, names }) {
            // The link is over, and so is this attempt.
            self.elsewhere.forget_unsaid_names();
        }
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
            let had_link = state.link.is_some();
            self.changed.wait_for(&mut state, if had_link { report_every } else { DIAL_AGAIN });
            if state.closing {
                return;
            }
            let (is_present, welcomes) = (state.present().is_some(), state.welcomes);
            drop(state);
            self.elsewhere.on_time();
            // Not before it has been without one for a pause.
            if !had_link {
                let Some(endpoint) = self.endpoint.upgrade() else { return };
                if self.state.lock().link.is_none() {
                    self.dial(&endpoint);
                }
                self.elsewhere.on_time_alone();
                continue;
            }
            if !is_present {
                continue;
            }
            if last_heartbeat.elapsed().as_micros() as u64 >= NODE_HEARTBEAT_MICROSECONDS {
                last_heartbeat = Instant::now();
                self.send_heartbeat();
            }
            if let Some(wish) = self.renewal.wish(SystemTime::now()) {
                self.send(&wish);
            }
            let report = self.elsewhere.report();
            let has_run = !report.run_times.is_empty();
            if has_run || last_report.as_ref() != Some(&(welcomes, report.clone())) {
                self.send_placer(ToPlacer::Reported { report: report.clone() });
                last_report = Some((welcomes, report));
            }
        }
    }

    /// A link is over, for the first time or again.
    fn on_link_over(&self, link: &Link, why: String) {
        let mut state = self.state.lock();
        if !state.link.as_ref().is_some_and(|current| current.is_same(link)) {
            return;
        }
        state.link = None;
        state.problem = Some(why);
        if std::mem::take(&mut state.welcomed) {
            state.away_since = Some(Instant::now());
        }
        drop(state);
        self.changed.notify_all();
        self.elsewhere.forget_unsaid_names();
        self.elsewhere.on_control_away();
    }

    fn on_message(self: &Arc<Self>, link: &Link, message: FromControl) {
        match message {
            FromControl::Welcome { epoch, nodes } => self.on_welcome(epoch, &nodes),
            FromControl::Expelled { epoch } => {
                if self.state.lock().on_expelled(epoch) {
                    // The others have given this node up: nothing of what is between them and it counts any more.
                    self.elsewhere.on_control_away();
                    self.neighbours.reset();
                    self.say_joined(link);
                }
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
                    self.neighbours.on_left(node, epoch);
                }
            }
            FromControl::Placer { message } => self.elsewhere.on_placer(message),
            FromControl::NameClaimed { name, actor, granted } => {
                self.elsewhere.on_name_claimed(name, actor, granted);
            }
            FromControl::Certified { certificate, lifetime_milliseconds } => {
                self.renewal.on_certified(certificate, Duration::from_millis(lifetime_milliseconds));
            }
            FromControl::Answered { number, reply } => self.elsewhere.on_answered(number, reply),
        }
    }

    fn on_welcome(self: &Arc<Self>, epoch: Epoch, nodes: &[NodeInfo]) {
        let mut state = self.state.lock();
        let held = state.epoch.replace(epoch);
        let is_new = state.last_epoch.replace(epoch).is_some_and(|last| last != epoch);
        state.welcomed = true;
        state.welcomes += 1;
        state.away_since = None;
        state.nodes = nodes.iter().map(|info| (info.node, info.clone())).collect();
        drop(state);
        if held.is_some_and(|held| held != epoch) {
            // As if it had been expelled, which nobody could tell it.
            self.neighbours.reset();
        }
        self.neighbours.set_epoch(epoch);
        self.neighbours.on_members(nodes);
        self.elsewhere.on_control_back();
        if is_new {
            self.elsewhere.on_membership_lost();
        }
        self.changed.notify_all();
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

    fn on_closed(&mut self, end: &LinkEnd) {
        self.member.on_link_over(&self.link, end.to_string());
    }
}

impl Drop for FromControlProcess {
    /// Also if the link's thread panicked or could not be started, which then says nothing else: another link is dialled.
    fn drop(&mut self) {
        self.member.on_link_over(&self.link, "its thread on this node has ended".to_owned());
        self.link.close("its thread has ended");
    }
}

/// Sends a message; false if the link is over, or is so full that it has to be: what is said or asked on the next one
/// begins anew.
fn send(link: &Link, message: &ToControl) -> bool {
    let sent = link.send(encode(message));
    if let Err(error @ (SendError::Full(_) | SendError::TooLong(_))) = &sent {
        eprintln!("aktis: a message to the control process was not sent: {error}");
        link.close("a message could not be sent");
    }
    sent.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_expelled_once_however_often_it_is_said() {
        let mut state = State { epoch: Some(Epoch(5)), welcomed: true, ..State::default() };
        assert!(state.on_expelled(Epoch(5)) && !state.welcomed);
        assert!(!state.on_expelled(Epoch(5)), "it is about to join again");
        (state.epoch, state.welcomed) = (Some(Epoch(6)), true);
        assert!(!state.on_expelled(Epoch(5)) && state.welcomed, "it has joined again");
        assert!(state.on_expelled(Epoch(6)));
    }
}
