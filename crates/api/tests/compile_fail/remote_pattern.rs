use aktis::prelude::*;

#[remote]
fn add((a, b): (u64, u64)) -> u64 {
    a + b
}

fn main() {}
