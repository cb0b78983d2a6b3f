//! A private view of stored bytes: reading it reads the store, writing to it copies the page that is written to.

#![allow(unsafe_code)]

use crate::Arena;
use rustix::mm::{MapFlags, ProtFlags};
use std::io;
use std::ptr::NonNull;

/// Memory that begins as a part of the arena, and that this process may change without anybody noticing.
///
/// It shows the arena's bytes where it was not written to: whoever has it keeps these pinned.
pub struct PrivateView {
    base: NonNull<u8>,
    mapped: usize,
    start: usize,
    len: usize,
}

// SAFETY: it is plain memory that belongs to its owner.
unsafe impl Send for PrivateView {}
// SAFETY: as above.
unsafe impl Sync for PrivateView {}

impl Arena {
    /// A private view of bytes that lie in the arena; `None` if they lie elsewhere.
    pub fn private_view(&self, bytes: &[u8]) -> io::Result<Option<PrivateView>> {
        let arena = self.map();
        let Some(offset) = (bytes.as_ptr() as usize).checked_sub(arena.base() as usize) else {
            return Ok(None);
        };
        if bytes.is_empty() || offset.checked_add(bytes.len()).is_none_or(|end| end > arena.len()) {
            return Ok(None);
        }
        let start = offset % rustix::param::page_size();
        let mapped = start + bytes.len();
        // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
        let base = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                mapped,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE | MapFlags::NORESERVE,
                arena.fd(),
                (offset - start) as u64,
            )?
        };
        let base = NonNull::new(base.cast()).expect("mmap does not give null");
        Ok(Some(PrivateView { base, mapped, start, len: bytes.len() }))
    }
}

impl PrivateView {
    /// The first byte.
    pub fn as_mut_ptr(&self) -> *mut u8 {
        // SAFETY: the view begins inside of what was mapped.
        unsafe { self.base.as_ptr().add(self.start) }
    }

    /// The size of the view.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the view has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for PrivateView {
    fn drop(&mut self) {
        // SAFETY: nobody uses the memory any more.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.mapped) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EntryState;
    use aktis_protocol::{EntryRef, SessionId, TaskId};
    use std::sync::Arc;

    #[test]
    fn what_is_written_to_it_is_seen_by_nobody_else() {
        let arena = Arc::new(Arena::create(1 << 20, 64).expect("a small arena"));
        let (at, object) = (EntryRef { index: 2, generation: 1 }, TaskId::root(SessionId(1)).returns(0));
        arena.write_entry(at, object, EntryState::Writing, 5 * 4096, 3 * 4096);
        let mut writer = arena.write(at).expect("granted");
        writer.fill(7);
        writer.seal();

        let pin = arena.pin(at).expect("sealed");
        let part = &pin[1000..9000];
        let view = arena.private_view(part).expect("mapped").expect("it lies in the arena");
        // SAFETY: the view is that long, and nobody else uses it.
        let mine = unsafe { std::slice::from_raw_parts_mut(view.as_mut_ptr(), view.len()) };
        assert!(mine == part, "it begins as what is stored");
        mine[4000..].fill(8);
        assert!(mine[..4000].iter().all(|byte| *byte == 7) && mine[4000..].iter().all(|byte| *byte == 8));
        assert!(pin.iter().all(|byte| *byte == 7), "the store is unchanged");
    }

    #[test]
    fn what_lies_elsewhere_has_none() {
        let arena = Arena::create(1 << 20, 64).expect("a small arena");
        assert!(arena.private_view(&[1, 2, 3]).expect("nothing to map").is_none());
        assert!(arena.private_view(&arena.map().bytes(0, 0)[..0]).expect("nothing to map").is_none());
    }
}
