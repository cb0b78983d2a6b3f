//! What was named, or stored: it is there for who gets it, and nothing is kept for who does not.

use super::*;
use aktis_logic::machine::remote_node::LocalAnswer;
use aktis_protocol::actors::ActorPlace;
use aktis_protocol::hot::{CallHeader, MessageKind, Stored};
use aktis_protocol::{ObjectId, TaskKey};

const KEY: TaskKey = TaskKey { index: 0, generation: 0 };

/// An object of another task.
fn another(number: u64) -> ObjectId {
    TaskId::root(SessionId(1)).child(number).returns(0)
}

/// What was given back over the wire, once each.
fn given_back(side: &OneSide) -> (Vec<ObjectId>, Vec<ActorId>) {
    let wire = side.wire.0.lock();
    let objects = wire.iter().filter_map(|frame| match frame {
        Frame::Released { object, count: 1 } => Some(*object),
        _ => None,
    });
    let actors = wire.iter().filter_map(|frame| match frame {
        Frame::ActorReleased { actor, count: 1 } => Some(*actor),
        _ => None,
    });
    (objects.collect(), actors.collect())
}

#[test]
fn what_is_inside_the_result_of_a_task_whose_submitter_has_died_is_given_back() {
    let mut side = OneSide::new();
    let _held = side.hear_of_it();
    let submitter = open_peer(&side.runtime);
    let (from, ticket, object) = (submitter.process(), Ticket(1), some_task().returns(0));
    let (task, function, actor) = (some_task(), FunctionId(1), side.actor);
    let (attempt, group, stream_ahead, returns, concurrency, reserved) = (0, 0, 0, 1, 1, 0);
    let header =
        CallHeader { task, function, actor, attempt, group, stream_ahead, returns, concurrency, reserved };
    let (kind, arguments) = (MessageKind::ActorCall, Vec::new());
    side.event(LocalEvent::Call { from, kind, key: KEY, header, arguments });
    assert_eq!(side.machine.counts().sent, 1);
    side.runtime.node().unwrap().host().close_local(from, DeathCause::default());
    // The peer has yet to hear of that.
    let inside = Inside { objects: vec![another(2)], actors: vec![side.actor] };
    let value = PeerValue::Stored { object, bytes: 1 << 20, inside };
    side.frame(Frame::Returned { ticket, index: 0, value });
    assert_eq!(given_back(&side), (vec![another(2)], vec![side.actor]));
    side.until("given back", |side| given_back(side).0.contains(&object));
    side.runtime.shutdown();
}

#[test]
fn what_is_inside_a_value_that_cannot_be_taken_is_given_back() {
    let mut side = OneSide::new();
    let inside = Inside { objects: vec![another(2)], actors: vec![side.actor] };
    // It takes nothing any more.
    side.proxy.bridge().runtime().shutdown();
    let value = PeerValue::Stored { object: another(1), bytes: 1 << 20, inside };
    side.frame(Frame::Value { object: another(1), value });
    assert_eq!(given_back(&side), (vec![another(2)], vec![side.actor]));
    side.runtime.shutdown();
}

/// A process has stored a value for the peer, as a worker does: the peer holds it, and has yet to hear of it.
fn store_for(side: &OneSide, worker: &Bridge, object: ObjectId) -> Stored {
    let entry = worker.import(object, 1 << 20, side.me(), true).expect("there is room");
    Stored { object, entry }
}

/// The call that makes an object.
fn maker_of(object: ObjectId) -> PeerCall {
    let (attempt, stream_ahead, returns, kind, arguments) = (0, 0, 1, 0, Vec::new());
    let (task, function) = (object.task(), FunctionId(1));
    PeerCall { task, function, attempt, stream_ahead, returns, kind, arguments }
}

fn answer(side: &mut OneSide, ticket: Ticket, from: ProcessSlot, answer: LocalAnswer) {
    side.event(LocalEvent::Answer { ticket, from, kind: MessageKind::Returned, index: 0, answer });
}

/// How the result of a task is named, and let go of, before the other side has heard of it.
#[derive(Clone, Copy, Debug)]
enum Naming {
    /// Before the task comes, in an argument.
    Before,
    /// The same, while it runs.
    Meanwhile,
    /// By somebody here.
    Back,
}

