use aktis::prelude::*;

type Outcome = Result<u64, String>;

#[remote]
fn parse(text: String) -> Outcome {
    text.parse().map_err(|_| text)
}

struct Parser;

#[actor]
impl Parser {
    fn new() -> Self {
        Self
    }
    fn parse(&self, text: String) -> Outcome {
        text.parse().map_err(|_| text)
    }
}

fn main() {}
