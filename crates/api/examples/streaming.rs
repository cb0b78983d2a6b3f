//! A task gives its results one by one, and waits for its consumer when it is too far ahead.
//!
//! `cargo run --release --example streaming`

use aktis::prelude::*;

#[remote(stream, stream_ahead = 4)]
fn primes(to: u64) -> impl Iterator<Item = u64> {
    (2..to).filter(|n| (2..).take_while(|d| d * d <= *n).all(|d| n % d != 0))
}

#[remote]
fn describe(prime: u64) -> String {
    format!("{prime} = {prime:#b}")
}

#[remote(stream)]
fn countdown(from: i64) -> impl Iterator<Item = Result<i64, String>> {
    (-1..=from).rev().map(|n| if n < 0 { Err("too late to stop".to_owned()) } else { Ok(n) })
}

fn main() -> aktis::Result<()> {
    let _session = aktis::init()?;
    // Each item is a reference: it can go into another task before its value has been here.
    for prime in primes::remote(1_000_000).take(5) {
        println!("{}", describe::remote(prime?).get()?);
    }
    for number in countdown::remote(3) {
        match number.and_then(|number| number.get()) {
            Ok(number) => println!("{number} ..."),
            Err(error) => println!("failed: {error}"),
        }
    }
    Ok(())
}
