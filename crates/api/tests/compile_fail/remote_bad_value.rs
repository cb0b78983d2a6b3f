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

#[remote(priority = 0.5)]
fn half_urgent() {}

#[remote(priority = -3000000000)]
fn not_urgent_at_all() {}

#[remote(deadline = 0)]
fn too_late() {}

#[remote(deadline = "soon")]
fn soon() {}

fn main() {}
