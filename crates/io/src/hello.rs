//! The first words on a connection: what the one who dialled wants, and what the other says to it.
//!
//! A hello is a magic number, a protocol version and a body. The first two are the same in all versions, and so is a
//! refusal (a code and a sentence): so both sides can say what is wrong when their versions differ.

use crate::identity::{Role, random_bytes};
use crate::token::{Secret, TokenRefused};
use aktis_protocol::{NodeId, limits};
use serde::{Deserialize, Serialize};

const MAGIC: [u8; 8] = *b"aktis\r\n\0";

/// Bytes of the sentence in a refusal; the rest is cut.
const REASON_BYTES_MAX: usize = 1000;

/// One link, from its first connection to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct LinkId(u128);

impl LinkId {
    pub(crate) fn random() -> Self {
        Self(u128::from_le_bytes(random_bytes()))
    }
}

/// What the one who dialled wants.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Hello {
    /// A new link.
    Open {
        /// Its name from now on.
        link: LinkId,
        /// What the users of the link say to each other first.
        greeting: Vec<u8>,
    },
    /// Another connection for a link whose last one has failed.
    Resume {
        /// The link.
        link: LinkId,
        /// Counts the connections of the link: later ones replace earlier ones, never the other way round.
        attempt: u32,
        /// How many data frames have arrived here.
        received: u64,
    },
    /// Parts of objects.
    Bulk,
    /// A certificate.
    Join(JoinRequest),
}

/// What a machine says that wants to be a node, or a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinRequest {
    pub(crate) secret: Secret,
    pub(crate) role: Role,
    pub(crate) public_key: [u8; 32],
}

/// What it gets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct JoinAnswer {
    pub(crate) certificate: Vec<u8>,
    /// The authorities to trust, first the one that has signed.
    pub(crate) authorities: Vec<Vec<u8>>,
    pub(crate) head: NodeId,
}

/// The answer to [`Hello::Open`] and [`Hello::Resume`], if it is a yes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Welcome {
    /// How many data frames of the link have arrived there.
    pub(crate) received: u64,
}

/// The bytes are not a hello that this node understands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HelloError {
    /// It is not Aktis that speaks.
    #[error("not an aktis hello")]
    Magic,
    /// It is another version of Aktis.
    #[error(
        "protocol version {theirs} of the peer is not protocol version {ours} of this node\n\
         hint: run the same version of aktis on all machines"
    )]
    Version {
        /// The peer's.
        theirs: u32,
        /// This node's.
        ours: u32,
    },
    /// It is Aktis, but the rest makes no sense.
    #[error("an unreadable hello")]
    Unreadable,
}

impl Hello {
    /// The payload of the frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.encode_as(limits::PROTOCOL_VERSION)
    }

    /// As [`encode`](Self::encode), by a peer of some version.
    pub(crate) fn encode_as(&self, version: u32) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&version.to_le_bytes());
        postcard::to_extend(self, bytes).expect("a hello can be encoded")
    }

    /// Reads the payload of the frame.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, HelloError> {
        let rest = bytes.strip_prefix(&MAGIC).ok_or(HelloError::Magic)?;
        let (version, body) = rest.split_first_chunk().ok_or(HelloError::Unreadable)?;
        let (theirs, ours) = (u32::from_le_bytes(*version), limits::PROTOCOL_VERSION);
        if theirs != ours {
            return Err(HelloError::Version { theirs, ours });
        }
        match postcard::take_from_bytes(body) {
            Ok((Self::Open { greeting, .. }, _)) if greeting.len() > limits::GREETING_BYTES_MAX => {
                Err(HelloError::Unreadable)
            }
            Ok((hello, [])) => Ok(hello),
            _ => Err(HelloError::Unreadable),
        }
    }
}

impl Welcome {
    /// The payload of the frame.
    pub(crate) fn encode(self) -> Vec<u8> {
        postcard::to_stdvec(&self).expect("a welcome can be encoded")
    }

    /// Reads the payload of the frame.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// Why a hello was answered with a no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The sentence says it.
    #[error("refused: {0}")]
    Other(String),
    /// The versions differ; the sentence names both.
    #[error("refused: {0}")]
    Version(String),
    /// The link is over, or the other is not the process that had it.
    #[error("refused: the link is over")]
    UnknownLink,
    /// The join token is not good.
    #[error("refused: {0}")]
    Token(TokenRefused),
    /// There is too much to do at present; the sentence says of what.
    #[error("refused for now: {0}")]
    Busy(String),
}

