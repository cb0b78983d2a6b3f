//! The object store, seen by the processes that use it: writing, reading in place, spilling, dying.

use aktis_protocol::{EntryRef, ExtentPlace, ObjectId, ProcessSlot, SessionId, TaskId};
use aktis_store::{Arena, EntryState, PinError, SpillFile, SpillRefused, StoreError};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: u64 = 4096;

fn object(number: u64) -> ObjectId {
    TaskId::root(SessionId(1)).child(number).returns(0)
}

fn entry(index: u32, generation: u32) -> EntryRef {
    EntryRef { index, generation }
}

fn new_arena() -> Arc<Arena> {
    Arc::new(Arena::create(1 << 20, 64).expect("a small arena"))
}

/// The same store, as the process in another place sees it.
fn opened_by(arena: &Arena, slot: u32) -> Arc<Arena> {
    let again = |fd: std::os::fd::BorrowedFd<'_>| -> OwnedFd { fd.try_clone_to_owned().expect("dup") };
    let opened = Arena::open(again(arena.index_fd()), again(arena.arena_fd()), ProcessSlot(slot), None);
    Arc::new(opened.expect("open").with_file(arena.file_fd().map(|fd| Arc::new(again(fd)))))
}

fn put(arena: &Arc<Arena>, at: EntryRef, offset: u64, bytes: &[u8]) {
    arena.write_entry(at, object(at.index.into()), EntryState::Writing, offset, bytes.len() as u64);
    let mut writer = arena.write(at).expect("granted");
    writer.copy_from_slice(bytes);
    writer.seal();
}

fn spill_file() -> SpillFile {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR"));
    SpillFile::create(directory, Arc::new(AtomicBool::new(false))).expect("spill file")
}

#[test]
fn another_process_reads_in_place_what_was_written() {
    let arena = new_arena();
    let reader = opened_by(&arena, 1);
    let at = entry(3, 1);
    arena.write_entry(at, object(1), EntryState::Writing, 5 * PAGE, 1000);
    assert_eq!(reader.pin(at).err(), Some(PinError::NotResident), "not before it is sealed");

    let mut writer = arena.write(at).expect("granted");
    assert_eq!(writer.len(), 1000);
    writer.fill(7);
    assert!(
        matches!(arena.write(at), Err(StoreError::NotWritable { index: 3 })),
        "one writer for each grant"
    );
    writer.seal();
    assert!(arena.write(at).is_err(), "sealed is for ever");

    let pin = reader.pin(at).expect("sealed");
    assert_eq!(&pin[..], &[7; 1000]);
    assert_eq!(pin.as_ptr() as usize % 64, 0);
    // The node hears of the seal later, and writes the same again.
    arena.write_entry(at, object(1), EntryState::Sealed, 5 * PAGE, 1000);
    assert_eq!(&reader.pin(at).expect("still sealed")[..], &pin[..]);
}

#[test]
fn what_was_freed_is_gone_also_when_its_entry_is_used_again() {
    let arena = new_arena();
    put(&arena, entry(0, 1), 0, b"first");
    arena.write_entry(entry(0, 1), object(0), EntryState::Free, 0, 0);
    assert_eq!(arena.pin(entry(0, 1)).err(), Some(PinError::Gone));
    put(&arena, entry(0, 2), 0, b"second");
    assert_eq!(arena.pin(entry(0, 1)).err(), Some(PinError::Gone));
    assert_eq!(&arena.pin(entry(0, 2)).expect("second")[..], b"second");
    assert_eq!(arena.pin(entry(64, 1)).err(), Some(PinError::Gone), "there is no such entry");
}

#[test]
fn a_pinned_object_stays_in_memory_and_others_come_back_from_disk() {
    let arena = new_arena();
    let reader = opened_by(&arena, 1);
    let file = spill_file();
    let at = entry(0, 1);
    put(&arena, at, 0, &[9; 10_000]);

    let pin = reader.pin(at).expect("sealed");
    assert!(matches!(arena.spill(at, &file, 0), Err(SpillRefused::Pinned)));
    assert_eq!(&pin[..], &[9; 10_000]);
    drop(pin);
    arena.spill(at, &file, 3 * PAGE).expect("nobody reads it");
    assert_eq!(reader.pin(at).err(), Some(PinError::NotResident));

    put(&arena, entry(1, 1), 0, &[1; 10_000]);
    arena.restore(at, &file, 3 * PAGE, 8 * PAGE).expect("restored");
    assert_eq!(&reader.pin(at).expect("back")[..], &[9; 10_000]);
    assert!(arena.restore(at, &file, 3 * PAGE, 8 * PAGE).is_err(), "it is not spilled any more");
}

