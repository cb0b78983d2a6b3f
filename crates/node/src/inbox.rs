//! The one socket on which all worker processes speak to their node.
//!
//! A datagram is the sender's slot (four bytes) and a postcard-encoded [`ToNode`]. Being one queue, it keeps the
//! order of cause and effect: what a process sent before it woke another is read before what that other sends.
//!
//! The slot in the text is a claim. The kernel adds the process id of the sender to each datagram, and the shell takes
//! the message only if that process is in the slot.

use crate::journal;
use aktis_protocol::control::{self, ToNode};
use aktis_protocol::{ProcessSlot, limits};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags, SocketType,
};
use std::collections::BTreeSet;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;

/// Room in the sockets of the node. The system may give less; what it gives by default holds the largest message.
pub(crate) const SOCKET_BYTES: usize = 1 << 20;
const SLOT_BYTES: usize = 4;
/// Processes that spoke in the name of another and are named in the journal, at most.
const IMPOSTORS_NAMED_MAX: usize = 64;

/// One message, and its sender.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// The slot that the sender claims.
    pub(crate) from: ProcessSlot,
    /// The sender's process id, as the kernel says; none if it has none that this process can see.
    pub(crate) pid: Option<u32>,
    pub(crate) message: ToNode,
}

/// The processes whose messages were dropped because they claimed the slot of another process.
#[derive(Default)]
pub(crate) struct Impostors(BTreeSet<Option<u32>>);

impl Impostors {
    /// A message was dropped. The journal gets one line for each process.
    pub(crate) fn note(&mut self, pid: Option<u32>, claimed: ProcessSlot) {
        if self.0.len() < IMPOSTORS_NAMED_MAX && self.0.insert(pid) {
            let pid = pid.map_or("out of sight".to_owned(), |pid| pid.to_string());
            journal::warn(format_args!(
                "dropped a message of process {pid}, which claims to be the process in place {claimed}\n\
                 hint: look at that process; a program of this node speaks for itself alone"
            ));
        }
    }
}

/// A pair of connected sockets that no child process inherits.
pub(crate) fn socket_pair(kind: SocketType) -> io::Result<(OwnedFd, OwnedFd)> {
    let (one, other) = rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)?;
    for socket in [&one, &other] {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, SOCKET_BYTES)?;
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, SOCKET_BYTES)?;
    }
    Ok((one, other))
}

/// The node's end.
pub(crate) struct Inbox {
    receiver: OwnedFd,
    sender: OwnedFd,
    buffer: Vec<u8>,
}

impl Inbox {
    pub(crate) fn new() -> io::Result<Self> {
        let (receiver, sender) = socket_pair(SocketType::DGRAM)?;
        rustix::net::sockopt::set_socket_passcred(&receiver, true)?;
        Ok(Self { receiver, sender, buffer: vec![0; limits::CONTROL_MESSAGE_BYTES_MAX] })
    }

    /// The end that worker processes get.
    pub(crate) fn sender(&self) -> BorrowedFd<'_> {
        self.sender.as_fd()
    }

    /// A second descriptor of the node's end, to wait on.
    pub(crate) fn receiver(&self) -> io::Result<OwnedFd> {
        self.receiver.try_clone()
    }

    /// The next message that is there, without waiting.
    pub(crate) fn receive(&mut self) -> Option<Received> {
        loop {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let mut into = [IoSliceMut::new(&mut self.buffer)];
            let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC | RecvFlags::CMSG_CLOEXEC;
            let length = match rustix::net::recvmsg(&self.receiver, &mut into, &mut ancillary, flags) {
                Ok(received) => received.bytes,
                Err(Errno::INTR) => continue,
                Err(_) => return None,
            };
            let pid = ancillary.drain().find_map(|message| match message {
                RecvAncillaryMessage::ScmCredentials(sender) => {
                    Some(sender.pid.as_raw_nonzero().get() as u32)
                }
                _ => None,
            });
            match decode(self.buffer.get(..length)) {
                Some((from, message)) => return Some(Received { from, pid, message }),
                None => journal::warn(format_args!("dropped an unreadable message of {length} bytes")),
            }
        }
    }
}

fn decode(frame: Option<&[u8]>) -> Option<(ProcessSlot, ToNode)> {
    let (slot, message) = frame?.split_first_chunk::<SLOT_BYTES>()?;
    Some((ProcessSlot(u32::from_le_bytes(*slot)), control::decode(message).ok()?))
}

/// Why a message did not reach the node.
#[derive(Debug)]
pub(crate) enum SendError {
    /// It has so many bytes: too many.
    TooLarge(usize),
    /// The node is gone.
    NodeGone,
}

/// Sends a message to the node, waiting for room.
pub(crate) fn send(socket: impl AsFd, from: ProcessSlot, message: &ToNode) -> Result<(), SendError> {
    let encoded = control::encode(message);
    if SLOT_BYTES + encoded.len() > limits::CONTROL_MESSAGE_BYTES_MAX {
        return Err(SendError::TooLarge(encoded.len()));
    }
    let mut frame = Vec::with_capacity(SLOT_BYTES + encoded.len());
    frame.extend_from_slice(&from.0.to_le_bytes());
    frame.extend_from_slice(&encoded);
    rustix::io::retry_on_intr(|| rustix::net::send(&socket, &frame, SendFlags::NOSIGNAL))
        .map_err(|_| SendError::NodeGone)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(bytes: usize) -> ToNode {
        ToNode::NameWanted { request: 1, name: "n".repeat(bytes) }
    }

    fn received(from: u32, message: ToNode) -> Received {
        Received { from: ProcessSlot(from), pid: Some(std::process::id()), message }
    }

    #[test]
    fn messages_arrive_in_order_with_their_sender_and_noise_is_dropped() {
        let mut inbox = Inbox::new().expect("sockets");
        send(inbox.sender(), ProcessSlot(3), &ToNode::Started).expect("sent");
        for noise in [&b"xx"[..], b"\x01\0\0\0\xff\xff", &[]] {
            rustix::net::send(inbox.sender(), noise, SendFlags::empty()).expect("sent");
        }
        send(inbox.sender(), ProcessSlot(4), &question(1)).expect("sent");
        assert_eq!(inbox.receive(), Some(received(3, ToNode::Started)));
        assert_eq!(inbox.receive(), Some(received(4, question(1))));
        assert_eq!(inbox.receive(), None);
    }

    #[test]
    fn the_largest_message_arrives_and_a_larger_one_is_refused() {
        let mut inbox = Inbox::new().expect("sockets");
        let largest = question(limits::CONTROL_MESSAGE_BYTES_MAX - 16);
        send(inbox.sender(), ProcessSlot(1), &largest).expect("sent");
        assert_eq!(inbox.receive(), Some(received(1, largest)));
        let refused = send(inbox.sender(), ProcessSlot(1), &question(limits::CONTROL_MESSAGE_BYTES_MAX));
        assert!(matches!(refused, Err(SendError::TooLarge(_))));
        assert_eq!(inbox.receive(), None);
    }
}