#[test]
fn a_result_that_was_named_before_is_not_let_go_of_by_that_name() {
    let mut side = OneSide::new();
    let worker = Bridge::new(open_peer(&side.runtime));
    let (actor, inside, from) = (side.actor, side.inside(), worker.runtime().process());
    side.export(&inside);
    let place = ActorPlace::Alive { process: ProcessSlot(1), incarnation: 0, remembers: false };
    side.event(LocalEvent::ActorChanged { actor, place });
    for (number, naming) in [(2, Naming::Before), (3, Naming::Meanwhile), (4, Naming::Back)] {
        let (ticket, object) = (Ticket(number), another(number));
        let taker =
            |object| PeerCall { arguments: vec![PeerArgument::Object(object)], ..maker_of(another(9)) };
        let is_before = matches!(naming, Naming::Before);
        let named = is_before.then(|| side.proxy.bridge().arguments(&taker(object).arguments));
        side.frame(Frame::Call { ticket, actor, group: 0, aways: 0, call: maker_of(object) });
        let stored = store_for(&side, &worker, object);
        match naming {
            Naming::Before => drop(named),
            // There is no such actor: what its call names is held, and let go.
            Naming::Meanwhile => {
                let (ticket, actor) = (Ticket(1), ActorId::created_by(another(8).task()));
                side.frame(Frame::Call { ticket, actor, group: 0, aways: 0, call: taker(object) });
            }
            Naming::Back => {
                side.export(&Inside { objects: vec![object], actors: Vec::new() });
                side.frame(Frame::Released { object, count: 1 });
            }
        }
        side.proxy.bridge().runtime().state(StateKind::Store).expect("the node answers");
        answer(&mut side, ticket, from, LocalAnswer::Stored(stored, false));
        let said = side.wire.0.lock().pop();
        let is_given = |frame: &Frame| matches!(frame, Frame::Returned { value: PeerValue::Stored { object: given, .. }, .. } if *given == object);
        assert!(said.as_ref().is_some_and(is_given), "{naming:?}: {said:?}");
        side.frame(Frame::Released { object, count: 1 });
        side.proxy.bridge().runtime().state(StateKind::Store).expect("the node answers");
        assert_eq!(super::objects(&side.runtime), 0, "{naming:?}");
    }
    side.runtime.shutdown();
}

#[test]
fn what_an_actor_has_stored_for_calls_that_it_did_not_live_to_answer_is_freed() {
    let mut side = OneSide::new();
    let worker = Bridge::new(open_peer(&side.runtime));
    let (actor, inside) = (side.actor, side.inside());
    side.export(&inside);
    let place = ActorPlace::Alive { process: ProcessSlot(1), incarnation: 0, remembers: false };
    side.event(LocalEvent::ActorChanged { actor, place });
    let mut objects = Vec::new();
    for number in [2, 3, 4] {
        let (ticket, object) = (Ticket(number), another(number));
        side.frame(Frame::Call { ticket, actor, group: 0, aways: 0, call: maker_of(object) });
        store_for(&side, &worker, object);
        objects.push(object);
    }
    // The other side has passed one of them on, within something that is here.
    let passed_on = side.proxy.bridge().hold(objects[2]);
    assert_eq!(super::objects(&side.runtime), 3);
    let failure = Failure::new(FailureKind::ActorDied, "it was killed");
    side.event(LocalEvent::Failed { ticket: Ticket(2), failure });
    let away = |frame: &Frame| matches!(frame, Frame::ActorAway { .. });
    assert!(side.wire.0.lock().iter().any(away), "its other calls are lost with it");
    // The node has heard of all that was said before it answers this.
    side.proxy.bridge().runtime().state(StateKind::Store).expect("the node answers");
    assert_eq!(super::objects(&side.runtime), 1);
    drop(passed_on);
    side.proxy.bridge().runtime().state(StateKind::Store).expect("the node answers");
    assert_eq!(super::objects(&side.runtime), 0);
    side.runtime.shutdown();
}

#[test]
fn a_result_with_more_references_than_a_frame_may_name_is_an_error_and_nothing_is_lent() {
    let mut side = OneSide::new();
    let worker = Bridge::new(open_peer(&side.runtime));
    let (from, holder, actor, inside) = (worker.runtime().process(), side.me(), side.actor, side.inside());
    side.export(&inside);
    for (count, fits) in [(2, true), (limits::PEER_REFERENCES_MAX + 1, false)] {
        let object = another(2 + u64::from(fits));
        let stored = store_for(&side, &worker, object);
        let inside: Vec<ObjectId> = (0..count as u32).map(|index| some_task().returns(index)).collect();
        worker.send(ToNode::Contains { container: object, holder, objects: inside, actors: Vec::new() });
        worker.runtime().state(StateKind::Store).expect("the node answers");
        let ticket = Ticket(count as u64);
        side.frame(Frame::Call { ticket, actor, group: 0, aways: 0, call: maker_of(object) });
        answer(&mut side, ticket, from, LocalAnswer::Stored(stored, true));
        let said = side.wire.0.lock().pop();
        match said {
            Some(Frame::Returned { value: PeerValue::Stored { inside, .. }, .. }) if fits => {
                assert_eq!(inside.objects.len(), count);
                for &object in inside.objects.iter().chain([&object]) {
                    side.frame(Frame::Released { object, count: 1 });
                }
            }
            Some(Frame::Returned { value: PeerValue::Failed(failure), .. }) if !fits => {
                let text = "a value with 100001 references inside cannot be read on another node: 100000 are";
                assert!(failure.message.starts_with(text), "{failure:?}");
            }
            other => panic!("{count} references: {other:?}"),
        }
        assert_eq!(side.held().0, 0);
    }
    side.runtime.shutdown();
}
