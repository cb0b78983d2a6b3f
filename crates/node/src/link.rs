//! A worker process's end of its node: how it finds out that it is one, what it gets, and how they speak.

use crate::arguments::WorkerArguments;
use crate::inbox::{self, SendError};
use crate::peer::MESSAGE_BYTES_MAX;
use crate::spawn::{GREETING, GREETING_DESCRIPTORS_MAX};
use aktis_logic::machine::node::WorkerKind;
use aktis_protocol::control::{self, FromNode, ToNode};
use aktis_protocol::{ProcessSlot, ProgramId, SessionId, limits};
use aktis_store::{Arena, Control, StoreError};
use parking_lot::Mutex;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
use rustix::process::Signal;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::sync::Arc;

/// Why a worker process cannot work, or a message cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// The process was not started by a node.
    #[error("not started by aktis: `{0}`\nhint: arguments that begin with --aktis-worker= are reserved")]
    Arguments(String),
    /// The driver is gone already.
    #[error("the driver is gone")]
    DriverGone,
    /// The node's first message is not what it should be.
    #[error("the node's first message cannot be read\nhint: driver and worker must be the same program")]
    Greeting,
    /// The system refused.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
    /// The object store cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A message is too large.
    #[error(
        "a control message of {0} bytes is larger than the limit of {max} bytes\n\
         hint: put large values first and pass the references",
        max = limits::CONTROL_MESSAGE_BYTES_MAX
    )]
    TooLarge(usize),
}

/// What the node sends with its first message.
pub(crate) struct GreetingDescriptors {
    inbox: OwnedFd,
    control: OwnedFd,
    index: OwnedFd,
    arena: OwnedFd,
    /// The spill file, if the node could make one.
    file: Option<OwnedFd>,
}

impl GreetingDescriptors {
    /// From descriptors in the order in which they are sent; none if some are missing.
    pub(crate) fn new(descriptors: Vec<OwnedFd>) -> Option<Self> {
        let mut next = descriptors.into_iter();
        let (inbox, control, index, arena) = (next.next()?, next.next()?, next.next()?, next.next()?);
        Some(Self { inbox, control, index, arena, file: next.next() })
    }
}

/// What connects a process with its node: shared memory, the inbox, and the socket on which the node speaks.
pub(crate) struct Wire {
    slot: ProcessSlot,
    control: Arc<Control>,
    arena: Arc<Arena>,
    inbox: OwnedFd,
    /// Closed when nothing of the object store is used here any more.
    socket: Arc<OwnedFd>,
    buffer: Mutex<Vec<u8>>,
}

impl Wire {
    /// Maps what the descriptors stand for, as the process in this place.
    pub(crate) fn open(
        slot: ProcessSlot,
        socket: OwnedFd,
        descriptors: GreetingDescriptors,
    ) -> Result<Self, LinkError> {
        let GreetingDescriptors { inbox, control, index, arena, file } = descriptors;
        let socket = Arc::new(socket);
        let arena = Arena::open(index, arena, slot, Some(socket.clone()))?.with_file(file.map(Arc::new));
        Ok(Self {
            slot,
            control: Arc::new(Control::open(control, slot)?),
            arena: Arc::new(arena),
            inbox,
            socket,
            buffer: Mutex::new(vec![0; MESSAGE_BYTES_MAX]),
        })
    }

    pub(crate) fn slot(&self) -> ProcessSlot {
        self.slot
    }

    pub(crate) fn control(&self) -> &Arc<Control> {
        &self.control
    }

    pub(crate) fn arena(&self) -> &Arc<Arena> {
        &self.arena
    }

    /// Sends a message to the node; waits while there is no room.
    pub(crate) fn send(&self, message: &ToNode) -> Result<(), LinkError> {
        inbox::send(&self.inbox, self.slot, message).map_err(|error| match error {
            SendError::TooLarge(bytes) => LinkError::TooLarge(bytes),
            SendError::NodeGone => LinkError::DriverGone,
        })
    }

    /// Waits for the next message of the node; `None` when it is gone.
    pub(crate) fn receive(&self) -> Option<FromNode> {
        let mut buffer = self.buffer.lock();
        loop {
            let received = rustix::io::retry_on_intr(|| {
                rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::TRUNC)
            });
            let length = received.ok()?.1;
            if length == 0 {
                return None;
            }
            match buffer.get(..length).map(control::decode) {
                Some(Ok(message)) => return Some(message),
                _ => eprintln!("aktis: dropped an unreadable message of the node of {length} bytes"),
            }
        }
    }
}

