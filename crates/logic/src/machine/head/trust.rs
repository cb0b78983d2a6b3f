//! Who is let in: join tokens, and nodes that were put out.
//!
//! Invariants:
//! 1. A token lets in no more machines than it is for, and none after it was revoked: the caller gives a certificate after the
//!    use is on disk, and not before.
//! 2. A node that was put out is no member from then on, and neither its id nor its key becomes one again until that is
//!    forgotten; for a revoked node it never is.

use super::rows::HeadWrite;
use super::{Head, HeadEffect, OTHER_KEY};
use crate::{Effects, LinkId, Time};
use aktis_protocol::admin::IdPrefix;
use aktis_protocol::limits::{NODE_KEYS_MAX, PUT_OUT_MAX, TOKENS_MAX};
use aktis_protocol::member::{Departure, FromControl, PublicKey};
use aktis_protocol::tables::{EventKind, Key};
use aktis_protocol::trust::{PutOut, PutOutKind, TokenId, TokenRow, TokenState};
use aktis_protocol::{Epoch, NodeId};
use std::collections::{BTreeMap, BTreeSet};

/// How often it is noted that a node which was put out asks to be a member.
const NOTED_AGAIN_MICROSECONDS: u64 = 60_000_000;

/// Why a machine with a token of this cluster is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLetIn {
    /// Its token is not good.
    #[error("the token is {}", .0.word())]
    Token(TokenState),
    /// Its token is not on record.
    #[error("the token is not known any more")]
    Forgotten,
    /// Its key is that of a node that was put out.
    #[error("its key is that of a node that was {}", .0.word())]
    PutOut(PutOutKind),
}

/// Why an order about tokens or nodes was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TrustError {
    /// Nothing has such an id.
    #[error("no {what} has an id that begins with {prefix}\nhint: `{command}` shows those that there are")]
    Unknown {
        /// What was looked for.
        what: &'static str,
        /// The beginning of the id.
        prefix: IdPrefix,
        /// What shows them.
        command: &'static str,
    },
    /// Several have.
    #[error("{count} {what}s have ids that begin with {prefix}\nhint: say more digits")]
    Ambiguous {
        /// What was looked for.
        what: &'static str,
        /// The beginning of the ids.
        prefix: IdPrefix,
        /// How many.
        count: usize,
    },
    /// There are too many nodes that were put out.
    #[error("{PUT_OUT_MAX} nodes are put out of this cluster, which is the limit\nhint: begin a new cluster")]
    TooManyPutOut,
}

/// A machine that shows a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenShown {
    /// The token.
    pub token: TokenId,
    /// Who the machine is to be.
    pub node: NodeId,
    /// Its key.
    pub key: PublicKey,
    /// Where it is.
    pub address: String,
}

/// A machine that was a node before, and wants to be another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Returning {
    /// The node in the certificate that it has shown.
    pub before: NodeId,
    /// The key of that certificate.
    pub shown: PublicKey,
    /// The key that it wants a certificate for.
    pub wanted: PublicKey,
    /// Who it is to be.
    pub node: NodeId,
    /// Where it is.
    pub address: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Trust {
    tokens: BTreeMap<TokenId, TokenRow>,
    put_out: BTreeMap<NodeId, PutOut>,
    /// The keys of nodes that have joined, and their last epochs.
    keys: BTreeMap<NodeId, (PublicKey, Epoch)>,
    /// When it was last noted that a node which was put out has asked to be a member.
    noted_at: BTreeMap<NodeId, Time>,
}

impl Trust {
    pub(super) fn new(
        tokens: Vec<TokenRow>,
        put_out: Vec<PutOut>,
        keys: Vec<(NodeId, (PublicKey, Epoch))>,
    ) -> Self {
        Self {
            tokens: tokens.into_iter().map(|row| (row.id, row)).collect(),
            put_out: put_out.into_iter().map(|row| (row.node, row)).collect(),
            keys: keys.into_iter().collect(),
            noted_at: BTreeMap::new(),
        }
    }

