use aktis::prelude::*;

struct Counter;

#[actor]
impl Default for Counter {
    fn default() -> Self {
        Counter
    }
}

fn main() {}
