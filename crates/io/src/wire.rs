//! One TLS connection over a socket that never blocks.
//!
//! Whoever has a wire decides when to wait: [`Wire::receive`] and [`Wire::flush`] do what can be done at once. Before
//! the first frame, and for bulk transfers, there are versions that wait until a deadline.

use crate::authority::PUBLIC_KEY_BYTES;
use crate::frame::{self, Frame, FrameError, Kind};
use crate::identity::{Fingerprint, Name, name_in, public_key_in};
use crate::tls::{Configurations, Service};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustls::pki_types::ServerName;
use rustls::server::Acceptor;
use rustls::{ClientConfig, ClientConnection, Connection};
use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes that are read from the socket in one call.
const READ_BYTES: usize = 128 * 1024;

/// Why a connection cannot be used (any more).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The other side has closed it.
    #[error("the connection was closed")]
    Closed,
    /// The other side says nothing, or does not listen.
    #[error("no answer in time")]
    Late,
    /// The system refused.
    #[error(transparent)]
    System(#[from] io::Error),
    /// What came is not TLS as it should be.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The other side does not speak a protocol that is spoken here.
    #[error("none of the offered protocols is spoken here")]
    Protocol,
    /// The other side's certificate has a name that nobody has here.
    #[error("the certificate does not name a node or driver")]
    Name,
    /// What came are not frames.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Another frame should have come.
    #[error("a frame of another kind was expected")]
    Unexpected,
}

/// What [`Wire::receive`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// Something; `more` if there may be more at once.
    Bytes { more: bool },
    /// Nothing at present.
    Nothing,
}

/// A TLS connection.
pub(crate) struct Wire {
    socket: Arc<TcpStream>,
    tls: Connection,
    ciphertext: Box<[u8]>,
    /// What has been received and not yet been taken.
    pub(crate) plaintext: Vec<u8>,
}

impl Wire {
    /// Dials.
    pub(crate) fn connect(
        address: SocketAddr,
        configuration: &Arc<ClientConfig>,
        name: ServerName<'static>,
        deadline: Instant,
    ) -> Result<Self, WireError> {
        let socket = match TcpStream::connect_timeout(&address, left_until(deadline)?) {
            Ok(socket) => socket,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Err(WireError::Late),
            Err(error) => return Err(error.into()),
        };
        let tls = ClientConnection::new(Arc::clone(configuration), name)?;
        let mut wire = Self::new(socket, tls.into())?;
        wire.shake_hands(deadline)?;
        Ok(wire)
    }

    /// Is dialled.
    pub(crate) fn accept(
        socket: TcpStream,
        configurations: &Configurations,
        deadline: Instant,
    ) -> Result<(Self, Service), WireError> {
        socket.set_nonblocking(true)?;
        let mut acceptor = Acceptor::default();
        let accepted = loop {
            wait(&socket, PollFlags::IN, deadline)?;
            match acceptor.read_tls(&mut &socket) {
                Ok(0) => return Err(WireError::Closed),
                Ok(_) => {}
                Err(error) if is_for_later(&error) => continue,
                Err(error) => return Err(error.into()),
            }
            match acceptor.accept() {
                Ok(Some(accepted)) => break accepted,
                Ok(None) => {}
                Err((error, mut alert)) => {
                    let _ = alert.write_all(&mut &socket);
                    return Err(error.into());
                }
            }
        };
        let service = accepted.client_hello().alpn().and_then(Service::among);
        let service = service.and_then(|service| Some((service, configurations.server(service)?)));
        let (service, configuration) = service.ok_or(WireError::Protocol)?;
        let tls = accepted.into_connection(Arc::clone(configuration)).map_err(|(error, mut alert)| {
            let _ = alert.write_all(&mut &socket);
            error
        })?;
        let mut wire = Self::new(socket, tls.into())?;
        wire.shake_hands(deadline)?;
        Ok((wire, service))
    }

