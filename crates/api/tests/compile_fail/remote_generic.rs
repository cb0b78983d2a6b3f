use aktis::prelude::*;

#[remote]
fn identity<T>(x: T) -> T {
    x
}

#[remote]
fn sized<const N: usize>(x: Vec<u8>) -> bool {
    x.len() == N
}

#[remote]
fn borrowed<'a>(x: u64) -> u64 {
    x
}

#[remote]
fn bounded(x: u64) -> u64
where
    u64: Copy,
{
    x
}

struct Generic<T>(T);

#[actor]
impl<T> Generic<T> {
    fn new(value: T) -> Self {
        Self(value)
    }
}

fn main() {
    // A refused function or actor leads to no other errors.
    let _ = identity::remote(3).get();
    let _ = identity::<u64>::options().cpus(2).remote(3).get();
    let _ = Generic::<u64>::remote(3);
    let _ = bounded::remote(3).get().unwrap() + 1;
}
