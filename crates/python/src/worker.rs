//! Running Python functions and methods in a worker.

use crate::fetched::load;
use crate::generator::Generator;
use crate::head::{Head, flags};
use crate::timeline::Span;
use crate::{codec, context, detached, failure, hooks, output, title};
use aktis_protocol::{Failure, FailureKind, FunctionId};
use aktis_runtime::codec::RawArgument;
use aktis_runtime::registry::{ActorState, AsyncReturn, FUNCTIONS, Items, Returns};
use aktis_runtime::{Call, Encoded, Function, FunctionBody, Runtime};
use aktis_store::RunKind;
use parking_lot::Mutex;
use pyo3::exceptions::{PySystemExit, PyValueError};
use pyo3::prelude::*;
use pyo3::types::iterator::PySendResult;
use pyo3::types::{PyBytes, PyDict, PyIterator, PyString, PyTuple};
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $body:expr;)*) => {
        $(
            $(#[$doc])*
            #[linkme::distributed_slice(FUNCTIONS)]
            pub(crate) static $name: Function =
                Function { id: FunctionId::of($label, "python"), name: $label, body: $body };
        )*
    };
}

functions! {
    /// A task with one return value.
    TASK = "aktis.task", FunctionBody::Task(run_task);
    /// A task with several return values.
    SEVERAL = "aktis.task with several returns", FunctionBody::Several(run_several);
    /// A task that gives items one after another.
    STREAM = "aktis.generator", FunctionBody::Stream(run_stream);
    /// The constructor of an actor.
    ACTOR = "aktis.actor", FunctionBody::Constructor(construct);
    /// A method with one return value.
    METHOD = "aktis.method", FunctionBody::Method { exclusive: false, read_only: false, run: run_method };
    /// A method with one return value that leaves its actor as it is.
    READ_ONLY_METHOD = "aktis.read-only method",
        FunctionBody::Method { exclusive: false, read_only: true, run: run_method };
    /// A method with several return values.
    SEVERAL_METHOD = "aktis.method with several returns", FunctionBody::SeveralMethod(run_several_method);
    /// A method that gives items one after another.
    STREAM_METHOD = "aktis.generator method", FunctionBody::StreamMethod(run_stream_method);
    /// A method of an actor with an event loop.
    ASYNC_METHOD = "aktis.async method", FunctionBody::AsyncMethod { exclusive: false, run: run_async_method };
}

/// The failure that an exception of user code is.
pub(crate) fn raised(py: Python<'_>, error: &PyErr, function: &str) -> Failure {
    let captured = hooks::get(py).and_then(|hooks| {
        error.value(py).setattr("__traceback__", error.traceback(py))?;
        let record = hooks.capture.call1(py, (error.value(py), function))?;
        record.extract::<(String, String, Vec<u8>)>(py)
    });
    let (type_name, message, encoded) = captured.unwrap_or_else(|broken| {
        let text = format!("{error} (and while it was recorded: {broken})");
        ("Exception".to_owned(), text, Vec::new())
    });
    let mut failure = Failure::new(FailureKind::Returned { type_name, encoded }, message);
    failure.function = function.to_owned();
    failure
}

/// A call that is about to be made: its arguments in Python.
struct Prepared<'py> {
    args: Bound<'py, PyTuple>,
    kwargs: Option<Bound<'py, PyDict>>,
}

/// The heads of most calls are no longer: those are read without an allocation.
const SHORT_HEAD_BYTES: usize = 128;

