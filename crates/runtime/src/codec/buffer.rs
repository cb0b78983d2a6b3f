//! A part of some shared memory, as bytes that live as long as anybody reads them.

use super::value::Value;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::{Immutable, IntoBytes};

/// Shared immutable bytes: a user's vector, or a part of an encoded value; never a copy of either.
#[derive(Clone)]
pub struct Buffer {
    source: Value,
    range: Range<usize>,
}

/// A vector of plain numbers, read as bytes.
struct Elements<T>(Arc<Vec<T>>);

impl<T: IntoBytes + Immutable> AsRef<[u8]> for Elements<T> {
    fn as_ref(&self) -> &[u8] {
        self.0.as_slice().as_bytes()
    }
}

impl Buffer {
    /// The bytes of a vector, without a copy.
    pub fn from_vec<T: IntoBytes + Immutable + Send + Sync + 'static>(elements: Vec<T>) -> Self {
        Self::from_shared(Arc::new(elements))
    }

    /// The bytes of a shared vector, without a copy.
    pub fn from_shared<T: IntoBytes + Immutable + Send + Sync + 'static>(elements: Arc<Vec<T>>) -> Self {
        let range = 0..size_of_val(elements.as_slice());
        Self { source: Value::pinned(Arc::new(Elements(elements))), range }
    }

    /// The bytes that `owner` keeps in place and unchanged as long as it lives, without a copy.
    pub fn from_owner(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        let range = 0..(*owner).as_ref().len();
        Self { source: Value::pinned(owner), range }
    }

    /// A part of a value; `None` if it has no such part.
    pub fn part_of(source: Value, range: Range<usize>) -> Option<Self> {
        source.bytes().get(range.clone())?;
        Some(Self { source, range })
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.source.bytes()[self.range.clone()]
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.range.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_not_copied() {
        let numbers = vec![1.5_f32, 2.5];
        let place = numbers.as_ptr().cast::<u8>();
        let buffer = Buffer::from_vec(numbers);
        assert_eq!(buffer.clone().as_slice().as_ptr(), place);
        assert_eq!(buffer.as_slice(), [1.5_f32, 2.5].as_bytes());
    }

    #[test]
    fn a_part_outside_the_value_is_refused() {
        let value = Value::inline(&[1, 2, 3]);
        assert_eq!(Buffer::part_of(value.clone(), 1..3).unwrap().as_slice(), [2, 3]);
        assert!(Buffer::part_of(value.clone(), 1..4).is_none());
        #[expect(clippy::reversed_empty_ranges)]
        let reversed = 2..1;
        assert!(Buffer::part_of(value, reversed).is_none());
    }
}
