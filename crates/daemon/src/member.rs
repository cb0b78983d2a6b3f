//! The link to the control process, and the thread that keeps this node a member of the cluster.
//!
//! The [`ControlClient`] decides when to dial, to join and to send; this file does it.

use crate::control::{LEAVING, MEMBER_GREETING};
use crate::control_client::ControlClient;
use crate::renewal::Renewal;
use aktis_io::{Endpoint, Frames, Link, LinkEnd, LinkEvents, SendError};
use aktis_logic::LinkId;
use aktis_logic::machine::control_client::ControlClientInput;
use aktis_node::journal;
use aktis_protocol::NodeId;
use aktis_protocol::control::{decode, encode};
use aktis_protocol::member::{FromControl, ToControl};
use parking_lot::{Condvar, Mutex};
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

/// How long the thread sleeps at most.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct Member {
    control: (NodeId, SocketAddr),
    endpoint: Weak<Endpoint>,
    client: Arc<ControlClient>,
    renewal: Renewal,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    link: Option<(LinkId, Link)>,
    links_opened: u64,
    /// Whether the control process is to be dialled.
    is_dial_ordered: bool,
    /// Why the last attempt to reach it has failed, or the last link has ended.
    problem: Option<String>,
    is_closing: bool,
    is_dismissed: bool,
    end: Option<Box<dyn Fn() + Send>>,
}

