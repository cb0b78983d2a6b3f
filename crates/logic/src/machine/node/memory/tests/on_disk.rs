//! Objects that are written and read in the spill file.

use super::pulls::{answers, come, denied, fetches, pull};
use super::*;

const NEAR: ProcessSlot = ProcessSlot(8);

/// The places in the file that the disk is to set aside.
fn reserves(out: &[NodeEffect]) -> Vec<(EntryRef, u64)> {
    let order = |effect: &NodeEffect| match effect {
        NodeEffect::Reserve { entry, file_offset, .. } => Some((*entry, *file_offset)),
        _ => None,
    };
    out.iter().filter_map(order).collect()
}

/// Where this entry is from now on.
fn place_of(out: &[NodeEffect], of: EntryRef, as_state: EntryState) -> Option<ExtentPlace> {
    out.iter().find_map(|effect| match effect {
        NodeEffect::WriteEntry { entry, state, offset, .. } if *entry == of && *state == as_state => {
            Some(ExtentPlace::from_word(*offset))
        }
        _ => None,
    })
}

fn reserved(
    memory: &mut Memory,
    now: Time,
    entry: EntryRef,
    outcome: Result<(), String>,
) -> Effects<NodeEffect> {
    let mut out = Vec::new();
    assert_eq!(memory.on_reserved(now, entry, outcome, &mut out), None);
    memory.check(|_| true);
    out
}

/// Everything that is to be spilled is in use.
fn all_pinned(memory: &mut Memory, now: Time, out: Effects<NodeEffect>) -> Effects<NodeEffect> {
    let mut all = out;
    let mut seen = 0;
    while let Some(entry) = spills(&all).get(seen).copied() {
        seen += 1;
        memory.on_spilled(now, entry, Err(SpillRefusal::Pinned), &mut all);
        memory.check(|_| true);
    }
    all
}

/// Time passes, and everything in memory stays in use, until something is ordered or said.
fn wait(memory: &mut Memory, until: Time) -> (Time, Effects<NodeEffect>) {
    let mut now = Time(0);
    while let Some(next) = memory.next_wakeup().filter(|next| *next <= until) {
        assert!(next > now, "a busy loop at {now:?}");
        now = next;
        let mut out = Vec::new();
        memory.on_ticked(now, &mut out);
        let mut out = all_pinned(memory, now, out);
        out.retain(|effect| !matches!(effect, NodeEffect::Spill { .. }));
        if !out.is_empty() {
            return (now, out);
        }
    }
    (until, Vec::new())
}

/// A store of ten pages, eight of which are in use for good.
fn nearly_full() -> Memory {
    let mut memory = memory(10, 64);
    put(&mut memory, 1, 8);
    memory
}

/// A writer of five pages has waited, and the disk is to set them aside.
fn waited_in_vain(memory: &mut Memory) -> (Time, EntryRef, u64) {
    let out = want(memory, 2, 5);
    let out = all_pinned(memory, Time(0), out);
    assert_eq!((granted(&out), reserves(&out)), (None, Vec::new()));
    let (now, out) = wait(memory, Time(PINNED_WAIT_MICROSECONDS_MAX));
    let (entry, file_offset) = reserves(&out)[0];
    (now, entry, file_offset)
}

#[test]
fn a_writer_waits_a_moment_for_memory_and_then_gets_a_place_in_the_file() {
    let mut memory = nearly_full();
    let (now, entry, file_offset) = waited_in_vain(&mut memory);
    assert!((ROOM_WAIT_MICROSECONDS_MAX..2 * ROOM_WAIT_MICROSECONDS_MAX).contains(&now.0), "{now:?}");
    let mut out = reserved(&mut memory, now, entry, Ok(()));
    assert_eq!(granted(&out), Some(entry));
    let place = ExtentPlace::File(file_offset);
    assert_eq!(place_of(&out, entry, EntryState::Writing), Some(place));
    assert_eq!((memory.spilled_bytes(), memory.available_bytes()), (5 * 4096, 2 * 4096));

    assert!(memory.on_sealed(now, WRITER, object(2), &mut out));
    assert_eq!(place_of(&out, entry, EntryState::Sealed), Some(place));
    memory.on_restore_wanted(now, WRITER, 7, object(2), &mut out);
    assert_eq!(answers(&out), [(WRITER, Ok(entry))], "it is read where it is");
    assert_eq!(memory.copy_of(object(2)), Some((entry, None)), "and served to other nodes");
    memory.check(|_| true);

    release(&mut memory, 2);
    assert_eq!((memory.spilled_bytes(), memory.copies.len()), (0, 1));
}

#[test]
fn nobody_waits_again_until_memory_was_freed() {
    let mut memory = nearly_full();
    let (now, ..) = waited_in_vain(&mut memory);
    let mut out = Vec::new();
    memory.on_extent_wanted(now, WRITER, 3, object(3), 5 * 4096, &mut out);
    let out = all_pinned(&mut memory, now, out);
    assert_eq!(reserves(&out).len(), 1, "waiting did not help the one before");
    assert!(granted(&want(&mut memory, 4, 2)).is_some(), "what fits into memory goes there");

    let mut out = Vec::new();
    memory.on_abandoned(now, WRITER, object(4), &mut out);
    memory.on_extent_wanted(now, WRITER, 5, object(5), 5 * 4096, &mut out);
    let out = all_pinned(&mut memory, now, out);
    assert_eq!(reserves(&out), [], "others may be free soon, too");
    memory.check(|_| true);
}

