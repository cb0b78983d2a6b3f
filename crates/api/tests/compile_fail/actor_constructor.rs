use aktis::prelude::*;

struct Without;

#[actor]
impl Without {
    fn add(&mut self, n: u64) -> u64 {
        n
    }
}

struct Wrong;

#[actor]
impl Wrong {
    fn new() -> u64 {
        1
    }
}

struct Asynchronous;

#[actor]
impl Asynchronous {
    async fn new() -> Self {
        Self
    }
}

fn main() {}
