//! Records in a file: length, checksum, bytes. The checksum covers the record's number, so that a record in a wrong
//! place is none.

use aktis_protocol::limits;

/// Bytes before each record.
const HEAD: usize = 8;

/// Appends a record.
pub(super) fn push(buffer: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).expect("records are bounded");
    buffer.extend_from_slice(&length.to_le_bytes());
    buffer.extend_from_slice(&checksum(number, length, bytes).to_le_bytes());
    buffer.extend_from_slice(bytes);
}

fn checksum(number: u64, length: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&number.to_le_bytes());
    hasher.update(&length.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}

/// The records of a file, one after another.
pub(super) struct Frames<'a> {
    bytes: &'a [u8],
    at: usize,
    number: u64,
}

/// No record begins here, and the file does not end here.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Torn {
    /// Where.
    pub(super) at: u64,
}

impl<'a> Frames<'a> {
    /// The records from byte `at` on, the first of which has this number.
    pub(super) fn new(bytes: &'a [u8], at: usize, number: u64) -> Self {
        Self { bytes, at, number }
    }

    /// The next record; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<(u64, &'a [u8])>, Torn> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        if rest.is_empty() {
            return Ok(None);
        }
        let torn = Torn { at: self.at as u64 };
        let Some((head, rest)) = rest.split_first_chunk::<HEAD>() else { return Err(torn) };
        let word =
            |from: usize| u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]]);
        let (length, sum) = (word(0), word(4));
        if length as usize > limits::LOG_RECORD_BYTES_MAX {
            return Err(torn);
        }
        match rest.get(..length as usize) {
            Some(bytes) if checksum(self.number, length, bytes) == sum => {
                self.at += HEAD + bytes.len();
                self.number += 1;
                Ok(Some((self.number - 1, bytes)))
            }
            _ => Err(torn),
        }
    }

    /// The number that the next record has, or would have.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<u8> {
        let mut buffer = Vec::new();
        for (number, text) in [(7, "one"), (8, ""), (9, "three")] {
            push(&mut buffer, number, text.as_bytes());
        }
        buffer
    }

    fn read(bytes: &[u8], first: u64) -> (Vec<Vec<u8>>, Option<u64>) {
        let mut frames = Frames::new(bytes, 0, first);
        let mut found = Vec::new();
        loop {
            match frames.next() {
                Ok(Some((_, bytes))) => found.push(bytes.to_vec()),
                Ok(None) => return (found, None),
                Err(torn) => return (found, Some(torn.at)),
            }
        }
    }

    #[test]
    fn records_come_back() {
        let (found, torn) = read(&three(), 7);
        assert_eq!((found.concat(), found.len(), torn), (b"onethree".to_vec(), 3, None));
        assert_eq!(read(&three(), 8), (vec![], Some(0)), "a record in a wrong place is none");
    }

    #[test]
    fn every_changed_bit_and_every_cut_is_noticed() {
        let whole = three();
        let (records, _) = read(&whole, 7);
        for bit in 0..whole.len() * 8 {
            let mut damaged = whole.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let (found, torn) = read(&damaged, 7);
            assert!(found.len() < 3 && torn.is_some() && records.starts_with(&found), "bit {bit}");
        }
        for length in 0..whole.len() {
            let (found, torn) = read(&whole[..length], 7);
            assert!(records.starts_with(&found), "cut at {length}");
            assert_eq!(torn.is_none(), [0, 11, 19].contains(&length), "cut at {length}");
        }
        assert_eq!(read(&[0; 100], 0), (vec![], Some(0)), "zeros are no records");
    }
}
