//! Questions of the command line to the daemon of its machine, and the answers, over a private Unix socket.
//!
//! A message is its length as a little-endian `u32`, then so many bytes of postcard. The command line sends a request and
//! reads the answer to it: one message, except for [`AdminRequest::Logs`], whose answer is any number of
//! [`AdminReply::LogLines`] of which the last has `more` unset. Then it may send the next request.
//!
//! Invariants:
//! 1. A length beyond the limit ([`limits::ADMIN_REQUEST_BYTES_MAX`], [`limits::ADMIN_REPLY_BYTES_MAX`]) is refused
//!    before a byte of the message is read.
//! 2. A refusal is an answer like any other ([`AdminReply::Refused`]), and the connection goes on.

mod between;
mod keys;
mod kills;
mod prefix;
mod rows;

pub use crate::state::DemandRow;
pub use between::{Account, AccountKind, LogPart, NodeAnswer, NodeQuestion, NodeStatus};
pub use keys::{KeyReply, KeyRequest, KeyRow};
pub use kills::{KillOrder, KillTarget, Killed};
pub use prefix::IdPrefix;
pub use rows::{
    ClusterStatus, JobRow, JobState, Known, Language, NodeRow, NodeState, ObjectPlace, OnNode, ProgramRow,
    Rows, TaskKind, TaskRow, TaskState,
};

use crate::ids::NodeId;
use crate::limits;
use crate::trust::{TokenId, TrustReply, TrustRequest};
use serde::{Deserialize, Serialize};

/// The version of these messages: the first byte of every connection, from both sides. The command line and the daemon may
/// be of different builds.
pub const ADMIN_VERSION: u8 = 6;

/// What the command line asks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminRequest {
    /// How the cluster stands. Answer: [`AdminReply::Status`].
    Status,
    /// That it ends. Answer: [`AdminReply::Stopping`]; then the connection closes when the daemon is gone.
    Stop(StopScope),
    /// Rows about what there is. Answer: [`AdminReply::Listing`].
    List(ListQuery),
    /// Why something stands as it does. Answer: [`AdminReply::Explanation`].
    Explain(IdPrefix),
    /// What processes have printed. Answer: [`AdminReply::LogLines`], several times.
    Logs(LogQuery),
    /// Something about who is let in. Answer: [`AdminReply::Trust`].
    Trust(TrustRequest),
    /// Something about keys. Answer: [`AdminReply::Keys`].
    Keys(KeyRequest),
    /// That a task, an actor or a job ends. Answer: [`AdminReply::Killed`].
    Kill(KillOrder),
    /// That a node takes nothing new, hands over what it has, and leaves. Answer: [`AdminReply::Draining`].
    Drain(DrainOrder),
}

/// What the daemon answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum AdminReply {
    /// How the cluster stands.
    Status(ClusterStatus),
    /// It will end now.
    Stopping,
    /// Rows about what there is.
    Listing(Listing),
    /// Why it stands as it does, in sentences for people.
    Explanation(String),
    /// Lines that processes have printed, oldest first.
    LogLines {
        /// The lines.
        lines: Vec<LogLine>,
        /// Lines that came before these and are gone.
        missed: u64,
        /// Whether more such answers come.
        more: bool,
    },
    /// About who is let in.
    Trust(TrustReply),
    /// About keys.
    Keys(KeyReply),
    /// It was told to end.
    Killed(Killed),
    /// It was not done.
    Refused {
        /// Why not: lower case, concrete.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// This node is drained from now on.
    Draining(NodeId),
}

/// Which node is drained, and for how long at most.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DrainOrder {
    /// The node.
    pub node: IdPrefix,
    /// It leaves after so long in any case.
    pub patience_milliseconds: Option<u64>,
}

/// How much is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopScope {
    /// The node of this machine.
    Node,
    /// All nodes, and the head last.
    Cluster,
}

/// What rows are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListKind {
    /// Tasks and calls of actors.
    Tasks,
    /// Actors.
    Actors,
    /// Objects in the stores.
    Objects,
    /// Nodes.
    Nodes,
    /// Worker processes.
    Workers,
    /// Drivers that use the cluster, or have.
    Jobs,
    /// Programs whose tasks and actors nodes can run.
    Programs,
    /// Placement groups.
    Groups,
}

/// Which rows are asked for. All conditions must hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListQuery {
    /// What they are about.
    pub what: ListKind,
    /// How many at most; not more than [`limits::LISTED_ROWS_MAX`].
    pub limit: u32,
    /// Only those on this node.
    pub node: Option<IdPrefix>,
    /// Only those in this state, by its word.
    pub state: Option<String>,
    /// Only those with this name.
    pub name: Option<String>,
    /// Only those of which these fields have these values.
    pub filters: Vec<(String, String)>,
}

impl ListQuery {
    /// As many of the rows as are asked for, in order, and how many others are meant by the query.
    pub fn select<Row: Known>(&self, rows: impl IntoIterator<Item = Row>) -> (Vec<Row>, u64) {
        let limit = self.limit.min(limits::LISTED_ROWS_MAX) as usize;
        let mut selected = Vec::new();
        let mut left_out = 0;
        for row in rows.into_iter().filter(|row| self.means(row)) {
            match selected.len() < limit {
                true => selected.push(row),
                false => left_out += 1,
            }
        }
        (selected, left_out)
    }

