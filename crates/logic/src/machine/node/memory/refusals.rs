//! What users read when the object store cannot help.

use super::PINNED_WAIT_MICROSECONDS_MAX;
use aktis_protocol::{Failure, FailureKind};

/// `file` is how much may be spilled; none if the spill file could not be made.
pub(super) fn too_large(bytes: u64, size: u64, file: Option<u64>) -> Failure {
    let text = format!("an object of {bytes} bytes is larger than the object store of {size} bytes");
    let text = match file {
        Some(file) => format!(
            "{text}, and than the {file} bytes that may be spilled\n\
             hint: start the session with a larger store_bytes or spill_bytes_max, or split the object"
        ),
        None => format!(
            "{text}, and there is no spill file\n\
             hint: start the session with a larger store_bytes, or with a spill_directory that can be written to"
        ),
    };
    Failure::new(FailureKind::Store, text)
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

/// `has_file` says whether there is a spill file; then it has no room for so many bytes.
pub(super) fn all_in_use(bytes: u64, has_file: bool) -> Failure {
    let (why, remedy) = match has_file {
        true => ("may not be spilled", "raise spill_bytes_max or store_bytes"),
        false => {
            ("there is no spill file", "choose a spill_directory that can be written to, raise store_bytes")
        }
    };
    let seconds = PINNED_WAIT_MICROSECONDS_MAX / 1_000_000;
    Failure::new(
        FailureKind::Store,
        format!(
            "the object store is full of values in use; {bytes} bytes did not get free within {seconds} s, \
             and {why}\n\
             hint: {remedy}, or drop arrays that were read from the store before making new ones"
        ),
    )
}
