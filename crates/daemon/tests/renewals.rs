//! Certificates that are good for seconds, under load.

use aktis::prelude::*;
use aktis_daemon::admin::Client;
use aktis_daemon::{
    Control, ControlConfig, Daemon, DaemonConfig, DaemonError, HideControl, Role, can_return,
};
use aktis_io::{
    Authority, DialError, Endpoint, EndpointEvents, EndpointOptions, Frames, Identity, Link, LinkEnd,
    LinkEvents, Peer,
};
use aktis_protocol::Amount;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(30);
/// X.509 counts in seconds.
const LIFETIME: Duration = Duration::from_secs(4);

#[remote]
fn doubled(bytes: Vec<u8>) -> Vec<u8> {
    bytes.iter().map(|byte| byte * 2).collect()
}

fn start(directory: &Path, control: &Control, cpus: u64) -> Daemon {
    let (address, token) =
        (control.address().to_string(), control.token(PATIENCE, None).expect("a token").to_string());
    try_start(directory, Role::Member { address, token }, cpus).expect("a daemon")
}

fn try_start(directory: &Path, role: Role, cpus: u64) -> Result<Daemon, DaemonError> {
    let config = DaemonConfig {
        directory: directory.to_owned(),
        role,
        listen: None,
        resources: BTreeMap::from([("CPU".to_owned(), Amount::units(cpus))]),
        labels: BTreeMap::new(),
        store_bytes: Some(256 << 20),
        spill_directory: None,
        spill_bytes_max: None,
        hide_control: HideControl::Auto,
    };
    Daemon::start(config)
}

