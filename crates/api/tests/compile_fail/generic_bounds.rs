use aktis::prelude::*;

#[remote(T = [u64, String])]
fn double<T: Copy>(x: T) -> T {
    x
}

struct Local;

#[remote(T = [Local])]
fn hold<T>(_x: T) {}

#[remote(T = [u64])]
fn listed<T>(x: T) -> T {
    x
}

struct Stack<T>(Vec<T>);

#[actor(T = [u64])]
impl<T> Stack<T> {
    fn new() -> Self {
        Self(Vec::new())
    }
    fn push(&mut self, item: T) {
        self.0.push(item);
    }
}

fn main() {
    let _ = listed::<u8>::remote(1);
    let _ = listed::<u8>::options();
    let _ = Stack::<u8>::remote();
}
