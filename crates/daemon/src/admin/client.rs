//! The command line's end of a daemon's private socket.

use super::wire::{WireError, read_message, write_message};
use super::{Refusal, SOCKET_NAME};
use crate::control::control_directory;
use crate::directory::Holder;
use aktis_protocol::admin::{
    ADMIN_VERSION, AdminReply, AdminRequest, ClusterStatus, DrainOrder, IdPrefix, JoinToken, KeyReply,
    KeyRequest, KeyRow, KillOrder, Killed, ListQuery, Listing, LogLine, LogQuery, StopScope,
};
use aktis_protocol::tables::Event;
use aktis_protocol::trust::{PutOutKind, TokenId, TokenRow, TrustReply, TrustRequest};
use aktis_protocol::{NodeId, limits};
use rustix::process::Uid;
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a daemon may take to answer. Nodes that are asked by it are given up sooner.
const ANSWER_PATIENCE: Duration = Duration::from_secs(30);

/// Why a daemon gave no answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is none.
    #[error(
        "no node of aktis runs in {}\n\
         hint: start one with `aktis start --head`, or name its directory with --directory",
        directory.display()
    )]
    NoDaemon {
        /// Where it was looked for.
        directory: PathBuf,
    },
    /// There is one that does not listen.
    #[error(
        "what runs in {}, as process {pid}, does not listen: it is being started, or ends\n\
         hint: a node that is started waits until it reaches its head; `aktis stop` ends it",
        directory.display()
    )]
    Starting {
        /// Where it is.
        directory: PathBuf,
        /// Its process.
        pid: u32,
    },
    /// Its directory is closed to this user.
    #[error(
        "you may not enter {}\nhint: it belongs to somebody else; name your own with --directory",
        directory.display()
    )]
    Forbidden {
        /// Where it may be.
        directory: PathBuf,
    },
    /// It belongs to somebody else.
    #[error(
        "the daemon in {} belongs to user {uid}, not to you\n\
         hint: name another directory with --directory",
        directory.display()
    )]
    Foreign {
        /// Where it is.
        directory: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// It is of another release.
    #[error(
        "the daemon speaks version {theirs} of the command protocol, this program speaks {ADMIN_VERSION}\n\
         hint: use the `aktis` of the release that the daemon was started with"
    )]
    Version {
        /// Its version.
        theirs: u8,
    },
    /// It is there, and silent.
    #[error(
        "the daemon in {} has not answered for {} s\n\
         hint: it may be stopped or overloaded; its log is {}",
        directory.display(), ANSWER_PATIENCE.as_secs(), directory.join(crate::directory::LOG_NAME).display()
    )]
    Silent {
        /// Where it is.
        directory: PathBuf,
    },
    /// It has closed the connection before it has answered.
    #[error(
        "the daemon in {} ended before it had answered\nhint: its log is {}",
        directory.display(), directory.join(crate::directory::LOG_NAME).display()
    )]
    Ended {
        /// Where it was.
        directory: PathBuf,
    },
    /// The connection failed.
    #[error("the connection to the daemon in {} failed: {source}", directory.display())]
    Broken {
        /// Where it is.
        directory: PathBuf,
        /// What happened.
        source: WireError,
    },
    /// It answered that it will not.
    #[error(transparent)]
    Refused(#[from] Refusal),
}

/// A connection to the daemon of this machine. It asks one thing at a time, and waits for the answer.
pub struct Client {
    stream: UnixStream,
    directory: PathBuf,
}

