//! Estimates pi with many small tasks, and refines the answer as results come in.
//!
//! `cargo run --release --example monte_carlo`

use aktis::prelude::*;

const SAMPLES: u64 = 200_000;
const TASKS: u64 = 64;

/// A small generator of random numbers, so that the example needs nothing else.
struct Random(u64);

impl Random {
    fn between_zero_and_one(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[remote]
fn points_in_circle(seed: u64, samples: u64) -> u64 {
    let mut random = Random(seed);
    let inside =
        |_: &u64| random.between_zero_and_one().powi(2) + random.between_zero_and_one().powi(2) <= 1.0;
    (0..samples).filter(inside).count() as u64
}

fn main() -> aktis::Result<()> {
    let _session = aktis::init()?;
    let tasks = (0..TASKS).map(|seed| points_in_circle::remote(seed << 32, SAMPLES));
    let (mut inside, mut done) = (0, 0);
    for count in aktis::as_completed(tasks) {
        inside += count?.get()?;
        done += 1;
        if done % 16 == 0 {
            println!(
                "after {done:2} tasks: pi is about {:.5}",
                4.0 * inside as f64 / (done * SAMPLES) as f64
            );
        }
    }
    Ok(())
}
