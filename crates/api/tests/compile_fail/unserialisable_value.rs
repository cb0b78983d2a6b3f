use aktis::prelude::*;

struct Model;

#[remote]
fn improve(model: Model) -> Model {
    model
}

fn main() {}
