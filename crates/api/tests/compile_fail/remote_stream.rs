use aktis::prelude::*;

#[remote(stream)]
fn not_an_iterator() -> Vec<u64> {
    vec![1]
}

#[remote(stream_ahead = 2)]
fn not_a_stream() {}

#[remote(stream, returns = 2)]
fn both() -> impl Iterator<Item = u64> {
    0..2
}

fn main() {}