impl Member {
    /// Joins for the first time, and stays a member until [`Self::close`].
    pub(crate) fn join(
        control: (NodeId, SocketAddr),
        endpoint: &Arc<Endpoint>,
        client: Arc<ControlClient>,
        renewal: Renewal,
    ) -> Arc<Self> {
        let member = Arc::new(Self {
            control,
            endpoint: Arc::downgrade(endpoint),
            client,
            renewal,
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        member.client.set_member(&member);
        let other = member.clone();
        let spawned = std::thread::Builder::new().name("aktis-member".into()).spawn(move || other.run());
        if spawned.is_err() {
            member.close();
        }
        member
    }

    /// Waits until the control process has welcomed this node. If that takes too long, says what is in the way.
    pub(crate) fn wait_welcome(&self, timeout: Duration) -> Result<(), String> {
        let deadline = Instant::now() + timeout;
        let mut state = self.state.lock();
        while !self.client.is_member() {
            let is_over = state.is_dismissed || self.changed.wait_until(&mut state, deadline).timed_out();
            if is_over {
                return Err(state.problem.take().unwrap_or_else(|| "it is silent".to_owned()));
            }
        }
        Ok(())
    }

    /// Has the thread dial the control process.
    pub(crate) fn order_dial(&self) {
        self.state.lock().is_dial_ordered = true;
        self.changed.notify_all();
    }

    /// Sends something to the control process. A link that is over takes nothing; one that has no room is closed: what is
    /// said or asked on the next one begins anew.
    pub(crate) fn send(&self, link: LinkId, message: &ToControl) {
        let state = self.state.lock();
        let is_closing = state.is_closing;
        let current = state.link.as_ref().filter(|(id, _)| *id == link).map(|(_, link)| link.clone());
        drop(state);
        match current.map(|link| (link.send(encode(message)), link)) {
            Some((Ok(()), _)) => {}
            Some((Err(error @ (SendError::Full(_) | SendError::TooLong(_))), link)) => {
                journal::warn(format_args!("a message to the control process was not sent: {error}"));
                link.close("a message could not be sent");
            }
            // Its thread says that it is over.
            Some((Err(_), _)) => {}
            None if is_closing => {}
            None => self.client.step(ControlClientInput::LinkEnded { link }),
        }
    }

    /// Uses another certificate, if it can be used.
    pub(crate) fn renew(
        &self,
        certificate: Vec<u8>,
        authorities: Vec<Vec<u8>>,
        lifetime_milliseconds: u64,
    ) -> bool {
        self.renewal.on_certified(certificate, authorities, Duration::from_millis(lifetime_milliseconds))
    }

    /// Has the thread ask for another certificate.
    pub(crate) fn renew_now(&self) {
        self.renewal.want_now();
        // The thread looks at the time before it waits, and holds this lock then.
        drop(self.state.lock());
        self.changed.notify_all();
    }

    /// What ends this node when it is put out of its cluster.
    pub(crate) fn set_end(&self, end: impl Fn() + Send + 'static) {
        self.state.lock().end = Some(Box::new(end));
    }

    /// The control process has put this node out of the cluster.
    pub(crate) fn dismiss(&self, why: &str) {
        journal::error(format_args!(
            "{why}\nhint: its machine can join again with a token, unless its key was revoked"
        ));
        let mut state = self.state.lock();
        state.problem = Some(why.to_owned());
        state.is_dismissed = true;
        let end = state.end.take();
        drop(state);
        self.changed.notify_all();
        end.into_iter().for_each(|end| end());
    }

    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.is_closing = true;
        if let Some((_, link)) = state.link.take() {
            link.close(LEAVING);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Dials when that is ordered, and gives the client its ticks.
    fn run(self: Arc<Self>) {
        loop {
            let due = self.client.next_wakeup().unwrap_or_else(|| Instant::now() + SLEEP_MAX);
            let mut state = self.state.lock();
            if !state.is_closing && !state.is_dial_ordered {
                self.changed.wait_until(&mut state, due.min(Instant::now() + SLEEP_MAX));
            }
            if state.is_closing || state.is_dismissed {
                return;
            }
            let is_dial_ordered = std::mem::take(&mut state.is_dial_ordered);
            drop(state);
            if is_dial_ordered {
                let Some(endpoint) = self.endpoint.upgrade() else { return };
                self.dial(&endpoint);
            }
            self.client.step(ControlClientInput::Ticked);
            if self.client.is_member()
                && let Some(public_key) = self.renewal.wish(SystemTime::now())
            {
                self.client.step(ControlClientInput::CertificateDue { public_key });
            }
        }
    }

    fn dial(self: &Arc<Self>, endpoint: &Endpoint) {
        let (node, address) = self.control;
        let mut state = self.state.lock();
        state.links_opened += 1;
        let id = LinkId(state.links_opened);
        drop(state);
        let dialled = endpoint.dial(node, address, MEMBER_GREETING.to_vec(), |link| {
            self.state.lock().link = Some((id, link.clone()));
            Box::new(FromControlProcess { member: self.clone(), link: link.clone(), id })
        });
        let input = match dialled {
            Ok(_) => ControlClientInput::Linked { link: id },
            // It may be away for long: nothing is said about each attempt.
            Err(error) => {
                let mut state = self.state.lock();
                state.problem = Some(error.to_string());
                state.link.take_if(|(linked, _)| *linked == id);
                ControlClientInput::DialFailed
            }
        };
        self.client.step(input);
    }

    /// A link is over, for the first time or again.
    fn on_link_over(&self, id: LinkId, why: String) {
        let mut state = self.state.lock();
        if state.is_closing || state.link.take_if(|(linked, _)| *linked == id).is_none() {
            return;
        }
        state.problem = Some(why);
        drop(state);
        self.client.step(ControlClientInput::LinkEnded { link: id });
        self.changed.notify_all();
    }
}

struct FromControlProcess {
    member: Arc<Member>,
    link: Link,
    id: LinkId,
}

impl LinkEvents for FromControlProcess {
    fn on_frames(&mut self, frames: Frames<'_>) {
        for frame in frames {
            match decode::<FromControl>(frame) {
                Ok(message) => {
                    self.member.client.step(ControlClientInput::Received { link: self.id, message });
                }
                Err(error) => return self.link.close(&format!("a message could not be decoded: {error}")),
            }
        }
        // Whoever waits for the welcome holds this lock while it looks.
        drop(self.member.state.lock());
        self.member.changed.notify_all();
    }

    fn on_closed(&mut self, end: &LinkEnd) {
        self.member.on_link_over(self.id, end.to_string());
    }
}

impl Drop for FromControlProcess {
    /// Also if the link's thread panicked or could not be started, which then says nothing else: another link is dialled.
    fn drop(&mut self) {
        self.member.on_link_over(self.id, "its thread on this node has ended".to_owned());
        self.link.close("its thread has ended");
    }
}
