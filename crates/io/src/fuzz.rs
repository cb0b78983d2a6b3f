//! What strangers can reach, for fuzzers: each takes any bytes, and must neither panic nor want much memory.
//!
//! Also part of the tests, on mutations of good inputs: see `tests` below, and `fuzz/` for a real fuzzer.

use crate::bulk::{Answer, Request};
use crate::frame::{self, HEADER_BYTES};
use crate::hello::{Hello, JoinAnswer, Refusal, Welcome};
use crate::token::Token;
use aktis_protocol::limits;

/// Frames, one after the other, as a link reads them.
pub fn frames(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some(frame)) = frame::parse(rest, limits::FRAME_BYTES_MAX) {
        assert!(frame.bytes() >= HEADER_BYTES && frame.bytes() <= rest.len());
        rest = &rest[frame.bytes()..];
    }
}

/// A hello; what is read is written as it was.
pub fn hello(bytes: &[u8]) {
    if let Ok(hello) = Hello::decode(bytes) {
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
    }
}

/// All that comes back after a hello or a request.
pub fn answers(bytes: &[u8]) {
    assert!(Refusal::decode(bytes).to_string().len() <= 3 * limits::STRANGER_FRAME_BYTES_MAX);
    let _ = Welcome::decode(bytes);
    let _ = postcard::from_bytes::<JoinAnswer>(bytes);
    let _ = postcard::from_bytes::<Answer>(bytes);
    let _ = postcard::from_bytes::<Request>(bytes);
}

/// The text of a join token.
pub fn token(bytes: &[u8]) {
    if let Some(token) = std::str::from_utf8(bytes).ok().and_then(|text| text.parse::<Token>().ok()) {
        assert_eq!(token.to_string().parse(), Ok(token));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authority::Authority;
    use crate::frame::Kind;
    use crate::hello::{JoinRequest, LinkId};
    use crate::identity::{Role, random_node_id};
    use aktis_protocol::fuzz::run;
    use std::time::Duration;

    /// Inputs of one run: some tens of milliseconds each ten thousand.
    const INPUTS: usize = 120_000;

    fn good_inputs() -> Vec<Vec<u8>> {
        let directory = tempfile::tempdir().expect("a directory");
        let authority = Authority::create(&directory.path().join("cluster")).expect("an authority");
        let token = authority.token(Duration::from_secs(60));
        let (link, node) = (LinkId::random(), random_node_id());
        let join = JoinRequest { secret: token.secret, role: Role::Node, public_key: [7; 32] };
        let hellos = [
            Hello::Open { link, greeting: vec![5; 40] },
            Hello::Resume { link, attempt: 300, received: 1 << 40 },
            Hello::Bulk,
            Hello::Join(join),
        ];
        let mut inputs: Vec<_> = hellos.iter().map(Hello::encode).collect();
        let mut frames = Vec::new();
        for (kind, payload) in
            [(Kind::Data, &[1; 50][..]), (Kind::Acknowledged, &[0; 8]), (Kind::Closed, b"why")]
        {
            frame::append(kind, payload, &mut frames);
        }
        let answer = JoinAnswer { certificate: vec![1; 300], authorities: vec![vec![2; 300]], head: node };
        inputs.extend([
            frames,
            token.to_string().into_bytes(),
            Refusal::Other("because".to_owned()).encode(),
            postcard::to_stdvec(&answer).expect("it can be encoded"),
            postcard::to_stdvec(&Answer::Unknown("gone".to_owned())).expect("it can be encoded"),
        ]);
        inputs
    }

    #[test]
    fn nothing_that_strangers_send_does_harm() {
        run(&good_inputs(), INPUTS, |input| {
            for target in [frames, hello, answers, token] {
                target(input);
            }
        });
    }
}
