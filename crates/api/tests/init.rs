//! The session of the process: one test, since there is one process.

mod support;

use aktis::Error;
use aktis::prelude::*;

#[remote]
fn square(x: u64) -> u64 {
    x * x
}

struct Counter(u64);

#[actor]
impl Counter {
    fn new(start: u64) -> Self {
        Self(start)
    }
    fn get(&self) -> u64 {
        self.0
    }
}

#[test]
fn the_process_has_at_most_one_session_at_a_time() {
    assert_eq!(square::remote(1).get(), Err(Error::NotInitialised));
    assert_eq!(Counter::remote(1).get().get(), Err(Error::NotInitialised));
    assert_eq!(aktis::put(1).map(|object| object.id()), Err(Error::NotInitialised));
    assert!(aktis::runtime_context().is_err());

    let session = aktis::init().unwrap();
    assert_eq!(aktis::init().map(|_| ()), Err(Error::AlreadyInitialised));
    assert_eq!(square::remote(3).get(), Ok(9), "a second init changes nothing");
    let elsewhere = std::thread::spawn(|| square::remote(4).get()).join().unwrap();
    assert_eq!(elsewhere, Ok(16), "all threads use it");

    let private = support::start();
    {
        let _entered = private.enter();
        assert_eq!(square::remote(5).get(), Ok(25));
    }
    drop(private);
    assert_eq!(Counter::remote(7).get().get(), Ok(7));

    drop(session);
    assert!(matches!(square::remote(3).get(), Err(Error::NotInitialised | Error::Closed)));
    let _again = aktis::init().unwrap();
    assert_eq!(square::remote(3).get(), Ok(9));
}
