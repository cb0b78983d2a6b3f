//! Everything that `#[actor]` promises to accept, in a crate that is strict about lints.
#![deny(missing_docs, warnings, unused, unreachable_pub)]
#![forbid(unsafe_code)]

use aktis::prelude::*;

/// A counter.
pub struct Counter {
    total: u64,
}

#[actor(restarts = 3, call_retries = 1)]
impl Counter {
    /// What it starts with.
    pub const DEFAULT: u64 = 7;

    fn new(start: u64) -> Self {
        Counter { total: start }
    }

    /// Adds.
    fn add(&mut self, n: u64) -> u64 {
        self.total += n;
        self.total
    }

    fn read(&self) -> Result<u64, String> {
        self.check(&self.total)
    }

    #[local]
    fn check(&self, value: &u64) -> Result<u64, String> {
        Self::helper(*value)
    }

    fn helper(value: u64) -> Result<u64, String> {
        Ok(value)
    }

    fn merge(&mut self, others: Vec<CounterHandle>, runtime: String) -> u64 {
        others.len() as u64 + runtime.len() as u64
    }

    // Takes the place of the handle's own.
    fn id(&self) -> u64 {
        self.total
    }
}

struct Async {
    rows: Vec<u8>,
}

#[actor(max_concurrency = 8, isolated, cpus = 1, gpus = 0.5, resources(disk = 2), name = "rows", detached)]
impl Async {
    fn new() -> Result<Self, String> {
        Ok(Self { rows: Vec::new() })
    }

    async fn push(&mut self, row: u8) {
        self.rows.push(row);
        std::future::ready(()).await;
    }

    async fn wait(&self, other: ObjectRef<u8>) -> aktis::Result<u8> {
        Ok(other.await? + self.rows.len() as u8)
    }

    fn len(&self) -> usize {
        self.rows.len()
    }
}

struct OnlyAsync;

#[actor]
impl OnlyAsync {
    fn new() -> OnlyAsync {
        OnlyAsync
    }
    async fn nothing(&self) {}
}

#[remote]
fn use_handle(counter: CounterHandle) -> aktis::Result<u64> {
    counter.add(1).get()
}

fn calls() -> aktis::Result<()> {
    let counter = Counter::remote(10);
    let total: ObjectRef<u64> = counter.add(5);
    let _ = counter.add(&total);
    let _: ObjectRef<u64> = counter.read();
    let _: ObjectRef<u64> = counter.id();
    let _ = counter.merge(vec![counter.clone()], "x");
    let _ = use_handle::remote(&counter);
    let _ = use_handle::remote(counter.clone());
    let found: CounterHandle = Counter::find("name")?;
    found.kill()?;
    aktis::kill(&counter)?;
    let _ = (aktis::explain(&counter), counter.explain(), counter.actor_id());
    let rows = Async::options().name("other").restarts(1).cpus(2).detached().isolated().remote();
    let _: (ObjectRef<()>, ObjectRef<u8>) = (rows.push(1), rows.wait(aktis::put(1)?));
    let _: ObjectRef<usize> = rows.len();
    let _ = OnlyAsync::remote().nothing();
    let mut local = Counter::new(Counter::DEFAULT);
    assert_eq!(local.add(1), 8);
    Ok(())
}

fn main() {
    struct Inside;

    #[actor]
    impl Inside {
        fn new() -> Self {
            Self
        }
        fn same(&self, other: u8) -> u8 {
            other
        }
    }

    let _: (fn() -> aktis::Result<()>, fn() -> InsideHandle) = (calls, Inside::remote);
    assert_eq!(Inside::new().same(1), 1);
}
