//! Runs a function: decodes, calls, catches, answers.

use crate::codec::{ArgumentReader, Encoded};
use crate::registry::{self, Call, Function, FunctionBody, Items};
use crate::runtime::Inner;
use crate::worker::context::TaskContext;
use crate::worker::reply::Answer;
use crate::worker::runner::{RunnerState, TaskBytes};
use crate::worker::start;
use aktis_protocol::hot::{MessageKind, TaskHeader};
use aktis_protocol::{ActorId, Failure, FailureKind, FunctionId, ObjectId, ProcessSlot, TaskId, TaskKey};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    /// The thread is inside a hook of [`install_panic_hook`], which calls the hook before it.
    static REPORTING: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<Option<(String, Option<String>)>> = const { RefCell::new(None) };
}

/// Panics of user code become errors of their callers: they are noted instead of printed.
///
/// Those that end the process are printed: every panic of a program that is built with `panic = "abort"`, and a second one
/// while the first unwinds. What is printed is among the last words of the process, which the error of its tasks tells.
pub(crate) fn install_panic_hook() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // Workers install the hook twice: the inner one must not report what the outer one reports.
        if !CATCHING.get() || REPORTING.get() {
            return default(info);
        }
        let message = info.payload_as_str().unwrap_or("a value that is not text").to_owned();
        let location = info.location().map(ToString::to_string);
        let panic = Some((message, location));
        let earlier = PANIC.replace(panic.clone());
        if earlier.is_some() || cfg!(panic = "abort") {
            REPORTING.set(true);
            default(info);
            REPORTING.set(false);
            // After the backtrace, which may be longer than the last words that are kept.
            for (message, location) in [earlier, panic].into_iter().flatten() {
                eprintln!(
                    "it panicked: {message} (at {})",
                    location.as_deref().unwrap_or("an unknown place")
                );
            }
        }
    }));
}

/// Calls user code; a panic becomes a failure.
pub(crate) fn catch<R>(code: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    if PANIC.with_borrow(Option::is_some) && !std::thread::panicking() {
        // User code has caught that one by itself.
        PANIC.set(None);
    }
    let before = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(code));
    CATCHING.set(before);
    result.unwrap_or_else(|payload| {
        // The program may have set a panic hook of its own, which has noted nothing.
        let noted = PANIC.take();
        let (message, location) = noted.unwrap_or_else(|| (text_of(&*payload).to_owned(), None));
        // The payload's own destructor is user code, too.
        let dropped = catch_unwind(AssertUnwindSafe(move || drop(payload)));
        let _ = dropped.map_err(std::mem::forget);
        PANIC.set(None);
        let kind = FailureKind::Panicked { location };
        Err(Failure::new(kind, message))
    })
}

/// The message of a panic, by what it unwinds with.
fn text_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("a value that is not text")
}

/// The failure that says that this program does not have a function.
pub(crate) fn unknown(function: FunctionId) -> Failure {
    Failure::new(
        FailureKind::UnknownFunction,
        format!(
            "this worker's program has no function with id {function}: it is not the same build as the caller's\nhint: restart the program after building it; a library whose functions are used must be named somewhere in the code"
        ),
    )
}

/// Who waits for the answer of a call, and for which.
#[derive(Clone, Copy)]
pub(crate) struct Asker {
    pub(crate) process: ProcessSlot,
    pub(crate) key: TaskKey,
    pub(crate) task: TaskId,
    /// How far a stream may be ahead of its consumer.
    pub(crate) stream_ahead: u32,
}

/// What a call gave: encoded values, or an iterator of them.
pub(crate) enum Outcome {
    One(Result<Encoded, Failure>),
    Several(Result<Vec<Encoded>, Failure>),
    Stream(Result<Items, Failure>),
}

/// Runs a task from a lane and answers it.
pub(crate) fn run_task(
    runtime: &Arc<Inner>,
    runner: &RunnerState,
    submitter: ProcessSlot,
    header: &TaskHeader,
    payload: TaskBytes,
    gpus: Arc<[u32]>,
) {
    let asker = Asker::of_task(submitter, header);
    let function = match registry::find(header.function) {
        Some(function) => function,
        None => return asker.refuse(runtime, unknown(header.function).at("", header.task)),
    };
    let cancelled = runner.begin(submitter, header.key);
    let (before, outcome) = call(runtime, runner, header, &payload, gpus, function, cancelled);
    asker.answer(runtime, runner, function.name, before, outcome);
    if runner.end() {
        runtime.cancel_children(header.task, TaskContext::last_children());
    }
}

/// Calls the function of a task, in a context of its own; gives the context before, and what the function gave.
pub(crate) fn call(
    runtime: &Arc<Inner>,
    runner: &RunnerState,
    header: &TaskHeader,
    payload: &TaskBytes,
    gpus: Arc<[u32]>,
    function: &'static Function,
    cancelled: Arc<AtomicBool>,
) -> (Option<TaskContext>, Outcome) {
    let context =
        TaskContext::new(runtime, header.task, function.name, None, header.attempt, gpus, cancelled);
    let before = context.enter(runtime.executor.as_ref());
    let mut call = Call::new(ArgumentReader::new(payload.as_slice(), &runner.runtime));
    let outcome = match function.body {
        FunctionBody::Task(body) => Outcome::One(catch(|| start::check().and_then(|()| body(&mut call)))),
        FunctionBody::Several(body) => {
            Outcome::Several(catch(|| start::check().and_then(|()| body(&mut call))))
        }
        FunctionBody::Stream(body) => {
            Outcome::Stream(catch(|| start::check().and_then(|()| body(&mut call))))
        }
        _ => {
            let failure = Failure::new(FailureKind::UnknownFunction, "an actor's function is not a task");
            Outcome::One(Err(failure))
        }
    };
    drop(call);
    (before, outcome)
}