#[test]
fn a_spilled_object_is_read_where_it_is_while_memory_is_in_use() {
    let mut memory = memory(10, 64);
    let old = granted(&put(&mut memory, 1, 8)).unwrap();
    let mut out = want(&mut memory, 2, 8);
    memory.on_spilled(Time(0), old, Ok(()), &mut out);
    let young = granted(&out).unwrap();
    assert!(memory.on_sealed(Time(0), WRITER, object(2), &mut out));
    out.clear();
    memory.on_restore_wanted(Time(0), WRITER, 7, object(1), &mut out);
    assert_eq!(spills(&out), [young]);
    let out = all_pinned(&mut memory, Time(0), out);
    assert_eq!(answers(&out), []);
    let (_, out) = wait(&mut memory, Time(PINNED_WAIT_MICROSECONDS_MAX));
    assert_eq!(place_of(&out, old, EntryState::Sealed), Some(ExtentPlace::File(0)));
    assert_eq!(answers(&out), [(WRITER, Ok(old))]);
    assert_eq!((memory.row().restored_objects, memory.spilled_bytes()), (0, 8 * 4096), "nothing is copied");
    release(&mut memory, 1);
    assert_eq!(memory.spilled_bytes(), 0);
}

#[test]
fn without_room_on_disk_a_writer_waits_for_memory_and_is_told_of_the_disk() {
    let mut memory = nearly_full();
    let (now, entry, _) = waited_in_vain(&mut memory);
    let out = reserved(&mut memory, now, entry, Err("the disk is full".to_owned()));
    assert_eq!((denied(&out), memory.spilled_bytes()), (None, 0));
    let out = all_pinned(&mut memory, now, out);
    assert_eq!(reserves(&out), [], "the disk is not asked again");
    let (until, out) = wait(&mut memory, Time(2 * PINNED_WAIT_MICROSECONDS_MAX));
    assert!(denied(&out).is_some_and(|text| text.contains("the disk is full")), "{out:?}");
    assert!(until.0 >= now.0 + PINNED_WAIT_MICROSECONDS_MAX);
    memory.check(|_| true);

    let mut memory = nearly_full();
    let (now, entry, _) = waited_in_vain(&mut memory);
    reserved(&mut memory, now, entry, Err("the disk is full".to_owned()));
    release(&mut memory, 1);
    assert_eq!(memory.copies.written_by(WRITER, Some(object(2))).len(), 1, "memory was free in time");
}

#[test]
fn room_that_is_set_aside_for_a_dead_writer_is_given_back() {
    let mut memory = nearly_full();
    let (now, entry, file_offset) = waited_in_vain(&mut memory);
    let mut out = Vec::new();
    memory.on_process_died(now, WRITER, &mut out);
    memory.check(|slot| slot != WRITER);
    assert_eq!(memory.spilled_bytes(), 5 * 4096, "the disk is at work there");
    let out = reserved(&mut memory, now, entry, Ok(()));
    assert_eq!((granted(&out), memory.spilled_bytes()), (None, 0));
    let is_freed = |effect: &NodeEffect| matches!(effect, NodeEffect::FreeSpilled { file_offset: at, bytes } if (*at, *bytes) == (file_offset, 5 * 4096));
    assert!(out.iter().any(is_freed), "{out:?}");
}

#[test]
fn the_file_space_of_a_writer_that_dies_or_gives_up_is_given_back() {
    for dies in [false, true] {
        let mut memory = nearly_full();
        let (now, entry, _) = waited_in_vain(&mut memory);
        let mut out = reserved(&mut memory, now, entry, Ok(()));
        match dies {
            true => drop(memory.on_process_died(now, WRITER, &mut out)),
            false => memory.on_abandoned(now, WRITER, object(2), &mut out),
        }
        assert_eq!(memory.spilled_bytes(), 0);
        memory.check(|slot| !dies || slot != WRITER);
    }
}

#[test]
fn an_object_larger_than_the_store_is_written_to_disk_at_once() {
    let mut memory = memory_and_file(10, 64, 20 * 4096);
    let out = want(&mut memory, 1, 15);
    let (entry, _) = reserves(&out)[0];
    assert_eq!(granted(&reserved(&mut memory, Time(0), entry, Ok(()))), Some(entry));
    let out = want(&mut memory, 2, 15);
    assert!(denied(&out).is_some_and(|text| text.contains("that may be spilled are in use")), "{out:?}");
    let out = want(&mut memory, 3, 21);
    assert!(denied(&out).is_some_and(|text| text.contains("larger than the object store")), "{out:?}");
}

#[test]
fn an_object_of_another_node_that_is_larger_than_the_store_comes_to_the_disk() {
    let mut memory = memory(10, 64);
    let out = pull(&mut memory, 1, 11, NEAR);
    assert_eq!(fetches(&out), [], "not before there is room on disk");
    let (entry, _) = reserves(&out)[0];
    let out = reserved(&mut memory, Time(0), entry, Ok(()));
    assert_eq!(fetches(&out), [(entry, NEAR)]);
    assert_eq!(answers(&come(&mut memory, entry, Time(1))), [(WRITER, Ok(entry))]);
    assert_eq!(memory.spilled_bytes(), 11 * 4096);
    release(&mut memory, 1);
    assert_eq!(memory.spilled_bytes(), 0);
}

#[test]
fn a_node_that_dies_while_room_is_set_aside_takes_its_object_along() {
    let mut memory = memory(10, 64);
    let (entry, _) = reserves(&pull(&mut memory, 1, 11, NEAR))[0];
    let mut out = Vec::new();
    assert_eq!(memory.on_process_died(Time(1), NEAR, &mut out), []);
    let lost = memory.on_reserved(Time(2), entry, Ok(()), &mut out);
    assert_eq!(lost.map(|(object, _)| object), Some(object(1)));
    assert_eq!((fetches(&out), memory.spilled_bytes(), memory.copies.len()), (vec![], 0, 0));
    memory.check(|slot| slot != NEAR);
}
