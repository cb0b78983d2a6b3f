//! The rows in which the head writes down members, names of actors and placement groups.
//!
//! | table | key | value |
//! |---|---|---|
//! | nodes | the node's id | [`NodeInfo`] |
//! | nodes | `epoch` | the next epoch |
//! | nodes | `left/` and a number | a [`Sender`] whose membership is over, and whose records are still kept |
//! | nodes | `dead/`, the time and a number | a [`DeadNode`], of the last that there are |
//! | nodes | `key/` and the node's id | the key of a node that has joined, and its epoch |
//! | nodes | `token/` and the token's id | a [`TokenRow`] |
//! | nodes | `out/` and the node's id | a [`PutOut`] |
//! | actors | `name/` and the name | an [`ActorHome`] |
//! | groups | the group's id | [`GroupRow`] |
//! | all others | as the nodes say that write them | |
//!
//! All rows of the table of nodes are in one shard: a node's row and the epoch after it, or its end and its row under
//! `left/`, are on disk together, or neither is.

use super::NameClaim;
use super::names::ActorHome;
use aktis_protocol::control::{decode, encode};
use aktis_protocol::member::{DEAD_PREFIX, DeadNode, Departure, PublicKey};
use aktis_protocol::placement::NodeInfo;
use aktis_protocol::tables::{Change, Event, EventKind, Key, Sender, Table};
use aktis_protocol::trust::{PutOut, TokenId, TokenRow};
use aktis_protocol::{Epoch, GroupId, GroupRow, NodeId, limits};

const EPOCH_KEY: &str = "epoch";
const LEFT_PREFIX: &str = "left/";
const KEY_PREFIX: &str = "key/";
const TOKEN_PREFIX: &str = "token/";
const OUT_PREFIX: &str = "out/";
const NAME_PREFIX: &str = "name/";
/// No actor gets a name that is longer.
pub(super) const NAME_BYTES_MAX: usize = limits::KEY_BYTES_MAX - NAME_PREFIX.len();

/// What the head has written down.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadWrite {
    /// A node is a member from now on. When its row is on disk, say so by `NodeWritten`.
    NodeJoined {
        /// The node.
        info: NodeInfo,
        /// Higher than all epochs that were given.
        next_epoch: Epoch,
        /// The key of the node's certificate.
        key: PublicKey,
        /// Another node, whose key need not be known any more.
        key_forgotten: Option<NodeId>,
    },
    /// A membership is over. When the node's row is gone from disk, say so by `NodeWritten`.
    NodeLeft {
        /// The membership.
        sender: Sender,
        /// How it has ended.
        why: Departure,
    },
    /// A member has left or died: it is shown for a while, until [`limits::DEAD_NODES_KEPT`] others have.
    NodeDied {
        /// The node.
        info: NodeInfo,
        /// How its membership has ended.
        why: Departure,
    },
    /// The records of a membership that is over are dropped.
    RecordsForgotten {
        /// The membership.
        sender: Sender,
    },
    /// An actor has a name. When that is on disk or refused, say so by `NameWritten`.
    Name {
        /// The claim.
        claim: NameClaim,
        /// The actor, and its node.
        home: ActorHome,
    },
    /// A token is so now.
    Token {
        /// Its row.
        row: TokenRow,
    },
    /// A node was put out.
    PutOut {
        /// Its row.
        row: PutOut,
    },
    /// Tokens and nodes that were put out are on record no more.
    TrustForgotten {
        /// Tokens.
        tokens: Vec<TokenId>,
        /// Nodes.
        nodes: Vec<NodeId>,
    },
    /// Something has happened.
    Noted {
        /// What it is about.
        subject: Key,
        /// What kind of thing.
        kind: EventKind,
        /// What.
        text: String,
    },
    /// Names are free.
    NamesFreed {
        /// Which.
        names: Vec<String>,
    },
    /// A group is so, or is there no more. When that is on disk or refused, say so by `GroupWritten`.
    Group {
        /// The group.
        group: GroupId,
        /// Its row; if none, it has none any more.
        row: Option<GroupRow>,
        /// Which write of it.
        write: u64,
    },
}

