//! Those who do not play by the rules are refused, complained about once, and leave nothing behind.

mod support;

use aktis_io::{AdmitAll, Role, Timing};
use aktis_protocol::limits;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use support::attacker::{self, dial, frame, hello, provoke};
use support::proxy::Random;
use support::{Cluster, End, PATIENCE, Station};

const LINK: &[u8] = b"aktis/1";
const BULK: &[u8] = b"aktis-bulk/1";
const JOIN: &[u8] = b"aktis-join/1";

/// A wish for the link number 7, with an empty greeting.
const OPEN_HELLO: &[u8] = &[0, 7, 0];
/// A wish for objects.
const BULK_HELLO: &[u8] = &[2];

/// A cluster under attack, with a link that must not notice. One at a time, because descriptors are counted.
struct Scene {
    cluster: Cluster,
    victim: Station,
    friend: Station,
    link: (End, End),
    descriptors: usize,
    handshake: Duration,
    _alone: MutexGuard<'static, ()>,
}

impl Scene {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let handshake = Duration::from_millis(1000);
        let timing = Timing { handshake, ..Timing::default() };
        let cluster = Cluster::new();
        let victim = cluster.head(timing, Arc::new(AdmitAll));
        let friend = cluster.station(Timing::default());
        let near = friend.dial(&victim, b"");
        let far = victim.next_incoming().end;
        Self {
            cluster,
            victim,
            friend,
            link: (near, far),
            descriptors: descriptors(),
            handshake,
            _alone: alone,
        }
    }

    fn address(&self) -> SocketAddr {
        self.victim.endpoint.address()
    }

    /// What must hold after an attack: one complaint with these words, nothing left over, and service as ever.
    fn survives(self, complaint: &str) {
        let deadline = Instant::now() + PATIENCE;
        // The complaint is the last that a refused connection leaves.
        while descriptors() > self.descriptors || self.victim.logged().is_empty() {
            let (now, logged) = (descriptors(), self.victim.logged());
            assert!(Instant::now() < deadline, "{now} of {} descriptors; {logged:?}", self.descriptors);
            std::thread::yield_now();
        }
        let logged = self.victim.logged();
        assert_eq!(logged.len(), 1, "{logged:?}");
        assert!(logged[0].starts_with("aktis: refused a connection from 127.0.0."), "{logged:?}");
        assert!(logged[0].contains(complaint), "{logged:?}");
        self.link.0.link.send(vec![1]).expect("room");
        assert_eq!(self.link.1.frames(1), [[1]]);
        self.friend.dial(&self.victim, b"another");
        assert_eq!(self.victim.next_incoming().greeting, b"another");
        assert!(self.victim.incoming.try_recv().is_err(), "nobody else has got in");
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("Linux").count()
}

#[test]
fn without_tls() {
    let scene = Scene::new();
    for _ in 0..20 {
        let socket = TcpStream::connect(scene.address()).expect("it listens");
        let answer = provoke(socket, b"GET / HTTP/1.1\r\nHost: cluster\r\n\r\n");
        assert!(answer.len() <= 7, "an alert of TLS at most: {answer:?}");
    }
    scene.survives("TLS: ");
}

#[test]
fn garbage() {
    let scene = Scene::new();
    let mut random = Random(42);
    for _ in 0..200 {
        let mut bytes: Vec<u8> = (0..1 + random.below(5000)).map(|_| random.below(256) as u8).collect();
        // Every other one looks like the beginning of TLS: a handshake record whose length says the truth.
        if random.below(2) == 0 {
            let header = [22, 3, 1, (bytes.len() >> 8) as u8, bytes.len() as u8];
            bytes.splice(..0, header);
        }
        let mut socket = TcpStream::connect(scene.address()).expect("it listens");
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        let _ = socket.read_to_end(&mut Vec::new());
    }
    let complaints = scene.victim.logged();
    assert!(complaints.len() <= 2, "once for each kind: {complaints:?}");
    scene.victim.log.lock().expect("no panic").truncate(1);
    scene.survives("");
}

#[test]
fn a_protocol_that_nobody_speaks_here() {
    let scene = Scene::new();
    let friend = scene.cluster.identity(Role::Node);
    for protocol in [&b"h2"[..], b"aktis/2", b"AKTIS/1"] {
        provoke(dial(scene.address(), protocol, Some(&friend)), b"x");
    }
    scene.survives("none of the offered protocols");
}

#[test]
fn no_certificate() {
    let scene = Scene::new();
    for protocol in [LINK, BULK, LINK, BULK] {
        let answer =
            provoke(dial(scene.address(), protocol, None), &hello(limits::PROTOCOL_VERSION, BULK_HELLO));
        assert!(answer.is_empty(), "{answer:?}");
    }
    scene.survives("certificate");
}

#[test]
fn a_certificate_of_another_cluster() {
    let scene = Scene::new();
    let stranger = Cluster::new().identity(Role::Node);
    for protocol in [LINK, BULK, LINK, BULK] {
        let answer = provoke(
            dial(scene.address(), protocol, Some(&stranger)),
            &hello(limits::PROTOCOL_VERSION, BULK_HELLO),
        );
        assert!(answer.is_empty(), "{answer:?}");
    }
    scene.survives("certificate");
}

