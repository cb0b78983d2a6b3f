//! Tasks that submit tasks and wait for them: who runs these, and what happens to both.

mod support;

use aktis::prelude::*;
use aktis::{Error, ObjectRef};
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use support::{PATIENCE, eventually, start};

fn start_with_one_cpu() -> Session {
    Session::builder().cpus(1).store_bytes(64 << 20).start().expect("a session starts")
}

fn this_thread() -> String {
    format!("{:?}", std::thread::current().id())
}

#[remote]
fn thread_of_task() -> String {
    this_thread()
}

/// Whether a child ran on the thread of its parent, without and with a bound on the waiting.
#[remote]
fn shares_its_thread() -> aktis::Result<(bool, bool)> {
    let unbounded = thread_of_task::remote().get()? == this_thread();
    let bounded = thread_of_task::remote().get_timeout(PATIENCE)? == this_thread();
    Ok((unbounded, bounded))
}

#[test]
fn a_task_that_waits_without_end_runs_what_nobody_has_begun() {
    let session = start_with_one_cpu();
    let _entered = session.enter();
    assert_eq!(shares_its_thread::remote().get_timeout(PATIENCE), Ok((true, false)));
}

#[remote]
fn fail_in_a_task() -> u64 {
    panic!("on purpose")
}

#[remote]
fn large_value() -> Vec<u8> {
    vec![7; 1 << 20]
}

#[remote]
fn reference_in_a_value() -> aktis::Result<Vec<ObjectRef<u64>>> {
    Ok(vec![aktis::put(5)?])
}

/// All kinds of results come through, and the parent goes on as itself.
#[remote]
fn get_all_kinds() -> aktis::Result<(bool, usize, u64, bool)> {
    let before = aktis::runtime_context()?.task;
    let failed = fail_in_a_task::remote().get().is_err_and(|error| error.to_string().contains("on purpose"));
    let large = large_value::remote().get()?.len();
    let inner = reference_in_a_value::remote().get()?[0].get()?;
    Ok((failed, large, inner, before == aktis::runtime_context()?.task))
}

#[test]
fn failures_large_values_and_references_come_back_from_the_same_thread() {
    let session = start_with_one_cpu();
    let _entered = session.enter();
    assert_eq!(get_all_kinds::remote().get_timeout(PATIENCE), Ok((true, 1 << 20, 5, true)));
}

/// As deep as it is told; each takes a quarter of what a thread has for one task.
#[remote]
fn descend_with_much_stack(depth: u64) -> aktis::Result<u64> {
    let room = black_box([1_u8; 512 << 10]);
    let below = if depth == 0 { 0 } else { descend_with_much_stack::remote(depth - 1).get()? };
    Ok(below + u64::from(black_box(&room)[depth as usize]))
}

#[test]
fn recursion_that_needs_more_stack_than_a_thread_has_goes_on_elsewhere() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(descend_with_much_stack::remote(100).get_timeout(PATIENCE), Ok(101));
}

static INNER_STARTED: AtomicBool = AtomicBool::new(false);
static INNER_ENDED: AtomicBool = AtomicBool::new(false);

#[remote]
fn until_cancelled() {
    INNER_STARTED.store(true, Ordering::SeqCst);
    while !aktis::is_cancelled() {
        std::thread::yield_now();
    }
    INNER_ENDED.store(true, Ordering::SeqCst);
}

/// A thread cancels what the task waits for; gives what `explain` said, and whether the task itself was
/// cancelled.
#[remote]
fn cancel_what_it_waits_for() -> aktis::Result<(String, bool)> {
    let inner = until_cancelled::remote();
    let explanation = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            eventually("the inner task starts", || INNER_STARTED.load(Ordering::SeqCst));
            let explanation = inner.explain();
            inner.cancel().expect("it can be cancelled");
            explanation
        });
        let outcome = inner.get();
        assert!(matches!(outcome, Err(Error::Cancelled(_))), "{outcome:?}");
        other.join().expect("it does not panic")
    });
    assert!(INNER_ENDED.load(Ordering::SeqCst), "it ran on this thread");
    Ok((explanation, aktis::is_cancelled()))
}

