//! Saved states: words of 64 bits behind a header that says of what they are.

use crate::error::Error;

/// Changes whenever the meaning of the words does.
const VERSION: u8 = 1;
const MAGIC: &[u8] = b"aktis-simulate\0";
const HINT: &str = "pass what `state` of the same environments returned, in the same version of aktis";

/// Writes a state.
pub(crate) struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    pub(crate) fn new(id: &str, count: usize) -> Self {
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.extend((id.len() as u32).to_le_bytes());
        bytes.extend(id.as_bytes());
        bytes.extend((count as u64).to_le_bytes());
        Self { bytes }
    }

    pub(crate) fn word(&mut self, word: u64) {
        self.bytes.extend(word.to_le_bytes());
    }

    pub(crate) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads a state whose header and length have been checked.
pub(crate) struct Reader<'a> {
    words: std::slice::ChunksExact<'a, u8>,
}

impl<'a> Reader<'a> {
    /// The words of a state of `count` environments called `id`, of which there must be `words`.
    pub(crate) fn new(bytes: &'a [u8], id: &str, count: usize, words: usize) -> Result<Self, Error> {
        let refuse = |problem: String| Err(Error::State { problem, hint: HINT });
        let Some(rest) = bytes.strip_prefix(MAGIC) else {
            return refuse("they do not begin as one".to_owned());
        };
        let Some((version, rest)) = rest.split_first() else {
            return refuse("they end too early".to_owned());
        };
        if *version != VERSION {
            return refuse(format!("they have version {version}, and this is version {VERSION}"));
        }
        let Some((length, rest)) = rest.split_first_chunk::<4>() else {
            return refuse("they end too early".to_owned());
        };
        let length = u32::from_le_bytes(*length) as usize;
        let Some((name, rest)) = rest.split_at_checked(length) else {
            return refuse("they end too early".to_owned());
        };
        if name != id.as_bytes() {
            let name = String::from_utf8_lossy(name).into_owned();
            return refuse(format!("they are of {name}, and these are {id}"));
        }
        let Some((saved_count, rest)) = rest.split_first_chunk::<8>() else {
            return refuse("they end too early".to_owned());
        };
        let saved_count = u64::from_le_bytes(*saved_count);
        if saved_count != count as u64 {
            return refuse(format!("they are of {saved_count} environments, and these are {count}"));
        }
        if rest.len() != words * 8 {
            return refuse(format!("{} bytes follow the header, and {} should", rest.len(), words * 8));
        }
        Ok(Self { words: rest.chunks_exact(8) })
    }

    pub(crate) fn word(&mut self) -> u64 {
        let bytes = self.words.next().and_then(|bytes| bytes.first_chunk::<8>());
        u64::from_le_bytes(*bytes.expect("the length was checked"))
    }
}
