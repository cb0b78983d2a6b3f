//! Objects on disk, for those who read parts of them there while the node moves and frees others.
//!
//! Invariant: what is read of an object was written for it. A place in the file is given to something else only after it
//! was taken off this list, and that waits for those who read there.

use crate::error::StoreError;
use crate::spill::SpillFile;
use aktis_protocol::EntryRef;
use parking_lot::{Mutex, RwLock};
use std::collections::HashMap;
use std::sync::Arc;

/// See the module.
#[derive(Default)]
pub struct SpilledObjects(Mutex<Places>);

#[derive(Default)]
struct Places {
    by_entry: HashMap<EntryRef, Arc<SpilledObject>>,
    by_offset: HashMap<u64, EntryRef>,
}

/// An object on disk, until it is freed there.
pub struct SpilledObject {
    file: Arc<SpillFile>,
    offset: u64,
    bytes: u64,
    is_freed: RwLock<bool>,
}

impl SpilledObjects {
    /// The object lies in the file from now on.
    pub fn add(&self, entry: EntryRef, file: &Arc<SpillFile>, offset: u64, bytes: u64) {
        let object = SpilledObject { file: file.clone(), offset, bytes, is_freed: RwLock::new(false) };
        let mut places = self.0.lock();
        places.by_offset.insert(offset, entry);
        places.by_entry.insert(entry, Arc::new(object));
    }

    /// The place is about to be freed. Returns when nobody reads there, and nobody will.
    pub fn remove(&self, offset: u64) {
        let mut places = self.0.lock();
        let removed = places.by_offset.remove(&offset).and_then(|entry| {
            let is_it = places.by_entry.get(&entry).is_some_and(|object| object.offset == offset);
            if is_it { places.by_entry.remove(&entry) } else { None }
        });
        drop(places);
        if let Some(object) = removed {
            *object.is_freed.write() = true;
        }
    }

    /// The object with this entry, if it lies in the file.
    pub fn get(&self, entry: EntryRef) -> Option<Arc<SpilledObject>> {
        self.0.lock().by_entry.get(&entry).cloned()
    }
}

impl SpilledObject {
    /// How many bytes it has.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Fills `place` with what lies at `offset` of the object; false if it is on disk no more.
    pub fn read(&self, offset: u64, place: &mut [u8]) -> Result<bool, StoreError> {
        assert!(offset + place.len() as u64 <= self.bytes, "inside the object");
        let is_freed = self.is_freed.read();
        if *is_freed {
            return Ok(false);
        }
        self.file.read(self.offset + offset, place).map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32) -> EntryRef {
        EntryRef { index, generation: 1 }
    }

    #[test]
    fn what_is_freed_is_read_no_more() {
        let file = Arc::new(SpillFile::create(&std::env::temp_dir(), Arc::default()).unwrap());
        file.write(4096, b"abcdef").unwrap();
        let objects = SpilledObjects::default();
        objects.add(entry(1), &file, 4096, 6);
        let object = objects.get(entry(1)).unwrap();
        let mut place = [0; 3];
        assert!(object.read(2, &mut place).unwrap());
        assert_eq!((&place, object.bytes()), (b"cde", 6));
        objects.remove(4096);
        assert!(objects.get(entry(1)).is_none());
        assert!(!object.read(2, &mut place).unwrap());
    }

    #[test]
    fn an_object_that_went_to_disk_again_is_found_where_it_is_now() {
        let file = Arc::new(SpillFile::create(&std::env::temp_dir(), Arc::default()).unwrap());
        file.write(0, b"xxx").unwrap();
        file.write(4096, b"abc").unwrap();
        let objects = SpilledObjects::default();
        objects.add(entry(1), &file, 0, 3);
        objects.add(entry(1), &file, 4096, 3);
        objects.remove(0);
        let mut place = [0; 3];
        assert!(objects.get(entry(1)).unwrap().read(0, &mut place).unwrap());
        assert_eq!(&place, b"abc");
    }
}