/// Reads the head of a call.
fn with_head<R>(
    call: &mut Call,
    run: impl FnOnce(&Head<'_>, &mut Call) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let mut short = [0; SHORT_HEAD_BYTES];
    let long;
    let head = match call.arguments().next_raw()? {
        Some(RawArgument::Plain(bytes)) if bytes.len() <= short.len() => {
            short[..bytes.len()].copy_from_slice(bytes);
            &short[..bytes.len()]
        }
        Some(RawArgument::Plain(bytes)) => {
            long = bytes.to_vec();
            &long[..]
        }
        // It names the function as one of its attachments too.
        Some(RawArgument::Value(value)) => {
            let raw = value.raw().map_err(|text| Failure::new(FailureKind::Codec, text.to_string()))?;
            long = raw.body().to_vec();
            &long[..]
        }
        None => return Err(Failure::new(FailureKind::Codec, "the call has no head")),
    };
    run(&Head::read(head)?, call)
}

/// Reads the arguments of a call. With `resolve`, references among them are waited for and replaced.
fn arguments<'py>(
    py: Python<'py>,
    runtime: &Runtime,
    head: &Head<'_>,
    call: &mut Call,
    resolve: bool,
) -> PyResult<Prepared<'py>> {
    let mut next = || -> PyResult<Py<PyAny>> {
        let argument = if call.arguments().is_next_stored() {
            py.detach(|| call.arguments().next_raw())
        } else {
            call.arguments().next_raw()
        };
        let argument = argument.map_err(|failure| failure::failed(py, failure))?;
        let argument =
            argument.ok_or_else(|| PyValueError::new_err("there are fewer arguments than announced"))?;
        let value = codec::decode_argument(py, runtime, &argument)?;
        match value.bind(py).cast_exact::<crate::object_ref::ObjectRef>() {
            Ok(reference) if resolve => crate::object_ref::get(reference.as_any(), None),
            _ => Ok(value),
        }
    };
    let positional = (0..head.positional).map(|_| next()).collect::<PyResult<Vec<_>>>()?;
    let args = PyTuple::new(py, positional)?;
    if head.named == 0 {
        return Ok(Prepared { args, kwargs: None });
    }
    let kwargs = PyDict::new(py);
    for name in head.names() {
        kwargs.set_item(name, next()?)?;
    }
    Ok(Prepared { args, kwargs: Some(kwargs) })
}

/// Calls a function, again while it raises what is worth another attempt.
fn invoke<'py>(
    py: Python<'py>,
    runtime: &Runtime,
    head: &Head<'_>,
    call: &mut Call,
    function: &Bound<'py, PyAny>,
    name: &str,
) -> Result<Bound<'py, PyAny>, Failure> {
    let prepared = arguments(py, runtime, head, call, false).map_err(|error| raised(py, &error, name))?;
    let result = function.call(&prepared.args, prepared.kwargs.as_ref());
    result.map_err(|error| raised_by(py, head, &error, name))
}

/// Calls a method of an actor.
fn invoke_method<'py>(
    py: Python<'py>,
    runtime: &Runtime,
    head: &Head<'_>,
    call: &mut Call,
    method: &Bound<'py, PyAny>,
    name: &str,
) -> Result<Bound<'py, PyAny>, Failure> {
    let prepared = arguments(py, runtime, head, call, false).map_err(|error| raised(py, &error, name))?;
    method.call(&prepared.args, prepared.kwargs.as_ref()).map_err(|error| {
        end_if_exit(py, &error);
        raised_by(py, head, &error, name)
    })
}

/// The failure that an exception of user code is; the head says whether it is worth another attempt.
fn raised_by(py: Python<'_>, head: &Head<'_>, error: &PyErr, name: &str) -> Failure {
    let mut failure = raised(py, error, name);
    failure.retriable = is_retriable(py, head.flags, head.retry, error);
    failure
}

pub(crate) fn is_retriable(py: Python<'_>, given: u8, types: &[u8], error: &PyErr) -> bool {
    if given & flags::RETRY_ANY != 0 {
        return error.is_instance_of::<pyo3::exceptions::PyException>(py);
    }
    given & flags::RETRY_SOME != 0
        && hooks::get(py)
            .and_then(|hooks| hooks.is_retriable.call1(py, (error.value(py), PyBytes::new(py, types))))
            .is_ok_and(|answer| answer.is_truthy(py).unwrap_or(false))
}

/// Why this worker could not be set up as its tasks want it.
static REFUSAL: OnceLock<String> = OnceLock::new();

/// Whatever this worker is to run fails: it could not be set up.
pub(crate) fn refuse_all(reason: String) {
    let _ = REFUSAL.set(reason);
}

/// The runtime of this worker, if it can run anything.
fn current() -> Result<Runtime, Failure> {
    if let Some(reason) = REFUSAL.get() {
        return Err(Failure::new(FailureKind::Environment, reason.clone()));
    }
    Runtime::current().map_err(|error| Failure::new(FailureKind::SessionClosed, error.to_string()))
}

