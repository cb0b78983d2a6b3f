//! A control process, and members that say whatever they like.

use super::*;
use aktis_io::Identity;
use aktis_io::durable::DurableError;
use aktis_protocol::actors::FoundActor;
use aktis_protocol::keys::{KeyAnswer, KeyQuestion};
use aktis_protocol::limits::{ANSWER_ROWS_MAX, DEAD_NODES_KEPT};
use aktis_protocol::member::{DEAD_PREFIX, DeadNode, Departure, NamedActor, Question, Reply};
use aktis_protocol::placement::{FromPlacer, ToPlacer};
use aktis_protocol::tables::{Answer, Key, Query, Table};
use aktis_protocol::{ActorId, Epoch, GroupId, GroupSpec, GroupState, Labels, Resources, SessionId, TaskId};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(20);

/// Starts one. What the one before still writes keeps its store open for a moment, as long as the process lives.
fn control(directory: &Path) -> Control {
    let config = ControlConfig {
        directory: directory.join("head"),
        listen: Some(([127, 0, 0, 1], 0).into()),
        certificate_lifetime: None,
        node_timeout: None,
    };
    let until = Instant::now() + PATIENCE;
    loop {
        match Control::start(&config) {
            Err(ControlError::Tables(DurableError::Locked { .. })) if Instant::now() < until => {
                std::thread::yield_now();
            }
            started => return started.expect("started"),
        }
    }
}

/// A node, as far as the control process can tell.
struct Node {
    identity: Identity,
    endpoint: Endpoint,
}

struct NoLinks;

impl EndpointEvents for NoLinks {
    fn on_link(&self, _: &Peer, _: &[u8], _: &Link) -> Result<Box<dyn LinkEvents>, String> {
        Err("nobody is to dial here".to_owned())
    }
}

/// One link of it.
struct Line {
    link: Link,
    heard: Receiver<FromControl>,
}

struct Ears(Sender<FromControl>);

impl LinkEvents for Ears {
    fn on_frames(&mut self, frames: Frames<'_>) {
        for frame in frames {
            let _ = self.0.send(decode(frame).expect("a message"));
        }
    }

    fn on_closed(&mut self, _: &LinkEnd) {}
}

impl Node {
    fn new(control: &Control) -> Self {
        let identity = control.authority.issue(aktis_io::random_node_id(), Role::Node).expect("issued");
        let address = ([127, 0, 0, 1], 0).into();
        let (events, options) = (Arc::new(NoLinks), EndpointOptions::default());
        let endpoint = Endpoint::bind(address, identity.clone(), events, options);
        Self { identity, endpoint: endpoint.expect("bound") }
    }

    fn dial(&self, control: &Control) -> Line {
        self.dial_as(control, MEMBER_GREETING.to_vec()).expect("dialled")
    }

    fn dial_as(&self, control: &Control, greeting: Vec<u8>) -> Result<Line, String> {
        let (said, heard) = channel();
        let place = control.endpoint.as_ref().expect("open");
        let ears = |_: &Link| -> Box<dyn LinkEvents> { Box::new(Ears(said)) };
        let link = self.endpoint.dial(place.node(), place.address(), greeting, ears);
        Ok(Line { link: link.map_err(|error| error.to_string())?, heard })
    }
}

impl Line {
    fn say(&self, message: &ToControl) {
        self.link.send(encode(message)).expect("room");
    }

    fn join(&self, names: Vec<NamedActor>) -> Epoch {
        let (labels, resources) = (Labels::default(), Resources::none());
        let address = ([127, 0, 0, 1], 1).into();
        self.say(&ToControl::Joined { held: None, address, labels, resources, names });
        self.wait(|message| match message {
            FromControl::Welcome { epoch, .. } => Some(epoch),
            _ => None,
        })
    }

    /// Waits for what the placer says of a group: its name, if it tells, and how far it is.
    fn wait_for_group(&self) -> (Option<String>, GroupState) {
        self.wait(|message| match message {
            FromControl::Placer { message: FromPlacer::GroupChanged { spec, state, .. } } => {
                Some((spec.and_then(|spec| spec.name), state))
            }
            _ => None,
        })
    }

    /// Waits until the link is over, and gives what was said before.
    fn wait_for_end(&self) -> Vec<FromControl> {
        let mut said = Vec::new();
        loop {
            match self.heard.recv_timeout(PATIENCE) {
                Ok(message) => said.push(message),
                Err(RecvTimeoutError::Disconnected) => return said,
                Err(RecvTimeoutError::Timeout) => panic!("the link goes on"),
            }
        }
    }

