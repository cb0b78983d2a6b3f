//! What is refused leads to one error, wherever it is used.

use aktis::prelude::*;

#[remote]
fn borrow(text: &str, times: usize) -> usize {
    text.len() * times
}

#[remote]
fn iterate(to: u64) -> impl Iterator<Item = u64> {
    0..to
}

#[remote(colour = "red", cpus = 2)]
fn paint(wall: String) -> String {
    wall
}

#[remote(returns = 3)]
fn split(text: String) -> (String, usize) {
    let length = text.len();
    (text, length)
}

#[remote(stream)]
fn collect(to: u64) -> Vec<u64> {
    (0..to).collect()
}

#[remote]
async fn fetch(url: String) -> String {
    url
}

struct Counter {
    total: u64,
}

#[actor(max_restarts = 3, priority = 1)]
impl Counter {
    fn new(start: u64) -> Self {
        Self { total: start }
    }
    fn add(&mut self, n: &u64) -> u64 {
        self.total += n;
        self.total
    }
    fn total(&self) -> u64 {
        self.total
    }
}

fn main() -> aktis::Result<()> {
    let length = borrow::remote("text", 2).get()? + 1;
    let _ = iterate::remote(3);
    let painted: String = paint::options().cpus(1).remote("wall").get()?;
    let (_text, _length) = split::remote("text");
    for item in collect::remote(3) {
        item?;
    }
    let fetched: String = fetch::remote("url").get()?;
    let counter: CounterHandle = Counter::options().restarts(1).remote(3);
    counter.add(&1).get()?;
    let total: u64 = counter.total().get()?;
    let _ = (length, painted, fetched, total, Counter::find("it")?);
    Ok(())
}
