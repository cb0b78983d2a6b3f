use aktis::prelude::*;

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

fn main() {
    let _ = square::remote("three");
    let text = aktis::put("three".to_owned()).unwrap();
    let _ = square::remote(text);
}