#[test]
fn what_a_thread_runs_while_it_waits_can_be_cancelled_alone() {
    let session = start_with_one_cpu();
    let _entered = session.enter();
    let (explanation, cancelled) = cancel_what_it_waits_for::remote().get_timeout(PATIENCE).unwrap();
    assert!(explanation.contains("on a thread that waits for it"), "{explanation}");
    assert!(!cancelled);
}

fn touch(folder: &Path, name: &str) {
    std::fs::write(folder.join(name), "").expect("it can be written");
}

/// Runs until it is cancelled, and leaves a file that says so.
#[remote]
fn run_until_cancelled(folder: PathBuf) -> bool {
    touch(&folder, "inner started");
    eventually("it is cancelled", aktis::is_cancelled);
    touch(&folder, "inner was cancelled");
    true
}

/// Waits for `depth` tasks above each other, of which the last runs until it is cancelled.
#[remote]
fn wait_for_inner(depth: u32, folder: PathBuf) -> aktis::Result<bool> {
    let outcome = match depth {
        0 => run_until_cancelled::remote(folder.clone()).get(),
        _ => wait_for_inner::remote(depth - 1, folder.clone()).get(),
    };
    if aktis::is_cancelled() && matches!(outcome, Err(Error::Cancelled(_))) {
        touch(&folder, &format!("get returned at {depth}"));
    }
    outcome
}

/// The inner tasks run on the thread of the outer one, and leave these files when that is cancelled.
fn check_that_all_were_cancelled(folder: &Path, depth: u32) {
    eventually("the innermost was cancelled", || folder.join("inner was cancelled").exists());
    for depth in 0..=depth {
        let file = folder.join(format!("get returned at {depth}"));
        eventually("the `get` of each returns", || file.exists());
    }
    // There is one CPU, which is free again.
    assert_eq!(add::remote(1, 1).get_timeout(PATIENCE), Ok(2));
}

#[test]
fn a_cancel_reaches_what_runs_on_the_thread_that_waits() {
    for depth in [0, 3] {
        let folder = tempfile::tempdir().unwrap();
        let session = start_with_one_cpu();
        let _entered = session.enter();
        let outer = wait_for_inner::remote(depth, folder.path().to_owned());
        eventually("the innermost task starts", || folder.path().join("inner started").exists());
        outer.cancel().unwrap();
        assert!(matches!(outer.get(), Err(Error::Cancelled(_))));
        check_that_all_were_cancelled(folder.path(), depth);
    }
}

#[test]
fn a_deadline_reaches_what_runs_on_the_thread_that_waits() {
    let folder = tempfile::tempdir().unwrap();
    let session = start_with_one_cpu();
    let _entered = session.enter();
    // Later than the inner tasks have started, which takes a few milliseconds.
    let deadline = std::time::Duration::from_secs(2);
    let outer = wait_for_inner::options().deadline(deadline).remote(1, folder.path().to_owned());
    eventually("the innermost task starts", || folder.path().join("inner started").exists());
    assert!(outer.get_timeout(PATIENCE).is_err());
    check_that_all_were_cancelled(folder.path(), 1);
}

/// An actor's call that waits is cancelled with what it waits for, too.
struct Waiting;

#[actor]
impl Waiting {
    fn new() -> Self {
        Self
    }

    fn wait(&self, folder: PathBuf) -> aktis::Result<bool> {
        wait_for_inner::remote(0, folder).get()
    }
}

#[test]
fn a_cancelled_call_reaches_what_runs_on_its_thread() {
    let folder = tempfile::tempdir().unwrap();
    let session = start_with_one_cpu();
    let _entered = session.enter();
    let actor = Waiting::remote();
    let call = actor.wait(folder.path().to_owned());
    eventually("the innermost task starts", || folder.path().join("inner started").exists());
    call.cancel().unwrap();
    check_that_all_were_cancelled(folder.path(), 0);
}

#[remote]
fn wait_for_a_file(folder: PathBuf) -> bool {
    touch(&folder, "inner started");
    eventually("the file is there", || folder.join("go on").exists());
    aktis::is_cancelled()
}

static OF_ANOTHER: std::sync::Mutex<Option<ObjectRef<bool>>> = std::sync::Mutex::new(None);

/// Submits a task that can only run on the thread that waits for it, since this one keeps the CPU, and goes on when
/// that has started.
#[remote]
fn submit_for_another(folder: PathBuf) -> aktis::Result<bool> {
    let inner = wait_for_a_file::remote(folder.clone());
    *OF_ANOTHER.lock().unwrap() = Some(inner.clone());
    eventually("the inner task starts", || folder.join("inner started").exists());
    inner.get()
}

