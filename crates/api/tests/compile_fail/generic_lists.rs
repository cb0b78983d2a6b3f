use aktis::prelude::*;

#[remote(U = [u64])]
fn misnamed<T>(x: T) -> T {
    x
}

#[remote(T = [])]
fn empty<T>(x: T) -> T {
    x
}

#[remote(T = [u64, u64])]
fn doubled<T>(x: T) -> T {
    x
}

#[remote((K, V) = [(u64, u8), u64])]
fn uneven<K, V>(key: K, _value: V) -> K {
    key
}

#[remote(T = [u64])]
fn plain(x: u64) -> u64 {
    x
}


struct Fixed<T>(T);

#[actor]
impl Fixed<u64> {
    fn new() -> Self {
        Self(1)
    }
}

fn main() {
    let _ = misnamed::remote(1u64).get();
    let _ = empty::<u64>::remote(1);
    let _ = doubled::<u64>::options().remote(1).get();
    let _ = plain::remote(1);
}
