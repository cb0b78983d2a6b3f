//! What goes wrong in user code and processes, and how it is told.

mod support;

use aktis::prelude::*;
use aktis::{Error, runtime_context};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use support::{PATIENCE, eventually, start, task_error};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum FitError {
    TooFew { rows: u64 },
}

impl std::fmt::Display for FitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self::TooFew { rows } = self;
        write!(f, "{rows} rows are too few")
    }
}

#[remote]
fn fit(rows: u64) -> Result<u64, FitError> {
    if rows < 10 { Err(FitError::TooFew { rows }) } else { Ok(rows) }
}

#[remote]
fn explode(message: String) -> u64 {
    panic!("{message}");
}

#[remote]
fn add(a: u64, b: u64) -> u64 {
    a + b
}

#[remote(isolated, retries = 0)]
fn abort() -> u64 {
    eprintln!("these are my last words");
    std::process::abort();
}

#[remote(isolated, retries = 0)]
fn exit(code: i32) -> u64 {
    std::process::exit(code);
}

#[remote(retries = 2)]
fn crash_until_attempt(attempt: u32) -> u32 {
    let context = runtime_context().expect("a task has a context");
    if context.attempt < attempt {
        std::process::abort();
    }
    context.attempt
}

#[remote(resources(unobtainium = 1))]
fn needs_the_unknown() {}

#[remote(cpus = 1000)]
fn needs_too_much() {}

#[remote]
fn spin() {
    while !aktis::is_cancelled() {
        std::thread::yield_now();
    }
}

#[test]
fn the_users_error_comes_back_typed() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(fit::remote(10).get().unwrap(), 10);
    let error = task_error(fit::remote(3).get());
    assert_eq!(error.downcast::<FitError>(), Some(FitError::TooFew { rows: 3 }));
    assert_eq!(error.downcast::<String>(), None);
    assert_eq!(error.message(), "3 rows are too few");
    assert!(error.function().ends_with("fit"), "{}", error.function());
    assert!(error.pid().is_some_and(|pid| pid != std::process::id()));
}

#[test]
fn a_panic_carries_its_message_and_place() {
    let session = start();
    let _entered = session.enter();
    let error = task_error(explode::remote("boom").get());
    assert!(error.is_panic());
    assert!(error.message().contains("boom"), "{error}");
    assert!(error.location().is_some_and(|place| place.contains("errors.rs:")), "{error}");
    assert_eq!(add::remote(1, 2).get().unwrap(), 3, "the worker goes on");
}

#[test]
fn a_failed_input_fails_the_task_and_is_its_cause() {
    let session = start();
    let _entered = session.enter();
    let failed = add::remote(add::remote(fit::remote(1), 2), 3);
    let error = task_error(failed.get());
    assert_eq!(error.downcast::<FitError>(), Some(FitError::TooFew { rows: 1 }));
    let root = error.cause().and_then(|cause| cause.cause()).expect("two causes");
    assert_eq!(root.message(), "1 rows are too few");
    assert!(failed.explain().contains("too few"), "{}", failed.explain());
}

#[test]
fn a_workers_death_says_how_and_its_last_words() {
    let session = start();
    let _entered = session.enter();
    let Err(Error::WorkerDied(error)) = abort::remote().get() else { panic!("the worker dies") };
    let death = error.death().expect("it says how");
    assert_eq!(death.signal, Some(6), "{error}");
    assert!(death.stderr_tail.iter().any(|line| line.contains("my last words")), "{error}");
    let Err(Error::WorkerDied(error)) = exit::remote(3).get() else { panic!("the worker exits") };
    assert_eq!(error.death().expect("it says how").exit_code, Some(3), "{error}");
    assert_eq!(add::remote(1, 2).get().unwrap(), 3, "others are not affected");
}

#[test]
fn a_task_whose_worker_died_runs_again() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(crash_until_attempt::remote(2).get().unwrap(), 2);
    assert_eq!(crash_until_attempt::options().isolated().remote(1).get().unwrap(), 1);
    let outcome = crash_until_attempt::options().isolated().retries(0).remote(1).get();
    assert!(matches!(outcome, Err(Error::WorkerDied(_))), "{outcome:?}");
}