#[remote]
fn wait_for_that_of_another(folder: PathBuf) -> aktis::Result<bool> {
    eventually("there is one", || OF_ANOTHER.lock().unwrap().is_some());
    let inner = OF_ANOTHER.lock().unwrap().clone().expect("there is one");
    let outcome = inner.get();
    touch(&folder, if aktis::is_cancelled() { "outer was cancelled" } else { "wrong" });
    outcome
}

#[test]
fn a_cancel_does_not_reach_tasks_that_the_cancelled_one_has_not_submitted() {
    let folder = tempfile::tempdir().unwrap();
    let session = start();
    let _entered = session.enter();
    let outer = wait_for_that_of_another::remote(folder.path().to_owned());
    let submitter = submit_for_another::remote(folder.path().to_owned());
    eventually("the inner task starts", || folder.path().join("inner started").exists());
    let sum = Sum::remote();
    outer.cancel().unwrap();
    assert!(matches!(outer.get(), Err(Error::Cancelled(_))));
    // The worker takes in what the driver sends in order: it has heard of the cancel when this call is answered.
    sum.add(1).get_timeout(PATIENCE).unwrap();
    touch(folder.path(), "go on");
    assert_eq!(submitter.get_timeout(PATIENCE), Ok(false), "the inner task was not cancelled");
    eventually("the outer one has seen it", || folder.path().join("outer was cancelled").exists());
}

#[remote]
fn add(a: u64, b: u64) -> u64 {
    a.wrapping_add(b)
}

struct Sum(u64);

#[actor]
impl Sum {
    fn new() -> Self {
        Self(0)
    }

    fn add(&mut self, value: u64) -> u64 {
        self.0 = self.0.wrapping_add(value);
        self.0
    }
}

/// Tasks and calls submitted by different threads wait for each other's results.
#[remote]
fn weave(rounds: u64) -> aktis::Result<(u64, u64)> {
    let (sum, mut total) = (Sum::remote(), 0);
    let mut last = add::remote(0, 0);
    for round in 0..rounds {
        let here = add::remote(&last, 1);
        let there = std::thread::scope(|scope| {
            scope.spawn(|| add::remote(&here, &last)).join().expect("it does not panic")
        });
        total = sum.add(&there).get()?;
        last = if round % 2 == 0 { add::remote(&there, &here) } else { add::remote(sum.add(0), &there) };
        last = add::remote(last, 0);
        if round % 8 == 7 {
            last = add::remote(last.get()? % 1000, 0);
        }
    }
    Ok((total, last.get()?))
}

/// What `weave` must give.
fn woven(rounds: u64) -> (u64, u64) {
    let (mut total, mut last) = (0_u64, 0_u64);
    for round in 0..rounds {
        let here = last.wrapping_add(1);
        let there = here.wrapping_add(last);
        total = there.wrapping_add(total);
        last = there.wrapping_add(if round % 2 == 0 { here } else { total });
        last = if round % 8 == 7 { last % 1000 } else { last };
    }
    (total, last)
}

#[test]
fn tasks_of_different_threads_wait_for_each_other() {
    let session = start();
    let _entered = session.enter();
    let woven_by_tasks: Vec<_> = (0..20).map(|task| weave::remote(40 + task)).collect();
    for (task, result) in (0..20).zip(woven_by_tasks) {
        assert_eq!(result.get_timeout(PATIENCE), Ok(woven(40 + task)));
    }
}

/// A failure reaches what another thread has submitted.
#[remote]
fn fail_across_threads() -> aktis::Result<bool> {
    let failed = fail_in_a_task::remote();
    let behind = std::thread::scope(|scope| {
        scope.spawn(|| add::remote(add::remote(&failed, 1), 1)).join().expect("it does not panic")
    });
    let error = support::task_error(add::remote(behind, 1).get());
    Ok(error.cause().is_some())
}

#[test]
fn a_failed_input_fails_tasks_of_other_threads() {
    let session = start();
    let _entered = session.enter();
    let all: Vec<_> = (0..20).map(|_| fail_across_threads::remote()).collect();
    assert!(all.iter().all(|task| task.get_timeout(PATIENCE) == Ok(true)));
}