/// Calls the function of a task with what it was given; `then` turns the result into its answer.
fn with_task<R>(
    call: &mut Call,
    then: impl FnOnce(Python<'_>, &Head<'_>, Bound<'_, PyAny>, &str) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let runtime = current()?;
    with_head(call, |head, call| {
        Python::attach(|py| {
            let loaded = load(py, &runtime, head.function)?;
            let name = if head.name.is_empty() { loaded.name.clone() } else { Arc::from(head.name) };
            runtime.set_function_name(&name);
            let name = &*name;
            if title::show(name) {
                output::set_name(name);
            }
            context::set_assigned(&runtime, head.assigned);
            context::set_running(py, &loaded.object);
            let mut span = spans(head).then(|| Span::new(&runtime, RunKind::Task, name));
            let result = invoke(py, &runtime, head, call, loaded.object.bind(py), name);
            note_failure(&mut span, result.is_err());
            let calls = loaded.calls.fetch_add(1, Ordering::Relaxed) + 1;
            if head.max_calls > 0 && calls >= head.max_calls {
                runtime.end_after_this();
            }
            then(py, head, result?, name)
        })
    })
}

pub(crate) fn encoded(py: Python<'_>, value: &Bound<'_, PyAny>, name: &str) -> Result<Encoded, Failure> {
    codec::encode(value).map_err(|error| raised(py, &error, name))
}

/// One value: the result itself, or for "dynamic" the references of its items.
fn one(py: Python<'_>, head: &Head<'_>, result: Bound<'_, PyAny>, name: &str) -> Result<Encoded, Failure> {
    if head.flags & flags::DYNAMIC != 0 {
        let items = hooks::get(py).and_then(|hooks| hooks.dynamic.call1(py, (result,)));
        let items = items.map_err(|error| raised_by(py, head, &error, name))?;
        return encoded(py, items.bind(py), name);
    }
    if head.returns == 0 {
        return encoded(py, py.None().bind(py), name);
    }
    encoded(py, &result, name)
}

fn several(py: Python<'_>, head: &Head<'_>, result: Bound<'_, PyAny>, name: &str) -> Returns {
    let items: PyResult<Vec<Bound<'_, PyAny>>> = result.try_iter().and_then(Iterator::collect);
    let items = items.map_err(|error| raised_by(py, head, &error, name))?;
    if items.len() != head.returns as usize {
        let error = PyValueError::new_err(format!(
            "{name} returned {} values, but num_returns is {}",
            items.len(),
            head.returns
        ));
        return Err(raised(py, &error, name));
    }
    items.iter().map(|item| encoded(py, item, name)).collect()
}

fn run_task(call: &mut Call) -> Result<Encoded, Failure> {
    with_task(call, one)
}

fn run_several(call: &mut Call) -> Returns {
    with_task(call, several)
}

fn run_stream(call: &mut Call) -> Result<Items, Failure> {
    with_task(call, |py, head, result, name| Generator::items(py, head, &result, RunKind::Task, name))
}

/// A cancelled run is not a failed one: it was ended.
pub(crate) fn note_failure(span: &mut Option<Span<'_>>, failed: bool) {
    if let Some(span) = span {
        span.failed = failed && !Runtime::current().is_ok_and(|runtime| runtime.is_cancelled());
    }
}

/// Whether a call is over when its function has returned. A generator runs on: its span is its own.
fn spans(head: &Head<'_>) -> bool {
    head.flags & flags::STREAM == 0
}

/// The class of the actor of this process, if there is one.
static ACTOR_CLASS: OnceLock<Box<str>> = OnceLock::new();

/// An actor in this process.
pub(crate) struct PythonActor {
    pub(crate) instance: Py<PyAny>,
    class: Arc<str>,
    /// The method that was called last: calls of one method come in runs.
    called: Mutex<Option<Called>>,
}

/// The names of a method.
struct Called {
    method: Box<str>,
    /// For the interpreter, whose caches know interned names alone.
    attribute: Py<PyString>,
    /// What people call it: the class and the method.
    shown: Arc<str>,
}

impl PythonActor {
    /// The name of a method for the interpreter, and the one for people.
    fn names_of<'py>(&self, py: Python<'py>, method: &str) -> (Bound<'py, PyString>, Arc<str>) {
        let mut called = self.called.lock();
        let names = |called: &Called| (called.attribute.bind(py).clone(), called.shown.clone());
        match &*called {
            Some(last) if *last.method == *method => names(last),
            _ => {
                let attribute = PyString::intern(py, method).unbind();
                let shown = format!("{}.{method}", self.class).into();
                names(called.insert(Called { method: method.into(), attribute, shown }))
            }
        }
    }
}

