//! Copies of values of all sizes into memory.

use aktis_store::copy::{LARGE_BYTES_MIN, copy};

/// Bytes of which no two neighbouring lines are alike.
fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect()
}

#[test]
fn large_values_arrive_whole_at_any_alignment() {
    let lengths = [0, 1, LARGE_BYTES_MIN - 1, LARGE_BYTES_MIN, LARGE_BYTES_MIN + 1, 3 * LARGE_BYTES_MIN + 77];
    for len in lengths {
        let source = numbered(len + 3);
        for (skip_source, skip_target) in [(0, 0), (3, 0), (0, 1), (1, 63)] {
            let mut target = vec![0xaa; skip_target + len + 1];
            let source = &source[skip_source..skip_source + len];
            copy(&mut target[skip_target..skip_target + len], source);
            assert!(
                target[skip_target..].starts_with(source),
                "{len} bytes from {skip_source} to {skip_target}"
            );
            assert!(target[..skip_target].iter().all(|byte| *byte == 0xaa), "nothing before it");
            assert_eq!(target.last(), Some(&0xaa), "nothing behind it");
        }
    }
}

#[test]
#[should_panic(expected = "as long as its source")]
fn a_copy_to_another_length_is_refused() {
    copy(&mut [0; 3], &[0; 4]);
}
