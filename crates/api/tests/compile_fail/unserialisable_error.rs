use aktis::prelude::*;

#[derive(Debug)]
struct FitError;

#[remote]
fn fit(epochs: u32) -> Result<u32, FitError> {
    if epochs == 0 { Err(FitError) } else { Ok(epochs) }
}

fn main() {}
