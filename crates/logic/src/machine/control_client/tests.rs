//! The client, with a control process that says whatever the test likes.

use super::*;
use crate::machine::node::Verdict;
use aktis_protocol::admin::{JobRow, JobState, OnNode};
use aktis_protocol::control::decode;
use aktis_protocol::limits::NODE_HEARTBEAT_MICROSECONDS;
use aktis_protocol::member::{NamedActor, Reply};
use aktis_protocol::placement::FromPlacer;
use aktis_protocol::{Amount, Resources, SessionId, TaskId};

const LINK: LinkId = LinkId(1);

fn info(number: u64, epoch: u64) -> NodeInfo {
    NodeInfo {
        node: NodeId::from_words([number, 0]),
        epoch: Epoch(epoch),
        address: ([127, 0, 0, 1], 1).into(),
        labels: Default::default(),
        resources: Resources::none().with("CPU", Amount::units(4)),
    }
}

fn found(number: u64) -> FoundActor {
    let actor = ActorId::created_by(TaskId::root(SessionId(1)).child(number));
    FoundActor { actor, type_name: String::new(), details: Vec::new(), abroad: false }
}

struct Scene {
    client: ControlClient,
    now: Time,
}

impl Scene {
    fn new() -> Self {
        Self { client: ControlClient::new(info(1, 0), ProcessSlot(9)), now: Time(0) }
    }

    /// A node that was welcomed over `LINK` with epoch 5, beside node 2.
    fn member() -> Self {
        let mut scene = Self::new();
        scene.step(ControlClientInput::Ticked);
        scene.step(ControlClientInput::Linked { link: LINK });
        scene.welcome(LINK, 5);
        scene
    }

    fn step(&mut self, input: ControlClientInput) -> Vec<ControlClientEffect> {
        let mut effects = Vec::new();
        self.client.step(self.now, input, &mut effects);
        self.client.check();
        effects
    }

    /// What is sent to the control process because of an input.
    fn says(&mut self, input: ControlClientInput) -> Vec<ToControl> {
        let sent = |effect| match effect {
            ControlClientEffect::Send { message, .. } => Some(message),
            _ => None,
        };
        self.step(input).into_iter().filter_map(sent).collect()
    }

    fn hear(&mut self, link: LinkId, message: FromControl) -> Vec<ControlClientEffect> {
        self.step(ControlClientInput::Received { link, message })
    }

    fn welcome(&mut self, link: LinkId, epoch: u64) -> Vec<ControlClientEffect> {
        self.hear(link, FromControl::Welcome { epoch: Epoch(epoch), nodes: vec![info(2, 2)] })
    }

    fn relink(&mut self, link: LinkId) -> Vec<ToControl> {
        self.now.0 += DIAL_AGAIN_MICROSECONDS;
        let dials = self.step(ControlClientInput::Ticked);
        assert!(dials.iter().any(|effect| matches!(effect, ControlClientEffect::Dial)), "{dials:?}");
        self.says(ControlClientInput::Linked { link })
    }
}

fn sent(effects: &[ControlClientEffect]) -> Vec<ToControl> {
    let sent = |effect: &ControlClientEffect| match effect {
        ControlClientEffect::Send { message, .. } => Some(message.clone()),
        _ => None,
    };
    effects.iter().filter_map(sent).collect()
}

fn asked(message: &ToControl) -> u64 {
    let ToControl::Asked { number, .. } = message else { panic!("{message:?}") };
    *number
}

#[test]
fn an_old_link_says_nothing_that_counts() {
    let mut scene = Scene::member();
    scene.step(ControlClientInput::LinkEnded { link: LINK });
    scene.relink(LinkId(2));
    for message in [
        FromControl::Welcome { epoch: Epoch(9), nodes: Vec::new() },
        FromControl::Expelled { epoch: Epoch(5) },
        FromControl::NodeJoined { info: info(3, 3) },
        FromControl::NameClaimed { name: "a".to_owned(), actor: found(1).actor, granted: true },
        FromControl::Answered { number: 1, reply: Reply::Names(Vec::new()) },
    ] {
        let effects = scene.hear(LINK, message.clone());
        assert!(effects.is_empty(), "{message:?}: {effects:?}");
    }
    assert!(scene.step(ControlClientInput::LinkEnded { link: LINK }).is_empty(), "it was over already");
    assert!(!scene.client.is_member() && scene.client.epoch() == Some(Epoch(5)));
}

#[test]
fn the_placer_is_not_heard_before_the_welcome() {
    let mut scene = Scene::member();
    scene.step(ControlClientInput::LinkEnded { link: LINK });
    let joined = scene.relink(LinkId(2));
    assert!(matches!(joined[..], [ToControl::Joined { held: Some(Epoch(5)), .. }]), "{joined:?}");
    let reason = String::new();
    let message = FromPlacer::Refused { request: 1, reason };
    assert!(scene.hear(LinkId(2), FromControl::Placer { message: message.clone() }).is_empty());
    scene.welcome(LinkId(2), 5);
    assert_eq!(scene.hear(LinkId(2), FromControl::Placer { message }).len(), 1);
}

