//! The first item of a call's arguments: what to call, and which of the other items have names.
//!
//! ```text
//! flags | function's object id, 16 bytes | returns u32 | calls of a process u32 | positional u16 | named u16
//!       | name | types to retry on | assigned resources | names of the named arguments
//! ```
//! The last line is of texts: a length as u16, and bytes. The name is a method's, or what people call a task if not by
//! its function's name.

use aktis_protocol::{Amount, Failure, FailureKind, GroupId, GroupPlace, ObjectId, Resources};

/// What the flags say.
pub(crate) mod flags {
    /// Any exception is worth another attempt.
    pub(crate) const RETRY_ANY: u8 = 1;
    /// Exceptions of the types in the retry text are worth another attempt.
    pub(crate) const RETRY_SOME: u8 = 2;
    /// The result is a generator whose items become objects, and whose references are the value.
    pub(crate) const DYNAMIC: u8 = 4;
    /// The result is a generator, which runs on after the function has returned it.
    pub(crate) const STREAM: u8 = 8;
}

/// The head of a call.
pub(crate) struct Head<'a> {
    pub(crate) flags: u8,
    pub(crate) function: ObjectId,
    pub(crate) returns: u32,
    /// After so many calls of the function its process ends; never if it is 0.
    pub(crate) max_calls: u32,
    pub(crate) positional: u16,
    pub(crate) named: u16,
    /// The method, or another name for people to see.
    pub(crate) name: &'a str,
    /// A pickled tuple of exception types.
    pub(crate) retry: &'a [u8],
    /// What it may use, if that is not the usual; see [`assigned_text`].
    pub(crate) assigned: &'a [u8],
    rest: &'a [u8],
}

/// Bytes of a head without texts, as the first argument of a call.
pub(crate) const FIXED_BYTES: usize = 6 + 29 + 3 * 2;
/// Bytes of an argument that is a number.
pub(crate) const SMALL_ARGUMENT_BYTES: usize = 6 + 9;

/// Writes the head of a call, all but the names of arguments.
pub(crate) fn write(
    out: &mut Vec<u8>,
    flags: u8,
    function: [u64; 2],
    numbers: [u32; 2],
    counts: (usize, usize),
    name: &str,
    texts: [&[u8]; 2],
) {
    out.push(flags);
    out.extend_from_slice(&function[0].to_le_bytes());
    out.extend_from_slice(&function[1].to_le_bytes());
    numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    out.extend_from_slice(&(counts.0 as u16).to_le_bytes());
    out.extend_from_slice(&(counts.1 as u16).to_le_bytes());
    write_text(out, name.as_bytes());
    texts.iter().for_each(|text| write_text(out, text));
}

/// A group and resources as a text: whether there is a group, the group and the bundle; of each resource its name and
/// its amount.
pub(crate) fn assigned_text(resources: &Resources, group: Option<GroupPlace>) -> Vec<u8> {
    let mut out = vec![u8::from(group.is_some())];
    if let Some(place) = group {
        out.extend(place.group.to_words().iter().flat_map(|word| word.to_le_bytes()));
        out.extend_from_slice(&place.bundle.map_or(-1, i64::from).to_le_bytes());
    }
    for (name, amount) in resources.iter() {
        write_text(&mut out, name.as_bytes());
        out.extend_from_slice(&amount.0.to_le_bytes());
    }
    out
}

/// Reads what [`assigned_text`] wrote: the group and its bundle, and the resources.
pub(crate) fn read_assigned(mut bytes: &[u8]) -> (Option<(GroupId, i64)>, Resources) {
    let mut resources = Resources::none();
    let group = match take(&mut bytes) {
        Some([1]) => read_group(&mut bytes),
        _ => None,
    };
    while let (Some(name), Some(amount)) = (take_text(&mut bytes), take(&mut bytes)) {
        resources.set(&String::from_utf8_lossy(name), Amount(u64::from_le_bytes(amount)));
    }
    (group, resources)
}

fn read_group(bytes: &mut &[u8]) -> Option<(GroupId, i64)> {
    let words = [u64::from_le_bytes(take(bytes)?), u64::from_le_bytes(take(bytes)?)];
    Some((GroupId::from_words(words), i64::from_le_bytes(take(bytes)?)))
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
        let max_calls = u32::from_le_bytes(take(&mut bytes)?);
        let positional = u16::from_le_bytes(take(&mut bytes)?);
        let named = u16::from_le_bytes(take(&mut bytes)?);
        let name = std::str::from_utf8(take_text(&mut bytes)?).ok()?;
        let retry = take_text(&mut bytes)?;
        let assigned = take_text(&mut bytes)?;
        let function = ObjectId::from_words(words);
        Some(Self {
            flags,
            function,
            returns,
            max_calls,
            positional,
            named,
            name,
            retry,
            assigned,
            rest: bytes,
        })
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
