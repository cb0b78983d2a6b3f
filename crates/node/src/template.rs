//! A template: a process that has loaded what workers need, and forks into a worker whenever the node asks for one.
//!
//! `serve` is what runs in the template and in the workers that it becomes; `keeper` is the node's side. They speak
//! over a socket that is the template's standard input: requests with a worker's descriptors one way, answers with a
//! descriptor of the new process the other way, and how each worker ended.
//!
//! Invariants:
//! 1. The template has one thread, and one child for each worker that lives: it alone reaps them.
//! 2. The template ends when its socket is closed, and first ends what its workers have started; workers die with the
//!    template, whatever kills it.
//! 3. A worker begins when the node has greeted it, so that the node knows of it before it says anything.

mod keeper;
mod serve;

pub(crate) use keeper::{Keeper, TemplateProgram, TemplateStatus, Tidings, wait_for_end};
pub use serve::{ForkOutcome, ForkedWorker, serve_template};

use aktis_protocol::limits::TEMPLATE_MESSAGE_BYTES_MAX;
use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// Descriptors in one message at most: socket, standard output, standard error.
const DESCRIPTORS_MAX: usize = 3;

/// Sends an encoded message with descriptors.
fn send(
    socket: &OwnedFd,
    encoded: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    if encoded.len() > TEMPLATE_MESSAGE_BYTES_MAX {
        let text = format!(
            "the environment of a worker takes {} bytes, more than {TEMPLATE_MESSAGE_BYTES_MAX}",
            encoded.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    rustix::io::retry_on_intr(|| {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)), "there is space for them");
        }
        rustix::net::sendmsg(socket, &[IoSlice::new(encoded)], &mut ancillary, flags | SendFlags::NOSIGNAL)
    })?;
    Ok(())
}

/// Receives a message, without waiting: its length and what came with it. It has no bytes if the other side is gone.
fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = rustix::io::retry_on_intr(|| {
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags)
    })?;
    let rights = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, rights.flatten().collect()))
}
