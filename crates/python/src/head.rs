//! The first item of a call's arguments: what to call, and which of the other items have names.
//!
//! ```text
//! task, actor   flags | function's object id, 16 bytes | returns u32 | positional u16 | named u16 | text… | names…
//! method        flags | 16 zero bytes                  | returns u32 | positional u16 | named u16 | method | names…
//! ```
//! A text is its length as u16 and its bytes.

use aktis_protocol::{Failure, FailureKind, ObjectId};

/// What the flags say.
pub(crate) mod flags {
    /// Any exception is worth another attempt.
    pub(crate) const RETRY_ANY: u8 = 1;
    /// Exceptions of the types in the retry text are worth another attempt.
    pub(crate) const RETRY_SOME: u8 = 2;
    /// The result is a generator whose items become objects, and whose references are the value.
    pub(crate) const DYNAMIC: u8 = 4;
}

/// The head of a call.
pub(crate) struct Head<'a> {
    pub(crate) flags: u8,
    pub(crate) function: ObjectId,
    pub(crate) returns: u32,
    pub(crate) positional: u16,
    pub(crate) named: u16,
    /// The method, or another name for people to see.
    pub(crate) name: &'a str,
    /// A pickled tuple of exception types.
    pub(crate) retry: &'a [u8],
    rest: &'a [u8],
}

/// Writes the head of a call, all but the names of arguments.
pub(crate) fn write(
    out: &mut Vec<u8>,
    flags: u8,
    function: [u64; 2],
    returns: u32,
    counts: (usize, usize),
    name: &str,
    retry: &[u8],
) {
    out.push(flags);
    out.extend_from_slice(&function[0].to_le_bytes());
    out.extend_from_slice(&function[1].to_le_bytes());
    out.extend_from_slice(&returns.to_le_bytes());
    out.extend_from_slice(&(counts.0 as u16).to_le_bytes());
    out.extend_from_slice(&(counts.1 as u16).to_le_bytes());
    write_text(out, name.as_bytes());
    write_text(out, retry);
}

/// Writes a text.
pub(crate) fn write_text(out: &mut Vec<u8>, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text);
}

impl<'a> Head<'a> {
    /// Reads the head of a call.
    pub(crate) fn read(bytes: &'a [u8]) -> Result<Self, Failure> {
        Self::parse(bytes).ok_or_else(|| {
            Failure::new(
                FailureKind::Codec,
                "the call was not made by Python\nhint: Rust calls Rust, Python calls Python",
            )
        })
    }

    fn parse(mut bytes: &'a [u8]) -> Option<Self> {
        let [flags] = take(&mut bytes)?;
        let words = [u64::from_le_bytes(take(&mut bytes)?), u64::from_le_bytes(take(&mut bytes)?)];
        let returns = u32::from_le_bytes(take(&mut bytes)?);
        let positional = u16::from_le_bytes(take(&mut bytes)?);
        let named = u16::from_le_bytes(take(&mut bytes)?);
        let name = std::str::from_utf8(take_text(&mut bytes)?).ok()?;
        let retry = take_text(&mut bytes)?;
        let function = ObjectId::from_words(words);
        Some(Self { flags, function, returns, positional, named, name, retry, rest: bytes })
    }

    /// The names of the last arguments, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'a str> {
        let mut rest = self.rest;
        (0..self.named).map_while(move |_| std::str::from_utf8(take_text(&mut rest)?).ok())
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, rest) = bytes.split_first_chunk()?;
    *bytes = rest;
    Some(*taken)
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::from(u16::from_le_bytes(take(bytes)?));
    let (taken, rest) = bytes.split_at_checked(len)?;
    *bytes = rest;
    Some(taken)
}
