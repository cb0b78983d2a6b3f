//! Objects of other nodes: how many come at a time, and what they leave to others.

use super::super::pulls::PULLS_PER_PEER_MAX;
use super::*;

const NEAR: ProcessSlot = ProcessSlot(8);
const FAR: ProcessSlot = ProcessSlot(9);

/// Somebody wants to read an object that another node has.
pub(super) fn pull(memory: &mut Memory, number: u64, pages: u64, peer: ProcessSlot) -> Effects<NodeEffect> {
    let mut out = Vec::new();
    memory.on_imported(peer, object(number), pages * 4096, &mut out).unwrap();
    memory.on_restore_wanted(Time(0), WRITER, number as u32, object(number), &mut out);
    memory.check(|_| true);
    out
}

pub(super) fn come(memory: &mut Memory, entry: EntryRef, now: Time) -> Effects<NodeEffect> {
    let mut out = Vec::new();
    memory.on_restored(now, entry, Ok(()), &mut out);
    memory.check(|_| true);
    out
}

/// What is to be copied.
pub(super) fn fetches(out: &[NodeEffect]) -> Vec<(EntryRef, ProcessSlot)> {
    let order = |effect: &NodeEffect| match effect {
        NodeEffect::Fetch { entry, peer, .. } => Some((*entry, *peer)),
        _ => None,
    };
    out.iter().filter_map(order).collect()
}

/// Who was told what about an object.
pub(super) fn answers(out: &[NodeEffect]) -> Vec<(ProcessSlot, Result<EntryRef, FailureKind>)> {
    let answer = |effect: &NodeEffect| match effect {
        NodeEffect::Send { to, message: FromNode::Restored { outcome, .. } } => {
            Some((*to, outcome.clone().map_err(|failure| failure.kind)))
        }
        _ => None,
    };
    out.iter().filter_map(answer).collect()
}

/// What a writer was told that gets no room.
pub(super) fn denied(out: &[NodeEffect]) -> Option<&str> {
    out.iter().find_map(|effect| match effect {
        NodeEffect::Send { message: FromNode::ExtentDenied { failure, .. }, .. } => Some(&*failure.message),
        _ => None,
    })
}

#[test]
fn a_few_come_from_each_node_and_one_that_is_slow_is_in_nobodys_way() {
    let mut memory = memory(100, 64);
    let slow: Vec<_> = (0..6).flat_map(|number| fetches(&pull(&mut memory, number, 1, NEAR))).collect();
    assert_eq!(slow.len(), PULLS_PER_PEER_MAX);
    assert_eq!(fetches(&pull(&mut memory, 10, 1, FAR)).len(), 1, "another node's objects come");
    let next = fetches(&come(&mut memory, slow[0].0, Time(1)));
    assert_eq!(next.len(), 1, "one came, the next is on its way");
    let mut out = Vec::new();
    let lost = memory.on_restored(Time(2), slow[1].0, Err("it is gone".to_owned()), &mut out);
    assert!(lost.is_some() && fetches(&out).len() == 1, "so is the last, when one has failed");
    memory.check(|_| true);
}

#[test]
fn half_of_the_memory_is_left_to_others_unless_a_single_one_needs_it() {
    let mut memory = memory(10, 64);
    let first = fetches(&pull(&mut memory, 1, 4, NEAR));
    assert_eq!(fetches(&pull(&mut memory, 2, 4, FAR)), []);
    assert!(granted(&want(&mut memory, 3, 5)).is_some());
    let second = fetches(&come(&mut memory, first[0].0, Time(1)));
    assert_eq!(second, [], "there is no room until what came is on disk");
    let mut out = Vec::new();
    memory.on_ticked(Time(2 * SPARED_MICROSECONDS), &mut out);
    assert_eq!(spills(&out), [first[0].0]);
    out.clear();
    memory.on_spilled(Time(2 * SPARED_MICROSECONDS), first[0].0, Ok(()), &mut out);
    assert_eq!(fetches(&out).len(), 1);
    let mut alone = super::memory(10, 64);
    assert_eq!(fetches(&pull(&mut alone, 1, 9, NEAR)).len(), 1);
}

#[test]
fn who_wants_memory_waits_for_as_long_as_something_is_on_its_way() {
    let mut memory = memory(10, 64);
    memory.file_is_shared = false;
    let coming = fetches(&pull(&mut memory, 1, 8, NEAR));
    assert_eq!(granted(&want(&mut memory, 2, 5)), None);
    let mut now = Time(0);
    while now.0 < 2 * PINNED_WAIT_MICROSECONDS_MAX {
        now = Time(now.0 + 1_000_000);
        let mut out = Vec::new();
        memory.on_ticked(now, &mut out);
        assert_eq!(denied(&out), None, "at {now:?}");
        memory.check(|_| true);
    }
    let out = come(&mut memory, coming[0].0, now);
    assert_eq!(answers(&out), [(WRITER, Ok(coming[0].0))]);
    now = Time(now.0 + SPARED_MICROSECONDS);
    let mut out = Vec::new();
    memory.on_ticked(now, &mut out);
    assert_eq!(spills(&out), [coming[0].0]);
    out.clear();
    memory.on_spilled(now, coming[0].0, Ok(()), &mut out);
    assert!(granted(&out).is_some());
    memory.check(|_| true);
}