    /// Which node was put out that has this id or key, and how.
    fn put_out_as(&self, node: NodeId, key: PublicKey) -> Option<(NodeId, PutOutKind)> {
        let is_it = |row: &&PutOut| row.node == node || row.key == Some(key);
        self.put_out.values().find(is_it).map(|row| (row.node, row.kind))
    }

    /// A node becomes a member. Of nodes that are none, the key of the one that has joined longest ago is forgotten if there
    /// are too many.
    pub(super) fn on_joined(
        &mut self,
        (node, key, epoch): (NodeId, PublicKey, Epoch),
        is_member: impl Fn(NodeId) -> bool,
    ) -> Option<NodeId> {
        self.keys.insert(node, (key, epoch));
        if self.keys.len() <= NODE_KEYS_MAX {
            return None;
        }
        let gone = self.keys.iter().filter(|(node, _)| !is_member(**node));
        let oldest = gone.min_by_key(|(_, (_, epoch))| *epoch).map(|(node, _)| *node)?;
        self.keys.remove(&oldest);
        Some(oldest)
    }

    /// What is over is forgotten: tokens and expulsions that matter no more.
    fn forget(&mut self, unix_seconds: u64, out: &mut Effects<HeadEffect>) {
        let expired = self.tokens.extract_if(.., |_, row| row.expires_unix_seconds <= unix_seconds);
        let tokens: Vec<TokenId> = expired.map(|(id, _)| id).collect();
        let over = |row: &PutOut| row.forgotten_unix_seconds.is_some_and(|at| at <= unix_seconds);
        let nodes: Vec<NodeId> =
            self.put_out.extract_if(.., |_, row| over(row)).map(|(node, _)| node).collect();
        for node in &nodes {
            self.noted_at.remove(node);
        }
        if !tokens.is_empty() || !nodes.is_empty() {
            out.push(HeadEffect::Write(HeadWrite::TrustForgotten { tokens, nodes }));
        }
    }

    /// The token that is forgotten to make room for another one, if there is none: one that is good no more, or else the one
    /// that expires first. A token that is not on record lets nobody in.
    fn forget_token(&mut self, unix_seconds: u64) -> Option<TokenId> {
        if self.tokens.len() < TOKENS_MAX {
            return None;
        }
        let worth = |row: &&TokenRow| {
            (row.state(unix_seconds) == TokenState::Good, row.expires_unix_seconds, row.made_unix_seconds)
        };
        let id = self.tokens.values().min_by_key(worth).map(|row| row.id)?;
        self.tokens.remove(&id);
        Some(id)
    }

    pub(super) fn check(&self) {
        assert!(self.tokens.len() <= TOKENS_MAX && self.put_out.len() <= PUT_OUT_MAX, "trust is bounded");
        let within = |row: &TokenRow| row.uses_max.is_none_or(|most| row.uses <= most);
        assert!(self.tokens.values().all(within), "trust invariant 1");
    }
}

/// The one thing that is meant by the beginning of its id.
fn only<Id: Copy + std::fmt::Display>(
    ids: impl Iterator<Item = Id>,
    prefix: &IdPrefix,
    what: &'static str,
    command: &'static str,
) -> Result<Id, TrustError> {
    let meant: Vec<Id> = ids.filter(|id| prefix.is_start_of(id)).collect();
    match meant.as_slice() {
        [] => Err(TrustError::Unknown { what, prefix: prefix.clone(), command }),
        [id] => Ok(*id),
        several => Err(TrustError::Ambiguous { what, prefix: prefix.clone(), count: several.len() }),
    }
}

/// What events about a token are about.
fn subject_of(token: TokenId) -> Key {
    Key::from(format!("token {token}").as_str())
}

fn note(subject: Key, kind: EventKind, text: String) -> HeadEffect {
    HeadEffect::Write(HeadWrite::Noted { subject, kind, text })
}

impl Head {
    /// A token was made.
    pub fn on_token_made(&mut self, unix_seconds: u64, row: TokenRow, out: &mut Effects<HeadEffect>) {
        self.trust.forget(unix_seconds, out);
        if let Some(id) = self.trust.forget_token(unix_seconds) {
            out.push(HeadEffect::Write(HeadWrite::TrustForgotten { tokens: vec![id], nodes: Vec::new() }));
        }
        let lifetime = row.expires_unix_seconds.saturating_sub(unix_seconds);
        let machines = row.uses_max.map_or_else(|| "any number of".to_owned(), |most| most.to_string());
        let text = format!("it is good for {lifetime} s and {machines} machines");
        out.push(note(subject_of(row.id), EventKind::TokenMade, text));
        out.push(HeadEffect::Write(HeadWrite::Token { row: row.clone() }));
        self.trust.tokens.insert(row.id, row);
    }