#[test]
fn what_cannot_run_stays_pending_and_explains_itself() {
    let session = start();
    let _entered = session.enter();
    let unknown = needs_the_unknown::remote();
    eventually("the node explains", || aktis::explain(&unknown).contains("unobtainium"));
    let too_much = needs_too_much::remote();
    eventually("the node explains", || too_much.explain().contains("1000 CPU"));
    assert!(!unknown.is_ready() && !too_much.is_ready());
    let behind = add::remote(fit::remote(10), 1);
    assert_eq!(behind.get().unwrap(), 11, "others are not held up");
}

/// Keeps references that others leave here.
struct Mailbox(Vec<ObjectRef<String>>);

#[actor]
impl Mailbox {
    fn new() -> Self {
        Self(Vec::new())
    }
    fn leave(&mut self, letters: Vec<ObjectRef<String>>) {
        self.0 = letters;
    }
    fn look(&self) -> Vec<ObjectRef<String>> {
        self.0.clone()
    }
}

#[remote]
fn wait_for_letter(mailbox: MailboxHandle) -> String {
    loop {
        let letters = mailbox.look().get().expect("the mailbox answers");
        if let Some(letter) = letters.first() {
            return format!("{:?}", letter.get_timeout(PATIENCE));
        }
    }
}

#[test]
fn a_task_that_waits_for_its_own_result_is_told_so() {
    let session = start();
    let _entered = session.enter();
    let mailbox = Mailbox::remote();
    let own = wait_for_letter::remote(&mailbox);
    mailbox.leave(vec![own.clone()]).get().unwrap();
    let outcome = own.get().unwrap();
    assert!(outcome.contains("waits for its own result"), "{outcome}");
}

#[test]
fn a_session_can_end_while_tasks_run() {
    let session = start();
    let entered = session.enter();
    let (running, never) = (spin::remote(), needs_the_unknown::remote());
    drop(entered);
    session.shutdown();
    assert_eq!(running.get(), Err(Error::Closed));
    assert_eq!(never.get(), Err(Error::Closed));
}

#[test]
fn two_sessions_live_side_by_side() {
    let (first, second) = (start(), start());
    let one = {
        let _entered = first.enter();
        add::remote(1, 0)
    };
    let two = {
        let _outer = first.enter();
        let _inner = second.enter();
        add::remote(2, 0)
    };
    assert_eq!(first.get(&one).unwrap(), 1);
    first.shutdown();
    assert_eq!(second.get(&two).unwrap(), 2);
    let _entered = second.enter();
    assert_eq!(add::remote(2, 2).get().unwrap(), 4);
}

/// Panics where it is told to.
struct Bomb(u8);

const IN_SERIALIZE: u8 = 1;
const IN_DESERIALIZE: u8 = 2;
const IN_DROP: u8 = 3;

impl Serialize for Bomb {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        assert_ne!(self.0, IN_SERIALIZE, "the serialiser panics");
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Bomb {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bomb = std::mem::ManuallyDrop::new(Self(u8::deserialize(deserializer)?));
        assert_ne!(bomb.0, IN_DESERIALIZE, "the deserialiser panics");
        Ok(std::mem::ManuallyDrop::into_inner(bomb))
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if aktis::runtime_context().is_ok_and(|context| context.is_worker) {
            assert_ne!(self.0, IN_DROP, "the destructor panics");
        }
    }
}

#[remote]
fn make_bomb(kind: u8) -> Bomb {
    Bomb(kind)
}

#[remote]
fn defuse(bomb: Bomb) -> u8 {
    bomb.0
}

#[test]
fn panics_in_serialisers_and_destructors_are_errors_like_others() {
    let session = start();
    let _entered = session.enter();
    let error = task_error(make_bomb::remote(IN_SERIALIZE).get().map(|bomb| bomb.0));
    assert!(error.is_panic() && error.message().contains("the serialiser panics"), "{error}");
    let error = task_error(defuse::remote(Bomb(IN_DESERIALIZE)).get());
    assert!(error.is_panic() && error.message().contains("the deserialiser panics"), "{error}");
    let error = task_error(defuse::remote(Bomb(IN_DROP)).get());
    assert!(error.is_panic() && error.message().contains("the destructor panics"), "{error}");
    let caught = std::panic::catch_unwind(|| defuse::remote(Bomb(IN_SERIALIZE)));
    assert!(caught.is_err(), "a panic in the driver's own thread is its own");
    assert_eq!(defuse::remote(Bomb(9)).get().unwrap(), 9, "all goes on");
}
