//! An actor holds the weights of a linear model; tasks compute gradients on their shares of the data.
//!
//! `cargo run --release --example parameter_server`

use aktis::prelude::*;

const FEATURES: usize = 4;
const TRUTH: [f64; FEATURES] = [0.5, -1.0, 2.0, 3.0];

struct ParameterServer {
    weights: Vec<f64>,
}

#[actor]
impl ParameterServer {
    fn new(features: usize) -> Self {
        Self { weights: vec![0.0; features] }
    }

    fn weights(&self) -> Array<f64> {
        Array::from_slice(&self.weights)
    }

    fn apply(&mut self, gradient: Array<f64>, rate: f64) {
        for (weight, slope) in self.weights.iter_mut().zip(&gradient) {
            *weight -= rate * slope;
        }
    }
}

/// The share of one worker: rows of features followed by the label.
#[remote]
fn make_rows(share: u64) -> Array<f64> {
    let feature = |row: u64, column: u64| (((row * 7 + column * 13 + share * 31) % 17) as f64 - 8.0) / 8.0;
    let row = |row: u64| {
        let features: Vec<f64> =
            (0..FEATURES as u64).map(|column| feature(row * row, column + row)).collect();
        let label = features.iter().zip(TRUTH).map(|(x, weight)| x * weight).sum();
        features.into_iter().chain([label])
    };
    (0..500).flat_map(row).collect()
}

#[remote]
fn gradient(rows: Array<f64>, weights: Array<f64>) -> Array<f64> {
    let mut gradient = vec![0.0; weights.len()];
    let (rows, weights) = (&rows[..], &weights[..]);
    let count = (rows.len() / (FEATURES + 1)) as f64;
    for row in rows.chunks_exact(FEATURES + 1) {
        let error = row.iter().zip(weights).map(|(x, weight)| x * weight).sum::<f64>() - row[FEATURES];
        for (slope, x) in gradient.iter_mut().zip(row) {
            *slope += 2.0 * error * x / count;
        }
    }
    gradient.into()
}

fn main() -> aktis::Result<()> {
    let _session = aktis::init()?;
    let server = ParameterServer::remote(FEATURES);
    let shares: Vec<_> = (0..4).map(make_rows::remote).collect();
    for step in 0..=200 {
        // The weights are fetched once and read by all; each gradient goes straight to the server.
        let weights = server.weights();
        let applied: Vec<_> =
            shares.iter().map(|rows| server.apply(gradient::remote(rows, &weights), 0.1)).collect();
        aktis::get_all(&applied)?;
        if step % 50 == 0 {
            println!("step {step:3}: {:.3?}", &server.weights().get()?[..]);
        }
    }
    println!("truth   : {TRUTH:.3?}");
    Ok(())
}
