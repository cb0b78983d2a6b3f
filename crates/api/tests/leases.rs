//! Leases between the node and its workers: what can run does run.

mod support;

use aktis::prelude::*;
use support::PATIENCE;

/// Long enough for a task that may start to start, and short enough to wait for when it may not.
const MOMENT: Duration = Duration::from_millis(300);

/// Occupies a thread of the shared worker until the session ends.
#[remote]
fn hold() {
    loop {
        std::thread::park();
    }
}

#[remote(isolated)]
fn alone() -> u32 {
    std::process::id()
}

/// The node grants the shared worker a lease while it waits for another one that `hold` uses. It needs many sessions
/// that keep each other from being prompt, and rests in which the isolated worker gives its lease back.
#[test]
fn isolated_tasks_run_beside_a_long_one_after_every_rest() {
    let story = || {
        let session = Session::builder().cpus(2).store_bytes(16 << 20).start().expect("a session starts");
        let _entered = session.enter();
        let _long = hold::remote();
        for round in 0..4 {
            let outcome = alone::remote().get_timeout(PATIENCE);
            assert!(outcome.is_ok(), "round {round}: {outcome:?}");
            std::thread::sleep(MOMENT);
        }
    };
    std::thread::scope(|scope| {
        let sessions: Vec<_> = (0..12).map(|_| scope.spawn(story)).collect();
        sessions.into_iter().for_each(|session| session.join().expect("no isolated task is stuck"));
    });
}
