//! Who is let in, as the control process decides it: the door through which machines join, and what the command line asks.
//!
//! Invariant: a certificate is given, and a command is answered, after the [`Head`](aktis_logic::machine::head::Head) has
//! decided, and what it has decided is on disk.

use super::renewal::OwnCertificate;
use super::{Shared, renewal, rotation};
use crate::admin::Refusal;
use aktis_io::{Admission, Authority, Newcomer, Refusal as Turned, Token, TokenRefused};
use aktis_logic::machine::head::{NotLetIn, TokenShown, TrustError};
use aktis_protocol::admin::JoinToken;
use aktis_protocol::trust::{TokenRow, TokenState, TrustReply, TrustRequest};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How long the disk may take.
const DISK_PATIENCE: Duration = Duration::from_secs(20);

/// Why something about trust was not done.
#[derive(Clone, Debug, thiserror::Error)]
pub(super) enum TrustFailure {
    /// The head does not want it.
    #[error(transparent)]
    Head(#[from] TrustError),
    /// It cannot be kept.
    #[error("the control process cannot write it down\nhint: is its disk full? its log says more")]
    Disk,
}

impl From<TrustFailure> for Refusal {
    fn from(failure: TrustFailure) -> Self {
        let text = failure.to_string();
        match text.split_once("\nhint: ") {
            Some((message, hint)) => Self::new(message).with_hint(hint),
            None => Self::new(text),
        }
    }
}

/// Waits until what was decided is on disk.
pub(super) fn wait_for(written: &Receiver<()>) -> Result<(), TrustFailure> {
    written.recv_timeout(DISK_PATIENCE).map_err(|_| TrustFailure::Disk)
}

pub(super) fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The door of a control process. It is there before the process, whose endpoint it is part of.
#[derive(Default)]
pub(super) struct Doorkeeper(OnceLock<Weak<Shared>>);

impl Doorkeeper {
    pub(super) fn set(&self, shared: &Arc<Shared>) {
        let _ = self.0.set(Arc::downgrade(shared));
    }
}

impl Admission for Doorkeeper {
    fn admit(&self, newcomer: &Newcomer) -> Result<(), Turned> {
        let shared = self.0.get().and_then(Weak::upgrade);
        let shared = shared.ok_or_else(|| Turned::Busy("the control process starts or ends".to_owned()))?;
        let Newcomer { token, node, public_key: key, address, .. } = *newcomer;
        let shown = TokenShown { token, node, key, address: address.to_string() };
        let (outcome, written) =
            shared.decide(|head, _, out| head.on_token_shown(unix_seconds(), shown, out));
        outcome.map_err(turned)?;
        wait_for(&written).map_err(|failure| Turned::Busy(failure.to_string()))
    }
}

fn turned(why: NotLetIn) -> Turned {
    match why {
        NotLetIn::Token(TokenState::Expired) => Turned::Token(TokenRefused::Expired),
        NotLetIn::Token(TokenState::UsedUp) => Turned::Token(TokenRefused::UsedUp),
        NotLetIn::Token(TokenState::Revoked) => Turned::Token(TokenRefused::Revoked),
        NotLetIn::Forgotten => Turned::Token(TokenRefused::Forgotten),
        NotLetIn::Token(TokenState::Good) | NotLetIn::PutOut(_) => Turned::Other(why.to_string()),
    }
}

/// Makes a token, which is good when this returns.
pub(super) fn make_token(
    shared: &Shared,
    authority: &Authority,
    lifetime: Duration,
    uses_max: Option<u32>,
) -> Result<Token, TrustFailure> {
    let token = authority.token(lifetime);
    let expires = token.expires().duration_since(UNIX_EPOCH).unwrap_or_default();
    let made_unix_seconds = unix_seconds();
    let row = TokenRow {
        id: token.id(),
        made_unix_seconds,
        expires_unix_seconds: expires.as_secs(),
        uses_max,
        uses: 0,
        is_revoked: false,
    };
    let ((), written) = shared.decide(|head, _, out| head.on_token_made(made_unix_seconds, row, out));
    wait_for(&written)?;
    Ok(token)
}

/// Makes another key for tokens; gives how many tokens were good until now.
pub(super) fn rotate_tokens(shared: &Shared, authority: &Authority, place: &Path) -> Result<u32, Refusal> {
    // The key first: if this process ends in between, the tokens on record are good for nothing.
    authority.rotate_token_key(place).map_err(|error| Refusal::new(error.to_string()))?;
    let (count, written) = shared.decide(|head, _, out| head.on_tokens_rotated(unix_seconds(), out));
    wait_for(&written)?;
    Ok(count)
}

/// Answers the command line.
pub(super) fn answer(
    shared: &Shared,
    (own, place): (&OwnCertificate, &Path),
    address: SocketAddr,
    request: TrustRequest,
) -> Result<TrustReply, Refusal> {
    let authority = &*own.authority;
    Ok(match request {
        TrustRequest::MakeToken { lifetime_seconds, uses_max } => {
            let lifetime = Duration::from_secs(lifetime_seconds);
            let token = make_token(shared, authority, lifetime, uses_max)?;
            let expires = token.expires().duration_since(UNIX_EPOCH).unwrap_or_default();
            TrustReply::Token(JoinToken {
                token: token.to_string(),
                address: address.to_string(),
                expires_unix_seconds: expires.as_secs(),
                id: token.id(),
                uses_max,
            })
        }
        TrustRequest::Tokens => {
            TrustReply::Tokens { rows: shared.shell.lock().tokens(), unix_seconds: unix_seconds() }
        }
        TrustRequest::RevokeToken(prefix) => {
            let (outcome, written) = shared.decide(|head, _, out| head.on_token_revoked(&prefix, out));
            let id = outcome.map_err(TrustFailure::from)?;
            wait_for(&written)?;
            TrustReply::Revoked(id)
        }
        TrustRequest::RotateTokens => TrustReply::Rotated(rotate_tokens(shared, authority, place)?),
        TrustRequest::RotateAuthority => TrustReply::AuthorityRotated(rotation::rotate(shared, own, place)?),
        TrustRequest::PutOut { node, kind } => {
            let times = (unix_seconds(), renewal::expired_after(authority.lifetime()).as_secs());
            let (outcome, written) =
                shared.decide(|head, now, out| head.on_put_out(now, times, &node, kind, out));
            let node = outcome.map_err(TrustFailure::from)?;
            wait_for(&written)?;
            TrustReply::PutOut(node)
        }
        TrustRequest::Audit { since_unix_milliseconds, limit } => {
            let events = shared.shell.lock().ask_events(limit);
            let mut events = events.recv_timeout(DISK_PATIENCE).map_err(|_| TrustFailure::Disk)?;
            let since = since_unix_milliseconds.unwrap_or(0).saturating_mul(1000);
            events.retain(|event| event.at_microseconds >= since);
            TrustReply::Events(events)
        }
    })
}
