//! Errors of functions, constructors and processes: their own types, their true reasons, and hints that fit.

mod support;

use aktis::Error;
use aktis::prelude::*;
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};
use support::{start, task_error};

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Bad(u8);

impl Display for Bad {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        write!(f, "bad {}", self.0)
    }
}

#[remote]
fn fail(code: u8) -> Result<u8, Bad> {
    Err(Bad(code))
}

struct Fussy;

#[actor]
impl Fussy {
    fn new(code: u8) -> Result<Self, Bad> {
        match code {
            0 => Ok(Self),
            code => Err(Bad(code)),
        }
    }
    fn ask(&self) -> u8 {
        1
    }
    fn exit(&self) -> aktis::Result<()> {
        aktis::exit_actor()
    }
    fn abort(&self) {
        std::process::abort();
    }
}

/// The error that tells of an actor's end.
fn ended<T: std::fmt::Debug>(outcome: aktis::Result<T>) -> Error {
    match outcome {
        Err(error @ Error::ActorDied(_)) => error,
        other => panic!("expected the end of an actor, got {other:?}"),
    }
}

#[test]
fn a_constructors_error_comes_back_in_its_own_type() {
    let session = start();
    let _entered = session.enter();
    let named = || Fussy::options().name("fussy");
    for actor in [Fussy::remote(5), Fussy::options().isolated().remote(5), named().remote(5)] {
        let error = ended(actor.ask().get());
        assert_eq!(error.downcast::<Bad>(), Some(Bad(5)), "{error}");
        let cause = error.task_error().and_then(|error| error.cause()).expect("the constructor's failure");
        assert!(cause.function().ends_with("Fussy::new"), "{error}");
        assert_eq!(cause.message(), "bad 5");
        assert!(error.to_string().contains("its actor could not be constructed\n  caused by: "), "{error}");
        assert!(!error.to_string().contains("restarts"), "{error}");
        assert_eq!(ended(actor.ask().get()).downcast::<Bad>(), Some(Bad(5)), "later calls say so too");
    }
}

#[test]
fn a_constructor_whose_input_failed_says_which() {
    let session = start();
    let _entered = session.enter();
    let actor = Fussy::remote(fail::remote(7));
    for _ in 0..2 {
        let error = ended(actor.ask().get());
        assert_eq!(error.downcast::<Bad>(), Some(Bad(7)), "{error}");
        assert!(error.to_string().contains("error_types::fail: bad 7"), "{error}");
    }
    assert!(actor.explain().contains("error_types::fail: bad 7"), "{}", actor.explain());
    let late = fail::remote(fail::remote(9));
    assert_eq!(ended(Fussy::remote(late).ask().get()).downcast::<Bad>(), Some(Bad(9)));
}

#[remote]
fn pass_on(code: u8) -> aktis::Result<u8> {
    fail::remote(code).get()
}

#[remote]
fn pass_on_boxed(code: u8) -> Result<u8, Box<dyn std::error::Error + Send + Sync>> {
    Ok(pass_on::remote(code).get()?)
}

#[remote]
fn pass_on_locally(code: u8) -> Result<u8, Box<dyn std::error::Error>> {
    Ok(pass_on::remote(code).get()?)
}

#[test]
fn a_typed_error_is_found_through_those_that_passed_it_on() {
    let session = start();
    let _entered = session.enter();
    for failed in [pass_on::remote(3), pass_on_boxed::remote(3), pass_on_locally::remote(3)] {
        let error = task_error(failed.get());
        assert_eq!(error.downcast::<Bad>(), Some(Bad(3)), "{error}");
        assert_eq!(error.message(), "bad 3");
        let inner = error.downcast::<Error>().expect("what the function has returned");
        assert_eq!(inner.downcast::<Bad>(), Some(Bad(3)));
        assert!(error.to_string().contains("caused by: error_types::fail: bad 3"), "{error}");
    }
}

#[remote]
fn descend(levels: u32) -> aktis::Result<u32> {
    match levels {
        0 => Err(Error::other("the ground")),
        levels => descend::remote(levels - 1).get(),
    }
}

#[test]
fn an_error_that_hundreds_passed_on_is_shown_briefly() {
    let session = start();
    let _entered = session.enter();
    let error = descend::remote(100).get().unwrap_err();
    assert_eq!(error.downcast::<Error>().map(|error| error.task_error().is_some()), Some(true));
    let text = error.to_string();
    assert!(text.lines().count() <= 10, "{text}");
    assert!(text.contains("... 95 more ...") && text.contains("descend: the ground"), "{text}");
}

#[remote]
fn panics() {
    panic!("boom");
}

#[remote]
fn reads(path: String) -> std::io::Result<String> {
    std::fs::read_to_string(path)
}

#[remote]
fn parses(text: String) -> Result<u32, Box<dyn std::error::Error + Send + Sync>> {
    if text.is_empty() {
        return Err("there is nothing to parse".into());
    }
    Ok(text.parse::<u32>()?)
}

#[remote]
fn parses_locally(text: String) -> Result<u32, Box<dyn std::error::Error>> {
    Ok(text.parse::<u32>()?)
}

/// An error that keeps another as its source, as `anyhow` does: it is no `Error` itself.
struct Opaque(Context);

#[derive(Debug)]
struct Context(std::num::ParseIntError);

impl Display for Context {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        f.write_str("in the settings")
    }
}

impl std::error::Error for Context {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl From<Opaque> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: Opaque) -> Self {
        Box::new(error.0)
    }
}

