use aktis::prelude::*;

struct Index;

#[actor]
impl Index {
    fn new() -> Self {
        Self
    }
    fn find(&self, word: String) -> usize {
        word.len()
    }
    #[local]
    fn options(&self) -> u8 {
        1
    }
    fn remote() -> Self {
        Self
    }
    fn id(&self) -> u8 {
        1
    }
}

fn main() {
    let index = Index::remote();
    let _ = index.find("x".to_owned());
}
