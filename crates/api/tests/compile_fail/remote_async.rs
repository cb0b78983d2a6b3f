use aktis::prelude::*;

#[remote]
async fn fetch(url: String) -> String {
    url
}

fn main() {}