/// A worker process's end of its node.
pub struct WorkerLink {
    arguments: WorkerArguments,
    wire: Wire,
}

impl WorkerLink {
    /// The link, if this process was started as a worker; `None` if it was not. Call it before anything that reads the
    /// standard input or starts processes.
    pub fn from_arguments() -> Option<Result<Self, LinkError>> {
        let argument = std::env::args_os().nth(1)?;
        let parsed = WorkerArguments::parse(argument.to_str()?)?;
        Some(parsed.map_err(LinkError::Arguments).and_then(Self::connect))
    }

    fn connect(arguments: WorkerArguments) -> Result<Self, LinkError> {
        die_with(arguments.parent)?;
        Self::greeted(arguments, take_stdin()?)
    }

    /// The link of a process that was forked from a template, which has got these.
    pub(crate) fn forked(arguments: &str, socket: OwnedFd) -> Result<Self, LinkError> {
        let unreadable = || LinkError::Arguments(arguments.to_owned());
        let parsed = WorkerArguments::parse(arguments).and_then(Result::ok).ok_or_else(unreadable)?;
        Self::greeted(parsed, socket)
    }

    /// Waits for the node's first message.
    fn greeted(arguments: WorkerArguments, socket: OwnedFd) -> Result<Self, LinkError> {
        let descriptors = receive_greeting(&socket)?;
        Ok(Self { wire: Wire::open(arguments.slot, socket, descriptors)?, arguments })
    }

    /// The place of this process.
    pub fn slot(&self) -> ProcessSlot {
        self.arguments.slot
    }

    /// The session it belongs to.
    pub fn session(&self) -> SessionId {
        self.arguments.session
    }

    /// The program it runs, by the name that its node has for it.
    pub fn program(&self) -> ProgramId {
        self.arguments.program
    }

    /// What kind of worker it is.
    pub fn kind(&self) -> WorkerKind {
        self.arguments.kind
    }

    /// The queues between processes.
    pub fn control(&self) -> &Arc<Control> {
        &self.wire.control
    }

    /// The object store.
    pub fn arena(&self) -> &Arc<Arena> {
        &self.wire.arena
    }

    /// Sends a message to the node; waits while there is no room.
    pub fn send(&self, message: &ToNode) -> Result<(), LinkError> {
        self.wire.send(message)
    }

    /// Waits for the next message of the node. `None` when the node is gone: the process must end at once.
    pub fn receive(&self) -> Option<FromNode> {
        self.wire.receive()
    }
}

/// Makes the system kill this process when the thread that started it ends.
pub(crate) fn die_with(parent: u32) -> Result<(), LinkError> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)?;
    // It may have ended before: then somebody else is the parent by now.
    let parent_now = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get() as u32);
    if parent_now == Some(parent) { Ok(()) } else { Err(LinkError::DriverGone) }
}

/// Moves the socket away from the standard input, which is empty afterwards.
pub(crate) fn take_stdin() -> Result<OwnedFd, LinkError> {
    let socket = io::stdin().as_fd().try_clone_to_owned()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let nothing = rustix::fs::open("/dev/null", flags, Mode::empty()).map_err(io::Error::from)?;
    rustix::stdio::dup2_stdin(&nothing).map_err(io::Error::from)?;
    Ok(socket)
}

/// Receives the first message and what comes with it.
fn receive_greeting(socket: &OwnedFd) -> Result<GreetingDescriptors, LinkError> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(GREETING_DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; 64];
    let received = rustix::io::retry_on_intr(|| {
        let mut into = [IoSliceMut::new(&mut bytes)];
        rustix::net::recvmsg(socket, &mut into, &mut ancillary, RecvFlags::CMSG_CLOEXEC)
    });
    let length = received.map_err(io::Error::from)?.bytes;
    if length == 0 {
        return Err(LinkError::DriverGone);
    }
    let descriptors: Vec<OwnedFd> = ancillary
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        })
        .flatten()
        .collect();
    if &bytes[..length] != GREETING {
        return Err(LinkError::Greeting);
    }
    GreetingDescriptors::new(descriptors).ok_or(LinkError::Greeting)
}
