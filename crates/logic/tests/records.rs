//! What a node of a cluster does about values that are gone: who is asked, who makes them again, and what the cluster is
//! told meanwhile.

mod support;

use aktis_logic::machine::node::{NodeEffect, NodeInput, OnRecord};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::lineage::RecordedTask;
use aktis_protocol::tables::Change;
use aktis_protocol::{
    DeathCause, Failure, FailureKind, NodeId, ObjectId, ProcessSlot, ProgramId, Resources, SessionId, TaskId,
};
use support::Scene;

const DRIVER: ProcessSlot = ProcessSlot(0);

/// A node of a cluster with a driver, and processes that stand for two other nodes.
struct Story {
    scene: Scene,
    namer: ProcessSlot,
    other: ProcessSlot,
}

impl Story {
    fn begin() -> Self {
        let mut scene = Scene::new(Resources::none(), false, true);
        let (namer, other) = (scene.link(), scene.link());
        Self { scene, namer, other }
    }

    fn hear(&mut self, from: ProcessSlot, message: ToNode) -> Vec<NodeEffect> {
        self.scene.hear(from, message)
    }

    fn die(&mut self, process: ProcessSlot) -> Vec<NodeEffect> {
        self.scene.step(NodeInput::ProcessDied { process, cause: DeathCause::default() })
    }

    fn wait(&mut self, seconds: u64) -> Vec<NodeEffect> {
        self.scene.now += seconds * 1_000_000;
        self.scene.step(NodeInput::Ticked)
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
    let again = changes(&story.scene.step(NodeInput::MembershipLost));
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
    let found = NodeInput::RecordFound { object: wanted, found: OnRecord::Task(recorded(wanted)) };
    let adopted = story.scene.step(found);
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
    let adopted =
        story.scene.step(NodeInput::RecordFound { object: wanted, found: OnRecord::Task(recorded(wanted)) });
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
    let unknown = story.scene.step(NodeInput::RecordFound { object: wanted, found: OnRecord::Nothing });
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

#[test]
fn the_cluster_is_told_where_copies_are_of_what_other_nodes_know_and_of_nothing_else() {
    let mut story = Story::begin();
    let (here, abroad) = (object(1), object(2));
    for (request, object) in [(1, here), (2, abroad)] {
        story.hear(DRIVER, ToNode::ExtentWanted { request, object, bytes: 4096 });
        assert_eq!(changes(&story.hear(DRIVER, ToNode::Sealed { object, holder: DRIVER })), []);
    }
    let told = changes(&story.hear(story.namer, ToNode::Held { object: abroad }));
    let located = [Change::Held { object: abroad }, Change::CopyMade { object: abroad, bytes: 4096 }];
    assert_eq!(told, located);
    assert_eq!(changes(&story.hear(story.other, ToNode::Held { object: abroad })), [], "once");
    assert_eq!(
        changes(&story.scene.step(NodeInput::MembershipLost)),
        located,
        "the cluster has forgotten it"
    );
    story.hear(DRIVER, ToNode::Released { object: abroad });
    story.hear(story.namer, ToNode::Released { object: abroad });
    let released = story.hear(story.other, ToNode::Released { object: abroad });
    let gone = [Change::CopyDropped { object: abroad }, Change::Released { object: abroad }];
    assert_eq!(changes(&released), gone);
    assert_eq!(changes(&story.hear(DRIVER, ToNode::Released { object: here })), []);
}

#[test]
fn the_cluster_is_told_of_a_copy_when_all_of_it_has_come() {
    let mut story = Story::begin();
    let object = object(1);
    let imported = ToNode::Imported { request: 1, object, bytes: 4096, holder: DRIVER, named: true };
    assert_eq!(changes(&story.hear(story.namer, imported)), [], "it is there, and not here");
    let wanted = story.hear(DRIVER, ToNode::RestoreWanted { request: 2, object });
    let entry = wanted.iter().find_map(|effect| match effect {
        NodeEffect::Fetch { entry, .. } => Some(*entry),
        _ => None,
    });
    let entry = entry.expect("it is copied");
    assert_eq!(changes(&wanted), []);
    let come = story.scene.step(NodeInput::Restored { entry, outcome: Ok(()) });
    assert_eq!(changes(&come), [Change::Held { object }, Change::CopyMade { object, bytes: 4096 }]);
    // Who had named it dies: this node claims it besides, and holds it until it has neither.
    assert_eq!(changes(&story.die(story.namer)), []);
    let released = changes(&story.hear(DRIVER, ToNode::Released { object }));
    assert_eq!(released, [Change::CopyDropped { object }, Change::Released { object }]);
}

#[test]
fn nobody_waits_for_an_object_whose_copies_went_with_their_nodes() {
    let mut story = Story::begin();
    let wanted = object(1);
    story.name(wanted);
    story.hear(DRIVER, ToNode::Subscribed { object: wanted });
    story.die(story.namer);
    assert!(seeks_record(&story.hear(story.other, ToNode::NotKnown { object: wanted })));
    let node = NodeId::from_words([0xfeed, 7]);
    let found = OnRecord::Copies { nodes: vec![node], gone: true };
    let told = story.scene.step(NodeInput::RecordFound { object: wanted, found });
    let [FromNode::ObjectResolved { value: SharedValue::Failed(failure), .. }] = sent(&told, DRIVER)[..]
    else {
        panic!("{told:?}")
    };
    assert_eq!(failure.kind, FailureKind::Lost);
    let text = format!("its only copy was on node {node}, which is gone");
    assert!(failure.message.ends_with(&text), "{}", failure.message);
}