impl HeadWrite {
    /// The changes that it makes, at this time in microseconds since 1970.
    pub fn changes(&self, unix_microseconds: u64) -> Vec<Change> {
        let put = |table, key, value| Change::RowPut { table, key, value, overwrite: true };
        let delete = |key| Change::RowDeleted { table: Table::Nodes, key };
        match self {
            Self::NodeJoined { info, next_epoch, key, key_forgotten } => {
                let row = Key::from(info.node);
                let text = format!("it is a member at {}, with epoch {}", info.address, info.epoch.0);
                let mut changes = vec![
                    put(Table::Nodes, row.clone(), encode(info)),
                    put(Table::Nodes, of_node(KEY_PREFIX, info.node), encode(&(*key, info.epoch))),
                    keep_epoch(*next_epoch),
                    event(unix_microseconds, row, EventKind::Joined, text),
                ];
                changes.extend(key_forgotten.map(|node| delete(of_node(KEY_PREFIX, node))));
                changes
            }
            Self::NodeLeft { sender, why } => {
                let text = format!("{why}; its membership with epoch {} is over", sender.epoch);
                vec![
                    delete(sender.node.into()),
                    put(Table::Nodes, left_key(*sender), encode(sender)),
                    event(unix_microseconds, sender.node.into(), EventKind::Left, text),
                ]
            }
            Self::Token { row } => vec![put(Table::Nodes, token_key(row.id), encode(row))],
            Self::PutOut { row } => vec![put(Table::Nodes, of_node(OUT_PREFIX, row.node), encode(row))],
            Self::TrustForgotten { tokens, nodes } => {
                let tokens = tokens.iter().map(|id| delete(token_key(*id)));
                tokens.chain(nodes.iter().map(|node| delete(of_node(OUT_PREFIX, *node)))).collect()
            }
            Self::Noted { subject, kind, text } => {
                vec![event(unix_microseconds, subject.clone(), *kind, text.clone())]
            }
            Self::NodeDied { info, why } => {
                let unix_milliseconds = unix_microseconds / 1000;
                let dead = DeadNode { info: info.clone(), unix_milliseconds, why: *why };
                // In the order of their deaths.
                let epoch = info.epoch.0.to_be_bytes();
                let parts = [DEAD_PREFIX.as_bytes(), &unix_milliseconds.to_be_bytes(), &epoch];
                vec![put(Table::Nodes, Key(parts.concat()), encode(&dead))]
            }
            Self::RecordsForgotten { sender } => vec![delete(left_key(*sender))],
            Self::Name { claim, home } => vec![put(Table::Actors, name_key(&claim.name), encode(home))],
            Self::NamesFreed { names } => {
                let free = |name: &String| Change::RowDeleted { table: Table::Actors, key: name_key(name) };
                names.iter().map(free).collect()
            }
            Self::Group { group, row, .. } => match row {
                Some(row) => vec![put(Table::Groups, (*group).into(), encode(row))],
                None => vec![Change::RowDeleted { table: Table::Groups, key: (*group).into() }],
            },
        }
    }
}

/// The change by which no later life of the control process gives an epoch below this one.
pub fn keep_epoch(epoch: Epoch) -> Change {
    Change::RowPut { table: Table::Nodes, key: EPOCH_KEY.into(), value: encode(&epoch), overwrite: true }
}

/// The change that tells of the start of a control process.
pub fn started(own: NodeId, unix_microseconds: u64) -> Change {
    let text = "the control process has started".to_owned();
    event(unix_microseconds, own.into(), EventKind::Started, text)
}

fn event(at_microseconds: u64, subject: Key, kind: EventKind, mut text: String) -> Change {
    text.truncate(text.floor_char_boundary(limits::EVENT_BYTES_MAX));
    Change::EventNoted(Event { at_microseconds, subject, kind, text })
}

/// The key of a row about a node that is not the node's own row.
fn of_node(prefix: &str, node: NodeId) -> Key {
    Key([prefix.as_bytes(), &Key::from(node).0].concat())
}