impl Asker {
    /// Who waits for a task.
    pub(crate) fn of_task(process: ProcessSlot, header: &TaskHeader) -> Self {
        Self { process, key: header.key, task: header.task, stream_ahead: header.stream_ahead }
    }

    /// Answers a call that cannot be run.
    pub(crate) fn refuse(&self, runtime: &Arc<Inner>, failure: Failure) {
        let answer = Answer::failed(self.task.returns(0), failure);
        answer.send(runtime, self.process, MessageKind::Returned, self.key, 0);
    }

    /// Ends the context of a call that gave one value, and makes it an answer. True if the actor asked to exit.
    pub(crate) fn seal(
        &self,
        runtime: &Arc<Inner>,
        function: &'static str,
        before: Option<TaskContext>,
        result: Result<Encoded, Failure>,
    ) -> (Answer, bool) {
        let result = result.map_err(|failure| failure.or_at(function, self.task));
        let answer = Answer::new(runtime, self.process, self.task.returns(0), result);
        (answer, leave(runtime, before))
    }

    /// Ends the context of the call and sends what it gave. True if the actor asked to exit.
    pub(crate) fn answer(
        &self,
        runtime: &Arc<Inner>,
        runner: &RunnerState,
        function: &'static str,
        before: Option<TaskContext>,
        outcome: Outcome,
    ) -> bool {
        end_if_forked(runtime);
        let Self { process: to, key, task, .. } = *self;
        let at = |failure: Failure| failure.or_at(function, task);
        match outcome {
            Outcome::One(result) => {
                let (answer, exits) = self.seal(runtime, function, before, result);
                answer.send(runtime, to, MessageKind::Returned, key, 0);
                exits
            }
            Outcome::Several(result) => {
                let answers = several(runtime, to, task, result.map_err(at));
                let exits = leave(runtime, before);
                for (index, answer) in answers.into_iter().enumerate() {
                    answer.send(runtime, to, MessageKind::Returned, key, index as u32);
                }
                exits
            }
            Outcome::Stream(result) => {
                runner.begin_stream();
                let end = result.and_then(|items| self.stream(runtime, runner, items)).map_err(at);
                let exits = leave(runtime, before);
                let (index, answer) = match end {
                    Ok(count) => (count, Answer::nothing(task.returns(0))),
                    Err(failure) => (0, Answer::failed(task.returns(0), failure)),
                };
                answer.send(runtime, to, MessageKind::StreamEnded, key, index);
                exits
            }
        }
    }

    /// Sends the items of a stream, waiting whenever it is too far ahead of its consumer.
    fn stream(&self, runtime: &Arc<Inner>, runner: &RunnerState, mut items: Items) -> Result<u32, Failure> {
        let mut index = 0;
        loop {
            let item = catch(|| items.next().transpose())?;
            end_if_forked(runtime);
            let Some(item) = item else { break };
            let answer = Answer::new(runtime, self.process, self.task.returns(index), Ok(item));
            answer.send(runtime, self.process, MessageKind::StreamItem, self.key, index);
            index += 1;
            if !wait_for_consumer(runtime, runner, self.process, index, self.stream_ahead) {
                break;
            }
        }
        catch(|| {
            drop(items);
            Ok(index)
        })
    }
}

/// Ends the context of a task: what it still refers to is kept.
pub(crate) fn leave(runtime: &Arc<Inner>, before: Option<TaskContext>) -> bool {
    TaskContext::leave(before).is_some_and(|context| context.finish(runtime))
}

fn several(
    runtime: &Arc<Inner>,
    to: ProcessSlot,
    task: TaskId,
    result: Result<Vec<Encoded>, Failure>,
) -> Vec<Answer> {
    match result {
        Ok(values) => (0..)
            .zip(values)
            .map(|(index, value)| Answer::new(runtime, to, task.returns(index), Ok(value)))
            .collect(),
        Err(failure) => vec![Answer::failed(task.returns(0), failure)],
    }
}

/// Ends a child that user code has forked and that has come back from it: it is no worker.
pub(crate) fn end_if_forked(runtime: &Inner) {
    if runtime.fork.is_forked() {
        crate::worker::end(0);
    }
}

/// Blocks while the consumer is `ahead` items behind; false if it is gone.
fn wait_for_consumer(
    runtime: &Arc<Inner>,
    runner: &RunnerState,
    consumer: ProcessSlot,
    sent: u32,
    ahead: u32,
) -> bool {
    let gone = || {
        runner.stream_closed.load(Ordering::Acquire)
            || TaskContext::is_cancelled()
            || !runtime.control.is_alive(consumer)
    };
    let behind = || sent.saturating_sub(runner.stream_consumed.load(Ordering::Acquire)) >= ahead.max(1);
    if behind() && !gone() {
        let _blocked = runtime.executor.as_ref().and_then(|executor| executor.enter_blocked(runtime).ok());
        while behind() && !gone() {
            // The message that moves things on unparks this thread; the death of the consumer does not.
            std::thread::park_timeout(std::time::Duration::from_millis(100));
        }
    }
    !gone()
}

/// What a call of an actor is about.
pub(crate) struct CallContext<'a> {
    pub(crate) runtime: &'a Arc<Inner>,
    pub(crate) task: TaskId,
    pub(crate) actor: ActorId,
    pub(crate) attempt: u32,
    pub(crate) gpus: Arc<[u32]>,
    pub(crate) from: ProcessSlot,
    pub(crate) key: TaskKey,
}

impl CallContext<'_> {
    /// The object that the call returns.
    pub(crate) fn object(&self) -> ObjectId {
        self.task.returns(0)
    }
}
