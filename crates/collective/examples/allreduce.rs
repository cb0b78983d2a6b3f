//! Trains a linear model on data that is spread over workers, which average their gradients with `all_reduce`.
//!
//! After the reduction all have the same gradient, so they take the same step and stay equal, without a server in the
//! middle.
//!
//! Run it with `cargo run --release -p aktis-collective --example allreduce`.

use aktis::prelude::*;
use aktis_collective::{Card, Group, Options, ReduceOp, Seat};

const WORKERS: usize = 4;
const STEPS: usize = 200;
const RATE: f64 = 0.5;
const WEIGHTS: [f64; 3] = [3.0, -2.0, 0.5];

struct Worker {
    rank: usize,
    seat: Option<Seat>,
    group: Option<Group>,
}

#[actor]
impl Worker {
    fn new(rank: usize) -> Self {
        Self { rank, seat: None, group: None }
    }

    fn open(&mut self) -> Card {
        let node = aktis::node().expect("an actor runs on a node").to_string();
        let seat = Seat::open(&node, None).expect("a seat can be opened");
        self.seat.insert(seat).card().clone()
    }

    fn join(&mut self, cards: Vec<Card>) {
        let seat = self.seat.take().expect("open comes before join");
        self.group = Some(seat.join(self.rank, &cards, Options::default()).expect("all members join"));
    }

    fn train(&mut self) -> Vec<f64> {
        let rows = rows(self.rank);
        let group = self.group.as_mut().expect("join comes before train");
        let mut weights = vec![0.0; WEIGHTS.len()];
        for _ in 0..STEPS {
            let mut gradient = vec![0.0; weights.len()];
            for (inputs, output) in &rows {
                let error = inputs.iter().zip(&weights).map(|(x, weight)| x * weight).sum::<f64>() - output;
                for (slope, x) in gradient.iter_mut().zip(inputs) {
                    *slope += error * x / (rows.len() * WORKERS) as f64;
                }
            }
            group.all_reduce(&mut gradient, ReduceOp::Sum).expect("all members take part");
            for (weight, slope) in weights.iter_mut().zip(&gradient) {
                *weight -= RATE * slope;
            }
        }
        weights
    }
}

/// The data of one worker: inputs from -1 to 1, and their weighted sum.
fn rows(rank: usize) -> Vec<([f64; 3], f64)> {
    let part = |row: usize, column: usize| ((row * (7 + 6 * column) + rank * 31) % 17) as f64 / 8.0 - 1.0;
    let inputs = |row| [part(row, 0), part(row, 1), part(row, 2)];
    let output = |inputs: [f64; 3]| inputs.iter().zip(WEIGHTS).map(|(x, weight)| x * weight).sum();
    (0..500).map(|row| (inputs(row), output(inputs(row)))).collect()
}

fn main() -> aktis::Result<()> {
    let _session = aktis::init()?;
    let workers: Vec<_> = (0..WORKERS).map(Worker::remote).collect();
    let cards = workers.iter().map(|worker| worker.open().get()).collect::<aktis::Result<Vec<Card>>>()?;
    let joined: Vec<_> = workers.iter().map(|worker| worker.join(cards.clone())).collect();
    aktis::get_all(&joined)?;
    let trained: Vec<_> = workers.iter().map(|worker| worker.train()).collect();
    let weights = aktis::get_all(&trained)?;
    println!("weights: {:+.2?}", weights[0]);
    println!("all workers have the same: {}", weights.iter().all(|each| *each == weights[0]));
    Ok(())
}