    /// A connection that begins with its handshake.
    pub(crate) fn start(socket: TcpStream, tls: Connection, deadline: Instant) -> Result<Self, WireError> {
        let mut wire = Self::new(socket, tls)?;
        wire.shake_hands(deadline)?;
        Ok(wire)
    }

    /// The SHA-256 of the certificate that the other side has shown.
    pub(crate) fn peer_fingerprint(&self) -> Option<Fingerprint> {
        self.tls.peer_certificates()?.first().map(Fingerprint::of)
    }

    fn new(socket: TcpStream, mut tls: Connection) -> Result<Self, WireError> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        // Best for machines that are near each other, where it is to be had.
        let _ = rustix::net::sockopt::set_tcp_congestion(&socket, "cubic");
        // Whoever writes flushes before he writes more.
        tls.set_buffer_limit(None);
        let ciphertext = vec![0; READ_BYTES].into();
        Ok(Self { socket: Arc::new(socket), tls, ciphertext, plaintext: Vec::new() })
    }

    fn shake_hands(&mut self, deadline: Instant) -> Result<(), WireError> {
        while self.tls.is_handshaking() || self.tls.wants_write() {
            if !self.flush()? {
                self.wait(PollFlags::OUT, deadline)?;
            } else if self.tls.is_handshaking() && self.receive()? == Received::Nothing {
                self.wait(PollFlags::IN, deadline)?;
            }
        }
        Ok(())
    }

    /// The socket, to wait for it.
    pub(crate) fn socket(&self) -> &Arc<TcpStream> {
        &self.socket
    }

    /// Who the other side is.
    pub(crate) fn peer(&self) -> Result<Name, WireError> {
        let certificates = self.tls.peer_certificates().unwrap_or_default();
        certificates.first().and_then(name_in).ok_or(WireError::Name)
    }

    /// The key of the certificate that the other side has shown.
    pub(crate) fn peer_public_key(&self) -> Option<[u8; PUBLIC_KEY_BYTES]> {
        self.tls.peer_certificates()?.first().and_then(public_key_in)
    }

    /// Whether something that was written is not on its way yet.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.wants_write()
    }

    /// Takes in what has come, if something has, into [`plaintext`](Self::plaintext).
    pub(crate) fn receive(&mut self) -> Result<Received, WireError> {
        let Self { socket, tls, ciphertext, plaintext } = self;
        let length = match (&**socket).read(ciphertext) {
            Ok(0) => return Err(WireError::Closed),
            Ok(length) => length,
            Err(error) if is_for_later(&error) => return Ok(Received::Nothing),
            Err(error) => return Err(error.into()),
        };
        decrypt(tls, socket, &ciphertext[..length], |reader| append_all(reader, plaintext))?;
        Ok(Received::Bytes { more: length == READ_BYTES })
    }

    /// Encrypts `bytes`. Nothing is sent before [`flush`](Self::flush).
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        Ok(self.tls.writer().write_all(bytes)?)
    }

    /// Sends what was written, as far as the socket takes it. Gives whether it took all.
    pub(crate) fn flush(&mut self) -> Result<bool, WireError> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut &*self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_for_later(&error) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }

    /// Says goodbye in TLS, as far as it can be said at once.
    pub(crate) fn close(&mut self) {
        self.tls.send_close_notify();
        let _ = self.flush();
    }

    fn wait(&self, what: PollFlags, deadline: Instant) -> Result<(), WireError> {
        wait(&self.socket, what, deadline)
    }

    /// Sends what was written, all of it.
    pub(crate) fn flush_until(&mut self, deadline: Instant) -> Result<(), WireError> {
        while !self.flush()? {
            self.wait(PollFlags::OUT, deadline)?;
        }
        Ok(())
    }

    /// Sends a frame.
    pub(crate) fn send_frame(
        &mut self,
        kind: Kind,
        payload: &[u8],
        deadline: Instant,
    ) -> Result<(), WireError> {
        let mut bytes = Vec::with_capacity(frame::HEADER_BYTES + payload.len());
        frame::append(kind, payload, &mut bytes);
        self.write(&bytes)?;
        self.flush_until(deadline)
    }

    /// Waits for a frame, and takes it.
    pub(crate) fn receive_frame(
        &mut self,
        limit: usize,
        deadline: Instant,
    ) -> Result<(Kind, Vec<u8>), WireError> {
        loop {
            if let Some(frame @ Frame { kind, payload }) = frame::parse(&self.plaintext, limit)? {
                let (payload, bytes) = (payload.to_vec(), frame.bytes());
                self.plaintext.drain(..bytes);
                return Ok((kind, payload));
            }
            if self.receive()? == Received::Nothing {
                self.wait(PollFlags::IN, deadline)?;
            }
        }
    }

    /// Waits for so many bytes, and puts them where they belong.
    pub(crate) fn receive_into(&mut self, target: &mut [u8], patience: Duration) -> Result<(), WireError> {
        self.receive_with(target, |socket| wait(socket, PollFlags::IN, Instant::now() + patience))
    }

    /// The same; `wait` waits for the socket.
    pub(crate) fn receive_with(
        &mut self,
        target: &mut [u8],
        mut wait: impl FnMut(&TcpStream) -> Result<(), WireError>,
    ) -> Result<(), WireError> {
        let early = target.len().min(self.plaintext.len());
        target[..early].copy_from_slice(&self.plaintext[..early]);
        self.plaintext.drain(..early);
        let mut filled = early;
        while filled < target.len() {
            let Self { socket, tls, ciphertext, plaintext } = self;
            let length = match (&**socket).read(ciphertext) {
                Ok(0) => return Err(WireError::Closed),
                Ok(length) => length,
                Err(error) if is_for_later(&error) => {
                    wait(socket)?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            decrypt(tls, socket, &ciphertext[..length], |reader| {
                while filled < target.len() {
                    match reader.read(&mut target[filled..]) {
                        Ok(0) => return Ok(()),
                        Ok(count) => filled += count,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                        Err(error) => return Err(error),
                    }
                }
                append_all(reader, plaintext)
            })?;
        }
        Ok(())
    }
}

/// Decrypts what was read from the socket, and has `take` take it record by record.
fn decrypt(
    tls: &mut Connection,
    socket: &TcpStream,
    mut ciphertext: &[u8],
    mut take: impl FnMut(&mut rustls::Reader<'_>) -> io::Result<()>,
) -> Result<(), WireError> {
    while !ciphertext.is_empty() {
        tls.read_tls(&mut ciphertext)?;
        if let Err(error) = tls.process_new_packets() {
            // The other side should hear what is wrong with it.
            let _ = tls.write_tls(&mut &*socket);
            return Err(error.into());
        }
        take(&mut tls.reader())?;
    }
    Ok(())
}

/// Appends all that has been decrypted.
fn append_all(reader: &mut rustls::Reader<'_>, bytes: &mut Vec<u8>) -> io::Result<()> {
    loop {
        let chunk = match reader.fill_buf() {
            Ok(chunk) => chunk,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(error),
        };
        if chunk.is_empty() {
            return Ok(());
        }
        bytes.extend_from_slice(chunk);
        let length = chunk.len();
        reader.consume(length);
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

pub(crate) fn left_until(deadline: Instant) -> Result<Duration, WireError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(WireError::Late) } else { Ok(left) }
}

/// Waits until the socket can do something, or has failed.
fn wait(socket: &TcpStream, what: PollFlags, deadline: Instant) -> Result<(), WireError> {
    loop {
        let timeout = Timespec::try_from(left_until(deadline)?).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        match rustix::event::poll(&mut [PollFd::new(socket, what)], Some(&timeout)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(error) => return Err(io::Error::from(error).into()),
        }
    }
}