#[test]
fn certificates_are_renewed_under_load_without_a_failed_call() {
    let base = tempfile::tempdir().expect("a directory");
    let at = |name: &str| base.path().join(name);
    let control = Control::start(&ControlConfig {
        directory: at("head"),
        listen: Some(([127, 0, 0, 1], 0).into()),
        certificate_lifetime: Some(LIFETIME),
        node_timeout: None,
    });
    let control = control.expect("a control process");
    let mut daemons = vec![start(&at("0"), &control, 0), start(&at("1"), &control, 1)];
    let certificates = || {
        let read = |path: &str| std::fs::read(at(path)).expect("a certificate");
        ["head/control/identity/identity.crt", "0/identity/identity.crt", "1/identity/identity.crt"].map(read)
    };
    let first = certificates();
    let session = Session::connect(daemons[0].attach_directory().to_str().expect("text")).expect("a session");
    let _entered = session.enter();
    let (begun, mut calls) = (Instant::now(), 0);
    while begun.elapsed() < 3 * LIFETIME {
        // Large enough to be pulled, over connections of its own.
        let answer = doubled::remote(vec![3; 1 << 20]).get_timeout(PATIENCE).expect("it runs");
        assert!(answer.len() == 1 << 20 && answer[0] == 6);
        calls += 1;
    }
    assert!(calls > 3, "{calls} calls");
    let now = certificates();
    assert!(first.iter().zip(&now).all(|(first, now)| first != now), "all were renewed");

    // Whoever comes now meets all the others for the first time: nobody shows a certificate that has expired.
    daemons.push(start(&at("2"), &control, 1));
    let deadline = Instant::now() + PATIENCE;
    while daemons.iter().any(|daemon| daemon.linked_nodes() < daemons.len() - 1) {
        assert!(Instant::now() < deadline, "the nodes have not found each other");
        std::thread::yield_now();
    }
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

/// Whether somebody with this identity gets a connection to a node.
fn is_let_in(identity: &Identity, to: &Daemon) -> bool {
    let local = ([127, 0, 0, 1], 0).into();
    let endpoint = Endpoint::bind(local, identity.clone(), Arc::new(Silent), EndpointOptions::default());
    let address = to.address().expect("an address");
    let dialled = endpoint.expect("bound").dial(to.node(), address, b"node".to_vec(), |_| Box::new(Silent));
    // Whoever is let in is told that it is no member.
    matches!(dialled, Err(DialError::Refused(_)))
}

#[test]
fn the_key_of_a_cluster_is_rotated_under_load_without_a_failed_call() {
    let base = tempfile::tempdir().expect("a directory");
    let at = |name: &str| base.path().join(name);
    let config = ControlConfig {
        directory: at("head"),
        listen: Some(([127, 0, 0, 1], 0).into()),
        certificate_lifetime: None,
        node_timeout: None,
    };
    let control = Control::start(&config).expect("a control process");
    let mut daemons =
        vec![start(&at("0"), &control, 0), start(&at("1"), &control, 1), start(&at("2"), &control, 1)];
    drop(daemons.pop());
    // What somebody has read, and what was given out before.
    let stolen = Authority::open(&at("head/control/authority")).expect("the keys");
    let forged = || {
        let identity = stolen.issue(aktis_io::random_node_id(), aktis_io::Role::Node).expect("signed");
        let key = identity.public_key().expect("a key");
        let certified = stolen.certify(identity.node(), identity.role(), key).expect("signed");
        // Its bearer trusts whoever is there, so that only the other end can refuse.
        let now = std::fs::read(at("head/control/authority/authority.crt")).expect("no secret");
        let mut authorities = certified.authorities;
        authorities.extend((!authorities.contains(&now)).then_some(now));
        identity.renewed(certified.certificate, authorities).expect("for the same name")
    };
    let token = control.token(PATIENCE, None).expect("a token").to_string();
    let member = |token: String| Role::Member { address: control.address().to_string(), token };
    assert!(is_let_in(&forged(), &daemons[1]), "the key is good until it is rotated");

    let session = Session::connect(daemons[0].attach_directory().to_str().expect("text")).expect("a session");
    let _entered = session.enter();
    let (rotated, is_rotated) = std::sync::mpsc::channel();
    let directory = aktis_daemon::control::control_directory(&at("head"));
    let rotate = std::thread::spawn(move || {
        let mut client = Client::connect(&directory).expect("it answers");
        let counts = [(); 2].map(|()| client.rotate_authority().expect("rotated"));
        rotated.send(counts).expect("heard");
    });
    let mut counts = None;
    while counts.is_none() {
        // Large enough to be pulled, over connections of its own.
        let answer = doubled::remote(vec![3; 1 << 20]).get_timeout(PATIENCE).expect("it runs");
        assert!(answer.len() == 1 << 20 && answer[0] == 6);
        counts = is_rotated.try_recv().ok();
    }
    rotate.join().expect("it has ended");
    assert_eq!(counts, Some([2, 2]), "both members, twice");

    assert!(!is_let_in(&forged(), &daemons[1]), "the stolen key is good for nothing");
    assert!(try_start(&at("3"), member(token), 1).is_err(), "nor is a token of before");
    let away = Role::Returning { address: control.address().to_string() };
    let error = try_start(&at("2"), away, 1).err().expect("it was away").to_string();
    assert!(error.contains("does not let this node join again") && error.contains("hint: "), "{error}");
    daemons.push(start(&at("2"), &control, 1));
    let linked = |daemons: &[Daemon]| daemons.iter().all(|daemon| daemon.linked_nodes() == daemons.len() - 1);
    let deadline = Instant::now() + PATIENCE;
    while !linked(&daemons) {
        assert!(Instant::now() < deadline, "the nodes have not found each other");
        std::thread::yield_now();
    }
}

#[test]
fn a_node_comes_back_by_its_certificate_until_that_has_expired() {
    let base = tempfile::tempdir().expect("a directory");
    let at = |name: &str| base.path().join(name);
    let listen = Some(([127, 0, 0, 1], 0).into());
    let control = Control::start(&ControlConfig {
        directory: at("head"),
        listen,
        certificate_lifetime: None,
        node_timeout: None,
    });
    let control = control.expect("a control process");
    let returning = || Role::Returning { address: control.address().to_string() };
    assert!(!can_return(&at("0")), "it was never there");
    let other = start(&at("1"), &control, 1);
    let first = start(&at("0"), &control, 0).node();
    assert!(can_return(&at("0")), "it has ended");
    let back = try_start(&at("0"), returning(), 0).expect("it comes back");
    assert_ne!(back.node(), first, "it is another node to all others");
    let deadline = Instant::now() + PATIENCE;
    while back.linked_nodes() < 1 || other.linked_nodes() < 1 {
        assert!(Instant::now() < deadline, "the nodes have not found each other");
        std::thread::yield_now();
    }
    let session = Session::connect(back.attach_directory().to_str().expect("text")).expect("a session");
    let entered = session.enter();
    assert!(doubled::remote(vec![1]).get_timeout(PATIENCE) == Ok(vec![2]), "it runs on the other");
    drop(entered);
    drop(session);
    drop(back);

    let place = at("0").join("identity");
    let id = Identity::load(&place).expect("an identity").node();
    let expired = Authority::open(&at("head/control/authority")).expect("the keys");
    let expired = expired.with_lifetime(Duration::ZERO).issue(id, aktis_io::Role::Node).expect("signed");
    expired.save(&place).expect("saved");
    let error = try_start(&at("0"), returning(), 0).err().expect("it has expired").to_string();
    assert!(error.contains("does not let this node join again") && error.contains("hint: "), "{error}");
    start(&at("0"), &control, 0);
}
