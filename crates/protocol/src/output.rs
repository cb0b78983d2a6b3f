//! Marks inside what workers print: in whose name the words between two of them are printed.
//!
//! A worker that knows what it runs writes a mark with that name, its words, and a mark without a name, all at once. The
//! node takes the marks out again. Words outside of marks come from what the worker does not control: libraries in C,
//! and child processes.

/// How a mark begins: no text has this by chance.
pub const MARK_START: &[u8] = b"\x1eaktis:";
/// How a mark ends.
pub const MARK_END: u8 = b'\x1f';
/// Longer names are cut off.
pub const NAME_BYTES_MAX: usize = 128;

/// The mark before words that are printed in this name; without a name, the mark after them.
pub fn mark(name: &str) -> Vec<u8> {
    let mut mark = MARK_START.to_vec();
    let mut room = NAME_BYTES_MAX;
    for character in name.chars().filter(|character| !character.is_control()) {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        let Some(left) = room.checked_sub(bytes.len()) else { break };
        room = left;
        mark.extend_from_slice(bytes);
    }
    mark.push(MARK_END);
    mark
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_one_whatever_the_name() {
        assert_eq!(mark("f"), b"\x1eaktis:f\x1f");
        assert_eq!(mark(""), b"\x1eaktis:\x1f");
        assert_eq!(mark("two\nlines\x1f"), b"\x1eaktis:twolines\x1f");
        let long = mark(&"é".repeat(NAME_BYTES_MAX));
        assert_eq!(long.len(), MARK_START.len() + NAME_BYTES_MAX + 1);
        assert!(std::str::from_utf8(&long).is_ok(), "no character is cut in two");
    }
}
