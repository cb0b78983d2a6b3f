//! What a node of a cluster does about values that are gone: who is asked, who makes them again, and what the cluster is
//! told meanwhile.

use aktis_logic::machine::node::{
    Guest, Node, NodeConfig, NodeEffect, NodeInput, ProgramConfig, SPILL_ABOVE_PERCENT_DEFAULT,
};
use aktis_logic::{Machine, Time};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::tables::Change;
use aktis_protocol::{
    DeathCause, Failure, FailureKind, Labels, NodeId, ObjectId, ProcessSlot, ProgramId, Resources, SessionId,
    TaskId,
};

const DRIVER: ProcessSlot = ProcessSlot(0);

/// A node of a cluster with a driver, and processes that stand for two other nodes.
struct Story {
    node: Node,
    now: u64,
    namer: ProcessSlot,
    other: ProcessSlot,
}

impl Story {
    fn begin() -> Self {
        let program = ProgramConfig { program: ProgramId::default(), shared_worker: false };
        let mut node = Node::new(NodeConfig {
            node: NodeId::of_session(SessionId(1)),
            labels: Labels::new(),
            resources: Resources::none(),
            store_bytes: 1 << 20,
            entries_max: 16,
            spill_bytes_max: 0,
            spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
            driver: Some(program),
        });
        node.join_cluster();
        node.start(Time(0), &mut Vec::new());
        let mut story = Self { node, now: 0, namer: DRIVER, other: DRIVER };
        story.namer = story.link();
        story.other = story.link();
        story
    }

    fn link(&mut self) -> ProcessSlot {
        let admitted = self.step(NodeInput::Attached { guest: Guest::Peer, pid: 8 });
        let place = admitted.iter().find_map(|effect| match effect {
            NodeEffect::Admit { process } => Some(*process),
            _ => None,
        });
        let place = place.expect("there is a place");
        self.hear(place, ToNode::Started);
        place
    }

    fn step(&mut self, input: NodeInput) -> Vec<NodeEffect> {
        let mut out = Vec::new();
        self.node.step(Time(self.now), input, &mut out);
        self.node.check();
        out
    }

    fn hear(&mut self, from: ProcessSlot, message: ToNode) -> Vec<NodeEffect> {
        self.step(NodeInput::Received { from, message })
    }

    fn die(&mut self, process: ProcessSlot) -> Vec<NodeEffect> {
        self.step(NodeInput::ProcessDied { process, cause: DeathCause::default() })
    }

    fn wait(&mut self, seconds: u64) -> Vec<NodeEffect> {
        self.now += seconds * 1_000_000;
        self.step(NodeInput::Ticked)
    }

    /// The namer has named an object to the driver, which holds it.
    fn name(&mut self, object: ObjectId) {
        self.hear(self.namer, ToNode::Promised { object, holder: self.namer, found: false });
        self.hear(DRIVER, ToNode::Held { object });
        self.hear(self.namer, ToNode::Released { object });
    }
}

fn object(number: u64) -> ObjectId {
    TaskId::root(SessionId(1)).child(number).returns(0)
}

fn recorded(object: ObjectId) -> RecordedTask {
    let lineage = vec![7];
    RecordedTask { task: object.task(), returns: 1, program: ProgramId::default(), lineage }
}

fn inline() -> SharedValue {
    SharedValue::Inline { bytes: vec![1], contains: false }
}

fn lost() -> SharedValue {
    SharedValue::Failed(Failure::new(FailureKind::Lost, "it is gone"))
}

/// What the cluster is told.
fn changes(effects: &[NodeEffect]) -> Vec<Change> {
    let change = |effect: &NodeEffect| match effect {
        NodeEffect::ChangeTables { change } => Some(change.clone()),
        _ => None,
    };
    effects.iter().filter_map(change).collect()
}

/// What a process is told.
fn sent(effects: &[NodeEffect], whom: ProcessSlot) -> Vec<&FromNode> {
    let mut all = Vec::new();
    for effect in effects {
        if let NodeEffect::Send { to, message } = effect
            && *to == whom
            && !matches!(message, FromNode::ProcessDied { .. })
        {
            all.push(message);
        }
    }
    all
}

