//! Conditions on a function that runs when a worker starts, on either side of the attribute.
#![deny(missing_docs, warnings, unused, unreachable_pub)]
#![forbid(unsafe_code)]

#[aktis::on_worker_start]
#[cfg(any())]
fn never() -> MissingType {}

#[cfg(any())]
#[aktis::on_worker_start]
fn never_either() -> MissingType {}

#[aktis::on_worker_start]
#[cfg(all())]
fn always() {}

fn main() {}
