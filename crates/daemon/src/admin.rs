//! The daemon's private socket: what the command line asks there, and who answers.
//!
//! [`Client`] asks, [`AdminServer`] listens, and whoever implements [`Admin`] answers. The messages are in
//! [`aktis_protocol::admin`].
//!
//! Invariants:
//! 1. Only processes of the daemon's own user, or of root, are answered; and a client talks only to a daemon of its own
//!    user or of root.
//! 2. At most [`ADMIN_CONNECTIONS_MAX`](aktis_protocol::limits::ADMIN_CONNECTIONS_MAX) connections are served at once; one
//!    more is told so.
//! 3. A client that is slow, silent or gone costs one thread for a bounded time.

mod client;
mod server;

pub use client::{Client, ClientError};
pub use server::{AdminServer, serve_connection};
pub use wire::{SOCKET_NAME, WireError, read_message, write_message};

use aktis_node::admin_wire as wire;
use aktis_protocol::NodeId;
use aktis_protocol::admin::{
    AdminReply, ClusterStatus, DrainOrder, IdPrefix, KeyReply, KeyRequest, KillOrder, Killed, ListQuery,
    Listing, LogLine, LogQuery, StopScope,
};
use aktis_protocol::trust::{TrustReply, TrustRequest};
use std::collections::BTreeMap;
use std::time::Duration;

/// Who answers the command line. Called on the threads of connections, several at once.
pub trait Admin: Send + Sync {
    /// How the cluster stands.
    fn status(&self) -> Result<ClusterStatus, Refusal>;

    /// Begins to end the daemon, or all of them, and does not wait for it.
    fn stop(&self, scope: StopScope) -> Result<(), Refusal>;

    /// Rows about what there is; [`ListQuery::select`] picks those that are meant.
    fn list(&self, query: &ListQuery) -> Result<Listing, Refusal>;

    /// Why something stands as it does.
    fn explain(&self, id: &IdPrefix) -> Result<String, Refusal>;

    /// Lines from `position` on, or those that the query asks for first if there is none. If there are none yet, it waits
    /// for the first one, but not longer than `patience`.
    fn logs(
        &self,
        query: &LogQuery,
        position: Option<LogPosition>,
        patience: Duration,
    ) -> Result<LogPage, Refusal>;

    /// Something about who is let in.
    fn trust(&self, request: TrustRequest) -> Result<TrustReply, Refusal>;

    /// Something about keys.
    fn keys(&self, request: KeyRequest) -> Result<KeyReply, Refusal>;

    /// Has a task, an actor or a job end, and does not wait for it.
    fn kill(&self, order: &KillOrder) -> Result<Killed, Refusal>;

    /// Has a node take nothing new, hand over what it has, and leave; does not wait for it.
    fn drain(&self, order: &DrainOrder) -> Result<NodeId, Refusal>;
}

/// A place among all lines that were ever printed, on each node that was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogPosition(pub BTreeMap<NodeId, u64>);

/// Some lines: of each node at most [`LOG_LINES_MAX`](aktis_protocol::limits::LOG_LINES_MAX).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogPage {
    /// The lines, oldest first.
    pub lines: Vec<LogLine>,
    /// Lines before these that are not kept any more.
    pub missed: u64,
    /// Where the next page begins.
    pub next: LogPosition,
    /// Whether there are no lines beyond these yet.
    pub is_last: bool,
}

/// Why something was not done, for a user to read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}{}", hint_line(.hint))]
pub struct Refusal {
    /// What is wrong: lower case, concrete.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
}

impl Refusal {
    /// A refusal without a hint.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    /// The same with a hint.
    pub fn with_hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

impl From<Refusal> for AdminReply {
    fn from(Refusal { message, hint }: Refusal) -> Self {
        Self::Refused { message, hint }
    }
}

fn hint_line(hint: &Option<String>) -> String {
    hint.as_ref().map_or(String::new(), |hint| format!("\nhint: {hint}"))
}