fn seeks_record(effects: &[NodeEffect]) -> bool {
    effects.iter().any(|effect| matches!(effect, NodeEffect::SeekRecord { .. }))
}

#[test]
fn the_cluster_is_told_of_tasks_whose_results_other_nodes_know_and_of_no_others() {
    let mut story = Story::begin();
    let (here, abroad) = (object(1), object(2));
    for object in [here, abroad] {
        story.hear(DRIVER, ToNode::Escaped { object, value: Some(inline()) });
        let told = story.hear(DRIVER, ToNode::Recorded { tasks: vec![recorded(object)] });
        assert_eq!(changes(&told), []);
    }
    let told = changes(&story.hear(story.namer, ToNode::Held { object: abroad }));
    assert!(matches!(&told[..], [Change::TaskRecorded { task, .. }] if *task == abroad.task()), "{told:?}");
    assert_eq!(changes(&story.hear(story.other, ToNode::Held { object: abroad })), [], "once");
    let again = changes(&story.step(NodeInput::MembershipLost));
    assert_eq!(again, told, "the cluster has forgotten it");
    story.hear(DRIVER, ToNode::Released { object: abroad });
    story.hear(story.namer, ToNode::Released { object: abroad });
    let gone = changes(&story.hear(story.other, ToNode::Released { object: abroad }));
    assert_eq!(gone, [Change::TaskForgotten { task: abroad.task() }]);
    assert_eq!(changes(&story.hear(DRIVER, ToNode::Released { object: here })), []);
}

#[test]
fn what_a_dead_node_has_named_is_claimed_and_sought_on_the_others() {
    let mut story = Story::begin();
    let wanted = object(1);
    story.name(wanted);
    let died = story.die(story.namer);
    assert_eq!(changes(&died), [Change::Held { object: wanted }]);
    assert_eq!(sent(&died, story.other), [&FromNode::Sought { object: wanted }]);
    story.hear(story.other, ToNode::Promised { object: wanted, holder: story.other, found: true });
    let asked = story.hear(DRIVER, ToNode::Subscribed { object: wanted });
    assert_eq!(sent(&asked, story.other), [&FromNode::ValueWanted { object: wanted }]);
    let said = story.hear(story.other, ToNode::Resolved { object: wanted, value: inline() });
    assert_eq!(sent(&said, DRIVER), [&FromNode::ObjectResolved { object: wanted, value: inline() }]);
    story.hear(story.other, ToNode::Released { object: wanted });
    let gone = changes(&story.hear(DRIVER, ToNode::Released { object: wanted }));
    assert_eq!(gone, [Change::Released { object: wanted }]);
}

#[test]
fn a_process_that_waits_adopts_the_task_if_nobody_has_the_value() {
    let mut story = Story::begin();
    let wanted = object(1);
    story.name(wanted);
    story.die(story.namer);
    story.hear(story.other, ToNode::NotKnown { object: wanted });
    // Nobody has waited: now somebody does.
    let asked = story.hear(DRIVER, ToNode::Subscribed { object: wanted });
    assert_eq!(sent(&asked, story.other), [&FromNode::Sought { object: wanted }]);
    assert!(seeks_record(&story.hear(story.other, ToNode::NotKnown { object: wanted })));
    let found = NodeInput::RecordFound { object: wanted, found: Some(recorded(wanted)) };
    let adopted = story.step(found);
    let order = FromNode::Adopt { object: wanted, lineage: recorded(wanted).lineage };
    assert_eq!(sent(&adopted, DRIVER), [&order]);
    // What others say of it does not count any more.
    assert_eq!(
        sent(&story.hear(story.other, ToNode::Resolved { object: wanted, value: lost() }), DRIVER),
        [&order; 0]
    );
    assert_eq!(sent(&story.wait(5), DRIVER), [&order; 0], "it may take its time");
    let made = story.hear(DRIVER, ToNode::Resolved { object: wanted, value: inline() });
    assert_eq!(sent(&made, DRIVER), [&FromNode::ObjectResolved { object: wanted, value: inline() }]);
}

