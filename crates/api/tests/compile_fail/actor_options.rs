use aktis::prelude::*;

struct Counter;

#[actor(retries = 3)]
impl Counter {
    fn new() -> Self {
        Self
    }
}

struct Other;

#[actor(max_concurrency = 0)]
impl Other {
    fn new() -> Self {
        Self
    }
}

fn main() {}