    /// A machine shows a token, and gets a certificate when the effects are on disk, if this says so.
    pub fn on_token_shown(
        &mut self,
        unix_seconds: u64,
        shown: TokenShown,
        out: &mut Effects<HeadEffect>,
    ) -> Result<(), NotLetIn> {
        let TokenShown { token, node, key, address } = shown;
        if let Some((_, kind)) = self.trust.put_out_as(node, key) {
            return Err(NotLetIn::PutOut(kind));
        }
        let row = self.trust.tokens.get_mut(&token).ok_or(NotLetIn::Forgotten)?;
        match row.state(unix_seconds) {
            TokenState::Good => {}
            state => return Err(NotLetIn::Token(state)),
        }
        row.uses = row.uses.saturating_add(1);
        let text = format!("{} has let in node {node} at {address}", subject_text(token));
        out.push(note(subject_of(token), EventKind::TokenUsed, text));
        out.push(HeadEffect::Write(HeadWrite::Token { row: row.clone() }));
        Ok(())
    }

    /// Somebody in charge revokes a token.
    pub fn on_token_revoked(
        &mut self,
        prefix: &IdPrefix,
        out: &mut Effects<HeadEffect>,
    ) -> Result<TokenId, TrustError> {
        let ids = self.trust.tokens.keys().copied();
        let id = only(ids, prefix, "token", "aktis token list")?;
        let row = self.trust.tokens.get_mut(&id).expect("it was found");
        row.is_revoked = true;
        out.push(note(subject_of(id), EventKind::TokenRevoked, "it is good no more".to_owned()));
        out.push(HeadEffect::Write(HeadWrite::Token { row: row.clone() }));
        Ok(id)
    }

    /// What the authority's key before has signed is good for nothing any more.
    pub fn on_authority_rotated(&mut self, members: u32, out: &mut Effects<HeadEffect>) {
        let text = format!("the authority has another key, and {members} nodes have certificates of it");
        out.push(note(Key::from("authority"), EventKind::Rotated, text));
    }

    /// No token that was made before is good any more, since the cluster has another key for them. Gives how many were.
    pub fn on_tokens_rotated(&mut self, unix_seconds: u64, out: &mut Effects<HeadEffect>) -> u32 {
        let rows = std::mem::take(&mut self.trust.tokens);
        let good = rows.values().filter(|row| row.state(unix_seconds) == TokenState::Good).count();
        let tokens = rows.into_keys().collect();
        out.push(HeadEffect::Write(HeadWrite::TrustForgotten { tokens, nodes: Vec::new() }));
        let text = format!("there is another key, and {good} tokens are good no more");
        out.push(note("tokens".into(), EventKind::Rotated, text));
        good as u32
    }

    /// The tokens on record, the oldest first.
    pub fn tokens(&self) -> Vec<TokenRow> {
        let mut rows: Vec<TokenRow> = self.trust.tokens.values().cloned().collect();
        rows.sort_by_key(|row| (row.made_unix_seconds, row.id));
        rows
    }

