use aktis::prelude::*;

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

fn main() {
    let _: ObjectRef<String> = square::remote(3);
}
