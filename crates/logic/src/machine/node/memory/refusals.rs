//! What users read when the object store cannot help.

use super::PINNED_WAIT_MICROSECONDS_MAX;
use aktis_protocol::{Failure, FailureKind};

pub(super) fn too_large(bytes: u64, size: u64) -> Failure {
    Failure::new(
        FailureKind::Store,
        format!(
            "an object of {bytes} bytes is larger than the object store of {size} bytes\n\
             hint: start the session with a larger store_bytes, or split the object"
        ),
    )
}

pub(super) fn too_many(entries: u32) -> Failure {
    Failure::new(
        FailureKind::Store,
        format!(
            "the object store holds {entries} objects, which is its limit\n\
             hint: drop references that are not needed, or put several values into one object"
        ),
    )
}

pub(super) fn refused(bytes: u64, text: &str) -> Failure {
    Failure::new(
        FailureKind::Store,
        format!(
            "the object store is full, and {bytes} bytes could not be freed by spilling: {text}\n\
             hint: drop references that are not needed, raise store_bytes or spill_bytes_max, \
             or choose a spill_directory with more space"
        ),
    )
}

pub(super) fn all_in_use(bytes: u64) -> Failure {
    let seconds = PINNED_WAIT_MICROSECONDS_MAX / 1_000_000;
    Failure::new(
        FailureKind::Store,
        format!(
            "the object store is full of values in use; {bytes} bytes did not get free within {seconds} s\n\
             hint: drop arrays that were read from the store before making new ones, or raise store_bytes"
        ),
    )
}
