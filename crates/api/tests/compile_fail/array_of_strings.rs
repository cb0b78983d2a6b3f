use aktis::prelude::*;

fn main() {
    let _ = Array::from(vec!["text".to_owned()]);
}