impl Client {
    /// Connects to the daemon in `directory`.
    pub fn connect(directory: &Path) -> Result<Self, ClientError> {
        let directory = directory.to_owned();
        let broken = |source: io::Error| ClientError::Broken {
            directory: directory.clone(),
            source: WireError::Stream(source),
        };
        let stream = match UnixStream::connect(directory.join(SOCKET_NAME)) {
            Ok(stream) => stream,
            Err(error) if is_absence(&error) => {
                return Err(match Holder::find(&directory) {
                    Some(holder) => ClientError::Starting { directory, pid: holder.pid() },
                    None => ClientError::NoDaemon { directory },
                });
            }
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return Err(ClientError::Forbidden { directory });
            }
            Err(error) => return Err(broken(error)),
        };
        let daemon = rustix::net::sockopt::socket_peercred(&stream).map_err(|error| broken(error.into()))?;
        if !is_trusted(daemon.uid) {
            return Err(ClientError::Foreign { directory, uid: daemon.uid.as_raw() });
        }
        stream.set_read_timeout(Some(ANSWER_PATIENCE)).map_err(broken)?;
        stream.set_write_timeout(Some(ANSWER_PATIENCE)).map_err(broken)?;
        let mut client = Self { stream, directory };
        client.greet()?;
        Ok(client)
    }

    /// Connects to the control process, if it is on this machine; else to the daemon in `directory`.
    pub fn connect_to_control(directory: &Path) -> Result<Self, ClientError> {
        match Self::connect(&control_directory(directory)) {
            Err(ClientError::NoDaemon { .. }) => Self::connect(directory),
            connected => connected,
        }
    }

    fn greet(&mut self) -> Result<(), ClientError> {
        // If the daemon has closed already, what it said before is still to be read.
        let _ = self.stream.write_all(&[ADMIN_VERSION]);
        let mut version = [0];
        let read = self.stream.read_exact(&mut version);
        read.map_err(|error| self.error(error.into()))?;
        match version {
            [ADMIN_VERSION] => Ok(()),
            [theirs] => Err(ClientError::Version { theirs }),
        }
    }

    /// How the cluster stands.
    pub fn status(&mut self) -> Result<ClusterStatus, ClientError> {
        match self.ask(&AdminRequest::Status)? {
            AdminReply::Status(status) => Ok(status),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Rows about what there is.
    pub fn list(&mut self, query: ListQuery) -> Result<Listing, ClientError> {
        match self.ask(&AdminRequest::List(query))? {
            AdminReply::Listing(listing) => Ok(listing),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Why something stands as it does.
    pub fn explain(&mut self, id: IdPrefix) -> Result<String, ClientError> {
        match self.ask(&AdminRequest::Explain(id))? {
            AdminReply::Explanation(text) => Ok(text),
            _ => Err(self.error(nonsense())),
        }
    }

    /// A new join token, good for so long and so many machines; for any number if nothing is said.
    pub fn token(&mut self, lifetime: Duration, uses_max: Option<u32>) -> Result<JoinToken, ClientError> {
        let lifetime_seconds = lifetime.as_secs();
        match self.trust(TrustRequest::MakeToken { lifetime_seconds, uses_max })? {
            TrustReply::Token(token) => Ok(token),
            _ => Err(self.error(nonsense())),
        }
    }

    /// The join tokens on record, and the time by the head's clock, in seconds since 1970.
    pub fn tokens(&mut self) -> Result<(Vec<TokenRow>, u64), ClientError> {
        match self.trust(TrustRequest::Tokens)? {
            TrustReply::Tokens { rows, unix_seconds } => Ok((rows, unix_seconds)),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Revokes a join token.
    pub fn revoke_token(&mut self, token: IdPrefix) -> Result<TokenId, ClientError> {
        match self.trust(TrustRequest::RevokeToken(token))? {
            TrustReply::Revoked(id) => Ok(id),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Has the cluster use another key for tokens; gives how many tokens were good until now.
    pub fn rotate_tokens(&mut self) -> Result<u32, ClientError> {
        match self.trust(TrustRequest::RotateTokens)? {
            TrustReply::Rotated(count) => Ok(count),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Has the cluster use another key for its authority; gives how many nodes have certificates of it.
    pub fn rotate_authority(&mut self) -> Result<u32, ClientError> {
        // Every stage may take as long as any other answer.
        self.stream.set_read_timeout(Some(4 * ANSWER_PATIENCE)).map_err(|error| self.error(error.into()))?;
        match self.trust(TrustRequest::RotateAuthority)? {
            TrustReply::AuthorityRotated(count) => Ok(count),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Puts a node out of the cluster.
    pub fn put_out(&mut self, node: IdPrefix, kind: PutOutKind) -> Result<NodeId, ClientError> {
        match self.trust(TrustRequest::PutOut { node, kind })? {
            TrustReply::PutOut(node) => Ok(node),
            _ => Err(self.error(nonsense())),
        }
    }

    /// The last events, at most so many, and none from before that time in milliseconds since 1970.
    pub fn audit(
        &mut self,
        since_unix_milliseconds: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Event>, ClientError> {
        match self.trust(TrustRequest::Audit { since_unix_milliseconds, limit })? {
            TrustReply::Events(events) => Ok(events),
            _ => Err(self.error(nonsense())),
        }
    }

    fn trust(&mut self, request: TrustRequest) -> Result<TrustReply, ClientError> {
        match self.ask(&AdminRequest::Trust(request))? {
            AdminReply::Trust(reply) => Ok(reply),
            _ => Err(self.error(nonsense())),
        }
    }

    /// The keys that begin with `prefix`, at most `limit` of them, and whether there are more.
    pub fn keys(&mut self, prefix: &[u8], limit: u32) -> Result<(Vec<KeyRow>, bool), ClientError> {
        match self.ask(&AdminRequest::Keys(KeyRequest::List { prefix: prefix.to_vec(), limit }))? {
            AdminReply::Keys(KeyReply::Keys { keys, more }) => Ok((keys, more)),
            _ => Err(self.error(nonsense())),
        }
    }

    /// The value under a key, if there is one.
    pub fn key_value(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>, ClientError> {
        match self.ask(&AdminRequest::Keys(KeyRequest::Get { key: key.to_vec() }))? {
            AdminReply::Keys(KeyReply::Value(value)) => Ok(value),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Deletes a key; true if there was a value under it.
    pub fn delete_key(&mut self, key: &[u8]) -> Result<bool, ClientError> {
        match self.ask(&AdminRequest::Keys(KeyRequest::Delete { key: key.to_vec() }))? {
            AdminReply::Keys(KeyReply::Deleted(existed)) => Ok(existed),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Has a task, an actor or a job end, and does not wait for it.
    pub fn kill(&mut self, order: KillOrder) -> Result<Killed, ClientError> {
        match self.ask(&AdminRequest::Kill(order))? {
            AdminReply::Killed(killed) => Ok(killed),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Has a node take nothing new, hand over what it has, and leave; does not wait for it.
    pub fn drain(&mut self, order: DrainOrder) -> Result<NodeId, ClientError> {
        match self.ask(&AdminRequest::Drain(order))? {
            AdminReply::Draining(node) => Ok(node),
            _ => Err(self.error(nonsense())),
        }
    }

    /// Hands lines that processes have printed to `on_lines`, with the number of those before them that are gone, until
    /// there are no more or it breaks off.
    pub fn logs(
        mut self,
        query: LogQuery,
        mut on_lines: impl FnMut(Vec<LogLine>, u64) -> ControlFlow<()>,
    ) -> Result<(), ClientError> {
        if query.follow {
            let unbounded = self.stream.set_read_timeout(None);
            unbounded.map_err(|error| self.error(error.into()))?;
        }
        let mut reply = self.ask(&AdminRequest::Logs(query))?;
        loop {
            let AdminReply::LogLines { lines, missed, more } = reply else {
                return Err(self.error(nonsense()));
            };
            if on_lines(lines, missed).is_break() || !more {
                return Ok(());
            }
            reply = self.receive()?;
        }
    }

    /// Has the daemon end, and does not wait for it.
    pub(crate) fn begin_stop(mut self) -> Result<(), ClientError> {
        self.ask(&AdminRequest::Stop(StopScope::Node)).map(|_| ())
    }

    /// Ends the daemon, or all of them, and waits until this one is gone; false if it is not after `patience`.
    pub fn stop(mut self, scope: StopScope, patience: Duration) -> Result<bool, ClientError> {
        let AdminReply::Stopping = self.ask(&AdminRequest::Stop(scope))? else {
            return Err(self.error(nonsense()));
        };
        let bounded = self.stream.set_read_timeout(Some(patience));
        bounded.map_err(|error| self.error(error.into()))?;
        match io::copy(&mut self.stream, &mut io::sink()).map_err(WireError::from) {
            Err(error) if error.is_timeout() => Ok(false),
            // However the connection ended, nobody is at its other end.
            _ => Ok(true),
        }
    }

    fn ask(&mut self, request: &AdminRequest) -> Result<AdminReply, ClientError> {
        let sent = write_message(&mut self.stream, request, limits::ADMIN_REQUEST_BYTES_MAX);
        // A daemon that turns a client away does so before it is asked: read what it says.
        match sent {
            Err(error @ WireError::TooLong { .. }) => Err(self.error(error)),
            _ => self.receive(),
        }
    }

    fn receive(&mut self) -> Result<AdminReply, ClientError> {
        match read_message(&mut self.stream, limits::ADMIN_REPLY_BYTES_MAX) {
            Ok(Some(AdminReply::Refused { message, hint })) => Err(Refusal { message, hint }.into()),
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(ClientError::Ended { directory: self.directory.clone() }),
            Err(error) => Err(self.error(error)),
        }
    }

    fn error(&self, source: WireError) -> ClientError {
        let directory = self.directory.clone();
        let ended = [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
        match &source {
            error if error.is_timeout() => ClientError::Silent { directory },
            WireError::Stream(error) if ended.contains(&error.kind()) => ClientError::Ended { directory },
            _ => ClientError::Broken { directory, source },
        }
    }
}

/// An answer of the wrong kind.
fn nonsense() -> WireError {
    let message = "the daemon has answered something else than it was asked";
    WireError::Stream(io::Error::new(io::ErrorKind::InvalidData, message))
}

/// Whether the error means that nobody listens there.
fn is_absence(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionRefused, InvalidInput, NotADirectory, NotFound};
    // The last is a path that is too long for a socket.
    matches!(error.kind(), NotFound | ConnectionRefused | NotADirectory | InvalidInput)
}

/// Whether a process of this user is one of ours, or may do anything anyhow.
pub(super) fn is_trusted(user: Uid) -> bool {
    user == rustix::process::geteuid() || user.is_root()
}