    /// Somebody in charge puts a node out, which has certificates that are good for so long yet.
    pub fn on_put_out(
        &mut self,
        now: Time,
        (unix_seconds, lifetime_seconds): (u64, u64),
        prefix: &IdPrefix,
        kind: PutOutKind,
        out: &mut Effects<HeadEffect>,
    ) -> Result<NodeId, TrustError> {
        self.trust.forget(unix_seconds, out);
        let node = match prefix.to_string().parse::<NodeId>() {
            // Whoever knows all of it need not be believed that it was ever there.
            Ok(node) if kind == PutOutKind::Revoked => node,
            _ => {
                let members = self.membership.members().map(|(node, _)| node);
                let all: BTreeSet<NodeId> = self.trust.keys.keys().copied().chain(members).collect();
                only(all.into_iter(), prefix, "node", "aktis list nodes")?
            }
        };
        if self.trust.put_out.len() >= PUT_OUT_MAX && !self.trust.put_out.contains_key(&node) {
            return Err(TrustError::TooManyPutOut);
        }
        let before = self.trust.put_out.get(&node);
        // One that was revoked stays so.
        let was_revoked = before.is_some_and(|before| before.kind == PutOutKind::Revoked);
        let kind = if was_revoked { PutOutKind::Revoked } else { kind };
        let forgotten_unix_seconds =
            (kind == PutOutKind::Expelled).then(|| unix_seconds.saturating_add(lifetime_seconds));
        let known = self.trust.keys.get(&node).map(|(key, _)| *key);
        let key = known.or(before.and_then(|before| before.key));
        let row = PutOut { node, key, unix_seconds, kind, forgotten_unix_seconds };
        let event = match kind {
            PutOutKind::Expelled => EventKind::Expelled,
            PutOutKind::Revoked => EventKind::Revoked,
        };
        out.push(HeadEffect::Write(HeadWrite::PutOut { row: row.clone() }));
        out.push(note(node.into(), event, "its links are closed, and its certificate is refused".to_owned()));
        self.trust.put_out.insert(node, row);
        self.end_memberships(now, node, key, kind, out);
        Ok(node)
    }

    /// Ends the membership of a node that is put out, and that of any other with the same key.
    fn end_memberships(
        &mut self,
        now: Time,
        node: NodeId,
        key: Option<PublicKey>,
        kind: PutOutKind,
        out: &mut Effects<HeadEffect>,
    ) {
        let has_key = |other: &NodeId| {
            let known = self.trust.keys.get(other).map(|(key, _)| *key);
            *other == node || known.is_some() && known == key
        };
        let members = self.membership.members().filter(|(other, _)| has_key(other));
        for (node, epoch) in members.collect::<Vec<_>>() {
            if let Some(link) = self.members.link_of(node) {
                self.dismiss(link, kind, out);
            }
            if self.membership.on_left(node, epoch) {
                self.on_left(now, node, epoch, Departure::PutOut(kind), out);
            }
        }
    }

    /// Tells a node that was put out, and closes its link.
    fn dismiss(&self, link: LinkId, kind: PutOutKind, out: &mut Effects<HeadEffect>) {
        let why = format!("this node was {} from its cluster", kind.word());
        out.push(HeadEffect::Send { link, message: FromControl::Dismissed { why: why.clone() } });
        out.push(HeadEffect::Close { link, why });
    }

    /// A node asks to be a member: whether it was put out, and has been told so.
    pub(super) fn is_dismissed(
        &mut self,
        now: Time,
        (node, key): (NodeId, PublicKey),
        link: LinkId,
        out: &mut Effects<HeadEffect>,
    ) -> bool {
        let Some((row, kind)) = self.trust.put_out_as(node, key) else { return false };
        self.dismiss(link, kind, out);
        let noted = self.trust.noted_at.get(&row).copied();
        if noted.is_none_or(|at| now.0 >= at.0 + NOTED_AGAIN_MICROSECONDS) {
            self.trust.noted_at.insert(row, now);
            let text = format!("it was {}, and asked to be a member", kind.word());
            out.push(note(node.into(), EventKind::Refused, text));
        }
        true
    }

    /// A machine that was a node before gets a certificate for another id when the effects are on disk, if this says so.
    pub fn on_returned(&mut self, returning: Returning, out: &mut Effects<HeadEffect>) -> Result<(), String> {
        let Returning { before, shown, wanted, node, address } = returning;
        if shown != wanted {
            return Err(OTHER_KEY.to_owned());
        }
        if let Some((_, kind)) = self.trust.put_out_as(before, shown) {
            return Err(format!("node {before} was {} from this cluster", kind.word()));
        }
        out.push(note(
            node.into(),
            EventKind::Returned,
            format!("node {before} has come back so, at {address}"),
        ));
        Ok(())
    }
}

fn subject_text(token: TokenId) -> String {
    format!("token {token}")
}
