//! Everything once: tasks, references, actors, shared arrays, waiting, errors.
//!
//! `cargo run --release --example quickstart`

use aktis::prelude::*;
use serde::{Deserialize, Serialize};

/// Still an ordinary function: `square(3)` works, and `square::remote(3)` runs it in a worker process.
#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

/// A task may submit tasks and wait for them.
#[remote]
fn sum_of_squares(to: u64) -> aktis::Result<u64> {
    let squares: Vec<_> = (1..=to).map(square::remote).collect();
    Ok(aktis::get_all(&squares)?.into_iter().sum())
}

/// The array is read where it lies in shared memory; nothing is copied.
#[remote]
fn total(numbers: Array<f64>) -> f64 {
    numbers.iter().sum()
}

#[remote]
fn sleep(milliseconds: u64) -> u64 {
    std::thread::sleep(Duration::from_millis(milliseconds));
    milliseconds
}

/// An error of the user's own: it comes back as what it is.
#[derive(Debug, Serialize, Deserialize)]
struct TooSmall {
    at_least: u64,
}

impl std::fmt::Display for TooSmall {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the number must be at least {}", self.at_least)
    }
}

#[remote]
fn half(x: u64) -> Result<u64, TooSmall> {
    if x < 2 { Err(TooSmall { at_least: 2 }) } else { Ok(x / 2) }
}

#[remote]
fn explode() {
    panic!("this was bound to happen");
}

#[remote(gpus = 64)]
fn needs_many_gpus() {}

struct Counter {
    total: u64,
}

/// Lives in a worker process; its methods run one after another.
#[actor]
impl Counter {
    fn new(start: u64) -> Self {
        Counter { total: start }
    }
    fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }
}

fn main() -> aktis::Result<()> {
    let session = aktis::init()?;

    let nine = square::remote(3);
    println!("a task           square(3) = {}", nine.get()?);

    let sum = add::remote(&nine, square::remote(4));
    println!("references       add(square(3), square(4)) = {}", sum.get()?);

    println!("nested tasks     1 + 4 + ... + 100 = {}", sum_of_squares::remote(10).get()?);

    let counter = Counter::remote(10);
    for n in 1..=3 {
        counter.add(n);
    }
    println!("an actor         10 + 1 + 2 + 3 + 9 = {}", counter.add(nine).get()?);

    let numbers = session.put(Array::from(vec![0.5; 1_000_000]))?;
    let totals: Vec<_> = (0..4).map(|_| total::remote(&numbers)).collect();
    println!("a shared array   4 tasks read 8 MB in place: {:?}", session.get_all(&totals)?);

    let sleeps = [400, 10, 20].map(sleep::remote).to_vec();
    let (ready, rest) = session.wait(sleeps, 2, Duration::from_secs(5))?;
    println!("wait             ready first: {:?}, still running: {}", session.get_all(&ready)?, rest.len());

    if let Err(aktis::Error::Task(error)) = half::remote(1).get() {
        println!("a typed error    {:?}", error.downcast::<TooSmall>().expect("half returns TooSmall"));
    }

    if let Err(aktis::Error::Task(error)) = explode::remote().get() {
        println!(
            "a panic          {:?} at {}",
            error.message(),
            error.location().unwrap_or("an unknown place")
        );
    }

    let never = needs_many_gpus::remote();
    println!("explain          {}", aktis::explain(&never).replace('\n', "\n                 "));
    Ok(())
}
