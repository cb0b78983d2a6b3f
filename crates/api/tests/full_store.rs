//! Values that do not fit into the store's memory next to those in use: on disk, and read there.

use aktis::{Array, Error, ObjectRef, Session, remote};
use std::time::{Duration, Instant};

const MEGABYTE: usize = 1 << 20;
/// Below this, nobody has waited until the node gives up on memory.
const PATIENCE: Duration = Duration::from_secs(20);

#[remote]
fn filled(byte: u8, megabytes: usize) -> Array<u8> {
    Array::from(vec![byte; megabytes * MEGABYTE])
}

#[remote]
fn join(first: Array<u8>, second: Array<u8>) -> Array<u8> {
    Array::from([&first[..], &second[..]].concat())
}

#[remote]
fn last_byte(array: Array<u8>) -> u8 {
    array[array.len() - 1]
}

fn start(cpus: u32, store_megabytes: usize) -> Session {
    Session::builder().cpus(cpus).store_bytes((store_megabytes * MEGABYTE) as u64).start().unwrap()
}

/// Joins neighbours until one array is left.
fn joined(mut arrays: Vec<ObjectRef<Array<u8>>>) -> ObjectRef<Array<u8>> {
    while arrays.len() > 1 {
        let mut rest = arrays.into_iter();
        let mut next = Vec::new();
        while let Some(first) = rest.next() {
            next.push(match rest.next() {
                Some(second) => join::remote(first, second),
                None => first,
            });
        }
        arrays = next;
    }
    arrays.remove(0)
}

#[test]
fn tasks_that_fit_one_by_one_all_finish_on_any_number_of_cpus() {
    for cpus in [1, 2, 3, 4, 8] {
        let session = start(cpus, 64);
        let _entered = session.enter();
        let begin = Instant::now();
        let joins: Vec<_> =
            (0..8_u8).map(|n| join::remote(filled::remote(2 * n, 8), filled::remote(2 * n + 1, 8))).collect();
        for (n, joined) in (0..).zip(joins) {
            let array = joined.get_timeout(PATIENCE).unwrap_or_else(|error| panic!("{cpus} CPUs: {error}"));
            assert_eq!(array.len(), 16 * MEGABYTE);
            assert!(array[..8 * MEGABYTE].iter().all(|byte| *byte == 2 * n));
            assert!(array[8 * MEGABYTE..].iter().all(|byte| *byte == 2 * n + 1));
        }
        println!("{cpus} CPUs: {:?}", begin.elapsed());
        assert!(begin.elapsed() < PATIENCE, "{cpus} CPUs took {:?}", begin.elapsed());
    }
}

#[test]
fn free_memory_in_pieces_is_no_reason_to_fail() {
    let session = start(2, 160);
    let _entered = session.enter();
    let mut read: Vec<_> =
        (0..24_u8).map(|n| session.put(Array::from(vec![n; 5 * MEGABYTE])).unwrap().get().unwrap()).collect();
    let mut number = 0;
    read.retain(|_| {
        number += 1;
        number % 2 == 0
    });
    let begin = Instant::now();
    let large = session.put(Array::from(vec![7_u8; 64 * MEGABYTE])).unwrap();
    assert!(large.get().unwrap().iter().all(|byte| *byte == 7));
    assert_eq!(last_byte::remote(large).get_timeout(PATIENCE).unwrap(), 7, "workers read it, too");
    assert!(begin.elapsed() < PATIENCE, "it took {:?}", begin.elapsed());
    assert!(read.iter().zip(0..).all(|(array, n)| array[0] == 2 * n + 1), "what is read stays");
}

#[test]
fn a_tree_of_joins_as_large_as_the_store_finishes() {
    for store in [64, 155, 160] {
        let session = start(2, store);
        let _entered = session.enter();
        let begin = Instant::now();
        let leaves = (0..16).map(|n| filled::remote(n, 4)).collect();
        let array = joined(leaves).get_timeout(PATIENCE).unwrap_or_else(|error| panic!("{store}: {error}"));
        assert_eq!(array.len(), 64 * MEGABYTE);
        for (part, n) in array.chunks(4 * MEGABYTE).zip(0..) {
            assert!(part.iter().all(|byte| *byte == n));
        }
        println!("{store} MiB: {:?}", begin.elapsed());
    }
}

#[test]
fn a_value_larger_than_the_store_goes_to_disk_within_its_bound() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || Session::builder().cpus(2).store_bytes(16 << 20).spill_directory(directory.path());
    let session = builder().start().unwrap();
    let entered = session.enter();
    let large = filled::remote(5, 64);
    assert!(large.get_timeout(PATIENCE).unwrap().iter().all(|byte| *byte == 5));
    assert_eq!(last_byte::remote(large).get_timeout(PATIENCE).unwrap(), 5);
    drop(entered);
    session.shutdown();

    let session = builder().spill_bytes_max(32 << 20).start().unwrap();
    let _entered = session.enter();
    let outcome = session.put(Array::from(vec![0_u8; 64 * MEGABYTE]));
    let Err(Error::Store(text)) = outcome else { panic!("{outcome:?}") };
    assert!(text.contains("larger than the object store of 16777216 bytes"), "{text}");
    assert!(text.contains("spill_bytes_max"), "{text}");
    assert_eq!(filled::remote(1, 1).get().unwrap().len(), MEGABYTE, "the store is still usable");
}
