//! Where the bytes of a stored object lie on the node that has them: in memory, or in the spill file.

/// Set in the word of a place in the file. No memory is so large that an offset in the arena has this bit.
const FILE_BIT: u64 = 1 << 63;

/// The first byte of a stored object.
///
/// The shared index holds it as one word, so that readers find both kinds in the same way:
///
/// ```
/// use aktis_protocol::ExtentPlace;
///
/// assert_eq!(ExtentPlace::Arena(8192).to_word(), 8192);
/// let on_disk = ExtentPlace::File(8192);
/// assert_eq!(ExtentPlace::from_word(on_disk.to_word()), on_disk);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtentPlace {
    /// At this offset of the arena.
    Arena(u64),
    /// At this offset of the spill file, where readers map it.
    File(u64),
}

impl ExtentPlace {
    /// The word that the shared index holds.
    pub fn to_word(self) -> u64 {
        match self {
            Self::Arena(offset) => offset,
            Self::File(offset) => offset | FILE_BIT,
        }
    }

    /// The place that a word of the shared index stands for.
    pub fn from_word(word: u64) -> Self {
        if word & FILE_BIT == 0 { Self::Arena(word) } else { Self::File(word & !FILE_BIT) }
    }
}
