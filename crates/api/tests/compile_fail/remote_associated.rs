use aktis::prelude::*;

struct Counter;

impl Counter {
    /// It takes no `self`.
    #[remote]
    fn add(n: u64) -> u64 {
        n
    }

    #[remote(cpus = 2)]
    pub fn default() -> Self {
        Counter
    }
}

trait Adds {
    #[remote]
    fn add(n: u64) -> u64 {
        n
    }
}

fn main() {
    let _ = Counter::add(1);
}
