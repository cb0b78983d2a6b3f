use aktis::prelude::*;

struct Counter;

impl Counter {
    #[remote]
    fn add(&self, n: u64) -> u64 {
        n
    }
}

fn main() {}
