use aktis::prelude::*;

#[remote(num_cpus = 2)]
fn near() {}

#[remote(colour = "red")]
fn far() {}

#[remote(restarts = 2)]
fn an_actors() {}

#[remote(cpus = 1, cpus = 2)]
fn twice() {}

fn main() {}
