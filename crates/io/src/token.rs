//! Join tokens: text that lets a machine into a cluster until it expires.
//!
//! A token is `aktis1.` and 80 bytes in URL-safe base 64: the fingerprint of the authority's certificate, by which
//! the joining machine knows the head; and the secret, by which the head knows that the machine may join: when it
//! expires, a nonce, which is its id, and an HMAC of both with a key that only the head has.

use crate::identity::{Fingerprint, random_word};
use aktis_protocol::trust::TokenId;
use ring::hmac;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PREFIX: &str = "aktis1.";
const FINGERPRINT_BYTES: usize = 32;
const CODE_BYTES: usize = 32;
const TOKEN_BYTES: usize = FINGERPRINT_BYTES + 8 + 8 + CODE_BYTES;

/// Why the head does not let somebody in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenRefused {
    /// It was good once.
    #[error("expired")]
    Expired,
    /// It is not a token of this cluster.
    #[error("wrong token")]
    Wrong,
    /// As many machines have joined with it as may.
    #[error("used up")]
    UsedUp,
    /// Somebody in charge has revoked it.
    #[error("revoked")]
    Revoked,
    /// The head has made it, and knows nothing of it any more.
    #[error("revoked or used up some time ago")]
    Forgotten,
}

/// The text is not a join token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a join token\nhint: copy it whole; `aktis start --head` prints one, and it begins with `{PREFIX}`"
)]
pub struct ParseTokenError;

/// What a machine needs to know to join a cluster. Its text is a secret until it expires.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Token {
    pub(crate) fingerprint: Fingerprint,
    pub(crate) secret: Secret,
}

impl Token {
    /// What it is called when it is spoken of. That is no secret.
    pub fn id(&self) -> TokenId {
        self.secret.id()
    }

    /// When it expires.
    pub fn expires(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(self.secret.expires_seconds)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?}, expires {:?})", self.fingerprint, self.expires())
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut bytes = Vec::with_capacity(TOKEN_BYTES);
        bytes.extend_from_slice(&self.fingerprint.0);
        bytes.extend_from_slice(&self.secret.signed_bytes());
        bytes.extend_from_slice(&self.secret.code);
        write!(f, "{PREFIX}{}", encode(&bytes))
    }
}

impl FromStr for Token {
    type Err = ParseTokenError;

    fn from_str(text: &str) -> Result<Self, ParseTokenError> {
        let bytes = text.trim().strip_prefix(PREFIX).and_then(decode).ok_or(ParseTokenError)?;
        let bytes: [u8; TOKEN_BYTES] = bytes.try_into().map_err(|_| ParseTokenError)?;
        let (fingerprint, rest) = bytes.split_first_chunk().ok_or(ParseTokenError)?;
        let (expires, rest) = rest.split_first_chunk().ok_or(ParseTokenError)?;
        let (nonce, rest) = rest.split_first_chunk().ok_or(ParseTokenError)?;
        let code = rest.try_into().map_err(|_| ParseTokenError)?;
        let secret =
            Secret { expires_seconds: u64::from_be_bytes(*expires), nonce: u64::from_be_bytes(*nonce), code };
        Ok(Self { fingerprint: Fingerprint(*fingerprint), secret })
    }
}

/// The part of a token that is shown to the head.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Secret {
    expires_seconds: u64,
    nonce: u64,
    code: [u8; CODE_BYTES],
}

impl Secret {
    pub(crate) fn new(key: &hmac::Key, expires: SystemTime) -> Self {
        let expires_seconds = seconds(expires);
        let mut secret = Self { expires_seconds, nonce: random_word(), code: [0; CODE_BYTES] };
        let code = hmac::sign(key, &secret.signed_bytes());
        secret.code.copy_from_slice(code.as_ref());
        secret
    }

    pub(crate) fn id(&self) -> TokenId {
        TokenId(self.nonce)
    }

    /// Compares in constant time. Whether a token has expired is said only of those that were good.
    pub(crate) fn check(&self, key: &hmac::Key, now: SystemTime) -> Result<(), TokenRefused> {
        hmac::verify(key, &self.signed_bytes(), &self.code).map_err(|_| TokenRefused::Wrong)?;
        if seconds(now) < self.expires_seconds { Ok(()) } else { Err(TokenRefused::Expired) }
    }

    fn signed_bytes(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.expires_seconds.to_be_bytes());
        bytes[8..].copy_from_slice(&self.nonce.to_be_bytes());
        bytes
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// URL-safe base 64 without padding.
fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for digit in 0..=group.len() {
            text.push(ALPHABET[(bits >> (18 - 6 * digit)) as usize & 63].into());
        }
    }
    text
}

/// The bytes of such text, if it is the text that [`encode`] makes of them.
fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in text.as_bytes().chunks(4) {
        let mut bits = 0_u32;
        for (digit, letter) in group.iter().enumerate() {
            let value = ALPHABET.iter().position(|known| known == letter)?;
            bits |= (value as u32) << (18 - 6 * digit);
        }
        bytes.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
    }
    (encode(&bytes) == text).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn base_64_is_read_as_it_is_written(bytes in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn text_that_is_no_token_is_refused(text in ".{0,200}") {
            prop_assert_eq!(text.parse::<Token>(), Err(ParseTokenError));
            let _ = decode(&text);
        }
    }

    #[test]
    fn base_64_is_that_of_others() {
        assert_eq!(encode(b"\xfb\xff\xfeany carnal pleas"), "-__-YW55IGNhcm5hbCBwbGVhcw");
        assert_eq!(decode("A"), None);
        assert_eq!(decode("AB=="), None);
    }

    #[test]
    fn a_secret_is_good_until_it_expires_and_for_its_key_only() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &[1; 32]);
        let other = hmac::Key::new(hmac::HMAC_SHA256, &[2; 32]);
        let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
        let secret = Secret::new(&key, at(1000));
        assert_eq!(secret.check(&key, at(999)), Ok(()));
        assert_eq!(secret.check(&key, at(1000)), Err(TokenRefused::Expired));
        assert_eq!(secret.check(&other, at(999)), Err(TokenRefused::Wrong));
        let longer = Secret { expires_seconds: 5000, ..secret };
        assert_eq!(longer.check(&key, at(999)), Err(TokenRefused::Wrong));
        assert_eq!(longer.check(&key, at(9999)), Err(TokenRefused::Wrong), "only good ones expire");
    }
}
