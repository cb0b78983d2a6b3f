//! All that can be on disk in a snapshot: `cargo +nightly fuzz run disk` from the root.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aktis_protocol::fuzz::disk(bytes));