    /// Waits for a message; others are passed over.
    fn wait<T>(&self, wanted: impl Fn(FromControl) -> Option<T>) -> T {
        loop {
            let message = self.heard.recv_timeout(PATIENCE).expect("it is said");
            if let Some(found) = wanted(message) {
                return found;
            }
        }
    }

    fn claim(&self, actor: NamedActor) -> bool {
        let wanted = (actor.name.clone(), actor.found.actor);
        self.say(&ToControl::NameClaimed { actor });
        self.wait(|message| match message {
            FromControl::NameClaimed { name, actor, granted } => ((name, actor) == wanted).then_some(granted),
            _ => None,
        })
    }

    fn ask(&self, number: u64, question: Question) -> Reply {
        self.say(&ToControl::Asked { number, question });
        self.wait(|message| match message {
            FromControl::Answered { number: answered, reply } => (answered == number).then_some(reply),
            _ => None,
        })
    }
}

fn named(name: &str, number: u64) -> NamedActor {
    let actor = ActorId::created_by(TaskId::root(SessionId(1)).child(number));
    let found = FoundActor { actor, type_name: String::new(), details: Vec::new(), abroad: false };
    NamedActor { name: name.to_owned(), found }
}

#[test]
fn who_has_left_or_never_joined_gets_no_names() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let (early, other) = (Node::new(&control), Node::new(&control));
    let line = early.dial(&control);
    // It says that before it has joined; in order, so the answer to the question comes after that.
    line.say(&ToControl::NameClaimed { actor: named("a", 1) });
    line.join(Vec::new());
    assert_eq!(line.ask(1, Question::Names), Reply::Names(Vec::new()));
    let member = other.dial(&control);
    member.join(Vec::new());
    assert!(member.claim(named("a", 2)), "nobody has it");
    line.join(vec![named("b", 3)]);
    assert!(!line.claim(named("a", 1)) && line.claim(named("b", 3)));
    // Whoever leaves leaves its names.
    member.link.close(LEAVING);
    let free = || line.ask(2, Question::Names) == Reply::Names(vec!["b".to_owned()]);
    let deadline = std::time::Instant::now() + PATIENCE;
    while !free() {
        assert!(std::time::Instant::now() < deadline, "the name is not free");
    }
    assert!(line.claim(named("a", 1)));
}

#[test]
fn the_name_of_an_actor_that_lives_on_another_node_goes_to_that() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let (owner, successor) = (Node::new(&control), Node::new(&control));
    let (line, watcher) = (owner.dial(&control), successor.dial(&control));
    let abroad = |name, number| {
        let NamedActor { name, found } = named(name, number);
        NamedActor { name, found: FoundActor { abroad: true, ..found } }
    };
    watcher.join(Vec::new());
    line.join(vec![abroad("a", 1), abroad("b", 2)]);
    line.link.close(LEAVING);
    watcher.wait(|message| matches!(message, FromControl::NodeLeft { .. }).then_some(()));
    assert!(watcher.claim(named("a", 1)), "it is owned by that node now");
    // The one before has not heard of it.
    let line = owner.dial(&control);
    line.join(vec![abroad("a", 1)]);
    let NamedActor { name, found } = named("a", 1);
    line.say(&ToControl::NameFreed { name, actor: found.actor });
    let home = Some((successor.endpoint.node(), found));
    assert_eq!(line.ask(1, Question::Name("a".into())), Reply::NameFound(home));
    // The other died with its node, or before.
    let deadline = Instant::now() + PATIENCE;
    while !watcher.claim(named("b", 3)) {
        assert!(Instant::now() < deadline, "the name is not free");
    }
}

#[test]
fn a_link_that_is_closed_without_leaving_costs_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let (node, other) = (Node::new(&control), Node::new(&control));
    let (line, watcher) = (node.dial(&control), other.dial(&control));
    line.join(vec![named("a", 1)]);
    watcher.join(Vec::new());
    line.link.close("a message could not be sent");
    assert!(!watcher.claim(named("a", 2)), "its node is a member");
    node.dial(&control).join(vec![named("a", 1)]);
    assert!(!watcher.claim(named("a", 2)), "as before");
}

