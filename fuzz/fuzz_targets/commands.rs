//! All that command lines can send, and people can write there: `cargo +nightly fuzz run commands` from the root.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aktis_protocol::fuzz::commands(bytes));
