use aktis::prelude::*;

#[remote]
fn identity<T>(x: T) -> T {
    x
}

#[remote]
fn bounded(x: u64) -> u64
where
    u64: Copy,
{
    x
}

fn main() {}