#[test]
fn whoever_joins_cannot_do_anything_else() {
    let scene = Scene::new();
    // A wish for objects, and one for a link with an empty greeting, from somebody without a certificate.
    for body in [BULK_HELLO, OPEN_HELLO, BULK_HELLO] {
        provoke(dial(scene.address(), JOIN, None), &hello(limits::PROTOCOL_VERSION, body));
    }
    scene.survives("");
}

#[test]
fn another_version_is_told_both_versions() {
    let scene = Scene::new();
    let friend = scene.cluster.identity(Role::Node);
    for (protocol, identity) in [(LINK, Some(&friend)), (BULK, Some(&friend)), (JOIN, None)] {
        let answer = provoke(dial(scene.address(), protocol, identity), &hello(4711, b"whatever comes then"));
        assert_eq!(answer.get(4), Some(&attacker::REFUSED), "{answer:?}");
        let said = String::from_utf8_lossy(&answer[6..]).into_owned();
        assert!(said.contains("version 4711 of the peer") && said.contains("hint:"), "{said}");
    }
    let own = limits::PROTOCOL_VERSION;
    scene.survives(&format!("version 4711 of the peer is not protocol version {own} of this node"));
}

#[test]
fn a_huge_frame_is_refused_by_its_header() {
    let scene = Scene::new();
    let friend = scene.cluster.identity(Role::Node);
    let attacks = [
        (LINK, Some(&friend), u32::MAX),
        (LINK, Some(&friend), limits::FRAME_BYTES_MAX as u32),
        (JOIN, None, limits::STRANGER_FRAME_BYTES_MAX as u32 + 1),
    ];
    for (protocol, identity, length) in attacks {
        let start = Instant::now();
        provoke(dial(scene.address(), protocol, identity), &frame(length, attacker::HELLO, &[0; 100]));
        assert!(start.elapsed() < scene.handshake, "before the deadline");
    }
    scene.survives("longer than the limit");
}

#[test]
fn hellos_that_make_no_sense() {
    let scene = Scene::new();
    let friend = scene.cluster.identity(Role::Node);
    let mut random = Random(7);
    for round in 0..60 {
        let body: Vec<u8> = (0..random.below(100)).map(|_| random.below(256) as u8).collect();
        let payload = if round % 2 == 0 {
            hello(limits::PROTOCOL_VERSION, &[&[9][..], &body].concat())
        } else {
            frame(body.len() as u32, attacker::HELLO, &body)
        };
        provoke(dial(scene.address(), LINK, Some(&friend)), &payload);
    }
    scene.survives("hello");
}

#[test]
fn slow_ones_are_given_up_and_cannot_take_all_the_room() {
    let scene = Scene::new();
    let start = Instant::now();
    let mut crowd: Vec<_> = (0..limits::HANDSHAKES_PER_ADDRESS_MAX + 10)
        .map(|_| TcpStream::connect(scene.address()).expect("it listens"))
        .collect();
    for socket in &mut crowd {
        // The header of a handshake record, of which nothing follows.
        let _ = socket.write_all(&[22, 3, 1, 2, 0]);
    }
    // Those above the limit came last, and are closed at once; the others after the deadline, whatever they say.
    for (index, socket) in crowd.iter_mut().rev().enumerate() {
        let _ = socket.write_all(&[1]);
        let _ = socket.read_to_end(&mut Vec::new());
        // A place that is given up meanwhile is taken by the next, so that only the last is certain to find none.
        let is_early = start.elapsed() < scene.handshake;
        assert!(is_early || index > 0, "the last had to wait");
    }
    let took = start.elapsed();
    assert!(took >= scene.handshake && took < scene.handshake * 4, "{took:?}");
    drop(crowd);
    let logged = scene.victim.logged();
    assert_eq!(logged.len(), 2, "{logged:?}");
    assert!(logged.iter().any(|line| line.contains("too many")), "{logged:?}");
    assert!(logged.iter().any(|line| line.contains("no answer in time")), "{logged:?}");
    scene.victim.log.lock().expect("no panic").truncate(1);
    scene.survives("");
}

#[test]
fn a_peer_that_breaks_the_protocol_loses_its_link_and_nothing_else() {
    let scene = Scene::new();
    let friend = scene.cluster.identity(Role::Node);
    let open = hello(limits::PROTOCOL_VERSION, OPEN_HELLO);
    let violations = [
        frame(u32::MAX, 0, &[]),
        frame(0, 99, &[]),
        frame(8, 1, &u64::MAX.to_le_bytes()),
        frame(1, 1, &[0]),
        frame(0, attacker::HELLO, &[]),
    ];
    for violation in violations {
        let mut stream = dial(scene.address(), LINK, Some(&friend));
        stream.write_all(&open).expect("it listens");
        let end = scene.victim.next_incoming().end;
        provoke(stream, &violation);
        let end = end.end();
        assert!(matches!(end, aktis_io::LinkEnd::Violation(_)), "{end:?}");
    }
    provoke(TcpStream::connect(scene.address()).expect("it listens"), b"to have something to complain about");
    scene.survives("TLS");
}