#[test]
fn a_node_is_expelled_once_however_often_it_is_said() {
    let mut scene = Scene::member();
    let joined = sent(&scene.hear(LINK, FromControl::Expelled { epoch: Epoch(5) }));
    assert!(matches!(joined[..], [ToControl::Joined { held: None, .. }]), "{joined:?}");
    assert!(scene.hear(LINK, FromControl::Expelled { epoch: Epoch(5) }).is_empty(), "it joins again");
    let effects = scene.welcome(LINK, 6);
    let is_lost = |effect: &ControlClientEffect| {
        matches!(effect, ControlClientEffect::ToNode(NodeInput::MembershipLost))
    };
    assert!(effects.iter().any(is_lost), "{effects:?}");
    assert!(scene.hear(LINK, FromControl::Expelled { epoch: Epoch(5) }).is_empty(), "it has joined again");
    assert_eq!(scene.client.epoch(), Some(Epoch(6)));
}

#[test]
fn heartbeats_name_the_present_membership() {
    let mut scene = Scene::member();
    scene.now.0 += NODE_HEARTBEAT_MICROSECONDS;
    let said = scene.says(ControlClientInput::Ticked);
    assert_eq!(said, [ToControl::Heartbeat { epoch: Epoch(5) }]);
    scene.hear(LINK, FromControl::Expelled { epoch: Epoch(5) });
    scene.now.0 += NODE_HEARTBEAT_MICROSECONDS;
    assert_eq!(scene.says(ControlClientInput::Ticked), [], "there is none");
}

#[test]
fn questions_are_asked_again_in_order_and_answered_once() {
    let mut scene = Scene::member();
    let ask = |request| ControlClientInput::NamesWanted { to: ProcessSlot(1), request };
    let first: Vec<u64> = (1..4).flat_map(|request| scene.says(ask(request))).map(|m| asked(&m)).collect();
    assert_eq!(first, [1, 2, 3]);
    let answer = |number| FromControl::Answered { number, reply: Reply::Names(Vec::new()) };
    assert_eq!(scene.hear(LINK, answer(2)).len(), 1);
    assert!(scene.hear(LINK, answer(2)).is_empty(), "it was answered");
    scene.step(ControlClientInput::LinkEnded { link: LINK });
    assert_eq!(scene.says(ask(4)), [], "the control process is away");
    scene.relink(LinkId(2));
    let again = sent(&scene.welcome(LinkId(2), 5));
    assert_eq!(again.iter().map(asked).collect::<Vec<_>>(), [1, 3, 4]);
    for number in [4, 3, 1] {
        assert_eq!(scene.hear(LinkId(2), answer(number)).len(), 1);
    }
    assert!(scene.client.is_idle());
}

#[test]
fn a_question_without_an_answer_fails_after_a_while() {
    let mut scene = Scene::new();
    let question = KeyQuestion::Get { key: vec![1] };
    scene.step(ControlClientInput::KeyWanted { to: ProcessSlot(1), request: 7, question });
    scene.now.0 += QUESTION_PATIENCE_MICROSECONDS + 1;
    let effects = scene.step(ControlClientInput::Ticked);
    let is_refused = |effect: &ControlClientEffect| {
        matches!(
            effect,
            ControlClientEffect::ToNode(NodeInput::KeyAnswered { request: 7, answer: Err(_), .. })
        )
    };
    assert!(effects.iter().any(is_refused), "{effects:?}");
    assert!(scene.client.is_idle());
}

#[test]
fn a_name_that_changes_while_joining_is_told_with_the_welcome() {
    let mut scene = Scene::new();
    let want =
        |name: &str, number| ControlClientInput::NameWanted { name: name.to_owned(), found: found(number) };
    let free = |name: &str, number| ControlClientInput::NameFreed {
        name: name.to_owned(),
        actor: found(number).actor,
    };
    for number in 10..100 {
        scene.step(want("short", number));
        scene.step(free("short", number));
    }
    scene.step(want("kept", 1));
    scene.step(want("gone", 2));
    scene.step(ControlClientInput::Ticked);
    let joined = scene.says(ControlClientInput::Linked { link: LINK });
    let [ToControl::Joined { names, .. }] = joined.as_slice() else { panic!("{joined:?}") };
    assert_eq!(names.len(), 2, "{names:?}");
    assert_eq!(scene.says(want("new", 3)), []);
    assert_eq!(scene.says(free("gone", 2)), []);
    let claimed = NamedActor { name: "new".to_owned(), found: found(3) };
    let freed = ToControl::NameFreed { name: "gone".to_owned(), actor: found(2).actor };
    let said = sent(&scene.welcome(LINK, 5));
    assert_eq!(said, [ToControl::NameClaimed { actor: claimed }, freed]);
    assert_eq!(scene.says(want("later", 4)).len(), 1);
}

