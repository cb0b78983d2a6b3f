use aktis::prelude::*;

#[remote]
struct Model {
    weights: Vec<f32>,
}

#[actor]
fn run() {}

fn main() {}
