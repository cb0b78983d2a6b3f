//! Memory that goes back to the system.

use super::super::reclaim::{KEPT_BYTES, KEPT_MICROSECONDS};
use super::*;

const KEPT_PAGES: u64 = KEPT_BYTES / 4096;

/// Lets time pass until something is due; how many pages were given back then, which nobody uses.
fn step(memory: &mut Memory) -> Option<(Time, u64)> {
    let now = memory.next_wakeup()?;
    let mut out = Vec::new();
    memory.on_ticked(now, &mut out);
    memory.check(|_| true);
    let in_use: Vec<_> =
        memory.copies.iter().filter_map(|copy| Some((copy.arena_offset()?, copy.bytes))).collect();
    let given = out.iter().map(|effect| {
        let NodeEffect::GiveBack { offset, bytes } = *effect else { return 0 };
        let is_free = |(start, length): &(u64, u64)| start + length <= offset || offset + bytes <= *start;
        assert!(bytes > 0 && bytes % 4096 == 0 && in_use.iter().all(is_free));
        bytes / 4096
    });
    Some((now, given.sum()))
}

/// Lets time pass until nothing is due; when something was given back, and how many pages.
fn pass(memory: &mut Memory) -> Vec<(Time, u64)> {
    std::iter::from_fn(|| step(memory)).filter(|(_, pages)| *pages > 0).collect()
}

fn pages(given: &[(Time, u64)]) -> u64 {
    given.iter().map(|(_, pages)| pages).sum()
}

#[test]
fn freed_memory_goes_back_after_a_while_but_for_some() {
    let mut memory = memory(8 * KEPT_PAGES, 16);
    for number in 0..6 {
        put(&mut memory, number, KEPT_PAGES);
    }
    assert_eq!(memory.next_wakeup(), None, "nothing was freed");
    for number in [0, 1, 3, 4, 5] {
        release(&mut memory, number);
    }
    let given = pass(&mut memory);
    assert_eq!(pages(&given), 4 * KEPT_PAGES);
    assert!(given[0].0 >= Time(KEPT_MICROSECONDS) && given[0].0 <= Time(2 * KEPT_MICROSECONDS));
    assert!(given.iter().all(|(_, pages)| pages * 4096 <= 16 << 20), "in steps");
    assert_eq!(memory.available_bytes(), 7 * KEPT_BYTES, "it can be used again");
    assert_eq!(pass(&mut memory), [], "once");
    put(&mut memory, 9, 5 * KEPT_PAGES);
}

#[test]
fn memory_that_is_used_again_and_again_stays() {
    let mut memory = memory(8 * KEPT_PAGES, 16);
    let mut now = Time(0);
    for round in 0..20 {
        let mut out = Vec::new();
        memory.on_extent_wanted(now, WRITER, round, object(u64::from(round)), 4 * KEPT_BYTES, &mut out);
        let entry = granted(&out).expect("it is free");
        memory.on_abandoned(now, WRITER, object(u64::from(round)), &mut out);
        assert_eq!(entry.index, 0);
        now.0 += KEPT_MICROSECONDS / 2;
        out.clear();
        memory.on_ticked(now, &mut out);
        assert!(out.is_empty(), "round {round}: {out:?}");
    }
    assert_eq!(pages(&pass(&mut memory)), 3 * KEPT_PAGES, "until it rests");
}

#[test]
fn what_is_granted_while_memory_goes_back_is_left_alone() {
    let mut memory = memory(8 * KEPT_PAGES, 16);
    put(&mut memory, 0, 6 * KEPT_PAGES);
    release(&mut memory, 0);
    let (mut given, mut taken) = (0, 0);
    while let Some((_, pages)) = step(&mut memory) {
        given += pages;
        if given > 0 && taken < 4 {
            taken += 1;
            put(&mut memory, taken, KEPT_PAGES);
        }
    }
    assert!(taken == 4 && given > 0 && given < 5 * KEPT_PAGES, "{given} pages");
}
