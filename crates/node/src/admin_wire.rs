//! Messages on a daemon's private socket: a length, then so many bytes of postcard. Also the one question that programs ask
//! there, besides the command line.

use aktis_protocol::admin::{ADMIN_VERSION, AdminReply, AdminRequest, ListKind, ListQuery, NodeRow, Rows};
use aktis_protocol::limits;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The name of the socket in the daemon's directory.
pub const SOCKET_NAME: &str = "aktis.sock";

/// How long a daemon may take to answer. Nodes that are asked by it are given up sooner.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Bytes of the length before each message.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The connection failed.
    #[error(transparent)]
    Stream(#[from] io::Error),
    /// It is longer than it may be.
    #[error("a message of {bytes} bytes, and {bytes_max} are the most")]
    TooLong {
        /// How long it is.
        bytes: u64,
        /// How long it may be.
        bytes_max: usize,
    },
    /// It is no message that this build knows.
    #[error("a message of {bytes} bytes makes no sense")]
    Garbled {
        /// How long it is.
        bytes: usize,
    },
}

impl WireError {
    /// Whether the other side took longer than it may.
    pub fn is_timeout(&self) -> bool {
        // A socket with a timeout says the one or the other, depending on the system.
        let kinds = [io::ErrorKind::WouldBlock, io::ErrorKind::TimedOut];
        matches!(self, Self::Stream(error) if kinds.contains(&error.kind()))
    }
}

/// Writes one message of at most `bytes_max` bytes, at once.
pub fn write_message<Message: Serialize>(
    stream: &mut impl Write,
    message: &Message,
    bytes_max: usize,
) -> Result<(), WireError> {
    let body = aktis_protocol::control::encode(message);
    if body.len() > bytes_max {
        return Err(WireError::TooLong { bytes: body.len() as u64, bytes_max });
    }
    let mut bytes = Vec::with_capacity(LENGTH_BYTES + body.len());
    bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(stream.write_all(&bytes)?)
}

/// Reads one message of at most `bytes_max` bytes; `None` if the stream has ended where a message would begin.
pub fn read_message<Message: DeserializeOwned>(
    stream: &mut impl Read,
    bytes_max: usize,
) -> Result<Option<Message>, WireError> {
    let mut length = [0; LENGTH_BYTES];
    if !fill_or_end(stream, &mut length)? {
        return Ok(None);
    }
    let bytes = u32::from_le_bytes(length) as usize;
    if bytes > bytes_max {
        return Err(WireError::TooLong { bytes: bytes as u64, bytes_max });
    }
    let mut body = vec![0; bytes];
    stream.read_exact(&mut body)?;
    aktis_protocol::control::decode(&body).map(Some).map_err(|_| WireError::Garbled { bytes })
}

/// The nodes of the cluster of the daemon in this directory, dead ones included; `None` if no daemon listens there.
pub fn list_nodes(directory: &Path) -> Result<Option<Vec<NodeRow>>, WireError> {
    let mut stream = match UnixStream::connect(directory.join(SOCKET_NAME)) {
        Ok(stream) => stream,
        // An embedded node, or one that is in no cluster, has nobody who listens there.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    let owner = rustix::net::sockopt::socket_peercred(&stream).map_err(io::Error::from)?.uid;
    if owner != rustix::process::geteuid() && !owner.is_root() {
        let text = format!("the daemon in {} belongs to user {}", directory.display(), owner.as_raw());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text).into());
    }
    stream.set_read_timeout(Some(ANSWER_PATIENCE))?;
    stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
    stream.write_all(&[ADMIN_VERSION])?;
    let mut version = [0];
    stream.read_exact(&mut version)?;
    if version != [ADMIN_VERSION] {
        let text = format!("the daemon speaks version {} of its protocol, not {ADMIN_VERSION}", version[0]);
        return Err(io::Error::new(io::ErrorKind::Unsupported, text).into());
    }
    let (what, limit) = (ListKind::Nodes, limits::LISTED_ROWS_MAX);
    let query = ListQuery { what, limit, node: None, state: None, name: None, filters: Vec::new() };
    write_message(&mut stream, &AdminRequest::List(query), limits::ADMIN_REQUEST_BYTES_MAX)?;
    let refused = |text: String| WireError::Stream(io::Error::other(text));
    match read_message(&mut stream, limits::ADMIN_REPLY_BYTES_MAX)? {
        Some(AdminReply::Listing(listing)) => match listing.rows {
            Rows::Nodes(rows) => Ok(Some(rows)),
            _ => Err(refused("the daemon has answered something else than it was asked".to_owned())),
        },
        Some(AdminReply::Refused { message, .. }) => Err(refused(message)),
        Some(_) => Err(refused("the daemon has answered something else than it was asked".to_owned())),
        None => Err(refused("the daemon ended before it had answered".to_owned())),
    }
}

/// Fills the buffer; false if the stream has ended before its first byte.
fn fill_or_end(stream: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    let first = loop {
        match stream.read(buffer) {
            Ok(count) => break count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    };
    if first == 0 {
        return Ok(false);
    }
    stream.read_exact(&mut buffer[first..])?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(message: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        write_message(&mut bytes, &message, 100).expect("short enough");
        bytes
    }

    #[test]
    fn messages_come_as_they_were_sent_until_the_end() {
        let bytes = [written("one"), written(""), written("three")].concat();
        let mut stream = &bytes[..];
        let mut read = || read_message::<String>(&mut stream, 100).expect("read");
        assert_eq!(
            [read(), read(), read(), read()].map(|text| text.unwrap_or("end".into())),
            ["one", "", "three", "end"]
        );
    }

    #[test]
    fn what_is_too_long_is_neither_sent_nor_read() {
        let error = write_message(&mut Vec::new(), &"x".repeat(100), 100).expect_err("too long");
        assert_eq!(error.to_string(), "a message of 101 bytes, and 100 are the most");
        let mut stream = &[0xff; 4][..];
        let error = read_message::<String>(&mut stream, 100).expect_err("too long");
        assert!(matches!(error, WireError::TooLong { bytes: 0xffff_ffff, .. }), "{error}");
    }

    #[test]
    fn what_is_cut_or_garbled_is_an_error_at_every_length() {
        let whole = written("some text");
        for length in 1..whole.len() {
            let error = read_message::<String>(&mut &whole[..length], 100).expect_err("cut");
            assert!(matches!(error, WireError::Stream(_)), "{length}: {error}");
        }
        let mut garbled = whole;
        garbled[LENGTH_BYTES] = 0xff;
        let error = read_message::<String>(&mut &garbled[..], 100).expect_err("garbled");
        assert!(matches!(error, WireError::Garbled { .. }), "{error}");
    }
}
