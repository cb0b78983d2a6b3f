//! A hash of all that happened in a run, in order: the same seed gives the same hash.

/// See the module. FNV-1a, 64 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TraceHash(u64);

impl Default for TraceHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl TraceHash {
    /// Something happens, in one readable line.
    pub(crate) fn add(&mut self, line: &str) {
        for byte in line.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }

    pub(crate) fn get(self) -> u64 {
        self.0
    }
}
