//! A worker that writes the slot of another process into its messages.

use crate::stories::{Driver, options};
use aktis_protocol::control::{self, SharedValue, ToNode};
use aktis_protocol::{ObjectId, ProcessSlot, SessionId, TaskId};
use rustix::fd::OwnedFd;
use rustix::net::{SendFlags, SocketType};
use rustix::process::{PidfdFlags, PidfdGetfdFlags};

/// The place of the driver, whose messages never come through the inbox, and one that nobody has.
const OTHERS: [ProcessSlot; 2] = [ProcessSlot(0), ProcessSlot(60)];

fn forged(session: SessionId) -> ObjectId {
    TaskId::root(session).child(9).returns(0)
}

fn value(bytes: &[u8]) -> Option<SharedValue> {
    Some(SharedValue::Inline { bytes: bytes.to_vec(), contains: false })
}

/// Sends a value of an object through this worker's own inbox descriptor, in the name of others.
pub(crate) fn speak_as_the_driver(session: SessionId) {
    let message = control::encode(&ToNode::Escaped { object: forged(session), value: value(b"evil") });
    let inbox = inbox();
    for slot in OTHERS {
        let frame = [&slot.0.to_le_bytes()[..], &message].concat();
        rustix::net::send(&inbox, &frame, SendFlags::NOSIGNAL).expect("sent");
    }
}

/// The descriptor by which this process speaks to its node: its only datagram socket.
fn inbox() -> OwnedFd {
    let this =
        rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).expect("this process");
    let entries = std::fs::read_dir("/proc/self/fd").expect("a listing");
    let numbers = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let copies =
        numbers.filter_map(|fd| rustix::process::pidfd_getfd(&this, fd, PidfdGetfdFlags::empty()).ok());
    let is_inbox = |fd: &OwnedFd| rustix::net::sockopt::socket_type(fd) == Ok(SocketType::DGRAM);
    copies.into_iter().find(is_inbox).expect("a datagram socket")
}

/// The driver's part: what the worker said in its own name counts, and what it said before in the name of others does not.
pub(crate) fn is_not_believed() {
    let driver = Driver::start(options());
    let pid = driver.pid_in(crate::worker::sign_of_life(driver.node.session()));
    assert!(driver.node.processes().contains(&(ProcessSlot(1), pid)));
    // The first value of an object stays: this is the first.
    let object = forged(driver.node.session());
    driver.node.send(ToNode::Escaped { object, value: value(b"good") });
    assert_eq!(driver.pid_in(object).to_le_bytes(), *b"good");
    driver.node.shutdown();
}