#[test]
fn an_object_comes_once_however_many_wait_for_it() {
    let mut memory = memory(10, 64);
    let coming = fetches(&pull(&mut memory, 1, 4, NEAR));
    for reader in 1..5 {
        let mut out = Vec::new();
        memory.on_restore_wanted(Time(0), ProcessSlot(reader), 1, object(1), &mut out);
        assert_eq!(fetches(&out), []);
    }
    let out = come(&mut memory, coming[0].0, Time(1));
    let expected: Vec<_> = (0..5).map(|reader| (ProcessSlot(reader), Ok(coming[0].0))).collect();
    assert_eq!(answers(&out), expected);
    assert_eq!((memory.row().pulled_objects, memory.row().pulled_bytes), (1, 4 * 4096));
}

#[test]
fn what_nobody_waits_for_any_more_is_not_copied() {
    let mut memory = memory(100, 64);
    let coming: Vec<_> = (0..5).flat_map(|number| fetches(&pull(&mut memory, number, 1, NEAR))).collect();
    let mut out = Vec::new();
    memory.forget(Time(0), object(4), &mut out);
    memory.check(|_| true);
    assert_eq!(fetches(&come(&mut memory, coming[0].0, Time(1))), []);
    assert_eq!(fetches(&pull(&mut memory, 6, 1, NEAR)).len(), 1, "another has its turn");
    memory.on_process_died(Time(2), NEAR, &mut out);
    memory.check(|slot| slot != NEAR);
}

#[test]
fn an_object_whose_reader_died_comes_for_the_next_one() {
    let mut memory = memory(10, 64);
    assert!(granted(&want(&mut memory, 9, 8)).is_some());
    let mut out = Vec::new();
    let entry = memory.on_imported(NEAR, object(1), 4 * 4096, &mut out).unwrap();
    let reader = ProcessSlot(3);
    memory.on_restore_wanted(Time(0), reader, 1, object(1), &mut out);
    assert_eq!(fetches(&out), [], "there is no room");
    memory.on_process_died(Time(1), reader, &mut out);
    memory.check(|slot| slot != reader);
    memory.on_abandoned(Time(2), WRITER, object(9), &mut out);
    assert_eq!(fetches(&out), [], "nobody wants it");
    memory.on_restore_wanted(Time(3), WRITER, 2, object(1), &mut out);
    assert_eq!(fetches(&out), [(entry, NEAR)]);
    memory.check(|_| true);
}

#[test]
fn an_object_larger_than_the_store_is_known_and_cannot_be_read_here() {
    let mut memory = memory_and_file(10, 64, 10 * 4096);
    let out = pull(&mut memory, 1, 11, NEAR);
    assert_eq!(answers(&out), [(WRITER, Err(FailureKind::Store))]);
    assert_eq!(memory.copy_of(object(1)).map(|(_, peer)| peer), Some(Some(NEAR)));
    assert!(granted(&want(&mut memory, 2, 10)).is_some());
}

/// A store of ten pages, with an object of six on disk.
fn with_one_on_disk() -> (Memory, EntryRef) {
    let mut memory = memory(10, 64);
    let entry = granted(&put(&mut memory, 1, 6)).unwrap();
    let mut out = want(&mut memory, 2, 6);
    memory.on_spilled(Time(0), entry, Ok(()), &mut out);
    memory.on_abandoned(Time(0), WRITER, object(2), &mut out);
    memory.check(|_| true);
    (memory, entry)
}

#[test]
fn two_full_stores_can_each_have_what_the_other_has_on_disk() {
    let [(mut one, first), (mut other, second)] = [with_one_on_disk(), with_one_on_disk()];
    let coming = fetches(&pull(&mut one, 7, 6, NEAR));
    let going = fetches(&pull(&mut other, 7, 6, NEAR));
    assert_eq!((coming.len(), going.len()), (1, 1), "both have set their memory aside");
    // Neither needs any more in order to serve.
    assert_eq!(one.copy_of(object(1)), Some((first, None)));
    assert_eq!(other.copy_of(object(1)), Some((second, None)));
    for (memory, entry) in [(&mut one, coming[0].0), (&mut other, going[0].0)] {
        assert_eq!(answers(&come(memory, entry, Time(1))), [(WRITER, Ok(entry))]);
        assert_eq!(memory.row().restored_objects, 0);
    }
}

#[test]
fn a_reader_gets_the_copy_made_here_when_the_fetch_hangs_or_fails() {
    for is_made_first in [true, false] {
        let mut memory = memory(100, 64);
        let coming = fetches(&pull(&mut memory, 1, 1, NEAR))[0].0;
        let mut out = Vec::new();
        memory.on_process_died(Time(1), NEAR, &mut out);
        let made = granted(&want(&mut memory, 1, 1)).expect("there is room");
        if is_made_first {
            memory.on_sealed(Time(2), WRITER, object(1), &mut out);
            assert_eq!(answers(&out), [(WRITER, Ok(made))], "nobody waits for a node that is gone");
        }
        let lost = memory.on_restored(Time(3), coming, Err("it is gone".to_owned()), &mut out);
        assert_eq!(lost.is_some(), !is_made_first);
        assert_eq!(answers(&out).len(), 1, "a reader was told {:?}", answers(&out));
        memory.check(|_| true);
    }
}
