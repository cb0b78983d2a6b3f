//! Links between two endpoints: order, batches, closing, refusals, silence.

mod support;

use aktis_io::{DialError, Frames, LinkEnd, LinkEvents, Refusal, Role, SendError, Timing, random_node_id};
use aktis_protocol::limits;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use support::{Cluster, Event, Recorder};

#[test]
fn frames_go_both_ways_in_order() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let near = a.dial(&b, b"hello");
    let incoming = b.next_incoming();
    assert_eq!(incoming.greeting, b"hello");
    assert_eq!((incoming.peer.node, incoming.peer.role), (a.endpoint.node(), Role::Node));
    let far = incoming.end;
    let frames = |seed: usize| (0..5000).map(move |index: usize| vec![seed as u8; (index * seed) % 97]);
    for (one, other) in frames(3).zip(frames(7)) {
        near.link.send(one).expect("room");
        far.link.queue(other).expect("room");
    }
    far.link.flush();
    assert_eq!(far.frames(5000), frames(3).collect::<Vec<_>>());
    assert_eq!(near.frames(5000), frames(7).collect::<Vec<_>>());
}

/// Keeps the link's thread from sleeping.
struct Restless(Sender<Vec<u8>>);

impl LinkEvents for Restless {
    fn on_frames(&mut self, frames: Frames<'_>) {
        frames.for_each(|frame| self.0.send(frame.to_vec()).expect("somebody listens"));
    }

    fn on_quiet(&mut self) -> bool {
        true
    }

    fn on_closed(&mut self, _: &LinkEnd) {}
}

#[test]
fn a_link_whose_thread_never_sleeps_reads_writes_and_ends() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let (sender, receiver) = channel();
    let near =
        a.endpoint.dial(b.endpoint.node(), b.endpoint.address(), Vec::new(), |_| Box::new(Restless(sender)));
    let (near, far) = (near.expect("a link"), b.next_incoming().end);
    for number in 0..100 {
        far.link.send(vec![number]).expect("room");
        assert_eq!(receiver.recv().expect("it lives"), [number]);
        // Written by its thread alone.
        near.send(vec![number]).expect("room");
        assert_eq!(far.frames(1), [[number]]);
    }
    near.close("enough");
    assert_eq!(far.next(), Event::Closed(LinkEnd::ClosedByPeer("enough".to_owned())));
    assert!(receiver.recv().is_err(), "its events are dropped with it");
}

#[test]
fn the_longest_frame_passes_and_a_longer_one_does_not() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let near = a.dial(&b, b"");
    let far = b.next_incoming().end;
    let longest: Vec<u8> = (0..limits::FRAME_BYTES_MAX).map(|index| (index / 7) as u8).collect();
    near.link.send(longest.clone()).expect("room");
    near.link.send(vec![1]).expect("room");
    let error = near.link.send(vec![0; limits::FRAME_BYTES_MAX + 1]);
    assert_eq!(error, Err(SendError::TooLong(limits::FRAME_BYTES_MAX + 1)));
    let frames = far.frames(2);
    assert!(frames[0] == longest && frames[1] == [1]);
}

#[test]
fn what_was_sent_before_a_close_arrives_before_it() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let near = a.dial(&b, b"");
    let far = b.next_incoming().end;
    for index in 0..1000_u32 {
        near.link.send(index.to_le_bytes().to_vec()).expect("room");
    }
    near.link.close("that was all");
    assert_eq!(near.link.send(vec![1]), Err(SendError::Closed));
    assert_eq!(far.frames(1000).len(), 1000);
    assert_eq!(far.next(), Event::Closed(LinkEnd::ClosedByPeer("that was all".to_owned())));
    assert_eq!(near.end(), LinkEnd::ClosedHere("that was all".to_owned()));
    assert_eq!(far.link.send(vec![1]), Err(SendError::Closed));
    assert_eq!((a.endpoint.links(), b.endpoint.links()), (0, 0));
}

#[test]
fn the_accepting_side_can_close_too() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let near = a.dial(&b, b"");
    let far = b.next_incoming().end;
    far.link.close("enough");
    assert_eq!(near.end(), LinkEnd::ClosedByPeer("enough".to_owned()));
    assert_eq!(far.end(), LinkEnd::ClosedHere("enough".to_owned()));
}

