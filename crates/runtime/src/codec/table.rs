//! The table of a value with attachments: where its parts lie.

use aktis_protocol::peer::Inside;
use aktis_protocol::{ActorId, ObjectId};
use std::ops::Range;

/// The bit of the flags that says that there is a table.
pub(super) const ATTACHED: u8 = 0x80;
/// Buffers start at multiples of this, from the start of the value.
pub(super) const ALIGNMENT: usize = 64;

const HEADER_BYTES: usize = 24;
const ENTRY_BYTES: usize = 16;

/// Counts and sizes; all offsets follow from them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    pub(super) buffers: u32,
    pub(super) objects: u32,
    pub(super) actors: u32,
    pub(super) postcard_bytes: u64,
}

impl Table {
    /// The table of a value, if it has one; an error if the value is too short for it.
    pub(super) fn of(value: &[u8]) -> Result<Option<Self>, String> {
        let Some(flags) = value.first() else {
            return Err("there are no bytes at all".to_owned());
        };
        if flags & ATTACHED == 0 {
            return Ok(None);
        }
        let table = Self::read(value).filter(|table| table.tail_start() <= value.len() as u64);
        table.map(Some).ok_or_else(|| "its table of attachments is cut off".to_owned())
    }

    fn read(value: &[u8]) -> Option<Self> {
        let header = value.get(..HEADER_BYTES)?;
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let postcard_bytes = u64::from(word(16)) | u64::from(word(20)) << 32;
        // Such a size cannot be real, and would overflow the sums below.
        let real = postcard_bytes < 1 << 62;
        real.then(|| Self { buffers: word(4), objects: word(8), actors: word(12), postcard_bytes })
    }

    /// Writes the header at the start of `value`; `head` is its flags, and its mark if it has one.
    pub(super) fn write(&self, head: &[u8], value: &mut [u8]) {
        value[..4].fill(0);
        value[..head.len()].copy_from_slice(head);
        value[0] |= ATTACHED;
        value[4..8].copy_from_slice(&self.buffers.to_le_bytes());
        value[8..12].copy_from_slice(&self.objects.to_le_bytes());
        value[12..16].copy_from_slice(&self.actors.to_le_bytes());
        value[16..24].copy_from_slice(&self.postcard_bytes.to_le_bytes());
    }

    /// Whether references to objects or actors are inside.
    pub(super) fn contains(&self) -> bool {
        self.objects > 0 || self.actors > 0
    }

    /// Where the entry of object number `index` is.
    pub(super) fn object_at(&self, index: u32) -> Range<usize> {
        entry(u64::from(index))
    }

    /// Where the entry of actor number `index` is.
    pub(super) fn actor_at(&self, index: u32) -> Range<usize> {
        entry(u64::from(self.objects) + u64::from(index))
    }

    /// Where the entry of buffer number `index` is.
    pub(super) fn buffer_at(&self, index: u32) -> Range<usize> {
        entry(u64::from(self.objects) + u64::from(self.actors) + u64::from(index))
    }

    /// Where the postcard bytes are.
    pub(super) fn postcard_at(&self) -> Range<usize> {
        (self.tail_start() - self.postcard_bytes) as usize..self.tail_start() as usize
    }

    /// Where everything but the buffers ends.
    fn tail_start(&self) -> u64 {
        let entries = u64::from(self.objects) + u64::from(self.actors) + u64::from(self.buffers);
        HEADER_BYTES as u64 + entries * ENTRY_BYTES as u64 + self.postcard_bytes
    }

    /// The id of object number `index` of this value.
    pub(super) fn object(&self, value: &[u8], index: u32) -> Option<ObjectId> {
        let words = (index < self.objects).then(|| words(value, self.object_at(index)))?;
        Some(ObjectId::from_words(words))
    }

    /// The id of actor number `index` of this value.
    pub(super) fn actor(&self, value: &[u8], index: u32) -> Option<ActorId> {
        let words = (index < self.actors).then(|| words(value, self.actor_at(index)))?;
        Some(ActorId::from_words(words))
    }

    /// Where buffer number `index` of this value is, as the value says: it may be wrong.
    pub(super) fn buffer(&self, value: &[u8], index: u32) -> Option<Range<usize>> {
        let [offset, bytes] = (index < self.buffers).then(|| words(value, self.buffer_at(index)))?;
        Some(offset as usize..offset.checked_add(bytes)? as usize)
    }
}

fn entry(number: u64) -> Range<usize> {
    let start = HEADER_BYTES + number as usize * ENTRY_BYTES;
    start..start + ENTRY_BYTES
}

fn words(value: &[u8], at: Range<usize>) -> [u64; 2] {
    let half = |start: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&value[start..start + 8]);
        u64::from_le_bytes(word)
    };
    [half(at.start), half(at.start + 8)]
}

/// Writes two words into an entry.
pub(super) fn write_words(value: &mut [u8], at: Range<usize>, words: [u64; 2]) {
    value[at.start..at.start + 8].copy_from_slice(&words[0].to_le_bytes());
    value[at.start + 8..at.end].copy_from_slice(&words[1].to_le_bytes());
}

/// The references inside an encoded value.
pub(crate) fn inside(value: &[u8]) -> Result<Inside, String> {
    let Some(table) = Table::of(value)? else { return Ok(Inside::default()) };
    let objects = (0..table.objects).map_while(|index| table.object(value, index)).collect();
    let actors = (0..table.actors).map_while(|index| table.actor(value, index)).collect();
    Ok(Inside { objects, actors })
}
