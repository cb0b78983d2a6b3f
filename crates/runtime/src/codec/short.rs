//! A byte buffer that stays off the heap while it is short.

/// Bytes up to which encoded values need no heap.
pub const SHORT_BYTES_MAX: usize = 30;

/// A growable byte buffer; up to [`SHORT_BYTES_MAX`] bytes lie inside itself.
#[derive(Clone, Debug)]
pub enum ShortBytes {
    /// In place.
    Short {
        /// How many of `bytes` count.
        len: u8,
        /// The bytes.
        bytes: [u8; SHORT_BYTES_MAX],
    },
    /// On the heap.
    Long(Vec<u8>),
}

impl ShortBytes {
    /// No bytes.
    pub const fn new() -> Self {
        Self::Short { len: 0, bytes: [0; SHORT_BYTES_MAX] }
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }

    /// Adds bytes at the end.
    #[inline]
    pub fn extend(&mut self, data: &[u8]) {
        match self {
            Self::Long(bytes) => bytes.extend_from_slice(data),
            Self::Short { len, bytes } => {
                let start = usize::from(*len);
                match bytes.get_mut(start..start + data.len()) {
                    Some(room) => {
                        room.copy_from_slice(data);
                        *len += data.len() as u8;
                    }
                    None => self.grow(data),
                }
            }
        }
    }

    #[cold]
    fn grow(&mut self, data: &[u8]) {
        let short = self.as_slice();
        let mut bytes = Vec::with_capacity((2 * (short.len() + data.len())).next_power_of_two());
        bytes.extend_from_slice(short);
        bytes.extend_from_slice(data);
        *self = Self::Long(bytes);
    }
}

impl Default for ShortBytes {
    fn default() -> Self {
        Self::new()
    }
}

impl From<Vec<u8>> for ShortBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Long(bytes)
    }
}

impl From<Box<[u8]>> for ShortBytes {
    fn from(bytes: Box<[u8]>) -> Self {
        Self::Long(bytes.into_vec())
    }
}

impl From<&[u8]> for ShortBytes {
    fn from(bytes: &[u8]) -> Self {
        if bytes.len() > SHORT_BYTES_MAX {
            return Self::Long(bytes.to_vec());
        }
        let mut short = Self::new();
        short.extend(bytes);
        short
    }
}

/// Somewhere that encoded bytes are appended to.
pub(super) trait Sink {
    /// Appends.
    fn append(&mut self, data: &[u8]);
}

impl Sink for ShortBytes {
    #[inline]
    fn append(&mut self, data: &[u8]) {
        self.extend(data);
    }
}

impl Sink for Vec<u8> {
    #[inline]
    fn append(&mut self, data: &[u8]) {
        self.extend_from_slice(data);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grows_from_short_to_long_at_the_limit() {
        let mut bytes = ShortBytes::new();
        for i in 0..100_u8 {
            assert_eq!(matches!(bytes, ShortBytes::Short { .. }), usize::from(i) <= SHORT_BYTES_MAX);
            bytes.extend(&[i]);
            assert_eq!(bytes.as_slice().len(), usize::from(i) + 1);
        }
        assert!(bytes.as_slice().iter().enumerate().all(|(i, byte)| i == usize::from(*byte)));
    }
}
