//! Hellos that only somebody inside of the cluster can say, and that do no harm either.

use super::*;
use crate::authority::Authority;
use crate::hello::Refusal;
use crate::identity::random_node_id;
use crate::link::{Frames, LinkEnd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

/// Takes every link, and puts what comes into a queue.
struct Queue(Mutex<Sender<Vec<u8>>>);

struct Queued(Sender<Vec<u8>>);

impl EndpointEvents for Queue {
    fn on_link(&self, _peer: &Peer, _greeting: &[u8], _link: &Link) -> Result<Box<dyn LinkEvents>, String> {
        Ok(Box::new(Queued(self.0.lock().clone())))
    }
}

impl LinkEvents for Queued {
    fn on_frames(&mut self, frames: Frames<'_>) {
        frames.for_each(|frame| self.0.send(frame.to_vec()).expect("the test listens"));
    }

    fn on_closed(&mut self, _end: &LinkEnd) {}
}

struct Scene {
    near: Endpoint,
    far: Endpoint,
    other: Endpoint,
    link: Link,
    arrived: Receiver<Vec<u8>>,
}

impl Scene {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::create(&directory.path().join("cluster")).expect("an authority");
        let (sender, arrived) = channel();
        let events: Arc<dyn EndpointEvents> = Arc::new(Queue(Mutex::new(sender.clone())));
        let endpoint = || {
            let identity = authority.issue(random_node_id(), Role::Node).expect("an identity");
            let options = EndpointOptions { log: Some(Arc::new(|_| {})), ..EndpointOptions::default() };
            Endpoint::bind(([127, 0, 0, 1], 0).into(), identity, Arc::clone(&events), options)
                .expect("an endpoint")
        };
        let (near, far, other) = (endpoint(), endpoint(), endpoint());
        let events = |_: &Link| -> Box<dyn LinkEvents> { Box::new(Queued(sender)) };
        let link = near.dial(far.node(), far.address(), Vec::new(), events).expect("a link");
        Self { near, far, other, link, arrived }
    }

    fn say(&self, who: &Endpoint, hello: &Hello) -> Option<Refusal> {
        let name = Name { node: self.far.node(), role: Role::Node };
        let configurations = who.inner.configurations.get();
        let configuration = configurations.client(Service::Link);
        let deadline = Instant::now() + PATIENCE;
        match link::say_hello(self.far.address(), configuration, name, hello, deadline) {
            Ok(_) => None,
            Err(DialError::Refused(refusal)) => Some(refusal),
            Err(error) => panic!("{error}"),
        }
    }

    fn still_works(&self) {
        self.link.send(vec![7]).expect("room");
        assert_eq!(self.arrived.recv_timeout(PATIENCE), Ok(vec![7]));
    }
}

#[test]
fn a_link_cannot_be_taken_over_by_another_node() {
    let scene = Scene::new();
    let hello = Hello::Resume { link: scene.link.0.id, attempt: 5, received: 0 };
    assert_eq!(scene.say(&scene.other, &hello), Some(Refusal::UnknownLink));
    let hello = Hello::Open { link: scene.link.0.id, greeting: Vec::new() };
    assert!(matches!(scene.say(&scene.other, &hello), Some(Refusal::Other(_))), "the name is taken");
    scene.still_works();
}

#[test]
fn a_connection_that_comes_late_does_not_replace_a_later_one() {
    let scene = Scene::new();
    let resume = |attempt, received| Hello::Resume { link: scene.link.0.id, attempt, received };
    assert!(matches!(scene.say(&scene.near, &resume(0, 0)), Some(Refusal::Other(_))));
    assert!(matches!(scene.say(&scene.near, &resume(9, 1)), Some(Refusal::Other(_))), "nothing was sent yet");
    scene.still_works();
    // This one does: the link's own connection is closed, and it dials until it is the latest again.
    assert_eq!(scene.say(&scene.near, &resume(3, 0)), None);
    scene.still_works();
    assert!(matches!(scene.say(&scene.near, &resume(3, 0)), Some(Refusal::Other(_))));
    scene.still_works();
}

#[test]
fn a_link_that_nobody_has_is_over() {
    let scene = Scene::new();
    let hello = Hello::Resume { link: LinkId::random(), attempt: 1, received: 0 };
    assert_eq!(scene.say(&scene.near, &hello), Some(Refusal::UnknownLink));
    assert_eq!(scene.say(&scene.other, &hello), Some(Refusal::UnknownLink));
    scene.still_works();
}

#[test]
fn a_renewed_certificate_counts_from_the_next_connection_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("cluster");
    let authority = Authority::create(&place).expect("an authority");
    let expired = Authority::open(&place).expect("the same").with_lifetime(Duration::ZERO);
    let (sender, _arrived) = channel();
    let events: Arc<dyn EndpointEvents> = Arc::new(Queue(Mutex::new(sender.clone())));
    let endpoint = |identity: &Identity| {
        let options = EndpointOptions { log: Some(Arc::new(|_| {})), ..EndpointOptions::default() };
        let address = ([127, 0, 0, 1], 0).into();
        Endpoint::bind(address, identity.clone(), Arc::clone(&events), options).expect("an endpoint")
    };
    let old = expired.issue(random_node_id(), Role::Node).expect("an identity");
    let (node, other) =
        (endpoint(&old), endpoint(&authority.issue(random_node_id(), Role::Node).expect("one")));
    let dial = |from: &Endpoint, to: &Endpoint| {
        let sender = sender.clone();
        let events = |_: &Link| -> Box<dyn LinkEvents> { Box::new(Queued(sender)) };
        from.dial(to.node(), to.address(), Vec::new(), events)
    };
    assert!(dial(&node, &other).is_err() && dial(&other, &node).is_err(), "it has expired");
    let key = old.public_key().expect("a key");
    let certified = authority.certify(old.node(), Role::Node, key).expect("signed");
    let renewed = old.renewed(certified.certificate, certified.authorities).expect("for the same name");
    node.renewer().renew(&renewed).expect("renewed");
    dial(&node, &other).expect("it dials");
    dial(&other, &node).expect("it is dialled");
    let others = authority.certify(random_node_id(), Role::Node, key).expect("signed");
    assert!(old.renewed(others.certificate, others.authorities).is_none(), "that is for another node");
}