#[test]
fn a_process_that_holds_a_value_adopts_the_task_for_another_node_that_waits() {
    let mut story = Story::begin();
    let wanted = object(1);
    story.name(wanted);
    story.die(story.namer);
    assert!(!seeks_record(&story.hear(story.other, ToNode::NotKnown { object: wanted })), "nobody waits");
    story.hear(story.other, ToNode::Held { object: wanted });
    story.hear(story.other, ToNode::Subscribed { object: wanted });
    assert!(seeks_record(&story.hear(story.other, ToNode::NotKnown { object: wanted })));
    let adopted = story.step(NodeInput::RecordFound { object: wanted, found: Some(recorded(wanted)) });
    assert!(matches!(sent(&adopted, DRIVER)[..], [FromNode::Adopt { .. }]), "{adopted:?}");
    let made = story.hear(DRIVER, ToNode::Resolved { object: wanted, value: inline() });
    assert_eq!(sent(&made, story.other), [&FromNode::ObjectResolved { object: wanted, value: inline() }]);
}

#[test]
fn a_value_that_nobody_knows_how_to_make_is_lost() {
    let mut story = Story::begin();
    let wanted = object(1);
    story.name(wanted);
    story.hear(DRIVER, ToNode::Subscribed { object: wanted });
    let said = story.hear(story.namer, ToNode::Resolved { object: wanted, value: lost() });
    assert_eq!(sent(&said, DRIVER).len(), 0, "others may have it");
    story.hear(story.namer, ToNode::NotKnown { object: wanted });
    assert!(seeks_record(&story.hear(story.other, ToNode::NotKnown { object: wanted })));
    let unknown = story.step(NodeInput::RecordFound { object: wanted, found: None });
    assert_eq!(sent(&unknown, DRIVER).len(), 0, "somebody may still promise it");
    let late = story.wait(3);
    let [FromNode::ObjectResolved { value: SharedValue::Failed(failure), .. }] = sent(&late, DRIVER)[..]
    else {
        panic!("{late:?}")
    };
    assert_eq!((failure.kind.clone(), failure.message.as_str()), (FailureKind::Lost, "it is gone"));
}

#[test]
fn the_record_of_a_process_that_let_go_of_a_value_is_enough() {
    let mut story = Story::begin();
    let made = object(1);
    // The driver has made it, and only a list of it refers to it now.
    story.hear(DRIVER, ToNode::Escaped { object: made, value: None });
    story.hear(DRIVER, ToNode::Recorded { tasks: vec![recorded(made)] });
    let list = object(2);
    story.hear(
        DRIVER,
        ToNode::Contains { container: list, holder: DRIVER, objects: vec![made], actors: vec![] },
    );
    story.hear(DRIVER, ToNode::Resolved { object: made, value: lost() });
    story.hear(DRIVER, ToNode::Released { object: made });
    story.hear(DRIVER, ToNode::Held { object: made });
    story.hear(DRIVER, ToNode::Subscribed { object: made });
    story.hear(story.namer, ToNode::NotKnown { object: made });
    let adopted = story.hear(story.other, ToNode::NotKnown { object: made });
    assert!(matches!(sent(&adopted, DRIVER)[..], [FromNode::Adopt { .. }]), "{adopted:?}");
    story.hear(DRIVER, ToNode::Released { object: list });
    story.hear(DRIVER, ToNode::Resolved { object: made, value: inline() });
    story.hear(DRIVER, ToNode::Released { object: made });
}

#[test]
fn what_a_dead_node_held_lingers_for_those_it_was_named_to() {
    let mut story = Story::begin();
    let (sought, unwanted) = (object(1), object(2));
    for object in [sought, unwanted] {
        story.hear(DRIVER, ToNode::Escaped { object, value: Some(inline()) });
        story.hear(story.namer, ToNode::Held { object });
        story.hear(DRIVER, ToNode::Released { object });
    }
    story.die(story.namer);
    story.wait(5);
    let looked = story.hear(story.other, ToNode::LookupWanted { request: 1, object: sought });
    assert_eq!(sent(&looked, story.other), [&FromNode::LookedUp { request: 1, known: true }]);
    story.wait(5);
    for (object, known) in [(sought, true), (unwanted, false)] {
        let looked = story.hear(story.other, ToNode::LookupWanted { request: 2, object });
        assert_eq!(sent(&looked, story.other), [&FromNode::LookedUp { request: 2, known }]);
    }
}