#[test]
fn the_last_nodes_that_are_gone_are_kept() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let (node, other) = (Node::new(&control), Node::new(&control));
    let asker = other.dial(&control);
    let epoch_of_asker = asker.join(Vec::new());
    let (table, prefix, limit) = (Table::Nodes, Key::from(DEAD_PREFIX), ANSWER_ROWS_MAX);
    let query = Query::Rows { table, prefix, after: None, limit, values: true };
    let mut numbers = 1..;
    let mut wait_for = |wanted: &dyn Fn(&[DeadNode]) -> bool| {
        let deadline = Instant::now() + PATIENCE;
        loop {
            asker.say(&ToControl::Heartbeat { epoch: epoch_of_asker });
            let reply = asker.ask(numbers.next().expect("endless"), Question::Query(query.clone()));
            let Reply::Table(Answer::Rows { rows, .. }) = reply else { panic!("{reply:?}") };
            let dead: Vec<DeadNode> = rows.iter().map(|(_, value)| decode(value).expect("a row")).collect();
            if wanted(&dead) {
                return;
            }
            assert!(Instant::now() < deadline, "{} are told of", dead.len());
        }
    };
    let mut first = None;
    for _ in 0..=DEAD_NODES_KEPT {
        let line = node.dial(&control);
        let epoch = line.join(Vec::new());
        first.get_or_insert(epoch);
        line.link.close(LEAVING);
        wait_for(&|dead| {
            dead.last().is_some_and(|dead| dead.info.epoch == epoch && dead.why == Departure::Left)
        });
    }
    wait_for(&|dead| dead.len() == DEAD_NODES_KEPT && Some(dead[0].info.epoch) > first);
}

#[test]
fn a_listing_says_that_it_is_not_complete() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let node = Node::new(&control);
    let line = node.dial(&control);
    line.join(Vec::new());
    let count = u64::from(ANSWER_ROWS_MAX) + 1;
    for number in 1..=count {
        let key = format!("{number}").into_bytes();
        let question = KeyQuestion::Put { key, value: Vec::new(), overwrite: true };
        line.say(&ToControl::Asked { number, question: Question::Key(question) });
    }
    let listed = line.ask(count + 1, Question::Key(KeyQuestion::List { prefix: Vec::new() }));
    let Reply::Key(Ok(KeyAnswer::Keys { keys, left_out })) = listed else { panic!("{listed:?}") };
    assert!(left_out > 0 && keys.len() as u64 + u64::from(left_out) >= count, "{} {left_out}", keys.len());
}

#[test]
fn a_group_is_found_by_its_name_until_it_is_removed_whoever_dies() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = control(directory.path());
    let maker = Node::new(&first);
    let line = maker.dial(&first);
    let epoch = line.join(Vec::new());
    let group = GroupId::created_by(TaskId::root(SessionId(1)).child(1));
    let bundles = vec![Resources::none().with("CPU", aktis_protocol::Amount::ONE)];
    let (name, detached) = (Some("known".to_owned()), true);
    let spec = GroupSpec { group, bundles, name: name.clone(), detached, ..GroupSpec::default() };
    line.say(&ToControl::Placer { epoch, message: ToPlacer::GroupWanted { spec } });
    let (told, state) = line.wait_for_group();
    assert!(told == name && matches!(state, GroupState::Pending(_)), "no node has room for it: {state:?}");
    line.link.close(LEAVING);
    drop((line, first));

    let second = control(directory.path());
    let stranger = Node::new(&second);
    let line = stranger.dial(&second);
    let epoch = line.join(Vec::new());
    assert_eq!(line.wait_for_group().0, name, "it is known before any node has spoken of it");
    line.say(&ToControl::Placer { epoch, message: ToPlacer::GroupRemoved { group } });
    while !matches!(line.wait_for_group().1, GroupState::Removed(_)) {}
    drop((line, second));

    let third = control(directory.path());
    let line = stranger.dial(&third);
    let epoch = line.join(Vec::new());
    line.say(&ToControl::Placer { epoch, message: ToPlacer::GroupWatched { group } });
    assert_eq!(line.wait_for_group(), (None, GroupState::Removed("it was removed".into())));
}

#[test]
fn a_heartbeat_that_comes_too_late_is_told_which_membership_is_over() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let node = Node::new(&control);
    let line = node.dial(&control);
    let (first, second) = (line.join(Vec::new()), line.join(Vec::new()));
    assert_ne!(first, second);
    // Two that were under way.
    line.say(&ToControl::Heartbeat { epoch: first });
    line.say(&ToControl::Heartbeat { epoch: first });
    line.say(&ToControl::Heartbeat { epoch: second });
    line.say(&ToControl::Asked { number: 1, question: Question::Names });
    let mut expelled = Vec::new();
    loop {
        match line.heard.recv_timeout(PATIENCE).expect("it is said") {
            FromControl::Expelled { epoch } => expelled.push(epoch),
            FromControl::Answered { .. } => break,
            _ => {}
        }
    }
    assert_eq!(expelled, [first, first], "the second goes on");
}

