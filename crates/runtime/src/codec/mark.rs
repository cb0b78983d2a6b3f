//! The mark of a value's type, by which an attempt to read it as another type is found out.
//!
//! A mark is made of the whole name of the type, so that it is the same in all processes and builds of a program. The
//! name of a constant length is a constant to the optimiser, and so is the mark of most types.

use parking_lot::Mutex;
use std::any::type_name;
use std::collections::BTreeMap;

/// The flags of a value whose type is not checked; no mark follows.
pub(super) const ANY_TYPE: u8 = 0;
/// Flags and mark, at the start of a value whose type is checked.
pub(super) const MARKED_BYTES: usize = 3;
/// The bits of the flags that belong to the mark.
const FLAGS_PART: u8 = 0x7f;

/// Types of references that were cast, by their marks, for the text of an error.
static CAST_FROM: Mutex<BTreeMap<[u8; MARKED_BYTES], &'static str>> = Mutex::new(BTreeMap::new());

/// The mark of a type: 23 bits of a hash. The first byte goes into the flags and is never [`ANY_TYPE`].
#[inline]
pub(super) fn mark<T: ?Sized>() -> [u8; MARKED_BYTES] {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let name = type_name::<T>().as_bytes();
    let mut hash = name.len() as u64;
    let mut add = |word: u64| hash = (hash.rotate_left(29) ^ word).wrapping_mul(MULTIPLIER);
    let (words, rest) = name.as_chunks::<8>();
    for word in words {
        add(u64::from_le_bytes(*word));
    }
    add(rest.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)));
    let hash = hash ^ hash >> 32;
    [(hash >> 16) as u8 % FLAGS_PART + 1, (hash >> 8) as u8, hash as u8]
}

/// Where the bytes after flags and mark begin, in a value without attachments.
#[inline]
pub(super) fn body_start(flags: u8) -> usize {
    if flags & FLAGS_PART == ANY_TYPE { 1 } else { MARKED_BYTES }
}

/// Checks that a value was made as a `T`; else gives the name of the type that it was made as, if that is known.
#[inline]
pub(super) fn check<T: ?Sized>(value: &[u8]) -> Result<(), Option<&'static str>> {
    let flags = value[0] & FLAGS_PART;
    let found = [flags, value.get(1).copied().unwrap_or(0), value.get(2).copied().unwrap_or(0)];
    if flags == ANY_TYPE || found == mark::<T>() { Ok(()) } else { Err(known_name(found)) }
}

#[cold]
fn known_name(found: [u8; MARKED_BYTES]) -> Option<&'static str> {
    CAST_FROM.lock().get(&found).copied()
}

/// A reference to a `T` is about to be read as another type: errors can name the type from now on.
pub fn note_cast_from<T: ?Sized>() {
    CAST_FROM.lock().entry(mark::<T>()).or_insert_with(type_name::<T>);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn types_that_differ_in_one_letter_have_other_marks() {
        macro_rules! marks {
            ($($ty:ty),*) => { [$(mark::<$ty>(), mark::<Vec<$ty>>(), mark::<Option<Vec<($ty, $ty)>>>()),*] };
        }
        let marks =
            marks!(u8, i8, u16, i16, u32, i32, u64, i64, u128, i128, f32, f64, usize, isize, char, String);
        assert_eq!(HashSet::from(marks).len(), marks.len());
        assert!(marks.iter().all(|mark| (1..=FLAGS_PART).contains(&mark[0])));
    }

    #[test]
    fn an_alias_has_the_mark_of_its_type() {
        type Weights = Vec<f32>;
        assert_eq!(mark::<Weights>(), mark::<Vec<f32>>());
    }
}