    fn means(&self, row: &impl Known) -> bool {
        self.node.as_ref().is_none_or(|node| node.is_start_of(&row.node()))
            && self.state.as_ref().is_none_or(|state| state == row.state())
            && self.name.as_ref().is_none_or(|name| Some(name.as_str()) == row.name())
            && self.filters.iter().all(|(field, value)| row.field(field).as_ref() == Some(value))
    }
}

/// Rows, and what is not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listing {
    /// The rows.
    pub rows: Rows,
    /// Rows beyond the limit.
    pub left_out: u64,
    /// Nodes that did not answer in time: their rows are missing.
    pub silent: Vec<NodeId>,
}

/// Which lines are asked for. All conditions must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogQuery {
    /// Only those of this node's processes.
    pub node: Option<IdPrefix>,
    /// Only those of the process with this id.
    pub pid: Option<u32>,
    /// Only those of this actor.
    pub actor: Option<IdPrefix>,
    /// Only those of this task.
    pub task: Option<IdPrefix>,
    /// Only the last so many of those that are kept; none means all.
    pub tail: Option<u32>,
    /// Only those that were printed at this time or later, in milliseconds since 1970.
    pub since_unix_milliseconds: Option<u64>,
    /// Whether new lines are wanted as they are printed, until the connection is closed.
    pub follow: bool,
}

impl LogQuery {
    /// Whether a line was printed after the time that is asked for.
    pub fn is_since(&self, line: &LogLine) -> bool {
        self.since_unix_milliseconds.is_none_or(|since| line.unix_milliseconds >= since)
    }
}

/// One line that a process has printed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogLine {
    /// Its node.
    pub node: NodeId,
    /// Its process.
    pub pid: u32,
    /// What ran there, or what kind of process it is.
    pub name: String,
    /// Which output it came from.
    pub stream: LogStream,
    /// When it was read, in milliseconds since 1970.
    pub unix_milliseconds: u64,
    /// The line, without its end.
    pub text: String,
}

/// An output of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LogStream {
    /// Standard output.
    Output,
    /// Standard error.
    Error,
}

/// A token with which a machine may join, and how to use it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// The token, as it is given to `aktis start --token`.
    pub token: String,
    /// Where the head listens.
    pub address: String,
    /// When it ends to be good, in seconds since 1970.
    pub expires_unix_seconds: u64,
    /// What it is called when it is spoken of.
    pub id: TokenId,
    /// How many machines can join with it; any number if nothing is said.
    pub uses_max: Option<u32>,
}

impl JoinToken {
    /// The command that makes another machine join.
    pub fn command(&self) -> String {
        format!("aktis start --address {} --token {}", self.address, self.token)
    }
}

/// Without the token: what is printed for debugging is no place for secrets.
impl std::fmt::Debug for JoinToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { address, expires_unix_seconds, .. } = self;
        write!(f, "JoinToken {{ address: {address:?}, expires_unix_seconds: {expires_unix_seconds} }}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{decode, encode};

    fn node_row(number: u64, state: NodeState) -> NodeRow {
        NodeRow { node: NodeId::from_words([number << 60, 0]), state, ..NodeRow::default() }
    }

    #[test]
    fn a_query_selects_by_all_its_conditions_and_counts_the_rest() {
        let rows = (0..10)
            .map(|number| node_row(number, if number % 2 == 0 { NodeState::Alive } else { NodeState::Dead }));
        let mut query = ListQuery {
            what: ListKind::Nodes,
            limit: 3,
            node: None,
            state: Some("alive".into()),
            name: None,
            filters: Vec::new(),
        };
        let (selected, left_out) = query.select(rows.clone());
        assert_eq!((selected.len(), left_out), (3, 2));
        assert!(selected.iter().all(|row| row.state == NodeState::Alive));
        query.node = Some("4000".parse().expect("digits"));
        assert_eq!(query.select(rows.clone()), (vec![node_row(4, NodeState::Alive)], 0));
        query.filters = vec![("role".into(), "member".into()), ("pid".into(), "0".into())];
        assert_eq!(query.select(rows.clone()).0.len(), 1);
        query.filters.push(("address".into(), "10.0.0.1:1".into()));
        assert_eq!(query.select(rows.clone()).0.len(), 0);
        query.filters.clear();
        query.name = Some("elsewhere".into());
        assert_eq!(query.select(rows), (vec![], 0));
    }

    #[test]
    fn what_is_no_id_does_not_decode() {
        let fine = AdminRequest::Explain("abcdef".parse().expect("digits"));
        assert_eq!(decode::<AdminRequest>(&encode(&fine)), Ok(fine));
        let mut bytes = encode(&AdminRequest::Explain("abcdef".parse().expect("digits")));
        *bytes.last_mut().expect("some") = b'/';
        assert!(decode::<AdminRequest>(&bytes).is_err());
    }

    #[test]
    fn a_token_is_not_printed_for_debugging() {
        let token = JoinToken {
            token: "secret".into(),
            address: "head:1".into(),
            expires_unix_seconds: 7,
            id: TokenId(1),
            uses_max: None,
        };
        assert!(!format!("{token:?}").contains("secret"));
        assert_eq!(token.command(), "aktis start --address head:1 --token secret");
    }
}