#[test]
fn an_endpoint_that_closes_takes_its_links_along() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let links: Vec<_> = (0..5).map(|_| (a.dial(&b, b""), b.next_incoming().end)).collect();
    b.endpoint.close("shutting down");
    for (near, far) in links {
        assert_eq!(near.end(), LinkEnd::ClosedByPeer("shutting down".to_owned()));
        assert_eq!(far.end(), LinkEnd::ClosedHere("shutting down".to_owned()));
    }
    let dialled = a.endpoint.dial(b.endpoint.node(), b.endpoint.address(), Vec::new(), |_| {
        Box::new(Recorder(std::sync::mpsc::channel().0))
    });
    assert!(matches!(dialled, Err(DialError::Wire(_))), "{dialled:?}");
}

#[test]
fn the_events_can_refuse_a_link_with_a_reason() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let dialled = a.endpoint.dial(b.endpoint.node(), b.endpoint.address(), b"no".to_vec(), |_| {
        Box::new(Recorder(std::sync::mpsc::channel().0))
    });
    let Err(DialError::Refused(refusal)) = dialled else { panic!("{dialled:?}") };
    assert_eq!(refusal, Refusal::Other("not today".to_owned()));
    assert_eq!((a.endpoint.links(), b.endpoint.links()), (0, 0));
}

#[test]
fn whoever_dials_a_node_gets_that_node() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let dialled = a.endpoint.dial(random_node_id(), b.endpoint.address(), Vec::new(), |_| {
        Box::new(Recorder(std::sync::mpsc::channel().0))
    });
    let error = dialled.expect_err("another node").to_string();
    assert!(error.contains("certificate"), "{error}");
    assert_eq!(b.endpoint.links(), 0);
}

#[test]
fn a_driver_can_dial_and_is_known_as_one() {
    let cluster = Cluster::new();
    let node = cluster.station(Timing::default());
    let driver = support::Station::new(cluster.identity(Role::Driver), Default::default());
    let near = driver.dial(&node, b"");
    let incoming = node.next_incoming();
    assert_eq!((incoming.peer.node, incoming.peer.role), (driver.endpoint.node(), Role::Driver));
    incoming.end.link.send(vec![1, 2, 3]).expect("room");
    assert_eq!(near.frames(1), [[1, 2, 3]]);
}

#[test]
fn an_idle_link_lives_by_its_heartbeats() {
    let timing = Timing {
        grace: Duration::from_millis(600),
        heartbeat: Duration::from_millis(50),
        ..Timing::default()
    };
    let (a, b) = Cluster::new().pair(timing);
    let near = a.dial(&b, b"");
    let far = b.next_incoming().end;
    let idle = near.events.recv_timeout(timing.grace * 3);
    assert!(idle.is_err(), "{idle:?}");
    near.link.send(vec![9]).expect("room");
    assert_eq!(far.frames(1), [[9]]);
}

#[test]
fn a_full_link_says_so_and_says_when_there_is_room() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let near = a.dial(&b, b"");
    let far = b.next_incoming().end;
    let frame = vec![0; 8 << 20];
    let mut sent = 0;
    // Queued only, so that nothing leaves meanwhile.
    let given_back = loop {
        match near.link.queue(frame.clone()) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(given_back, SendError::Full(frame.clone()));
    assert!(near.link.queued_bytes() <= limits::LINK_QUEUE_BYTES_MAX && sent >= 4, "{sent}");
    near.link.flush();
    assert_eq!(near.next(), Event::Drained);
    near.link.send(frame).expect("room");
    assert_eq!(far.frames(sent + 1).len(), sent + 1);
}

#[test]
fn round_trips_are_short() {
    let (a, b) = Cluster::new().pair(Timing::default());
    let near = a.dial(&b, b"");
    let far = b.next_incoming().end;
    let start = Instant::now();
    for index in 0..1000_u32 {
        near.link.queue(index.to_le_bytes().to_vec()).expect("room");
        near.link.flush();
        far.link.queue(far.frames(1).remove(0)).expect("room");
        far.link.flush();
        assert_eq!(near.frames(1), [index.to_le_bytes()]);
    }
    // Acknowledgements, heartbeats or Nagle's algorithm in the way would make it tens of seconds.
    let each = start.elapsed() / 1000;
    assert!(each < Duration::from_millis(10), "{each:?}");
    println!("a round trip of two threads each: {each:?}");
}