fn construct(call: &mut Call) -> Result<ActorState, Failure> {
    construct_with(call, None)
}

/// Constructs an actor, or makes it of what was saved of it.
pub(crate) fn construct_with(call: &mut Call, saved: Option<&[u8]>) -> Result<ActorState, Failure> {
    let runtime = current()?;
    with_head(call, |head, call| {
        Python::attach(|py| {
            let loaded = load(py, &runtime, head.function)?;
            let name = Arc::from(format!("{}.__init__", loaded.name));
            runtime.set_function_name(&name);
            title::show(&name);
            output::set_name(&loaded.name);
            context::set_actor_assigned(&runtime, head.assigned);
            let mut span = Some(Span::new(&runtime, RunKind::Creation, &name));
            let failed = |error: PyErr| raised(py, &error, &name);
            let prepared = arguments(py, &runtime, head, call, true).map_err(failed)?;
            let class = loaded.object.bind(py);
            let made = hooks::get(py).and_then(|hooks| match saved {
                Some(saved) => hooks.restore.call1(py, (class, PyBytes::new(py, saved))),
                None => hooks.construct.call1(py, (class, prepared.args, prepared.kwargs)),
            });
            let instance = match made {
                Ok(instance) => instance.into_bound(py),
                Err(error) => {
                    note_failure(&mut span, true);
                    return Err(not_constructed(py, &error, &name));
                }
            };
            output::set_actor(&instance);
            let _ = ACTOR_CLASS.set((*loaded.name).into());
            let called = Mutex::default();
            let actor = PythonActor { instance: instance.unbind(), class: loaded.name.clone(), called };
            Ok(Arc::new(actor) as ActorState)
        })
    })
}

/// The failure that an exception of a constructor is. An actor that exits there ends as in a method: what it left to be
/// done at the end is done.
fn not_constructed(py: Python<'_>, error: &PyErr, name: &str) -> Failure {
    if is_actor_exit(py, error) {
        call_hook(|hooks| &hooks.exits);
        return Failure::new(FailureKind::ActorDied, "its actor exited");
    }
    raised(py, error, name)
}

fn is_actor_exit(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).name().is_ok_and(|name| name == "ActorExit")
}

/// `sys.exit()` in a method ends the process of its actor, whose restarts and retries follow from that.
pub(crate) fn end_if_exit(py: Python<'_>, error: &PyErr) {
    if error.is_instance_of::<PySystemExit>(py) && !is_actor_exit(py, error) {
        let left = hooks::get(py).and_then(|hooks| hooks.leave_process.call1(py, (error.value(py),)));
        if let Err(error) = left {
            error.write_unraisable(py, None);
        }
    }
}

pub(crate) fn python_actor(state: &ActorState) -> Result<&PythonActor, Failure> {
    state.downcast_ref().ok_or_else(|| Failure::new(FailureKind::UnknownFunction, "it is not a Python actor"))
}

/// The method of an actor.
fn method<'py>(
    py: Python<'py>,
    actor: &PythonActor,
    head: &Head<'_>,
) -> Result<(Bound<'py, PyAny>, Arc<str>), Failure> {
    let (attribute, name) = actor.names_of(py, head.name);
    let instance = actor.instance.bind(py);
    let found = instance.getattr(&attribute).and_then(|found| {
        if is_own_method(&found, instance) {
            return Ok(found);
        }
        // An attribute of the instance must not hide the method of the class.
        let hooks = hooks::get(py)?;
        Ok(hooks.class_method.call1(py, (instance, &attribute, found))?.into_bound(py))
    });
    match found {
        Ok(method) => Ok((method, name)),
        Err(error) => Err(raised(py, &error, &name)),
    }
}

/// Whether it is a method that is bound to this very instance.
fn is_own_method(found: &Bound<'_, PyAny>, instance: &Bound<'_, PyAny>) -> bool {
    let bound_to = found.getattr_opt(pyo3::intern!(found.py(), "__self__"));
    bound_to.is_ok_and(|bound_to| bound_to.is_some_and(|bound_to| bound_to.is(instance)))
}

/// What people call a call: what its caller says, else the class and the method.
fn shown(head: &Head<'_>, name: &Arc<str>) -> Arc<str> {
    let given = std::str::from_utf8(head.assigned).ok().filter(|shown| !shown.is_empty());
    given.map_or_else(|| name.clone(), Arc::from)
}

