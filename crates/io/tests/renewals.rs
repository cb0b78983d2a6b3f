//! A day of certificates in seconds: a hundred renewals at both ends, while frames and new links go on.

mod support;

use aktis_io::{Authority, EndpointOptions, Identity, Role, random_node_id};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::{Recorder, Station};

/// X.509 counts in seconds; the first certificates are to expire within the test.
const LIFETIME: Duration = Duration::from_secs(5);
const RENEWALS: usize = 100;
/// Frames on the old link between two renewals.
const FRAMES: usize = 20;

/// A station whose certificate is renewed.
struct Renewed {
    identity: Identity,
    station: Station,
}

impl Renewed {
    fn new(authority: &Authority) -> Self {
        let identity = authority.issue(random_node_id(), Role::Node).expect("an identity");
        Self { station: Station::new(identity.clone(), EndpointOptions::default()), identity }
    }

    fn renew(&mut self, authority: &Authority) {
        let key = self.identity.public_key().expect("a key");
        let certificate = authority.certify(self.identity.node(), Role::Node, key).expect("signed");
        self.identity = self.identity.renewed(certificate).expect("for the same name");
        self.station.endpoint.renewer().renew(&self.identity).expect("renewed");
    }
}

#[test]
fn a_hundred_renewals_under_load_fail_no_link_and_no_frame() {
    let directory = tempfile::tempdir().expect("a directory");
    let authority = Authority::create(&directory.path().join("cluster")).expect("an authority");
    let authority = authority.with_lifetime(LIFETIME);
    let (mut one, mut other) = (Renewed::new(&authority), Renewed::new(&authority));
    let (began, first) = (Instant::now(), one.identity.clone());
    let near = one.station.dial(&other.station, b"old");
    let far = other.station.next_incoming().end;
    let (mut renewals, mut sent) = (0, 0_usize);
    while renewals < RENEWALS || began.elapsed() < LIFETIME {
        one.renew(&authority);
        other.renew(&authority);
        renewals += 1;
        for _ in 0..FRAMES {
            near.link.send(sent.to_le_bytes().to_vec()).expect("room");
            sent += 1;
        }
        // New connections show the new certificates, in both directions.
        for (from, to) in [(&one, &other), (&other, &one)] {
            let new = from.station.dial(&to.station, b"new");
            let arrived = to.station.next_incoming();
            assert_eq!(arrived.peer.node, from.identity.node());
            new.link.send(b"hello".to_vec()).expect("room");
            assert_eq!(arrived.end.frames(1), [b"hello".to_vec()]);
            new.link.close("it has done its work");
        }
        let frames = far.frames(FRAMES);
        let wanted = (sent - FRAMES..sent).map(|number| number.to_le_bytes().to_vec());
        assert!(frames.into_iter().eq(wanted), "after {renewals} renewals");
    }
    // Whoever has kept the first certificate has nothing.
    let late = Station::new(first, EndpointOptions::default());
    let dialled =
        late.endpoint.dial(other.identity.node(), other.station.endpoint.address(), Vec::new(), |_| {
            Box::new(Recorder(channel().0))
        });
    assert!(dialled.is_err(), "it has expired");
}
