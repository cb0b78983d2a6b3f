//! All that workers, drivers and templates can send: `cargo +nightly fuzz run workers` from the root.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aktis_protocol::fuzz::workers(bytes));
