//! The driver's end: how it gets a place in a node of another process, and how it speaks from there.

use super::{SOCKET, decode_reply, encode_request, receive, send};
use crate::inbox::SOCKET_BYTES;
use crate::link::{GreetingDescriptors, LinkError, Wire};
use crate::programs::ProgramSource;
use crate::trust::{TrustError, check_listener, check_node};
use aktis_protocol::control::{FromNode, ToNode};
use aktis_protocol::limits::ATTACH_MESSAGE_BYTES_MAX;
use aktis_protocol::{ProcessSlot, ProgramId, Resources, SessionId};
use aktis_store::{Arena, Control};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a driver that waits for a node looks whether to give up.
const LOOK_UP: Duration = Duration::from_millis(50);

/// Why a driver has no place in a node.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AttachError {
    /// No node is there.
    #[error("no node runs in {0}\nhint: start one with `aktis start`, or give the address of one that runs")]
    NoNode(PathBuf),
    /// The node does not take this driver.
    #[error("the node refused this driver: {0}")]
    Refused(String),
    /// The node has ended meanwhile, or is something else.
    #[error("what listens in {0} is not a node, or has ended\nhint: look whether the node still runs")]
    NotANode(PathBuf),
    /// The node is there, but says nothing.
    #[error(
        "the node in {} has not answered within {} seconds\nhint: its process may be stopped or overloaded; look at it with `aktis status`, or start it anew",
        .directory.display(), .patience.as_secs_f64()
    )]
    Silent {
        /// Where the node listens.
        directory: PathBuf,
        /// How long the driver waited.
        patience: Duration,
    },
    /// The program has given up.
    #[error("attaching to the node was interrupted")]
    Interrupted,
    /// The node may be another user's.
    #[error(transparent)]
    Untrusted(#[from] TrustError),
    /// The program describes itself in too many bytes.
    #[error(
        "the description of the program takes {0} bytes, more than {ATTACH_MESSAGE_BYTES_MAX}\nhint: set fewer environment variables for workers"
    )]
    TooLarge(usize),
    /// The system refused.
    #[error("the system refused: {0}")]
    System(#[from] io::Error),
    /// Shared memory cannot be used.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// A driver's end of a node in another process. The driver leaves by [`ToNode::Detached`]; its place is free when this
/// and all that was pinned in the store are dropped.
pub struct DriverLink {
    wire: Wire,
    session: SessionId,
    program: ProgramId,
    resources: Resources,
    directory: PathBuf,
}

impl DriverLink {
    /// Attaches this process to the node that listens in a directory, as a driver of this program. Gives up when the
    /// node has said nothing for so long, or as soon as `interrupted` says so, which is asked again and again.
    pub fn attach(
        directory: &Path,
        program: &ProgramSource,
        patience: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, AttachError> {
        let waiting = Waiting { directory, patience, began: Instant::now(), interrupted };
        let socket = connect(directory, &waiting)?;
        let request = encode_request(&program.spec);
        if request.len() > ATTACH_MESSAGE_BYTES_MAX {
            return Err(AttachError::TooLarge(request.len()));
        }
        let executable = program.executable.as_ref().map(|file| file.as_fd());
        waiting.until_done(|| send(&socket, &request, executable.as_slice()))?;
        let not_a_node = || AttachError::NotANode(directory.to_owned());
        let (reply, descriptors) = waiting.until_done(|| receive(&socket))?;
        // From now on messages may take as long as they do.
        set_timeouts(&socket, None)?;
        let welcome = decode_reply(&reply).ok_or_else(not_a_node)?.map_err(AttachError::Refused)?;
        let descriptors = GreetingDescriptors::new(descriptors).ok_or_else(not_a_node)?;
        Ok(Self {
            wire: Wire::open(welcome.process, socket, descriptors)?,
            session: welcome.session,
            program: program.spec.id,
            resources: welcome.resources,
            directory: directory.to_owned(),
        })
    }

    /// Where the node listens.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The place of this process.
    pub fn slot(&self) -> ProcessSlot {
        self.wire.slot()
    }

    /// The session of the node.
    pub fn session(&self) -> SessionId {
        self.session
    }

    /// The program that this driver is.
    pub fn program(&self) -> ProgramId {
        self.program
    }

    /// What the node has in all.
    pub fn resources(&self) -> &Resources {
        &self.resources
    }

    /// The queues between processes.
    pub fn control(&self) -> &Arc<Control> {
        self.wire.control()
    }

    /// The object store.
    pub fn arena(&self) -> &Arc<Arena> {
        self.wire.arena()
    }

    /// Sends a message to the node; waits while there is no room.
    pub fn send(&self, message: &ToNode) -> Result<(), LinkError> {
        self.wire.send(message)
    }

    /// Waits for the next message of the node. `None` when the node is gone.
    pub fn receive(&self) -> Option<FromNode> {
        self.wire.receive()
    }
}

/// How long a driver waits for a node that may be stopped.
struct Waiting<'a> {
    directory: &'a Path,
    patience: Duration,
    began: Instant,
    interrupted: &'a dyn Fn() -> bool,
}

impl Waiting<'_> {
    /// Repeats an operation that gives up after [`LOOK_UP`], until it is done or the driver has waited long enough.
    fn until_done<T>(&self, mut operation: impl FnMut() -> io::Result<T>) -> Result<T, AttachError> {
        loop {
            match operation() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return Ok(done?),
            }
            if (self.interrupted)() {
                return Err(AttachError::Interrupted);
            }
            if self.began.elapsed() >= self.patience {
                return Err(AttachError::Silent {
                    directory: self.directory.to_owned(),
                    patience: self.patience,
                });
            }
        }
    }
}

fn set_timeouts(socket: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    for which in [Timeout::Recv, Timeout::Send] {
        rustix::net::sockopt::set_socket_timeout(socket, which, timeout)?;
    }
    Ok(())
}

/// A connection to a node of this user, whose operations give up after [`LOOK_UP`].
fn connect(directory: &Path, waiting: &Waiting<'_>) -> Result<OwnedFd, AttachError> {
    check_node(directory)?;
    let address = SocketAddrUnix::new(directory.join(SOCKET)).map_err(io::Error::from)?;
    let kind = SocketType::SEQPACKET;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
        .map_err(io::Error::from)?;
    for set in
        [rustix::net::sockopt::set_socket_send_buffer_size, rustix::net::sockopt::set_socket_recv_buffer_size]
    {
        set(&socket, SOCKET_BYTES).map_err(io::Error::from)?;
    }
    set_timeouts(&socket, Some(LOOK_UP))?;
    let connected = waiting.until_done(|| {
        // A queue of drivers that is full answers like one that takes its time.
        match rustix::io::retry_on_intr(|| rustix::net::connect(&socket, &address)) {
            Err(error @ (Errno::NOENT | Errno::CONNREFUSED)) => Ok(Err(error)),
            other => other.map(Ok).map_err(io::Error::from),
        }
    })?;
    connected.map_err(|_| AttachError::NoNode(directory.to_owned()))?;
    check_listener(&socket, directory)??;
    Ok(socket)
}
