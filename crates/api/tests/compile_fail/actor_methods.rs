use aktis::prelude::*;

struct Counter;

#[actor]
impl Counter {
    fn new() -> Self {
        Self
    }
    fn consume(self) -> u64 {
        1
    }
    fn borrow(&self, text: &str) -> usize {
        text.len()
    }
    fn generic<T>(&self, _value: Vec<T>) {}
    fn iterate(&self) -> impl Iterator<Item = u64> {
        0..3
    }
    #[local]
    fn fine<'a>(&self, text: &'a str) -> &'a str {
        text
    }
}

fn main() {}
