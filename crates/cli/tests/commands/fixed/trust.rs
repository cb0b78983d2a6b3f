//! What it answers about who is let in.

use super::HEAD;
use aktis_protocol::admin::JoinToken;
use aktis_protocol::tables::{Event, EventKind, Key};
use aktis_protocol::trust::{TokenId, TokenRow, TrustReply, TrustRequest};

const MADE: u64 = 1_790_000_000;
const HOUR: u64 = 3600;

/// The answer, with this in the place of every text that others choose.
pub(super) fn answer(request: TrustRequest, text: &str) -> TrustReply {
    match request {
        TrustRequest::MakeToken { uses_max, .. } => TrustReply::Token(JoinToken {
            token: text.to_owned(),
            address: "10.0.0.1:6380".into(),
            expires_unix_seconds: 1_800_000_000,
            id: TokenId(0x0123_4567_89ab_cdef),
            uses_max,
        }),
        TrustRequest::Tokens => TrustReply::Tokens { rows: tokens(), unix_seconds: MADE + HOUR },
        TrustRequest::RevokeToken(_) => TrustReply::Revoked(TokenId(0x0123_4567_89ab_cdef)),
        TrustRequest::RotateTokens => TrustReply::Rotated(3),
        TrustRequest::RotateAuthority => TrustReply::AuthorityRotated(3),
        TrustRequest::PutOut { .. } => TrustReply::PutOut(super::MEMBER),
        TrustRequest::Audit { .. } => TrustReply::Events(events(text)),
    }
}

fn tokens() -> Vec<TokenRow> {
    let row = |id, uses_max, uses, is_revoked, hours| TokenRow {
        id: TokenId(id),
        made_unix_seconds: MADE,
        expires_unix_seconds: MADE + hours * HOUR,
        uses_max,
        uses,
        is_revoked,
    };
    vec![
        row(0x0123_4567_89ab_cdef, None, 3, false, 24),
        row(0x1111_1111_1111_1111, Some(1), 1, false, 24),
        row(0x2222_2222_2222_2222, Some(5), 2, true, 24),
        row(0x3333_3333_3333_3333, Some(5), 0, false, 1),
    ]
}

fn events(text: &str) -> Vec<Event> {
    let event = |seconds, subject: Key, kind, text: String| Event {
        at_microseconds: (MADE + seconds) * 1_000_000 + 250_000,
        subject,
        kind,
        text,
    };
    vec![
        event(0, HEAD.into(), EventKind::Started, "the control process has started".into()),
        event(1, "token 0123456789abcdef".into(), EventKind::TokenMade, "it is good for 3600 s".into()),
        event(2, HEAD.into(), EventKind::Attached, format!("job 00000000000000ff, process 7: {text}")),
        event(3, text.into(), EventKind::Refused, format!("refused a connection from 10.0.0.9: {text}")),
    ]
}