#[test]
fn the_pins_of_a_dead_process_are_forgotten_and_those_of_others_are_not() {
    let arena = new_arena();
    let (dead, alive) = (opened_by(&arena, 1), opened_by(&arena, 2));
    put(&arena, entry(0, 1), 0, b"both");
    std::mem::forget(dead.pin(entry(0, 1)));
    let pin = alive.pin(entry(0, 1)).expect("sealed");
    arena.clear_pins(ProcessSlot(1));
    assert!(!arena.begin_spill(entry(0, 1)), "the living still read");
    drop(pin);
    assert!(arena.begin_spill(entry(0, 1)));
    assert_eq!(alive.pin(entry(0, 1)).err(), Some(PinError::NotResident));
}

#[test]
fn the_coarse_clock_tells_what_was_used_last() {
    let arena = new_arena();
    put(&arena, entry(0, 1), 0, b"old");
    put(&arena, entry(1, 1), PAGE, b"new");
    arena.tick();
    drop(arena.pin(entry(1, 1)));
    assert!(arena.last_used(entry(0, 1)) < arena.last_used(entry(1, 1)));
}

/// Invariant 4 of the index: memory is never taken from under a reader. While readers pin and check an object, the
/// node spills it, fills its memory with another one, and brings it back.
#[test]
fn spilling_never_takes_memory_from_under_a_reader() {
    const BYTES: usize = 3 * PAGE as usize;
    let arena = new_arena();
    let file = spill_file();
    let at = entry(0, 1);
    put(&arena, at, 0, &[1; BYTES]);
    let (done, reads) = (AtomicBool::new(false), AtomicU64::new(0));
    let read = |reader: Arc<Arena>| {
        while !done.load(Ordering::Relaxed) {
            if let Ok(pin) = reader.pin(at) {
                assert!(pin.iter().all(|byte| *byte == 1), "the bytes changed under a pin");
                reads.fetch_add(1, Ordering::Relaxed);
            }
            std::thread::yield_now();
        }
    };
    let read = &read;
    std::thread::scope(|scope| {
        let readers: Vec<_> = (1..4)
            .map(|slot| {
                let reader = opened_by(&arena, slot);
                scope.spawn(move || read(reader))
            })
            .collect();
        let mut spills = 0;
        while spills < 300 || reads.load(Ordering::Relaxed) < 300 {
            if arena.spill(at, &file, 0).is_ok() {
                spills += 1;
                put(&arena, entry(1, spills), 0, &[2; BYTES]);
                arena.write_entry(entry(1, spills), object(1), EntryState::Free, 0, 0);
                arena.restore(at, &file, 0, 0).expect("restored");
            }
            if readers.iter().any(|reader| reader.is_finished()) {
                break;
            }
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_store_that_cannot_be_is_refused_with_a_hint() {
    let error = Arena::create(1 << 60, 64).err().expect("larger than any memory");
    assert!(matches!(error, StoreError::LargerThanMemory { .. }));
    assert!(error.to_string().contains("hint: lower store_bytes"), "{error}");
    assert!(matches!(Arena::create(100, 64), Err(StoreError::TooSmall { .. })));
    let (index, arena) = (tiny_memfd(), tiny_memfd());
    assert!(matches!(Arena::open(index, arena, ProcessSlot(1), None), Err(StoreError::NotAnIndex)));
}

fn tiny_memfd() -> OwnedFd {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).expect("memfd");
    rustix::fs::ftruncate(&fd, 100).expect("size");
    fd
}

#[test]
fn a_spill_directory_that_is_not_there_is_named() {
    let closing = Arc::new(AtomicBool::new(false));
    let error = SpillFile::create(Path::new("/nowhere/at-all"), closing).err().expect("refused");
    assert!(error.to_string().contains("/nowhere/at-all"), "{error}");
}

#[test]
fn a_spill_file_has_no_name_and_gives_room_back() {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("spill-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("directory");
    let closing = Arc::new(AtomicBool::new(false));
    let file = SpillFile::create(&directory, closing.clone()).expect("spill file");
    file.write(PAGE, b"text").expect("written");
    assert_eq!(std::fs::read_dir(&directory).expect("listed").count(), 0, "nothing to leave behind");
    let mut back = [0; 4];
    file.read(PAGE, &mut back).expect("read");
    assert_eq!(&back, b"text");
    file.free(PAGE, PAGE);
    assert!(file.read(10 * PAGE, &mut back).is_err(), "nothing was written there");
    closing.store(true, Ordering::Relaxed);
    assert!(matches!(file.write(0, b"late"), Err(StoreError::Closing)));
    std::fs::remove_dir(&directory).expect("empty");
}

/// A store with a spill file in which objects may lie.
fn new_arena_with_file() -> (Arc<Arena>, SpillFile) {
    let file = spill_file();
    let arena = Arena::create(1 << 20, 64).expect("a small arena").with_file(Some(file.descriptor()));
    (Arc::new(arena), file)
}

#[test]
fn an_object_in_the_spill_file_is_written_and_read_there() {
    let (arena, file) = new_arena_with_file();
    let [writer, reader] = [1, 2].map(|slot| opened_by(&arena, slot));
    let (at, place) = (entry(3, 1), ExtentPlace::File(5 * PAGE));
    // Larger than the arena.
    const BYTES: usize = (2 << 20) + 10;
    file.reserve(5 * PAGE, BYTES as u64).expect("room");
    arena.write_entry(at, object(1), EntryState::Writing, place.to_word(), BYTES as u64);
    let mut extent = writer.write(at).expect("granted");
    assert_eq!(extent.len(), BYTES);
    extent.fill(7);
    extent[BYTES - 1] = 8;
    assert_eq!(reader.pin(at).err(), Some(PinError::NotResident), "not before it is sealed");
    extent.seal();
    let pins = [&reader, &writer, &arena].map(|arena| arena.pin(at).expect("sealed"));
    for pin in &pins {
        assert!(pin.len() == BYTES && pin[..BYTES - 1].iter().all(|byte| *byte == 7) && pin[BYTES - 1] == 8);
        assert!(pin.as_ptr().addr().is_multiple_of(4096), "any numeric type may be read in place");
    }
    assert!(!arena.begin_spill(at), "it is in use");
    drop(pins);
    assert!(arena.begin_spill(at));
    arena.finish_spill(at);
    assert_eq!(reader.pin(at).err(), Some(PinError::NotResident));

    let blocks = || rustix::fs::fstat(file.descriptor()).expect("fstat").st_blocks;
    assert!(blocks() > 0);
    arena.write_entry(at, object(1), EntryState::Free, place.to_word(), 0);
    file.free(5 * PAGE, BYTES as u64);
    assert_eq!(blocks(), 0, "the disk has its room back, down to the last page");
}

#[test]
fn a_spilled_object_is_read_where_it_is() {
    let (arena, file) = new_arena_with_file();
    let (reader, at) = (opened_by(&arena, 1), entry(0, 1));
    put(&arena, at, 0, &[9; 10_000]);
    arena.spill(at, &file, 2 * PAGE).expect("nobody reads it");
    arena.write_entry(at, object(0), EntryState::Sealed, ExtentPlace::File(2 * PAGE).to_word(), 10_000);
    assert_eq!(&reader.pin(at).expect("sealed")[..], &[9; 10_000]);
}

#[test]
fn an_object_of_another_node_is_filled_in_the_spill_file() {
    let (arena, file) = new_arena_with_file();
    let (at, place) = (entry(0, 1), ExtentPlace::File(0).to_word());
    arena.write_entry(at, object(0), EntryState::Spilled, 5, 3 * PAGE);
    file.reserve(0, 3 * PAGE).expect("room");
    let fill = |to: &mut [u8]| {
        to.fill(4);
        Ok(())
    };
    arena.refill(at, place, fill).expect("filled");
    assert_eq!(&opened_by(&arena, 1).pin(at).expect("sealed")[..], &[4; 3 * PAGE as usize]);
    assert_eq!(arena.elsewhere(at), None);
}

#[test]
fn a_place_in_a_file_that_is_not_there_is_refused() {
    let (arena, at) = (new_arena(), entry(0, 1));
    arena.write_entry(at, object(0), EntryState::Writing, ExtentPlace::File(0).to_word(), PAGE);
    assert!(matches!(arena.write(at), Err(StoreError::NotWritable { .. })));
    arena.write_entry(at, object(0), EntryState::Sealed, ExtentPlace::File(0).to_word(), PAGE);
    assert_eq!(arena.pin(at).err(), Some(PinError::Gone));
    assert!(arena.begin_spill(at), "nobody is counted as a reader");
}

#[test]
fn descriptors_are_not_inherited() {
    let (arena, _file) = new_arena_with_file();
    for fd in [arena.index_fd(), arena.arena_fd(), arena.file_fd().expect("a file")] {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", fd.as_raw_fd())).expect("fdinfo");
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags").trim();
        assert_ne!(u32::from_str_radix(flags, 8).expect("octal") & 0o2_000_000, 0, "close-on-exec");
    }
}

#[test]
fn memory_that_is_given_back_leaves_all_processes_and_can_be_used_again() {
    let arena = new_arena();
    let (writer, reader, at) = (opened_by(&arena, 1), opened_by(&arena, 2), entry(0, 1));
    let blocks = || rustix::fs::fstat(arena.arena_fd()).expect("fstat").st_blocks;
    put(&writer, at, PAGE, &[7; 3 * PAGE as usize]);
    assert_eq!(&reader.pin(at).expect("sealed")[..], &[7; 3 * PAGE as usize]);
    let before = blocks();
    arena.write_entry(at, object(0), EntryState::Free, PAGE, 0);
    arena.give_back(PAGE, 2 * PAGE);
    assert_eq!(before - blocks(), 2 * PAGE as i64 / 512);
    let again = entry(0, 2);
    put(&writer, again, PAGE, &[8; 3 * PAGE as usize]);
    assert_eq!(&reader.pin(again).expect("sealed")[..], &[8; 3 * PAGE as usize]);
    assert_eq!(blocks(), before);
}
