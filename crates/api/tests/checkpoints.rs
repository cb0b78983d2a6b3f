//! Actors with checkpoints: their state after `kill -9`, and how often each call has counted.

mod support;

use aktis::Error;
use aktis::prelude::*;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::time::Duration;
use support::PATIENCE;
use support::processes::kill;

/// Counts how often each number was added.
#[derive(Serialize, Deserialize)]
struct Ledger {
    counts: HashMap<u64, u64>,
}

#[actor(restarts = 100_000, checkpoint = 7)]
impl Ledger {
    fn new() -> Self {
        Self { counts: HashMap::new() }
    }
    fn add(&mut self, number: u64) -> u64 {
        *self.counts.entry(number).or_default() += 1;
        self.counts.values().sum()
    }
    fn save(&mut self) -> aktis::Result<()> {
        aktis::checkpoint()
    }
    /// The order of a hash map is another one in each process.
    fn add_and_list(&mut self, number: u64) -> HashMap<u64, u64> {
        self.add(number);
        self.counts.clone()
    }
    fn time(&mut self) -> Duration {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("it is later")
    }
    fn large(&mut self, bytes: Vec<u8>) -> u64 {
        self.add(bytes.len() as u64)
    }
    fn seen(&self) -> HashMap<u64, u64> {
        self.counts.clone()
    }
    fn pid(&self) -> u32 {
        std::process::id()
    }
}

fn quiet() -> Session {
    Session::builder().cpus(2).store_bytes(64 << 20).forward_output(false).start().expect("a session starts")
}

fn kill_actor(ledger: &LedgerHandle) {
    kill(ledger.pid().get_timeout(PATIENCE).expect("it lives"));
}

#[test]
fn every_call_counts_once_while_the_actor_is_killed() {
    let session = quiet();
    let _entered = session.enter();
    let options = || Ledger::options().isolated();
    let ledgers = [
        options().checkpoint_calls(1).remote(),
        options().remote(),
        options().checkpoint_every(Duration::from_millis(5)).remote(),
    ];
    for ledger in ledgers {
        for start in [0, 50, 100, 150] {
            let calls: Vec<_> = (start..start + 50).map(|number| ledger.add(number)).collect();
            calls[25].get_timeout(PATIENCE).expect("it is answered");
            kill_actor(&ledger);
            for (call, total) in calls.iter().zip(start + 1..) {
                assert_eq!(call.get_timeout(PATIENCE).expect("it is answered"), total);
            }
        }
        let expected: HashMap<u64, u64> = (0..200).map(|number| (number, 1)).collect();
        assert_eq!(ledger.seen().get_timeout(PATIENCE).expect("it lives"), expected);
    }
}

#[test]
fn answers_of_any_order_and_large_arguments_survive_a_replay() {
    let session = quiet();
    let _entered = session.enter();
    let ledger = Ledger::options().isolated().checkpoint_calls(1000).remote();
    for number in 0..20 {
        ledger.add_and_list(number).get_timeout(PATIENCE).expect("it is answered");
    }
    assert_eq!(ledger.large(vec![7; 3 << 20]).get_timeout(PATIENCE).expect("it is answered"), 21);
    ledger.save().get_timeout(PATIENCE).expect("it is saved");
    kill_actor(&ledger);
    assert_eq!(ledger.add(1).get_timeout(PATIENCE).expect("it is answered"), 22);
}

#[test]
fn a_replay_that_diverges_ends_the_actor_in_words() {
    let session = quiet();
    let _entered = session.enter();
    let ledger = Ledger::options().isolated().checkpoint_calls(1000).remote();
    ledger.time().get_timeout(PATIENCE).expect("it is answered");
    kill_actor(&ledger);
    let error = ledger.add(1).get_timeout(PATIENCE).expect_err("it has ended");
    assert!(matches!(error, Error::ActorDied(_)), "{error:?}");
    assert!(error.to_string().contains("diverged"), "{error}");
}

#[test]
fn a_checkpoint_is_refused_outside_an_actor_and_in_a_relative_directory() {
    let session = quiet();
    let _entered = session.enter();
    let error = aktis::checkpoint().expect_err("this is a driver").to_string();
    assert!(error.contains("outside an actor with checkpoints"), "{error}");
    let ledger = Ledger::options().checkpoint_directory("here").remote();
    let error = ledger.add(1).get_timeout(PATIENCE).expect_err("it is not created").to_string();
    assert!(error.contains("absolute path"), "{error}");
}
