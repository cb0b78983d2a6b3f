//! Where an object goes: what has come stays, so that a pull that failed can go on, from another node too.

use super::PART_BYTES;
use std::collections::VecDeque;

/// See the module.
pub struct Destination<'d> {
    pub(super) size: u64,
    pub(super) insists: bool,
    /// Parts that have not come.
    pub(super) parts: VecDeque<Part<'d>>,
}

/// A part of it.
pub(super) struct Part<'d> {
    pub(super) offset: u64,
    pub(super) bytes: &'d mut [u8],
}

impl<'d> Destination<'d> {
    /// Room for an object of this length.
    pub fn new(bytes: &'d mut [u8]) -> Self {
        let size = bytes.len() as u64;
        let mut parts: VecDeque<_> = bytes
            .chunks_mut(PART_BYTES)
            .enumerate()
            .map(|(index, bytes)| Part { offset: (index * PART_BYTES) as u64, bytes })
            .collect();
        if parts.is_empty() {
            // Even an object without bytes has to be there.
            parts.push_back(Part { offset: 0, bytes: &mut [] });
        }
        Self { size, insists: false, parts }
    }

    /// How many parts have not come.
    pub fn parts_left(&self) -> usize {
        self.parts.len()
    }

    /// How many bytes have not come.
    pub fn bytes_left(&self) -> u64 {
        self.parts.iter().map(|part| part.bytes.len() as u64).sum()
    }

    /// From now on whoever is asked shall have the object, and not say who else has it.
    pub fn insist(&mut self) {
        self.insists = true;
    }
}
