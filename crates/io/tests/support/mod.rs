//! A cluster for tests: an authority, endpoints, and events that end up in queues.

#![allow(dead_code, unreachable_pub)]

pub mod attacker;
pub mod proxy;

use aktis_io::{
    Admission, Authority, Door, Endpoint, EndpointEvents, EndpointOptions, Frames, Identity, Link, LinkEnd,
    LinkEvents, Peer, Role, Timing, random_node_id,
};
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Longer than anything takes that works.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// What happened on a link.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    Frames(Vec<Vec<u8>>),
    Drained,
    Closed(LinkEnd),
}

/// Puts what happens into a queue.
pub struct Recorder(pub Sender<Event>);

impl LinkEvents for Recorder {
    fn on_frames(&mut self, frames: Frames<'_>) {
        let _ = self.0.send(Event::Frames(frames.map(<[u8]>::to_vec).collect()));
    }

    fn on_drained(&mut self) {
        let _ = self.0.send(Event::Drained);
    }

    fn on_closed(&mut self, end: &LinkEnd) {
        let _ = self.0.send(Event::Closed(end.clone()));
    }
}

/// One end of a link and what happens there.
pub struct End {
    pub link: Link,
    pub events: Receiver<Event>,
}

impl End {
    pub fn next(&self) -> Event {
        self.events.recv_timeout(PATIENCE).expect("something happens")
    }

    /// The next `count` frames.
    pub fn frames(&self, count: usize) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        while frames.len() < count {
            match self.next() {
                Event::Frames(some) => frames.extend(some),
                Event::Drained => {}
                other => panic!("{other:?} after {} of {count} frames", frames.len()),
            }
        }
        frames
    }

    /// Why the link has ended; what arrives before is not looked at.
    pub fn end(&self) -> LinkEnd {
        loop {
            if let Event::Closed(end) = self.next() {
                return end;
            }
        }
    }
}

/// A link that somebody has dialled.
pub struct Incoming {
    pub peer: Peer,
    pub greeting: Vec<u8>,
    pub end: End,
}

/// Takes all links, except those whose greeting is `no`.
struct Welcoming(Mutex<Sender<Incoming>>);

impl EndpointEvents for Welcoming {
    fn on_link(&self, peer: &Peer, greeting: &[u8], link: &Link) -> Result<Box<dyn LinkEvents>, String> {
        if greeting == b"no" {
            return Err("not today".to_owned());
        }
        let (sender, events) = channel();
        let end = End { link: link.clone(), events };
        let incoming = Incoming { peer: *peer, greeting: greeting.to_vec(), end };
        self.0.lock().expect("no panic").send(incoming).map_err(|_| "nobody is there".to_owned())?;
        Ok(Box::new(Recorder(sender)))
    }
}

/// An endpoint, and the links that others open to it.
pub struct Station {
    pub endpoint: Endpoint,
    pub incoming: Receiver<Incoming>,
    pub log: Arc<Mutex<Vec<String>>>,
}

impl Station {
    pub fn new(identity: Identity, mut options: EndpointOptions) -> Self {
        let (sender, incoming) = channel();
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        options.log = Some(Arc::new(move |line: &str| lines.lock().expect("no panic").push(line.to_owned())));
        let events = Arc::new(Welcoming(Mutex::new(sender)));
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::bind(address, identity, events, options).expect("an endpoint");
        Self { endpoint, incoming, log }
    }

    pub fn dial(&self, to: &Self, greeting: &[u8]) -> End {
        self.dial_at(to, to.endpoint.address(), greeting)
    }

    /// Dials another through `address`.
    pub fn dial_at(&self, to: &Self, address: SocketAddr, greeting: &[u8]) -> End {
        let (sender, events) = channel();
        let made = self
            .endpoint
            .dial(to.endpoint.node(), address, greeting.to_vec(), |_| Box::new(Recorder(sender)));
        End { link: made.expect("a link"), events }
    }

    pub fn next_incoming(&self) -> Incoming {
        self.incoming.recv_timeout(PATIENCE).expect("somebody dials")
    }

    pub fn logged(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }
}

/// A new authority, in a directory that goes with it.
pub struct Cluster {
    pub authority: Arc<Authority>,
    _directory: tempfile::TempDir,
}

impl Cluster {
    pub fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::create(&directory.path().join("cluster")).expect("an authority");
        Self { authority: Arc::new(authority), _directory: directory }
    }

    pub fn identity(&self, role: Role) -> Identity {
        self.authority.issue(random_node_id(), role).expect("an identity")
    }

    pub fn station(&self, timing: Timing) -> Station {
        let options = EndpointOptions { timing, ..EndpointOptions::default() };
        Station::new(self.identity(Role::Node), options)
    }

    /// A station where others can join.
    pub fn head(&self, timing: Timing, admission: Arc<dyn Admission>) -> Station {
        let door = Some(Door { authority: Arc::clone(&self.authority), admission });
        Station::new(
            self.identity(Role::Node),
            EndpointOptions { timing, door, ..EndpointOptions::default() },
        )
    }

    pub fn pair(&self, timing: Timing) -> (Station, Station) {
        (self.station(timing), self.station(timing))
    }
}