#[test]
fn a_lookup_goes_on_while_the_node_of_the_actor_is_out_of_reach() {
    let mut scene = Scene::member();
    let (to, request, name) = (ProcessSlot(1), 3, "a".to_owned());
    let question = scene.says(ControlClientInput::LookupWanted { to, request, name });
    let reply = Reply::NameFound(Some((info(2, 2).node, found(1))));
    let answered = FromControl::Answered { number: asked(&question[0]), reply };
    let effects = scene.hear(LINK, answered);
    let [ControlClientEffect::ReachActor { search, .. }] = &effects[..] else { panic!("{effects:?}") };
    assert!(scene.step(ControlClientInput::ActorReached { search: *search, is_reached: false }).is_empty());
    scene.now.0 += 1_000_000;
    let again = scene.says(ControlClientInput::Ticked);
    let again = again.iter().find(|message| matches!(message, ToControl::Asked { .. })).expect("asked again");
    let reply = Reply::NameFound(Some((info(1, 5).node, found(1))));
    let effects = scene.hear(LINK, FromControl::Answered { number: asked(again), reply });
    let [ControlClientEffect::ToNode(NodeInput::NameFound { found: Some((proxy, _)), .. })] = &effects[..]
    else {
        panic!("{effects:?}")
    };
    assert_eq!(*proxy, ProcessSlot(9), "the actor is owned by this node by now");
    assert!(scene.client.is_idle());
}

#[test]
fn a_running_job_is_told_again_after_the_cluster_gave_the_node_up() {
    let mut scene = Scene::member();
    let (process, program) = (ProcessSlot(3), ProgramId::from_hash([1; 16]));
    let command = "python train.py".to_owned();
    scene.step(ControlClientInput::JobBegan { process, pid: 1, program, command, unix_microseconds: 1 });
    let jobs_in = |messages: &[ToControl]| -> Vec<OnNode<JobRow>> {
        let changes = messages.iter().filter_map(|message| match message {
            ToControl::Asked { question: Question::Change(changes), .. } => Some(changes),
            _ => None,
        });
        let job = |change: &Change| match change {
            Change::RowPut { value, .. } => Some(decode(value).expect("a job")),
            Change::EventNoted(event) if event.kind == aktis_protocol::tables::EventKind::Attached => None,
            change => panic!("{change:?}"),
        };
        changes.flatten().filter_map(job).collect()
    };
    let told = scene.says(ControlClientInput::OrdersEnded);
    assert_eq!(jobs_in(&told).len(), 1, "{told:?}");
    let applied = Reply::Table(Answer::Applied { refused: Vec::new() });
    scene.hear(LINK, FromControl::Answered { number: asked(&told[0]), reply: applied });
    assert!(scene.client.is_idle());
    scene.hear(LINK, FromControl::Expelled { epoch: Epoch(5) });
    let again = jobs_in(&sent(&scene.welcome(LINK, 6)));
    assert!(again.len() == 1 && again[0].row.state == JobState::Running, "{again:?}");
}

#[test]
fn the_stand_in_places_only_while_the_control_process_is_away() {
    let mut scene = Scene::member();
    let needs = Resources::none().with("CPU", Amount::ONE);
    let demand = Demand { needs, count: 1, ..Demand::default() };
    let want = ControlClientInput::PlacesWanted { shape: ShapeId(3), demand };
    assert_eq!(scene.says(want.clone()).len(), 1);
    scene.step(ControlClientInput::LinkEnded { link: LINK });
    let effects = scene.step(want.clone());
    let [ControlClientEffect::Log { .. }, ControlClientEffect::ToNode(waits)] = &effects[..] else {
        panic!("{effects:?}")
    };
    let waits = matches!(waits, NodeInput::Placed { verdict: Verdict::Later { .. }, .. });
    assert!(waits, "there is no link to another node: {effects:?}");
    let nodes = [info(2, 2).node].into();
    scene.now.0 += DIAL_AGAIN_MICROSECONDS;
    let effects = scene.step(ControlClientInput::LinksSeen { nodes });
    let is_placed = |effect: &ControlClientEffect| {
        matches!(effect, ControlClientEffect::PlaceTasks { shape: ShapeId(3), .. })
    };
    assert!(effects.iter().any(is_placed), "{effects:?}");
    scene.relink(LinkId(2));
    scene.welcome(LinkId(2), 5);
    assert_eq!(scene.says(want).len(), 1, "the placer is asked");
}
