//! An actor with async methods serves many calls at once: here, waiters at a gate.
//!
//! `cargo run --release --example async_actor`

use aktis::prelude::*;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
}

#[derive(Default)]
struct GateState {
    open: bool,
    waiting: Vec<Waker>,
}

#[actor]
impl Gate {
    fn new() -> Self {
        Self::default()
    }

    /// Comes back when the gate is open; any number of calls can wait at the same time.
    async fn pass(&self, name: String) -> String {
        poll_fn(|context| {
            let mut state = self.state.lock().expect("nobody panics with the lock held");
            if state.open {
                return Poll::Ready(());
            }
            state.waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
        format!("{name} has passed")
    }

    async fn open(&self) -> usize {
        let mut state = self.state.lock().expect("nobody panics with the lock held");
        state.open = true;
        let waiting = std::mem::take(&mut state.waiting);
        waiting.into_iter().map(Waker::wake).count()
    }
}

fn main() -> aktis::Result<()> {
    let session = aktis::init()?;
    let gate = Gate::remote();
    let travellers: Vec<_> = ["ada", "grace", "edsger"].map(|name| gate.pass(name)).to_vec();
    let (passed, waiting) = session.wait(travellers, 1, Duration::from_millis(50))?;
    println!("{} passed, {} wait at the gate", passed.len(), waiting.len());
    println!("the gate opens for {}", gate.open().get()?);
    for traveller in waiting {
        println!("{}", traveller.get()?);
    }
    Ok(())
}