fn token_key(token: TokenId) -> Key {
    Key([TOKEN_PREFIX.as_bytes(), &token.0.to_be_bytes()].concat())
}

/// Epochs are given once.
fn left_key(sender: Sender) -> Key {
    Key([LEFT_PREFIX.as_bytes(), &sender.epoch.to_be_bytes()].concat())
}

fn name_key(name: &str) -> Key {
    Key([NAME_PREFIX.as_bytes(), name.as_bytes()].concat())
}

/// What the keys of a node's programs begin with.
pub fn programs_of(node: NodeId) -> Key {
    node.into()
}

/// The node whose row has this key; `None` for the other rows of the table of nodes.
pub fn node_in(key: &Key) -> Option<NodeId> {
    let bytes: [u8; 16] = key.0.as_slice().try_into().ok()?;
    let (first, second) = bytes.split_at(8);
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    Some(NodeId::from_words([word(first), word(second)]))
}

/// A row that this release cannot read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} cannot be read")]
pub struct RowError(pub &'static str);

/// What the last life of the head has left on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restored {
    /// The members.
    pub nodes: Vec<NodeInfo>,
    /// Names, and the actors that have them.
    pub names: Vec<(String, ActorHome)>,
    /// Placement groups.
    pub groups: Vec<GroupRow>,
    /// Higher than all epochs that were given.
    pub next_epoch: Epoch,
    /// Memberships that are over, and whose records are still kept.
    pub departed: Vec<Sender>,
    /// Join tokens.
    pub tokens: Vec<TokenRow>,
    /// Nodes that were put out.
    pub put_out: Vec<PutOut>,
    /// The keys of nodes that have joined, and their last epochs.
    pub keys: Vec<(NodeId, (PublicKey, Epoch))>,
}

impl Default for Restored {
    /// Nothing: the cluster begins.
    fn default() -> Self {
        let (nodes, names, groups, departed) = Default::default();
        let (tokens, put_out, keys) = Default::default();
        Self { nodes, names, groups, next_epoch: Epoch(1), departed, tokens, put_out, keys }
    }
}

impl Restored {
    /// Takes up a row of one of the tables that the head writes.
    pub fn on_row(&mut self, table: Table, key: &Key, value: &[u8]) -> Result<(), RowError> {
        match table {
            Table::Nodes if node_in(key).is_some() => {
                self.nodes.push(decode(value).map_err(|_| RowError("a node"))?);
            }
            Table::Nodes if *key == EPOCH_KEY.into() => {
                self.next_epoch = decode(value).map_err(|_| RowError("the epoch"))?;
            }
            Table::Nodes if key.0.starts_with(LEFT_PREFIX.as_bytes()) => {
                self.departed.push(decode(value).map_err(|_| RowError("a node that has left"))?);
            }
            Table::Nodes if key.0.starts_with(TOKEN_PREFIX.as_bytes()) => {
                self.tokens.push(decode(value).map_err(|_| RowError("a join token"))?);
            }
            Table::Nodes if key.0.starts_with(OUT_PREFIX.as_bytes()) => {
                self.put_out.push(decode(value).map_err(|_| RowError("a node that was put out"))?);
            }
            Table::Nodes if key.0.starts_with(KEY_PREFIX.as_bytes()) => {
                let id = Key(key.0[KEY_PREFIX.len()..].to_vec());
                let unreadable = RowError("the key of a node");
                let node = node_in(&id).ok_or(unreadable)?;
                self.keys.push((node, decode(value).map_err(|_| unreadable)?));
            }
            Table::Actors => {
                let Some(name) = key.0.strip_prefix(NAME_PREFIX.as_bytes()) else { return Ok(()) };
                let name = String::from_utf8(name.to_vec()).map_err(|_| RowError("a name"))?;
                self.names.push((name, decode(value).map_err(|_| RowError("a named actor"))?));
            }
            Table::Groups => {
                self.groups.push(decode(value).map_err(|_| RowError("a placement group"))?);
            }
            Table::Nodes | Table::Jobs | Table::Programs | Table::Keys => {}
        }
        Ok(())
    }
}
