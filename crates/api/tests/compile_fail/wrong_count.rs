use aktis::prelude::*;

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

fn main() {
    let _ = square::remote(1, 2);
}