/// Somebody else with a certificate for the same id could do no more than a second link of the node itself.
#[test]
fn only_the_link_over_which_a_member_has_joined_speaks_for_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let (node, other) = (Node::new(&control), Node::new(&control));
    let watcher = other.dial(&control);
    watcher.join(Vec::new());
    let (line, second) = (node.dial(&control), node.dial(&control));
    let epoch = line.join(vec![named("a", 1)]);

    let lapses = || control.shared.shell.lock().head().membership().next_wakeup();
    let before = lapses();
    second.say(&ToControl::Heartbeat { epoch });
    let spec = GroupSpec {
        group: GroupId::created_by(TaskId::root(SessionId(1)).child(1)),
        bundles: vec![Resources::none().with("CPU", aktis_protocol::Amount::ONE)],
        ..GroupSpec::default()
    };
    second.say(&ToControl::Placer { epoch, message: ToPlacer::GroupWanted { spec } });
    let NamedActor { name, found } = named("a", 1);
    second.say(&ToControl::NameFreed { name, actor: found.actor });
    second.say(&ToControl::Asked { number: 1, question: Question::Names });
    second.say(&ToControl::Heartbeat { epoch: Epoch(epoch.0 + 100) });
    // Messages of a link are handled in order; nothing else was answered.
    let answer = second.heard.recv_timeout(PATIENCE).expect("it is said");
    assert_eq!(answer, FromControl::Expelled { epoch: Epoch(epoch.0 + 100) });
    assert_eq!(lapses(), before, "its lease is not renewed");
    assert_eq!(watcher.ask(1, Question::Names), Reply::Names(vec!["a".to_owned()]));

    // From its next joining on, the node speaks over that link.
    let (labels, resources) = (Labels::default(), Resources::none());
    let address = ([127, 0, 0, 1], 1).into();
    second.say(&ToControl::Joined { held: Some(epoch), address, labels, resources, names: Vec::new() });
    second.wait(|message| (matches!(message, FromControl::Welcome { .. })).then_some(()));
    line.say(&ToControl::Asked { number: 2, question: Question::Names });
    assert_eq!(second.ask(3, Question::Names), Reply::Names(Vec::new()));
    assert!(line.heard.try_iter().all(|message| !matches!(message, FromControl::Answered { .. })));
}

#[test]
fn a_certificate_is_given_for_the_key_that_the_link_was_made_with_only() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let node = Node::new(&control);
    let line = node.dial(&control);
    line.join(Vec::new());
    line.say(&ToControl::CertificateWanted { public_key: [7; 32] });
    let said = line.wait_for_end();
    assert!(!said.iter().any(|message| matches!(message, FromControl::Certified { .. })), "{said:?}");

    let back = |key: PublicKey| node.dial_as(&control, [RETURN_GREETING, &key].concat());
    let refused = back([7; 32]).err().expect("another key");
    assert!(refused.contains("this is another one"), "{refused}");
    let own = node.identity.public_key().expect("its key");
    let is_certificate = |message| matches!(message, FromControl::Certified { .. }).then_some(());
    back(own).expect("its own key").wait(is_certificate);
    let line = node.dial(&control);
    line.join(Vec::new());
    line.say(&ToControl::CertificateWanted { public_key: own });
    line.wait(is_certificate);
}

#[test]
fn a_driver_is_no_member() {
    let directory = tempfile::tempdir().expect("a directory");
    let control = control(directory.path());
    let identity = control.authority.issue(aktis_io::random_node_id(), Role::Driver).expect("issued");
    let (address, options) = (([127, 0, 0, 1], 0).into(), EndpointOptions::default());
    let endpoint = Endpoint::bind(address, identity, Arc::new(NoLinks), options).expect("bound");
    let place = control.endpoint.as_ref().expect("open");
    let (said, _heard) = channel();
    let ears = |_: &Link| -> Box<dyn LinkEvents> { Box::new(Ears(said)) };
    let refused = endpoint.dial(place.node(), place.address(), MEMBER_GREETING.to_vec(), ears);
    assert!(refused.expect_err("refused").to_string().contains("talks to nodes only"));
}

#[test]
fn a_control_process_whose_certificate_has_expired_starts_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = control(directory.path());
    let id = first.endpoint.as_ref().expect("open").node();
    let (place, keys) = (first.directory().join("identity"), first.directory().join("authority"));
    drop(first);
    let expired = Authority::open(&keys).expect("the authority").with_lifetime(Duration::ZERO);
    expired.issue(id, Role::Node).expect("signed").save(&place).expect("saved");
    let second = control(directory.path());
    assert_eq!(second.endpoint.as_ref().expect("open").node(), id, "members know it by its id");
    Node::new(&second).dial(&second).join(Vec::new());
}
