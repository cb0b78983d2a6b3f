//! All that members of a cluster can send: `cargo +nightly fuzz run members` from the root.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| aktis_protocol::fuzz::members(bytes));
