//! An encoded value, wherever its bytes are: cheap to clone, never changed.

use super::raw::RawValue;
use super::short::{SHORT_BYTES_MAX, ShortBytes};
use std::sync::Arc;

/// An immutable encoded value.
#[derive(Clone)]
pub struct Value(Place);

#[derive(Clone)]
enum Place {
    /// In the value itself.
    Short { len: u8, bytes: [u8; SHORT_BYTES_MAX] },
    /// In this process's heap.
    Heap(Arc<[u8]>),
    /// In memory that its owner keeps: a pinned region of the object store, or a user's vector.
    Owned(Arc<dyn AsRef<[u8]> + Send + Sync>),
}

const _: () = assert!(size_of::<Value>() <= 40);

impl Value {
    /// A value with a copy of these bytes.
    #[inline]
    pub fn inline(bytes: &[u8]) -> Self {
        if bytes.len() > SHORT_BYTES_MAX {
            return Self(Place::Heap(bytes.into()));
        }
        let mut short = [0; SHORT_BYTES_MAX];
        short[..bytes.len()].copy_from_slice(bytes);
        Self(Place::Short { len: bytes.len() as u8, bytes: short })
    }

    /// A value with these bytes.
    #[inline]
    pub(super) fn from_short(bytes: ShortBytes) -> Self {
        match bytes {
            ShortBytes::Short { len, bytes } => Self(Place::Short { len, bytes }),
            ShortBytes::Long(bytes) => Self::inline(&bytes),
        }
    }

    /// A value in memory that `owner` keeps in place and unchanged as long as it lives. Its bytes start
    /// at a multiple of 64 if they hold buffers that are to be read without a copy.
    pub fn pinned(owner: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Self {
        Self(Place::Owned(owner))
    }

    /// The encoded bytes.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        match &self.0 {
            Place::Short { len, bytes } => &bytes[..usize::from(*len)],
            Place::Heap(bytes) => bytes,
            Place::Owned(owner) => (**owner).as_ref(),
        }
    }

    /// The value in its parts, for who reads it without serde; a message if it is broken.
    pub fn raw(&self) -> Result<RawValue<'_>, String> {
        RawValue::new(self)
    }

    /// Whether references to objects or actors are inside.
    pub fn contains(&self) -> bool {
        super::table::Table::of(self.bytes()).is_ok_and(|table| table.is_some_and(|table| table.contains()))
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place = match &self.0 {
            Place::Short { .. } => "short",
            Place::Heap(_) => "heap",
            Place::Owned(_) => "pinned",
        };
        write!(f, "Value({place}, {} bytes)", self.bytes().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back_from_every_place() {
        for len in [0, 1, SHORT_BYTES_MAX, SHORT_BYTES_MAX + 1, 5000] {
            let bytes: Vec<u8> = (0..len).map(|i| i as u8).collect();
            assert_eq!(Value::inline(&bytes).clone().bytes(), bytes);
            assert_eq!(Value::pinned(Arc::new(bytes.clone())).bytes(), bytes);
        }
    }
}
