use aktis::prelude::*;

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

#[remote]
fn length(text: String) -> usize {
    text.len()
}

fn main() {
    let _ = square::remote("three");
    let text = aktis::put("three".to_owned()).unwrap();
    let _ = square::remote(text);
    let _ = length::remote(&"three".to_owned());
}
