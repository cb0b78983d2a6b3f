//! A day of certificates in seconds: a hundred renewals at both ends, while frames and new links go on.

mod support;

use aktis_io::{Authority, EndpointOptions, Identity, IdentityError, Role, random_node_id};
use std::path::Path;
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
        let certified = authority.certify(self.identity.node(), Role::Node, key).expect("signed");
        let renewed = self.identity.renewed(certified.certificate, certified.authorities);
        self.identity = renewed.expect("for the same name");
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

type Stage = fn(&Authority, &Path) -> Result<(), IdentityError>;

/// The stages of a rotation, in their order.
const STAGES: [Stage; 3] = [Authority::begin_rotation, Authority::promote_next, Authority::end_rotation];

#[test]
fn members_of_neighbouring_stages_of_a_rotation_trust_each_other_and_no_others() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("cluster");
    let authority = Authority::create(&place).expect("an authority");
    let before = authority.fingerprint();
    let mut members = vec![Renewed::new(&authority)];
    for stage in STAGES {
        stage(&authority, &place).expect("written");
        // As the next life of the control process finds it.
        let found = Authority::open(&place).expect("the keys");
        assert_eq!(found.fingerprint(), authority.fingerprint());
        members.push(Renewed::new(&found));
        let [.., old, new] = &members[..] else { panic!("two at least") };
        for (from, to) in [(old, new), (new, old)] {
            from.station.dial(&to.station, b"neighbour");
            assert_eq!(to.station.next_incoming().peer.node, from.identity.node());
        }
    }
    assert_ne!(authority.fingerprint(), before);
    assert_eq!(authority.serial(), 3);
    let [first, .., last] = &members[..] else { panic!("two at least") };
    for (from, to) in [(first, last), (last, first)] {
        let (dialled, to) = (&from.station.endpoint, &to.station.endpoint);
        let link =
            dialled.dial(to.node(), to.address(), b"stranger".to_vec(), |_| Box::new(Recorder(channel().0)));
        assert!(link.is_err(), "their keys have nothing in common");
    }
    let left: Vec<_> =
        std::fs::read_dir(&place).expect("read").map(|file| file.expect("a file").file_name()).collect();
    assert_eq!(left.len(), 3, "{left:?}");
}

#[test]
fn a_rotation_that_was_cut_off_anywhere_goes_on_to_the_same_end() {
    for cut in 0..STAGES.len() {
        let directory = tempfile::tempdir().expect("a directory");
        let place = directory.path().join("cluster");
        let mut authority = Authority::create(&place).expect("an authority");
        let before = authority.fingerprint();
        for (number, stage) in STAGES.into_iter().enumerate() {
            stage(&authority, &place).expect("written");
            if number == cut {
                authority = Authority::open(&place).expect("the keys");
                STAGES
                    .into_iter()
                    .take(number + 1)
                    .try_for_each(|stage| stage(&authority, &place))
                    .expect("again");
            }
        }
        let after = Authority::open(&place).expect("the keys");
        assert!(after.fingerprint() == authority.fingerprint() && after.fingerprint() != before);
    }
}

#[test]
fn a_power_cut_between_key_and_certificate_is_repaired() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("cluster");
    let authority = Authority::create(&place).expect("an authority");
    authority.begin_rotation(&place).expect("written");
    // What `promote_next` has done when the power is cut after its second step.
    std::fs::copy(place.join("authority.crt"), place.join("old.crt")).expect("copied");
    std::fs::rename(place.join("next.key"), place.join("authority.key")).expect("renamed");
    let found = Authority::open(&place).expect("the keys");
    let (one, other) = (Renewed::new(&found), Renewed::new(&authority));
    one.station.dial(&other.station, b"neighbour");
    assert_eq!(other.station.next_incoming().peer.node, one.identity.node());
    assert_ne!(found.fingerprint(), authority.fingerprint(), "the other key signs");
}
