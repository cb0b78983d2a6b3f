//! A link for which the system gives no thread. Alone in its process, which has no memory for another stack meanwhile.

mod support;

use aktis_io::{DialError, LinkEnd, LinkEvents, Timing};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::mpsc::channel;
use support::{Cluster, Event, Recorder};

/// More than what else is allocated meanwhile, less than the stack of a thread.
const ROOM_BYTES: u64 = 1 << 20;

fn mapped_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("the system says");
    let pages: u64 = pages.split(' ').next().and_then(|pages| pages.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as u64
}

#[test]
fn a_link_without_a_thread_is_over_on_both_sides() {
    let cluster = Cluster::new();
    let (near, far) = cluster.pair(Timing::default());
    let before = getrlimit(Resource::As);
    let (sender, events) = channel();
    let made = near.endpoint.dial(far.endpoint.node(), far.endpoint.address(), Vec::new(), |_| {
        let current = Some(mapped_bytes() + ROOM_BYTES);
        setrlimit(Resource::As, Rlimit { current, ..before }).expect("limit");
        let recorder: Box<dyn LinkEvents> = Box::new(Recorder(sender));
        recorder
    });
    setrlimit(Resource::As, before).expect("limit");
    assert!(matches!(made, Err(DialError::Wire(_))), "{made:?}");
    assert_eq!(near.endpoint.links(), 0);
    assert!(events.recv().is_err(), "nobody has the events any more");
    assert!(matches!(far.next_incoming().end.end(), LinkEnd::ClosedByPeer(_)));
    let again = near.dial(&far, b"");
    again.link.send(vec![7]).expect("room");
    assert_eq!(far.next_incoming().end.next(), Event::Frames(vec![vec![7]]));
}
