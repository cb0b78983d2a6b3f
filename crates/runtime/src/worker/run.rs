//! Runs a function: decodes, calls, catches, answers.

use crate::codec::{ArgumentReader, Encoded};
use crate::registry::{self, Call, Function, FunctionBody, Items};
use crate::runtime::Inner;
use crate::worker::context::TaskContext;
use crate::worker::reply::Answer;
use crate::worker::runner::{RunnerState, TaskBytes};
use aktis_protocol::hot::{MessageKind, TaskHeader};
use aktis_protocol::{ActorId, Failure, FailureKind, FunctionId, ObjectId, ProcessSlot, TaskId, TaskKey};
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

thread_local! {
    static CATCHING: Cell<bool> = const { Cell::new(false) };
    static PANIC: RefCell<Option<(String, Option<String>)>> = const { RefCell::new(None) };
}

/// Panics of user code become errors of their callers: they are noted instead of printed.
pub(crate) fn install_panic_hook() {
    let default = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !CATCHING.get() {
            return default(info);
        }
        let message = info.payload_as_str().unwrap_or("a value that is not text").to_owned();
        let location = info.location().map(ToString::to_string);
        PANIC.set(Some((message, location)));
    }));
}

/// Calls user code; a panic becomes a failure.
pub(crate) fn catch<R>(code: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    let before = CATCHING.replace(true);
    let result = catch_unwind(AssertUnwindSafe(code));
    CATCHING.set(before);
    result.unwrap_or_else(|payload| {
        // The payload's own destructor is user code, too.
        let dropped = catch_unwind(AssertUnwindSafe(move || drop(payload)));
        let _ = dropped.map_err(std::mem::forget);
        let (message, location) = PANIC.take().unwrap_or_else(|| ("unknown".to_owned(), None));
        let kind = FailureKind::Panicked { location };
        Err(Failure::new(kind, format!("it panicked: {message}")))
    })
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

/// Runs a task from a lane and answers it.
pub(crate) fn run_task(
    runtime: &Arc<Inner>,
    runner: &RunnerState,
    submitter: ProcessSlot,
    header: &TaskHeader,
    payload: TaskBytes,
    gpus: Arc<[u32]>,
) {
    let task = header.task;
    let function = match registry::find(header.function) {
        Some(function) => function,
        None => {
            let answer = Answer::failed(task.returns(0), unknown(header.function).at("", task));
            return answer.send(runtime, submitter, MessageKind::Returned, header.key, 0);
        }
    };
    if let FunctionBody::Task(body) = function.body {
        let answer = run_body(runtime, runner, submitter, header, &payload, gpus, function, body);
        answer.send(runtime, submitter, MessageKind::Returned, header.key, 0);
        return runner.end();
    }
    let cancelled = runner.begin(submitter, header.key);
    let context = TaskContext::new(runtime, task, function.name, None, header.attempt, gpus, cancelled);
    let before = context.enter();
    let mut call = Call::new(ArgumentReader::new(payload.as_slice(), &runner.runtime));
    let at = |failure: Failure| failure.at(function.name, task);
    match function.body {
        FunctionBody::Several(body) => {
            let result = catch(|| body(&mut call)).map_err(at);
            drop(call);
            let answers = several(runtime, submitter, task, result);
            leave(runtime, before);
            for (index, answer) in answers.into_iter().enumerate() {
                answer.send(runtime, submitter, MessageKind::Returned, header.key, index as u32);
            }
        }
        FunctionBody::Stream(body) => {
            runner.begin_stream();
            let result = catch(|| body(&mut call)).map_err(at);
            drop(call);
            let end = match result {
                Ok(items) => stream(runtime, runner, submitter, header, items).map_err(at),
                Err(failure) => Err(failure),
            };
            leave(runtime, before);
            let (index, answer) = match end {
                Ok(count) => (count, Answer::nothing(task.returns(0))),
                Err(failure) => (0, Answer::failed(task.returns(0), failure)),
            };
            answer.send(runtime, submitter, MessageKind::StreamEnded, header.key, index);
        }
        FunctionBody::Task(_)
        | FunctionBody::Constructor(_)
        | FunctionBody::Method { .. }
        | FunctionBody::AsyncMethod { .. } => {
            leave(runtime, before);
            let failure = Failure::new(FailureKind::UnknownFunction, "an actor's function is not a task");
            let answer = Answer::failed(task.returns(0), at(failure));
            answer.send(runtime, submitter, MessageKind::Returned, header.key, 0);
        }
    }
    runner.end();
}

/// Runs a task that returns one value.
#[expect(clippy::too_many_arguments, reason = "what a task needs")]
pub(crate) fn run_body(
    runtime: &Arc<Inner>,
    runner: &RunnerState,
    submitter: ProcessSlot,
    header: &TaskHeader,
    bytes: &TaskBytes,
    gpus: Arc<[u32]>,
    function: &'static Function,
    body: fn(&mut Call) -> Result<Encoded, Failure>,
) -> Answer {
    let cancelled = runner.begin(submitter, header.key);
    let task = header.task;
    let context = TaskContext::new(runtime, task, function.name, None, header.attempt, gpus, cancelled);
    let before = context.enter();
    let mut call = Call::new(ArgumentReader::new(bytes.as_slice(), &runner.runtime));
    let result = catch(|| body(&mut call)).map_err(|failure| failure.at(function.name, task));
    drop(call);
    let answer = Answer::new(runtime, submitter, task.returns(0), result);
    leave(runtime, before);
    answer
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

/// Sends the items of a stream, waiting whenever it is too far ahead of its consumer.
fn stream(
    runtime: &Arc<Inner>,
    runner: &RunnerState,
    to: ProcessSlot,
    header: &TaskHeader,
    mut items: Items,
) -> Result<u32, Failure> {
    let mut index = 0;
    loop {
        let item = catch(|| items.next().transpose())?;
        let Some(item) = item else { break };
        let answer = Answer::new(runtime, to, header.task.returns(index), Ok(item));
        answer.send(runtime, to, MessageKind::StreamItem, header.key, index);
        index += 1;
        if !wait_for_consumer(runtime, runner, to, index, header.stream_ahead) {
            break;
        }
    }
    catch(|| {
        drop(items);
        Ok(index)
    })
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
