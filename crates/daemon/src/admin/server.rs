//! The daemon's end of its private socket.

use super::wire::{WireError, read_message, write_message};
use super::{Admin, Refusal};
use aktis_node::journal;
use aktis_protocol::admin::{ADMIN_VERSION, AdminReply, AdminRequest, LogQuery};
use aktis_protocol::limits;
use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags};
use rustix::fd::OwnedFd;
use rustix::net::RecvFlags;
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a client may take to say something, or to read what it is told.
const CLIENT_PATIENCE: Duration = Duration::from_secs(10);
/// How long a client that follows the logs can be gone before that is noticed.
const FOLLOW_PATIENCE: Duration = Duration::from_millis(500);
/// Pause after the system had no descriptor for a client: it will not have one at once.
const REFUSED_PAUSE: Duration = Duration::from_millis(50);

/// Listens on the daemon's private socket, and serves each client on a thread of its own.
pub struct AdminServer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    admin: Arc<dyn Admin>,
    closing: OwnedFd,
    connections: Mutex<BTreeMap<u64, Connection>>,
}

struct Connection {
    stream: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl AdminServer {
    /// Serves the clients of `listener`.
    pub fn start(listener: UnixListener, admin: Arc<dyn Admin>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let closing = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let shared = Arc::new(Shared { admin, closing, connections: Mutex::default() });
        let builder = std::thread::Builder::new().name("aktis-admin".to_owned());
        let thread = builder.spawn({
            let shared = shared.clone();
            move || shared.run(&listener)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }
}

impl Drop for AdminServer {
    /// Ends all connections, and waits for their threads.
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.closing, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let connections = std::mem::take(&mut *self.shared.connections.lock());
        for connection in connections.values() {
            // They hear no more, but finish what they say: the one who asked for the end gets an answer.
            let _ = connection.stream.shutdown(Shutdown::Read);
        }
        let threads: Vec<_> = connections.into_values().filter_map(|connection| connection.thread).collect();
        for thread in threads {
            // What `Admin` panicked with was printed; the daemon ends regardless.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(self: Arc<Self>, listener: &UnixListener) {
        for number in 0.. {
            match self.next_client(listener) {
                Ok(Some(stream)) => self.clone().on_connected(number, stream),
                Ok(None) => return,
                Err(error) => {
                    journal::warn(format_args!("a command line could not be answered: {error}"));
                    std::thread::sleep(REFUSED_PAUSE);
                }
            }
        }
    }

    /// Waits for a client; `None` when the server closes.
    fn next_client(&self, listener: &UnixListener) -> io::Result<Option<UnixStream>> {
        loop {
            let mut polled =
                [PollFd::new(listener, PollFlags::IN), PollFd::new(&self.closing, PollFlags::IN)];
            match rustix::event::poll(&mut polled, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if !polled[1].revents().is_empty() {
                return Ok(None);
            }
            match listener.accept() {
                Ok((stream, _)) => return Ok(Some(stream)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn on_connected(self: Arc<Self>, number: u64, stream: UnixStream) {
        let Ok(kept) = stream.try_clone() else {
            return refuse(stream, Refusal::new("the daemon is out of file descriptors"));
        };
        {
            let mut connections = self.connections.lock();
            if connections.len() >= limits::ADMIN_CONNECTIONS_MAX {
                let busy = format!("the daemon answers {} commands already", connections.len());
                return refuse(
                    stream,
                    Refusal::new(busy).with_hint("try again when some of them have ended"),
                );
            }
            connections.insert(number, Connection { stream: kept, thread: None });
        }
        let place = Place { shared: self.clone(), number };
        let serve = move || {
            // A client that breaks the rules has harmed itself alone: its connection ends.
            let _ = serve_connection(stream, &*place.shared.admin);
        };
        // If there is no thread, all is dropped with the closure, and the client is told by that.
        if let Ok(thread) = std::thread::Builder::new().name("aktis-admin-client".to_owned()).spawn(serve)
            && let Some(connection) = self.connections.lock().get_mut(&number)
        {
            connection.thread = Some(thread);
        }
    }
}

/// A place among the connections, given up however its thread ends.
struct Place {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.connections.lock().remove(&self.number);
    }
}

fn refuse(mut stream: UnixStream, refusal: Refusal) {
    // One write into an empty socket: it does not block.
    let _ = stream.write_all(&[ADMIN_VERSION]);
    let _ = write_message(&mut stream, &AdminReply::from(refusal), limits::ADMIN_REPLY_BYTES_MAX);
}

/// Answers one client until it goes. The error says which rule it broke.
pub fn serve_connection(mut stream: UnixStream, admin: &dyn Admin) -> Result<(), WireError> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(CLIENT_PATIENCE))?;
    stream.set_write_timeout(Some(CLIENT_PATIENCE))?;
    stream.write_all(&[ADMIN_VERSION])?;
    let client = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from)?;
    if !super::client::is_trusted(client.uid) {
        let message = format!("user {} may not command this daemon", client.uid.as_raw());
        return reply(&mut stream, &Refusal::new(message).into());
    }
    let mut version = [0];
    stream.read_exact(&mut version)?;
    if version != [ADMIN_VERSION] {
        // The client has seen our version, and says so itself.
        return Ok(());
    }
    while let Some(request) = read_message(&mut stream, limits::ADMIN_REQUEST_BYTES_MAX)? {
        match request {
            AdminRequest::Logs(query) => send_logs(&mut stream, admin, &query)?,
            AdminRequest::Stop(scope) => match admin.stop(scope) {
                Ok(()) => {
                    reply(&mut stream, &AdminReply::Stopping)?;
                    return wait_for_end(&mut stream);
                }
                Err(refusal) => reply(&mut stream, &refusal.into())?,
            },
            request => reply(&mut stream, &answer(admin, request))?,
        }
    }
    Ok(())
}

fn answer(admin: &dyn Admin, request: AdminRequest) -> AdminReply {
    let reply = match request {
        AdminRequest::Status => admin.status().map(AdminReply::Status),
        AdminRequest::List(query) => admin.list(&query).map(AdminReply::Listing),
        AdminRequest::Explain(id) => admin.explain(&id).map(AdminReply::Explanation),
        AdminRequest::Trust(request) => admin.trust(request).map(AdminReply::Trust),
        AdminRequest::Keys(request) => admin.keys(request).map(AdminReply::Keys),
        AdminRequest::Kill(order) => admin.kill(&order).map(AdminReply::Killed),
        AdminRequest::Drain(order) => admin.drain(&order).map(AdminReply::Draining),
        AdminRequest::Stop(_) | AdminRequest::Logs(_) => unreachable!("their answers are no single messages"),
    };
    reply.unwrap_or_else(AdminReply::from)
}

/// Sends a reply; one that is too long is replaced by a refusal that says so.
fn reply(stream: &mut UnixStream, reply: &AdminReply) -> Result<(), WireError> {
    match write_message(stream, reply, limits::ADMIN_REPLY_BYTES_MAX) {
        Err(error @ WireError::TooLong { .. }) => {
            let refusal = Refusal::new(format!("the answer is too long: {error}"))
                .with_hint("ask for less, for example with --limit");
            write_message(stream, &AdminReply::from(refusal), limits::ADMIN_REPLY_BYTES_MAX)
        }
        outcome => outcome,
    }
}

fn send_logs(stream: &mut UnixStream, admin: &dyn Admin, query: &LogQuery) -> Result<(), WireError> {
    let patience = if query.follow { FOLLOW_PATIENCE } else { Duration::ZERO };
    let mut position = None;
    loop {
        let page = match admin.logs(query, position, patience) {
            Ok(page) => page,
            Err(refusal) => return reply(stream, &refusal.into()),
        };
        position = Some(page.next);
        let more = query.follow || !page.is_last;
        if !more || !page.lines.is_empty() || page.missed > 0 {
            reply(stream, &AdminReply::LogLines { lines: page.lines, missed: page.missed, more })?;
        }
        if !more || is_gone(stream) {
            return Ok(());
        }
    }
}

/// Whether the client has closed its end.
fn is_gone(stream: &UnixStream) -> bool {
    let peeked = rustix::net::recv(stream, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(peeked, Ok((1.., _)) | Err(rustix::io::Errno::AGAIN))
}

/// Keeps the connection open while the daemon ends: its client waits for that.
fn wait_for_end(stream: &mut UnixStream) -> Result<(), WireError> {
    stream.set_read_timeout(None)?;
    io::copy(stream, &mut io::sink())?;
    Ok(())
}