fn with_method<R>(
    call: &mut Call,
    state: &ActorState,
    then: impl FnOnce(Python<'_>, &Head<'_>, Bound<'_, PyAny>, &str) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let runtime = current()?;
    let actor = python_actor(state)?;
    with_head(call, |head, call| {
        Python::attach(|py| {
            call.begins();
            let (method, name) = method(py, actor, head)?;
            let shown = shown(head, &name);
            runtime.set_function_name(&shown);
            title::show(&shown);
            let mut span = spans(head).then(|| Span::new(&runtime, RunKind::Call, &shown));
            let result = invoke_method(py, &runtime, head, call, &method, &name);
            note_failure(&mut span, result.is_err());
            then(py, head, result?, &name)
        })
    })
}

fn run_method(call: &mut Call, state: &ActorState) -> Result<Encoded, Failure> {
    with_method(call, state, one)
}

fn run_several_method(call: &mut Call, state: &ActorState) -> Returns {
    with_method(call, state, several)
}

fn run_stream_method(call: &mut Call, state: &ActorState) -> Result<Items, Failure> {
    with_method(call, state, |py, head, result, name| {
        Generator::items(py, head, &result, RunKind::Call, name)
    })
}

/// What the event loop has to say about a call.
#[derive(Default)]
struct Answer {
    result: Option<Result<Encoded, Failure>>,
    waker: Option<Waker>,
    /// What to call in order to cancel it, once.
    cancel: Option<Py<PyAny>>,
    /// Whether it was cancelled before there was something to call.
    cancelled: bool,
    /// Whether the actor ends with it.
    exits: bool,
}

impl Answer {
    /// The result, if there is one: then the run with this number is over, and the actor ends if the call wants that.
    fn take_result(&mut self, runtime: &Runtime, run: Option<u64>) -> Option<Result<Encoded, Failure>> {
        let result = self.result.take()?;
        let mut span = Some(Span::begun(runtime, run));
        note_failure(&mut span, result.is_err());
        drop(span);
        if self.exits {
            // It fails outside of actors only.
            let _ = runtime.exit_actor();
        }
        Some(result)
    }
}

/// Told by the event loop how a call ended.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct Completion {
    answer: Arc<Mutex<Answer>>,
    name: Arc<str>,
    context: context::Context,
    /// What exceptions are worth another attempt.
    flags: u8,
    retry: Vec<u8>,
}

#[pymethods]
impl Completion {
    /// Where the call runs.
    fn context(&self) -> context::Context {
        self.context.clone()
    }

    /// The call goes on; `cancel()` is called on the main thread if it is cancelled, or at once if it has been.
    fn started(&self, py: Python<'_>, cancel: Py<PyAny>) -> PyResult<()> {
        let mut answer = self.answer.lock();
        if !answer.cancelled {
            answer.cancel = Some(cancel);
            return Ok(());
        }
        drop(answer);
        cancel.call0(py).map(|_| ())
    }

    /// Goes the first step of the call's coroutine; gives the coroutine and what it waits for, if that does not end it.
    #[allow(unsafe_code)]
    fn step<'py>(&self, coroutine: Bound<'py, PyAny>) -> Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let py = coroutine.py();
        // SAFETY: of all that an iterator can do, only `send` is used, for which the interpreter takes coroutines as well.
        let generator = unsafe { coroutine.cast_unchecked::<PyIterator>() };
        match generator.send(py.None().bind(py)) {
            Ok(PySendResult::Next(waits_for)) => return Some((coroutine, waits_for)),
            Ok(PySendResult::Return(value)) => self.returned(&value),
            Err(error) => self.raised(error.value(py)),
        }
        None
    }

    /// The actor ends with the call.
    fn exits(&self) {
        self.answer.lock().exits = true;
    }

    /// The call gave this.
    fn returned(&self, value: &Bound<'_, PyAny>) {
        self.tell(encoded(value.py(), value, &self.name));
    }

    /// The call raised this.
    fn raised(&self, error: &Bound<'_, PyAny>) {
        let (py, error) = (error.py(), PyErr::from_value(error.clone()));
        end_if_exit(py, &error);
        let mut failure = raised(py, &error, &self.name);
        failure.retriable = is_retriable(py, self.flags, &self.retry, &error);
        self.tell(Err(failure));
    }
}