struct Reader;

#[actor]
impl Reader {
    fn new(text: String) -> Result<Self, Opaque> {
        text.parse::<u8>().map(|_| Self).map_err(|error| Opaque(Context(error)))
    }
    fn read(&self, path: String) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }
    async fn count_later(&self, path: String) -> Result<usize, Box<dyn std::error::Error>> {
        Ok(std::fs::read_to_string(path)?.len())
    }
    async fn read_later(&self, text: String) -> Result<u8, Opaque> {
        text.parse().map_err(|error| Opaque(Context(error)))
    }
}

#[remote(stream)]
fn lines(path: String) -> impl Iterator<Item = std::io::Result<String>> {
    let file = std::fs::File::open(path).map(std::io::BufReader::new);
    let (reader, error) = match file {
        Ok(reader) => (Some(reader), None),
        Err(error) => (None, Some(Err(error))),
    };
    error.into_iter().chain(reader.into_iter().flat_map(std::io::BufRead::lines))
}

#[remote(returns = 2)]
fn halves(path: String) -> std::io::Result<(String, String)> {
    let text = std::fs::read_to_string(path)?;
    let (first, second) = text.split_at(text.len() / 2);
    Ok((first.to_owned(), second.to_owned()))
}

#[test]
fn errors_of_the_standard_library_and_other_crates_come_back_as_text() {
    let session = start();
    let _entered = session.enter();
    let missing = "No such file or directory (os error 2)";
    assert_eq!(task_error(reads::remote("/nowhere").get()).message(), missing);
    assert_eq!(task_error(halves::remote("/nowhere").1.get()).message(), missing);
    assert_eq!(task_error(lines::remote("/nowhere").next().expect("an item")).message(), missing);
    assert_eq!(parses::remote("12").get().unwrap(), 12);
    assert_eq!(task_error(parses::remote("x").get()).message(), "invalid digit found in string");
    assert_eq!(task_error(parses_locally::remote("x").get()).message(), "invalid digit found in string");
    assert_eq!(task_error(parses::remote("").get()).message(), "there is nothing to parse");
    let reader = Reader::remote("1");
    assert_eq!(task_error(reader.read("/nowhere").get()).message(), missing);
    assert_eq!(task_error(reader.count_later("/nowhere").get()).message(), missing);
    let in_settings = "in the settings: invalid digit found in string";
    assert_eq!(task_error(reader.read_later("x").get()).message(), in_settings);
    let error = ended(Reader::remote("y").read("/nowhere").get());
    assert!(error.to_string().contains(in_settings), "{error}");
}

#[remote(isolated, retries = 0)]
fn abort_alone() {
    std::process::abort();
}

#[remote(retries = 0)]
fn abort_among_others() {
    std::process::abort();
}

#[test]
fn hints_fit_what_has_happened() {
    let session = start();
    let _entered = session.enter();
    assert_eq!(task_error(panics::remote().get()).message(), "boom");
    assert!(panics::remote().get().unwrap_err().to_string().contains("it panicked: boom (at "));

    let alone = abort_alone::remote().get().unwrap_err().to_string();
    assert!(alone.contains("hint:") && !alone.contains("`isolated`"), "{alone}");
    let shared = abort_among_others::remote().get().unwrap_err().to_string();
    assert!(shared.contains("`isolated`"), "{shared}");

    for actor in [Fussy::remote(0), Fussy::options().restarts(2).remote(0)] {
        actor.ask().get().unwrap();
        actor.kill().unwrap();
        let killed = ended(actor.ask().get()).to_string();
        assert!(killed.contains("hint: create the actor again") && !killed.contains("restarts"), "{killed}");
    }
    for actor in [Fussy::remote(0), Fussy::options().restarts(2).remote(0)] {
        actor.exit().get().unwrap();
        let exited = ended(actor.ask().get()).to_string();
        assert!(exited.contains("hint: create the actor again") && !exited.contains("restarts"), "{exited}");
    }
    let crashed = Fussy::options().isolated().remote(0);
    let _ = crashed.abort().get();
    let text = ended(crashed.ask().get()).to_string();
    assert!(text.contains("or give it `restarts`"), "{text}");
    let twice = Fussy::options().isolated().restarts(1).remote(0);
    for _ in 0..2 {
        let _ = twice.abort().get();
    }
    let text = ended(twice.ask().get()).to_string();
    assert!(text.contains("used up its 1 restarts"), "{text}");
}

/// Panics while it is dropped by another panic: the process aborts, as with `panic = "abort"`.
struct Grenade;

impl Drop for Grenade {
    fn drop(&mut self) {
        panic!("the second panic");
    }
}

#[remote(isolated, retries = 0)]
fn panic_twice() {
    let _grenade = Grenade;
    panic!("the first panic");
}

#[test]
fn a_panic_that_aborts_leaves_its_text_and_place_in_the_error() {
    let session = start();
    let _entered = session.enter();
    let Err(Error::WorkerDied(error)) = panic_twice::remote().get() else { panic!("the worker aborts") };
    let text = error.to_string();
    for part in ["SIGABRT", "the first panic", "the second panic", "error_types.rs:"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    // The second panic tells of the first, and the one with which Rust aborts tells of the second.
    assert_eq!(text.matches("it panicked: the first panic").count(), 1, "{text}");
    assert_eq!(text.matches("it panicked: ").count(), 4, "{text}");
}
