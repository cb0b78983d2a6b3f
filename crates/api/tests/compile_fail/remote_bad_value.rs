use aktis::prelude::*;

#[remote(gpus = -1)]
fn negative() {}

#[remote(gpus = 0.00001)]
fn too_fine() {}

#[remote(cpus)]
fn missing() {}

#[remote(retries = 1.5)]
fn fraction() {}

#[remote(isolated = true)]
fn flag() {}

#[remote(name = "")]
fn unnamed() {}

fn main() {}
