use aktis::prelude::*;

#[remote]
fn sum(numbers: &[f32], names: Vec<&'static str>) -> f32 {
    numbers.iter().sum::<f32>() + names.len() as f32
}

#[remote]
fn name() -> &'static str {
    "name"
}

fn main() {}
