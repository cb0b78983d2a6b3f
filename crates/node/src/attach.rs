//! Drivers that attach to a node in another process: both ends of the handshake.
//!
//! A node listens in a private directory. A driver says which program it is, and hands over its executable; the node
//! gives it a place and the descriptors that a worker gets, too. From then on the driver speaks through the node's
//! inbox, and hears the node on this socket, the end of which is the end of the driver to the node.
//!
//! Invariants:
//! 1. Only processes of the node's own user get in: by the permissions of the directory, and by the credentials of
//!    the socket. A driver checks the same of the node before it sends anything (`trust.rs`).
//! 2. The first bytes of each message can be read by every version, so that a driver of another build is told so.

mod driver;
mod server;

pub use driver::{AttachError, DriverLink};
pub(crate) use server::{Directory, Server, welcome};

use aktis_protocol::limits::ATTACH_MESSAGE_BYTES_MAX;
use aktis_protocol::{LAYOUT, ProcessSlot, ProgramSpec, Resources, SessionId, control};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// The name of the socket in a node's directory.
pub const SOCKET: &str = "attach.sock";

/// How a driver's message begins; its layout follows.
const REQUEST: &[u8; 12] = b"aktis attach";
const REFUSED: u8 = 0;
const WELCOME: u8 = 1;

/// Descriptors in one message at most: those that a worker gets.
const DESCRIPTORS_MAX: usize = crate::spawn::GREETING_DESCRIPTORS_MAX;

/// What a driver is told when it gets a place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    pub(crate) process: ProcessSlot,
    pub(crate) session: SessionId,
    /// What the node has in all.
    pub(crate) resources: Resources,
}

fn encode_request(spec: &ProgramSpec) -> Vec<u8> {
    [REQUEST, &LAYOUT.to_le_bytes()[..], &control::encode(spec)].concat()
}

/// What a driver is; or why it cannot be told.
fn decode_request(bytes: &[u8]) -> Result<ProgramSpec, String> {
    let unreadable = || "the driver's first message cannot be read".to_owned();
    let rest = bytes.strip_prefix(REQUEST).ok_or_else(unreadable)?;
    let (layout, rest) = rest.split_first_chunk().ok_or_else(unreadable)?;
    match u64::from_le_bytes(*layout) {
        LAYOUT => control::decode(rest).map_err(|_| unreadable()),
        layout => Err(format!(
            "the driver and the node were built from different versions of aktis (layouts {layout:x} and \
             {LAYOUT:x})\nhint: build the driver with the version of aktis that the node has, or start the node anew"
        )),
    }
}

fn encode_reply(reply: &Result<Welcome, String>) -> Vec<u8> {
    match reply {
        Ok(welcome) => [&[WELCOME], &control::encode(welcome)[..]].concat(),
        Err(reason) => [&[REFUSED], reason.as_bytes()].concat(),
    }
}

fn decode_reply(bytes: &[u8]) -> Option<Result<Welcome, String>> {
    match bytes.split_first()? {
        (&REFUSED, reason) => Some(Err(String::from_utf8_lossy(reason).into_owned())),
        (&WELCOME, welcome) => control::decode(welcome).ok().map(Ok),
        _ => None,
    }
}

/// Sends one message with descriptors.
fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    rustix::io::retry_on_intr(|| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "there is space for them");
        }
        rustix::net::sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Receives one message with descriptors; it is empty if the other side is gone.
fn receive(socket: impl AsFd) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut bytes = vec![0; ATTACH_MESSAGE_BYTES_MAX];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::io::retry_on_intr(|| {
        let mut into = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(&socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    })?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let descriptors = rights.flatten().collect();
    bytes.truncate(received.bytes);
    Ok((bytes, descriptors))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aktis_protocol::{ProgramId, ProgramKind};

    #[test]
    fn what_is_said_is_understood_and_another_version_is_told_so() {
        let spec = ProgramSpec::here(ProgramId::from_words([1, 2]), ProgramKind::Rust { bytes: 3 });
        let mut request = encode_request(&spec);
        assert_eq!(decode_request(&request), Ok(spec));
        request[REQUEST.len()] ^= 1;
        assert!(decode_request(&request).unwrap_err().contains("different versions"));
        assert!(decode_request(b"GET / HTTP/1.1").unwrap_err().contains("cannot be read"));

        let welcome =
            Welcome { process: ProcessSlot(3), session: SessionId(4), resources: Resources::none() };
        for reply in [Ok(welcome), Err("no place".to_owned())] {
            assert_eq!(decode_reply(&encode_reply(&reply)), Some(reply));
        }
        assert_eq!(decode_reply(&[]), None);
    }
}
