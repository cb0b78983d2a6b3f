//! Objects whose only copy died with another node: who is asked for them, and in which order.

mod support;

use aktis_logic::machine::node::{NodeEffect, NodeInput, OnRecord};
use aktis_protocol::control::{FromNode, SharedValue, ToNode};
use aktis_protocol::{
    DeathCause, EntryRef, Failure, FailureKind, NotRebuilt, ObjectId, ProcessSlot, Resources, SessionId,
    TaskId,
};
use support::Scene;

const DRIVER: ProcessSlot = ProcessSlot(0);
/// Longer than other nodes may take to say that they know an object.
const LONG_MICROSECONDS: u64 = 4_000_000;

/// A node of a cluster with a driver.
struct Story(Scene);

impl Story {
    fn begin() -> Self {
        Self(Scene::new(Resources::none(), false, true))
    }

    /// What is sent to whom when somebody says something.
    fn hear(&mut self, from: ProcessSlot, message: ToNode) -> Vec<(ProcessSlot, FromNode)> {
        sent(self.0.hear(from, message))
    }
}

fn sent(effects: Vec<NodeEffect>) -> Vec<(ProcessSlot, FromNode)> {
    let message = |effect| match effect {
        NodeEffect::Send { to, message } => Some((to, message)),
        _ => None,
    };
    effects.into_iter().filter_map(message).collect()
}

fn object() -> ObjectId {
    TaskId::root(SessionId(1)).child(1).returns(0)
}

fn failed(kind: FailureKind) -> SharedValue {
    SharedValue::Failed(Failure::new(kind, "words"))
}

/// A result of the driver's task is on a node that dies; another one lives. The driver asks for it, and is asked to make it
/// again.
fn lost_result(story: &mut Story) -> ProcessSlot {
    let (object, dead, other) = (object(), story.0.link(), story.0.link());
    story.hear(dead, ToNode::Imported { request: 1, object, bytes: 4096, holder: DRIVER, named: true });
    story.0.step(NodeInput::ProcessLeft { process: dead, cause: DeathCause::default() });
    let asked = story.hear(DRIVER, ToNode::Subscribed { object });
    assert_eq!(asked, [(DRIVER, FromNode::Rebuild { object })]);
    other
}

#[test]
fn who_seeks_what_it_was_thought_to_have_gets_it_made_again_where_its_task_was_submitted() {
    let (mut story, object) = (Story::begin(), object());
    let (node, other) = (story.0.link(), story.0.link());
    for peer in [node, other] {
        story.hear(peer, ToNode::Imported { request: 1, object, bytes: 4096, holder: DRIVER, named: true });
    }
    let told = story.hear(node, ToNode::LookupWanted { request: 2, object });
    assert_eq!(
        told,
        [
            (node, FromNode::Freed { object, count: 1 }),
            (node, FromNode::LookedUp { request: 2, known: true })
        ],
        "it is not waited for from there any more"
    );
    let asked = story.hear(node, ToNode::Subscribed { object });
    assert_eq!(asked, [(DRIVER, FromNode::Rebuild { object })]);
}

#[test]
fn who_depends_on_a_node_that_seeks_a_value_waits_for_what_that_finds() {
    let (mut story, object) = (Story::begin(), object());
    let (namer, _other) = (story.0.link(), story.0.link());
    let imported = ToNode::Imported { request: 1, object, bytes: 4096, holder: namer, named: true };
    story.hear(namer, imported);
    story.hear(DRIVER, ToNode::Held { object });
    let told = story.hear(namer, ToNode::LookupWanted { request: 2, object });
    assert_eq!(told, [(namer, FromNode::LookedUp { request: 2, known: false })]);
    let asked = story.hear(DRIVER, ToNode::Subscribed { object });
    assert_eq!(asked, [(namer, FromNode::ValueWanted { object })], "nobody else is asked, and no record");
}

#[test]
fn what_was_made_here_is_not_kept_for_this_node_by_the_one_that_had_named_it() {
    let (mut story, object) = (Story::begin(), object());
    let namer = story.0.link();
    story.hear(namer, ToNode::Promised { object, holder: namer, found: false });
    story.hear(DRIVER, ToNode::Held { object });
    let asked = story.hear(DRIVER, ToNode::Subscribed { object });
    assert_eq!(asked, [(namer, FromNode::ValueWanted { object })]);
    // It had that made again by a worker of this node.
    story.hear(DRIVER, ToNode::ExtentWanted { request: 1, object, bytes: 4096 });
    let told = story.hear(DRIVER, ToNode::Sealed { object, holder: namer });
    assert_eq!(told[0], (namer, FromNode::Freed { object, count: 1 }));
    stored_at(&told[1..]);
}

#[test]
fn a_value_that_is_in_another_copy_by_now_is_told_to_be_there() {
    let (mut story, object) = (Story::begin(), object());
    let node = story.0.link();
    story.hear(node, ToNode::Imported { request: 1, object, bytes: 4096, holder: DRIVER, named: true });
    let first = stored_at(&story.hear(DRIVER, ToNode::Subscribed { object }));
    // The task has run again meanwhile, on this node, and the other one leaves.
    story.hear(DRIVER, ToNode::ExtentWanted { request: 2, object, bytes: 4096 });
    story.hear(DRIVER, ToNode::Sealed { object, holder: DRIVER });
    story.0.step(NodeInput::ProcessLeft { process: node, cause: DeathCause::default() });
    let second = stored_at(&story.hear(DRIVER, ToNode::Subscribed { object }));
    assert_ne!(first, second);
    let said = ToNode::Resolved { object, value: SharedValue::Stored { entry: second, contains: false } };
    story.hear(DRIVER, said);
    assert_eq!(stored_at(&story.hear(DRIVER, ToNode::Subscribed { object })), second);
}

