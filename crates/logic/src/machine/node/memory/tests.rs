//! Memory alone: requests in, orders out.

mod on_disk;
mod pulls;
mod reclaim;

use super::super::SpillRefusal;
use super::*;
use aktis_protocol::{Labels, NodeId, Resources, SessionId, TaskId};

const WRITER: ProcessSlot = ProcessSlot(0);

fn memory(pages: u64, entries: u32) -> Memory {
    memory_and_file(pages, entries, u64::MAX)
}

fn memory_and_file(pages: u64, entries: u32, spill_bytes_max: u64) -> Memory {
    Memory::new(&NodeConfig {
        node: NodeId::default(),
        labels: Labels::new(),
        resources: Resources::none(),
        store_bytes: pages * 4096,
        entries_max: entries,
        spill_bytes_max,
        spill_file_is_shared: true,
        spill_above_percent: SPILL_ABOVE_PERCENT_DEFAULT,
        driver: None,
    })
}

fn object(number: u64) -> ObjectId {
    TaskId::root(SessionId(1)).child(number).returns(0)
}

/// Wants space; what is sent back.
fn want(memory: &mut Memory, number: u64, pages: u64) -> Effects<NodeEffect> {
    let mut out = Vec::new();
    memory.on_extent_wanted(Time(0), WRITER, number as u32, object(number), pages * 4096, &mut out);
    memory.check(|_| true);
    out
}

fn put(memory: &mut Memory, number: u64, pages: u64) -> Effects<NodeEffect> {
    let mut out = want(memory, number, pages);
    assert!(memory.on_sealed(Time(0), WRITER, object(number), &mut out));
    memory.check(|_| true);
    out
}

/// Nobody holds the object, and nobody reads it.
fn release(memory: &mut Memory, number: u64) {
    let mut out = Vec::new();
    memory.forget(Time(0), object(number), &mut out);
    for entry in spills(&out) {
        memory.on_spilled(Time(0), entry, Ok(()), &mut Vec::new());
    }
    memory.check(|_| true);
}

fn granted(out: &[NodeEffect]) -> Option<EntryRef> {
    out.iter().find_map(|effect| match effect {
        NodeEffect::Send { message: FromNode::ExtentGranted { entry, .. }, .. } => Some(*entry),
        _ => None,
    })
}

fn spills(out: &[NodeEffect]) -> Vec<EntryRef> {
    let order = |effect: &NodeEffect| match effect {
        NodeEffect::Spill { entry, .. } => Some(*entry),
        _ => None,
    };
    out.iter().filter_map(order).collect()
}

#[test]
fn an_entry_comes_back_with_another_generation() {
    let mut memory = memory(4, 1);
    let first = granted(&put(&mut memory, 1, 1)).unwrap();
    assert_eq!(granted(&want(&mut memory, 2, 1)), None, "all entries are in use");
    release(&mut memory, 1);
    let second = granted(&put(&mut memory, 2, 1)).unwrap();
    assert_eq!(first.index, second.index);
    assert_ne!(first.generation, second.generation);
}

#[test]
fn only_as_much_is_spilled_as_the_request_needs() {
    let mut memory = memory(10, 16);
    for number in 0..5 {
        put(&mut memory, number, 1);
    }
    let out = want(&mut memory, 9, 7);
    assert_eq!(spills(&out).len(), 2, "seven pages need two more than the five that are free");
    assert_eq!(spills(&want(&mut memory, 10, 1)), [], "the next waits its turn");
}

#[test]
fn free_space_in_pieces_is_not_enough() {
    let mut memory = memory(4, 16);
    let entries: Vec<_> = (0..4).map(|number| granted(&want(&mut memory, number, 1)).unwrap()).collect();
    let mut out = Vec::new();
    for number in [0, 2] {
        memory.on_abandoned(Time(0), WRITER, object(number), &mut out);
    }
    memory.on_sealed(Time(0), WRITER, object(1), &mut out);
    assert_eq!(spills(&want(&mut memory, 9, 2)), [entries[1]], "two pages are free, but apart");
    out.clear();
    memory.on_spilled(Time(0), entries[1], Ok(()), &mut out);
    assert!(granted(&out).is_some());
    memory.check(|_| true);
}

#[test]
fn a_pinned_object_is_passed_over_and_tried_again() {
    let mut memory = memory(10, 16);
    let old = granted(&put(&mut memory, 1, 4)).unwrap();
    let young = granted(&put(&mut memory, 2, 4)).unwrap();
    assert_eq!(spills(&want(&mut memory, 3, 5)), [old]);
    let mut out = Vec::new();
    memory.on_spilled(Time(0), old, Err(SpillRefusal::Pinned), &mut out);
    assert_eq!(spills(&out), [young]);
    out.clear();
    memory.on_spilled(Time(0), young, Err(SpillRefusal::Pinned), &mut out);
    assert_eq!(spills(&out), []);
    assert_eq!(memory.next_wakeup(), Some(Time(SPARED_MICROSECONDS)));
    memory.on_ticked(Time(SPARED_MICROSECONDS), &mut out);
    assert_eq!(spills(&out), [old], "both may go again, the one found pinned first comes first");
}

#[test]
fn two_copies_of_one_object_go_together() {
    let mut memory = memory(10, 16);
    put(&mut memory, 1, 1);
    put(&mut memory, 1, 1);
    assert_eq!(memory.copies.len(), 2, "a task that ran again wrote the same object again");
    release(&mut memory, 1);
    assert_eq!((memory.copies.len(), memory.available_bytes()), (0, 10 * 4096));
}

#[test]
fn a_value_in_use_keeps_its_memory_and_is_looked_at_less_and_less_often() {
    let mut memory = memory(10, 16);
    let entry = granted(&put(&mut memory, 1, 1)).unwrap();
    let mut out = Vec::new();
    memory.forget(Time(0), object(1), &mut out);
    let mut looks = Vec::new();
    for _ in 0..10 {
        assert_eq!(spills(&out), [entry]);
        let now = looks.last().copied().unwrap_or(Time(0));
        memory.on_spilled(now, entry, Err(SpillRefusal::Pinned), &mut out);
        memory.check(|_| true);
        let next = memory.next_wakeup().unwrap();
        out.clear();
        memory.on_ticked(next, &mut out);
        looks.push(next);
    }
    let pauses: Vec<u64> = looks.windows(2).map(|pair| (pair[1].0 - pair[0].0) / 1000).collect();
    assert_eq!(pauses, [20, 40, 80, 160, 320, 640, 1000, 1000, 1000]);
    assert_eq!(memory.available_bytes(), 9 * 4096);
    memory.on_spilled(looks[9], entry, Ok(()), &mut out);
    assert_eq!(memory.available_bytes(), 10 * 4096);
}
