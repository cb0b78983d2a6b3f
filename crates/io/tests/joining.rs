//! How a cluster begins and grows: authorities, identities, tokens, and who is let in.

mod support;

use aktis_io::{
    Admission, AdmitAll, Authority, Identity, IdentityError, JoinError, Newcomer, Refusal, Role, Timing,
    Token, TokenRefused, join, random_node_id,
};
use aktis_protocol::NodeId;
use std::os::unix::fs::PermissionsExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::{Cluster, PATIENCE, Station};

const HOUR: Duration = Duration::from_secs(3600);

fn try_join(head: &Station, token: &Token) -> Result<aktis_io::Joined, JoinError> {
    join(head.endpoint.address(), token, Role::Node, PATIENCE)
}

#[test]
fn a_machine_with_a_token_becomes_a_node_that_others_know() {
    let cluster = Cluster::new();
    let head = cluster.head(Timing::default(), Arc::new(AdmitAll));
    let text = cluster.authority.token(HOUR).to_string();
    assert!(
        text.len() < 120
            && text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-".contains(letter))
    );
    let token: Token = text.parse().expect("a token");
    let joined = try_join(&head, &token).expect("it joins");
    let node = joined.identity.node();
    assert_eq!(joined.identity.role(), Role::Node);
    assert_eq!((joined.head, joined.identity.cluster()), (head.endpoint.node(), cluster.authority.cluster()));
    let newcomer = Station::new(joined.identity, Default::default());
    let near = newcomer.dial(&head, b"here I am");
    assert_eq!(head.next_incoming().peer.node, node);
    drop(near);
    let veteran = cluster.station(Timing::default());
    veteran.dial(&newcomer, b"");
    assert_eq!(newcomer.next_incoming().peer.node, veteran.endpoint.node());
}

#[test]
fn identities_and_authorities_survive_on_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("cluster");
    let made = Authority::create(&place).expect("an authority");
    let token = made.token(HOUR);
    // A stolen certificate is good for no longer than that.
    assert_eq!(made.lifetime(), 24 * HOUR);
    assert!(matches!(Authority::create(&place), Err(IdentityError::Exists(_))));
    let opened = Authority::open(&place).expect("the same");
    assert_eq!((opened.cluster(), opened.check(&token)), (made.cluster(), Ok(())));
    for file in std::fs::read_dir(&place).expect("a directory") {
        let mode = file.expect("a file").metadata().expect("its metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    let saved = directory.path().join("node");
    let identity = opened.issue(random_node_id(), Role::Node).expect("an identity");
    identity.save(&saved).expect("saved");
    let loaded = Identity::load(&saved).expect("loaded");
    assert_eq!((loaded.node(), loaded.cluster()), (identity.node(), made.cluster()));
    let (one, other) = (
        Station::new(loaded, Default::default()),
        Station::new(made.issue(random_node_id(), Role::Node).expect("another"), Default::default()),
    );
    one.dial(&other, b"");
    assert_eq!(other.next_incoming().peer.node, identity.node());
}

#[test]
fn damaged_and_readable_keys_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("cluster");
    Authority::create(&place).expect("an authority");
    let key = place.join("authority.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("opened up");
    assert!(matches!(Authority::open(&place), Err(IdentityError::Open { .. })));
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("closed");
    for file in ["authority.key", "authority.crt", "token.key"] {
        let path = place.join(file);
        let good = std::fs::read(&path).expect("it is there");
        std::fs::write(&path, &good[1..]).expect("damaged");
        let error = Authority::open(&place).expect_err("damaged");
        assert!(matches!(error, IdentityError::Unreadable { .. }), "{file}: {error}");
        std::fs::write(&path, good).expect("mended");
    }
    assert!(Authority::open(&place).is_ok());
    assert!(matches!(Identity::load(&place), Err(IdentityError::File { .. })));
}

#[test]
fn expired_and_wrong_tokens_are_told_apart_and_say_no_more() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let head = cluster.head(Timing::default(), Arc::new(AdmitAll));
    let good = cluster.authority.token(HOUR);
    let expired = cluster.authority.token(Duration::ZERO);
    // A stranger who has got hold of the fingerprint, but not of a token: the middle of one, the end of another.
    let (mine, theirs) = (good.to_string(), other.authority.token(HOUR).to_string());
    let forged: Token = format!("{}{}", &mine[..60], &theirs[60..]).parse().expect("it looks like one");
    let refused = |token: &Token| match try_join(&head, token) {
        Err(JoinError::Refused(refusal)) => refusal,
        other => panic!("{other:?}"),
    };
    for _ in 0..3 {
        assert_eq!(refused(&expired), Refusal::Token(TokenRefused::Expired));
        assert_eq!(refused(&forged), Refusal::Token(TokenRefused::Wrong));
    }
    assert_eq!(refused(&expired).to_string(), "refused: expired");
    assert_eq!(refused(&forged).to_string(), "refused: wrong token");
    assert_eq!(head.logged().len(), 1, "once for the address and the kind: {:?}", head.logged());
    try_join(&head, &good).expect("the good one is still good");
}

#[test]
fn no_token_of_an_earlier_key_is_good_not_even_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("cluster");
    let authority = Authority::create(&place).expect("an authority");
    let before = authority.token(HOUR);
    authority.rotate_token_key(&place).expect("another key");
    let after = authority.token(HOUR);
    for authority in [authority, Authority::open(&place).expect("the same")] {
        assert_eq!(authority.check(&before), Err(TokenRefused::Wrong));
        assert_eq!(authority.check(&after), Ok(()));
    }
}

#[test]
fn a_machine_notices_that_it_talks_to_the_head_of_another_cluster() {
    let (cluster, other) = (Cluster::new(), Cluster::new());
    let head = other.head(Timing::default(), Arc::new(AdmitAll));
    let error = try_join(&head, &cluster.authority.token(HOUR)).expect_err("another head");
    assert!(matches!(error, JoinError::Stranger { .. }), "{error}");
}

#[test]
fn only_the_head_lets_others_join() {
    let cluster = Cluster::new();
    let node = cluster.station(Timing::default());
    let error = try_join(&node, &cluster.authority.token(HOUR)).expect_err("not the head");
    assert!(matches!(error, JoinError::Wire { .. } | JoinError::Stranger { .. }), "{error}");
}

#[test]
fn a_token_gives_no_certificate_for_an_id_that_is_taken() {
    /// Keeps the ids that the head has made, and refuses the fourth.
    #[derive(Default)]
    struct Three(Mutex<Vec<NodeId>>);
    impl Admission for Three {
        fn admit(&self, newcomer: &Newcomer) -> Result<(), Refusal> {
            let mut nodes = self.0.lock().expect("no panic");
            nodes.push(newcomer.node);
            if nodes.len() > 3 { Err(Refusal::Other("three are enough".to_owned())) } else { Ok(()) }
        }
    }
    let (cluster, admission) = (Cluster::new(), Arc::new(Three::default()));
    let head = cluster.head(Timing::default(), admission.clone());
    let token = cluster.authority.token(HOUR);
    let joined: Vec<NodeId> =
        (0..3).map(|_| try_join(&head, &token).expect("it joins").identity.node()).collect();
    assert_eq!(*admission.0.lock().expect("no panic"), joined, "the head has chosen them");
    let mut all = [joined, vec![head.endpoint.node()]].concat();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 4, "each has an id of its own");
    let error = try_join(&head, &token).expect_err("one too many").to_string();
    assert!(error.contains("three are enough") && error.contains("hint:"), "{error}");
}
