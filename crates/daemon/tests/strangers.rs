//! Bearers of certificates who are no members, against real daemons.

use aktis::prelude::*;
use aktis_daemon::admin::Client;
use aktis_daemon::{Daemon, DaemonConfig, HideControl, Role};
use aktis_io::{Endpoint, EndpointEvents, EndpointOptions, Frames, Joined, Link, LinkEnd, LinkEvents, Peer};
use aktis_protocol::tables::EventKind;
use aktis_protocol::{Amount, NodeId};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);

#[remote]
fn where_it_runs() -> u32 {
    std::os::unix::process::parent_id()
}

fn start(directory: &Path, role: Role) -> Daemon {
    let config = DaemonConfig {
        directory: directory.to_owned(),
        role,
        listen: None,
        resources: BTreeMap::from([("CPU".to_owned(), Amount::ONE)]),
        labels: BTreeMap::new(),
        store_bytes: Some(64 << 20),
        spill_directory: None,
        spill_bytes_max: None,
        hide_control: HideControl::Auto,
    };
    Daemon::start(config).expect("a daemon")
}

struct Silent;

impl LinkEvents for Silent {
    fn on_frames(&mut self, _frames: Frames<'_>) {}

    fn on_closed(&mut self, _end: &LinkEnd) {}
}

impl EndpointEvents for Silent {
    fn on_link(&self, _: &Peer, _: &[u8], _: &Link) -> Result<Box<dyn LinkEvents>, String> {
        Err("nobody is to dial here".to_owned())
    }
}

/// Somebody with a certificate, who has told the control process nothing.
struct Stranger(Endpoint);

impl Stranger {
    fn new(head: &Daemon) -> Self {
        let token = head.token(PATIENCE).expect("a head").parse().expect("a token");
        let joined = aktis_io::join(head.head(), &token, aktis_io::Role::Node, PATIENCE);
        let Joined { identity, .. } = joined.expect("a certificate");
        let local = ([127, 0, 0, 1], 0).into();
        let endpoint = Endpoint::bind(local, identity, Arc::new(Silent), EndpointOptions::default());
        Self(endpoint.expect("bound"))
    }

    /// Why a node gives no link to somebody who claims these memberships.
    fn refusal(&self, daemon: &Daemon, own: u64, meant: u64) -> String {
        let greeting = [&b"node"[..], &own.to_le_bytes(), &meant.to_le_bytes()].concat();
        let address = daemon.address().expect("an address");
        let dialled = self.0.dial(daemon.node(), address, greeting, |_| Box::new(Silent));
        dialled.expect_err("it is no member").to_string()
    }
}

fn is_refusal(text: &str, node: NodeId) -> bool {
    text.contains(&format!("node {node} is not a member of the cluster"))
}

#[test]
fn a_certificate_alone_gives_neither_links_nor_objects() {
    let directory = tempfile::tempdir().expect("a directory");
    let head = start(&directory.path().join("head"), Role::Head);
    let session = Session::connect(head.attach_directory().to_str().expect("text")).expect("a session");
    let _entered = session.enter();
    let secret = aktis::put(Array::from(vec![7_u8; 200_000])).expect("stored");

    let stranger = Stranger::new(&head);
    let node = stranger.0.node();
    for (own, meant) in [(0, u64::MAX), (u64::MAX, u64::MAX)] {
        let why = stranger.refusal(&head, own, meant);
        assert!(is_refusal(&why, node), "{why}");
    }
    let mut room = vec![0; 200_000];
    let address = head.address().expect("an address");
    let pulled = stranger.0.pull(head.node(), address, secret.id(), &mut room, 1);
    let why = pulled.expect_err("it is no member").to_string();
    assert!(is_refusal(&why, node), "{why}");
    assert!(room.iter().all(|byte| *byte == 0), "no byte of the object has come");
    assert!(where_it_runs::remote().get_timeout(PATIENCE).is_ok(), "service goes on");

    let mut client = Client::connect_to_control(&directory.path().join("head")).expect("connected");
    let deadline = Instant::now() + PATIENCE;
    let refused = loop {
        let events = client.audit(None, 100).expect("the audit log");
        let refused = events.into_iter().filter(|event| event.kind == EventKind::Refused);
        // Other tests may dial the port of a node that they had before.
        let refused: Vec<String> =
            refused.map(|event| event.text).filter(|text| is_refusal(text, node)).collect();
        if !refused.is_empty() {
            break refused;
        }
        assert!(Instant::now() < deadline, "nobody has told the head");
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(refused.len(), 1, "once for the address and the kind: {refused:?}");
}

#[test]
fn new_members_find_each_other_at_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let head = start(&directory.path().join("head"), Role::Head);
    let token = head.token(PATIENCE).expect("a head");
    let member = || Role::Member { address: head.head().to_string(), token: token.clone() };
    let mut members = Vec::new();
    for number in 0..5 {
        let begun = Instant::now();
        members.push(start(&directory.path().join(number.to_string()), member()));
        while members.iter().any(|daemon: &Daemon| daemon.linked_nodes() < members.len()) {
            assert!(begun.elapsed() < PATIENCE, "the nodes have not found each other");
            std::thread::yield_now();
        }
    }
}
