use aktis::prelude::*;

#[remote(returns = 2)]
fn three() -> (u8, u8, u8) {
    (1, 2, 3)
}

#[remote(returns = 1)]
fn one() -> (u8,) {
    (1,)
}

#[remote]
fn unclear() -> std::fmt::Result {
    Ok(())
}

fn main() {}
