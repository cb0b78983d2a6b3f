use aktis::prelude::*;
use std::error::Error;

#[remote]
fn parse(text: String) -> Result<u32, Box<dyn Error>> {
    Ok(text.parse()?)
}

fn main() {}