impl Completion {
    fn tell(&self, result: Result<Encoded, Failure>) {
        let mut answer = self.answer.lock();
        answer.result.get_or_insert(result);
        let waker = answer.waker.take();
        drop(answer);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The future of a call that an event loop runs.
struct LoopCall {
    answer: Arc<Mutex<Answer>>,
    /// The number of its run.
    run: Option<u64>,
}

impl Future for LoopCall {
    type Output = Result<Encoded, Failure>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut answer = self.answer.lock();
        let ended = match Runtime::current() {
            Ok(runtime) => answer.take_result(&runtime, self.run),
            Err(_) => answer.result.take(),
        };
        if let Some(result) = ended {
            return Poll::Ready(result);
        }
        answer.waker = Some(context.waker().clone());
        let cancelled = Runtime::current().is_ok_and(|runtime| runtime.is_cancelled());
        answer.cancelled |= cancelled;
        let cancel = if cancelled { answer.cancel.take() } else { None };
        drop(answer);
        if let Some(cancel) = cancel {
            Python::attach(|py| {
                if let Err(error) = cancel.call0(py) {
                    error.write_unraisable(py, Some(cancel.bind(py)));
                }
            });
        }
        Poll::Pending
    }
}

fn run_async_method(call: &mut Call, state: ActorState) -> Result<AsyncReturn, Failure> {
    let runtime = current()?;
    let actor = python_actor(&state)?;
    let group = call.group();
    with_head(call, |head, call| {
        Python::attach(|py| {
            let (method, name) = method(py, actor, head)?;
            runtime.set_function_name(&name);
            let failed = |error: PyErr| raised(py, &error, &name);
            let prepared = arguments(py, &runtime, head, call, false).map_err(failed)?;
            let shown = shown(head, &name);
            let (answer, run) = (Arc::<Mutex<Answer>>::default(), runtime.begin_run(RunKind::Call, &shown));
            let completion = Completion {
                answer: answer.clone(),
                name: name.clone(),
                context: context::context(py).map_err(failed)?,
                flags: head.flags,
                retry: head.retry.to_vec(),
            };
            let kwargs = prepared.kwargs.map_or_else(|| py.None(), |kwargs| kwargs.into_any().unbind());
            hooks::async_runner(py)
                .and_then(|run| run.call1(py, (method, prepared.args, kwargs, completion, group)))
                .map_err(failed)?;
            let ended = answer.lock().take_result(&runtime, run);
            Ok(ended.map_or_else(|| AsyncReturn::later(LoopCall { answer, run }), AsyncReturn::Done))
        })
    })
}

/// Lets the runtime tell Python what it wants to know.
pub(crate) fn set_runtime_hooks() {
    aktis_runtime::hooks::set(aktis_runtime::hooks::Hooks {
        interrupted: failure::interrupted,
        cancelled: || {
            // Python's handler raises KeyboardInterrupt on the main thread if what runs there was cancelled.
            let _ = aktis_store::interrupt_this_process();
        },
        run_loop: || call_hook(|hooks| &hooks.run_loop),
        idle: || {
            call_hook(|hooks| &hooks.flush);
            title::show(ACTOR_CLASS.get().map_or("IDLE", |class| class));
        },
        shut_down: || call_hook(|hooks| &hooks.flush),
        exits: || call_hook(|hooks| &hooks.exits),
        // A thread that Python has not seen before gets a state of its own, which would end with each call.
        thread: |run| Python::attach(|py| py.detach(run)),
        // What it costs to hand over the interpreter's lock.
        brief: Duration::from_micros(20),
        blocking: detached::let_go,
    });
}

/// For the event loop: runs what there is to run, or sleeps until there is something.
#[pyfunction]
pub(crate) fn loop_turn(py: Python<'_>, timeout: Option<f64>) -> PyResult<()> {
    // An event loop asks for negative times when it is late.
    let timeout = timeout.map(|timeout| crate::object_ref::seconds(timeout.max(0.0))).transpose()?;
    if let Ok(runtime) = Runtime::current() {
        py.detach(|| runtime.turn(timeout));
    }
    Ok(())
}

/// Ends the sleep of the event loop.
#[pyfunction]
pub(crate) fn wake_loop() {
    if let Ok(runtime) = Runtime::current() {
        runtime.poke();
    }
}

fn call_hook(choose: fn(&hooks::Hooks) -> &Py<PyAny>) {
    Python::try_attach(|py| {
        if let Err(error) = hooks::get(py).and_then(|hooks| choose(hooks).call0(py)) {
            error.write_unraisable(py, None);
        }
    });
}
