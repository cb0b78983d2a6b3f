//! What a node tells the placer of tasks that came from another.

use super::{COPYING, PATIENCE, Pair, sum};
use aktis_logic::estimate;
use std::time::{Duration, Instant};

#[test]
fn the_way_of_its_input_is_no_part_of_the_time_that_a_task_runs() {
    let pair = Pair::new(1);
    let _entered = pair.here.runtime.enter();
    let way = Duration::from_secs(1);
    let copying = COPYING.lock();
    let waiting = sum::remote(aktis::put(vec![2_u8; 3 << 20]).unwrap());
    assert!(waiting.get_timeout(way).is_err(), "its input has not come");
    drop(copying);
    assert_eq!(waiting.get_timeout(PATIENCE).unwrap(), 6 << 20);
    let deadline = Instant::now() + PATIENCE;
    let run_times = loop {
        let report = pair.there.runtime.node().unwrap().host().report();
        if !report.run_times.is_empty() {
            break report.run_times;
        }
        assert!(Instant::now() < deadline, "it is not told how long the task has run");
        std::thread::yield_now();
    };
    let mut buckets = run_times.iter().flat_map(|times| &times.buckets);
    let half = estimate::bucket(way.as_micros() as u64 / 2);
    assert!(buckets.all(|(bucket, _)| *bucket < half), "{run_times:?}");
}
