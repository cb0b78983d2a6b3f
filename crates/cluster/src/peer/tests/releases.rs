//! What was named, or stored, for somebody who does not get it: nothing of it is kept.

use super::super::Sent;
use super::*;
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
    let submitter = open_peer(&side.runtime);
    let (from, ticket, object) = (submitter.process(), Ticket(1), some_task().returns(0));
    let sent = Sent {
        from: Some(from),
        key: KEY,
        attempt: 0,
        actor: None,
        lease: None,
        cell: None,
        returns_left: 1,
        streams: false,
    };
    side.peer.sent.insert(ticket, sent);
    side.runtime.node().unwrap().host().close_local(from, DeathCause::default());
    // The peer has yet to hear of that.
    let inside = Inside { objects: vec![another(2)], actors: vec![side.actor] };
    let value = PeerValue::Stored { object, bytes: 1 << 20, inside };
    side.peer.on_frame(Frame::Returned { ticket, index: 0, value });
    assert_eq!(given_back(&side), (vec![another(2)], vec![side.actor]));
    side.until("given back", |side| given_back(side).0.contains(&object));
    side.runtime.shutdown();
}

#[test]
fn what_is_inside_a_value_that_cannot_be_taken_is_given_back() {
    let mut side = OneSide::new();
    let inside = Inside { objects: vec![another(2)], actors: vec![side.actor] };
    // It takes nothing any more.
    side.peer.bridge.runtime().shutdown();
    side.peer.on_value(another(1), PeerValue::Stored { object: another(1), bytes: 1 << 20, inside });
    assert_eq!(given_back(&side), (vec![another(2)], vec![side.actor]));
    side.runtime.shutdown();
}
