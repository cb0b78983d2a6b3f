use aktis::prelude::*;

#[remote]
fn total(numbers: impl Iterator<Item = u64>) -> u64 {
    numbers.sum()
}

#[remote]
fn apply(function: Box<dyn Fn(u64) -> u64>) -> u64 {
    function(1)
}

#[remote]
fn numbers() -> impl Iterator<Item = u64> {
    0..3
}

fn main() {}
