//! All that strangers can send: `cargo +nightly fuzz run strangers` from the root.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for target in [aktis_io::fuzz::frames, aktis_io::fuzz::hello, aktis_io::fuzz::answers, aktis_io::fuzz::token] {
        target(bytes);
    }
});