/// Where somebody is told that a value is.
fn stored_at(told: &[(ProcessSlot, FromNode)]) -> EntryRef {
    match told {
        [(_, FromNode::ObjectResolved { value: SharedValue::Stored { entry, .. }, .. })] => *entry,
        other => panic!("{other:?}"),
    }
}

/// The copy in which a result of the driver's task was before the node with that copy died.
fn place_of_lost_result(story: &mut Story) -> EntryRef {
    let (object, dead) = (object(), story.0.link());
    story.hear(dead, ToNode::Imported { request: 1, object, bytes: 4096, holder: DRIVER, named: true });
    let entry = stored_at(&story.hear(DRIVER, ToNode::Subscribed { object }));
    story.0.step(NodeInput::ProcessLeft { process: dead, cause: DeathCause::default() });
    entry
}

#[test]
fn a_lost_value_that_its_owner_exports_is_reconstructed_once() {
    let (mut story, object) = (Story::begin(), object());
    let other = story.0.link();
    let entry = place_of_lost_result(&mut story);
    assert_eq!(story.hear(DRIVER, ToNode::Subscribed { object }), [(DRIVER, FromNode::Rebuild { object })]);
    let value = Some(SharedValue::Stored { entry, contains: false });
    assert_eq!(story.hear(DRIVER, ToNode::Escaped { object, value }), [], "the waiter waits on");
    story.hear(other, ToNode::Held { object });
    assert_eq!(story.hear(other, ToNode::Subscribed { object }), [], "the task runs already");
    story.hear(other, ToNode::Imported { request: 2, object, bytes: 4096, holder: DRIVER, named: true });
    let entry = match &story.hear(DRIVER, ToNode::RestoreWanted { request: 3, object })[..] {
        [] => story.0.node.copy_of(object).expect("it is with the other node").0,
        told => panic!("{told:?}"),
    };
    let value = SharedValue::Stored { entry, contains: false };
    let told = story.hear(DRIVER, ToNode::Resolved { object, value: value.clone() });
    let resolved = FromNode::ObjectResolved { object, value };
    assert_eq!(told, [(DRIVER, resolved.clone()), (other, resolved)]);
}

#[test]
fn a_maker_that_cannot_make_a_value_again_says_why_and_that_is_all() {
    let (mut story, object) = (Story::begin(), object());
    lost_result(&mut story);
    let value = failed(FailureKind::NotRebuilt(NotRebuilt::Other));
    let told = story.hear(DRIVER, ToNode::Resolved { object, value: value.clone() });
    assert_eq!(told, [(DRIVER, FromNode::ObjectResolved { object, value })]);
}

#[test]
fn a_value_of_which_its_maker_knows_nothing_is_sought_on_other_nodes() {
    let (mut story, object) = (Story::begin(), object());
    let other = lost_result(&mut story);
    let told = story.hear(DRIVER, ToNode::Resolved { object, value: failed(FailureKind::Lost) });
    assert_eq!(told, [(other, FromNode::Sought { object })]);
    // Nobody has it.
    story.0.now += LONG_MICROSECONDS;
    let asked = story.0.step(NodeInput::Ticked);
    assert!(matches!(asked[..], [NodeEffect::SeekRecord { .. }]), "{asked:?}");
    // And the cluster knows nothing of its task.
    let told = sent(story.0.step(NodeInput::RecordFound { object, found: OnRecord::Nothing }));
    let is_told = |(to, message): &(ProcessSlot, FromNode)| match message {
        FromNode::ObjectResolved { value: SharedValue::Failed(failure), .. } => {
            *to == DRIVER && failure.kind == FailureKind::Lost
        }
        _ => false,
    };
    assert!(told.iter().any(is_told), "{told:?}");
}

#[test]
fn a_maker_without_references_is_asked_while_others_have_some_and_told_when_nobody_has() {
    let (mut story, object) = (Story::begin(), object());
    let (dead, holder) = (story.0.link(), story.0.link());
    story.hear(dead, ToNode::Imported { request: 1, object, bytes: 4096, holder: DRIVER, named: true });
    story.hear(holder, ToNode::Held { object });
    assert_eq!(story.hear(DRIVER, ToNode::LeftToOthers { object }), []);
    story.0.step(NodeInput::ProcessLeft { process: dead, cause: DeathCause::default() });
    let asked = story.hear(holder, ToNode::Subscribed { object });
    assert_eq!(asked, [(DRIVER, FromNode::Rebuild { object })]);
    let told = story
        .hear(DRIVER, ToNode::Resolved { object, value: failed(FailureKind::NotRebuilt(NotRebuilt::Other)) });
    assert_eq!(told.len(), 1, "{told:?}");
    let told = story.hear(holder, ToNode::Released { object });
    assert_eq!(told, [(DRIVER, FromNode::Freed { object, count: 0 })]);
}