impl Refusal {
    /// The payload of the frame.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let (code, reason) = match self {
            Self::Other(reason) => (0, reason.as_str()),
            Self::Version(reason) => (1, reason.as_str()),
            Self::UnknownLink => (2, ""),
            Self::Token(TokenRefused::Expired) => (3, ""),
            Self::Token(TokenRefused::Wrong) => (4, ""),
            Self::Busy(reason) => (5, reason.as_str()),
            Self::Token(TokenRefused::UsedUp) => (6, ""),
            Self::Token(TokenRefused::Revoked) => (7, ""),
            Self::Token(TokenRefused::Forgotten) => (8, ""),
        };
        let mut bytes = vec![code];
        bytes.extend_from_slice(&reason.as_bytes()[..reason.len().min(REASON_BYTES_MAX)]);
        bytes
    }

    /// Reads the payload of the frame. Every payload says something: it comes from a peer of any version.
    pub(crate) fn decode(bytes: &[u8]) -> Self {
        let (code, reason) = bytes.split_first().unwrap_or((&0, &[]));
        match code {
            1 => Self::Version(printable(reason)),
            2 => Self::UnknownLink,
            3 => Self::Token(TokenRefused::Expired),
            4 => Self::Token(TokenRefused::Wrong),
            5 => Self::Busy(printable(reason)),
            6 => Self::Token(TokenRefused::UsedUp),
            7 => Self::Token(TokenRefused::Revoked),
            8 => Self::Token(TokenRefused::Forgotten),
            _ => Self::Other(printable(reason)),
        }
    }
}

impl From<HelloError> for Refusal {
    fn from(error: HelloError) -> Self {
        match error {
            HelloError::Version { .. } => Self::Version(error.to_string()),
            _ => Self::Other(error.to_string()),
        }
    }
}

/// What a peer says, safe to print: no more than the limit, and nothing that moves the cursor of a terminal.
pub(crate) fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(REASON_BYTES_MAX)]);
    text.chars().map(|letter| if letter.is_control() && letter != '\n' { ' ' } else { letter }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hello_is_read_as_it_is_written() {
        let link = LinkId::random();
        let hellos = [
            Hello::Open { link, greeting: vec![1, 2] },
            Hello::Resume { link, attempt: 3, received: 4 },
            Hello::Bulk,
        ];
        for hello in hellos {
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        }
    }

    #[test]
    fn another_version_is_told_both() {
        let error = Hello::decode(&Hello::Bulk.encode_as(77)).expect_err("another version");
        let refusal = Refusal::decode(&Refusal::from(error).encode());
        let shown = refusal.to_string();
        assert!(matches!(refusal, Refusal::Version(_)), "{shown}");
        let own = format!("version {} of this", limits::PROTOCOL_VERSION);
        assert!(shown.contains("version 77 of the peer") && shown.contains(&own), "{shown}");
    }

    #[test]
    fn other_bytes_are_refused() {
        assert_eq!(Hello::decode(b"GET / HTTP/1.1\r\n"), Err(HelloError::Magic));
        assert_eq!(Hello::decode(&MAGIC), Err(HelloError::Unreadable));
        let mut longer = Hello::Bulk.encode();
        longer.push(0);
        assert_eq!(Hello::decode(&longer), Err(HelloError::Unreadable));
        let greeting = vec![0; limits::GREETING_BYTES_MAX + 1];
        let hello = Hello::Open { link: LinkId::random(), greeting };
        assert_eq!(Hello::decode(&hello.encode()), Err(HelloError::Unreadable));
    }

    #[test]
    fn a_refusal_cannot_move_the_cursor_and_has_an_end() {
        let reason = format!("\x1b[2J{}", "é".repeat(REASON_BYTES_MAX));
        let Refusal::Other(shown) = Refusal::decode(&Refusal::Other(reason).encode()) else {
            panic!("the code is lost");
        };
        assert!(shown.starts_with(" [2Jé") && shown.len() < REASON_BYTES_MAX + 10, "{shown}");
    }
}
