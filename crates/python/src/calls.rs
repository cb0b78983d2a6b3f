//! `f.remote(...)`, `Class.remote(...)` and `handle.method.remote(...)`: from Python's arguments to a submission.

mod actors;

pub(crate) use self::actors::ActorCaller;

use crate::actor::Actor;
use crate::detached::detached;
use crate::head::{self, flags};
use crate::object_ref::{ObjectRef, id_bytes};
use crate::strategy::Wanted;
use crate::stream::Stream;
use crate::worker;
use crate::{codec, failure, fetched, retired, session};
use aktis_protocol::{Amount, FunctionId, GroupId, GroupPlace, ObjectId, Resources, Shape, limits};
use aktis_runtime::{Arguments, CallOptions, Encoded, Handle, Runtime, TaskOptions};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// A function or class that workers fetch when they first need it.
#[pyclass(frozen, module = "aktis._native", weakref)]
pub(crate) struct Export {
    name: String,
    pickle: Py<PyAny>,
    /// The function or class itself.
    code: Py<PyAny>,
    /// The object that holds it already, if it came from another process.
    origin: Option<ObjectId>,
    exported: Mutex<Option<Exported>>,
}

thread_local! {
    /// What this thread is about to export: code that refers to itself is not exported within itself.
    static EXPORTING: RefCell<Vec<*const Export>> = const { RefCell::new(Vec::new()) };
}

/// Where a function or class is in a session.
#[derive(Clone)]
struct Exported {
    /// The session's [number](Runtime::number).
    session: u64,
    /// The object that holds it.
    object: [u64; 2],
    /// If it refers to objects or actors, as a closure may: its own reference, which every call carries, so that they
    /// live for as long as somebody may call it. All others stay until the session ends.
    closure: Option<Handle>,
}

impl Exported {
    fn new(runtime: &Runtime, object: [u64; 2], closure: Option<Handle>) -> Self {
        Self { session: runtime.number(), object, closure }
    }
}

#[pymethods]
impl Export {
    #[new]
    #[pyo3(signature = (name, pickle, code, origin=None))]
    fn new(name: String, pickle: Py<PyAny>, code: Py<PyAny>, origin: Option<(u64, u64)>) -> Self {
        let origin = origin.map(|(high, low)| ObjectId::from_words([high, low]));
        Self { name, pickle, code, origin, exported: Mutex::new(None) }
    }

    /// While a value for workers is pickled: the object that holds this code, so that the copy of it inside the value
    /// needs no export of its own, which would die with the copy's process.
    fn origin_for_copy(&self, py: Python<'_>) -> Option<(u64, u64)> {
        if !codec::is_encoding() || EXPORTING.with_borrow(|exporting| exporting.contains(&(&raw const *self)))
        {
            return None;
        }
        let runtime = Runtime::current().ok()?;
        // Code that cannot be exported says so when it is called.
        let exported = self.exported(py, &runtime).ok().filter(|exported| exported.closure.is_none())?;
        Some((exported.object[0], exported.object[1]))
    }

    #[getter]
    fn name(&self) -> &str {
        &self.name
    }
}

impl Export {
    /// Where the pickled function is in this session; at first use it is put there.
    fn exported(&self, py: Python<'_>, runtime: &Runtime) -> PyResult<Exported> {
        match &*self.exported.lock() {
            Some(exported) if exported.session == runtime.number() => return Ok(exported.clone()),
            _ => {}
        }
        self.export(py, runtime)
    }

    #[cold]
    fn export(&self, py: Python<'_>, runtime: &Runtime) -> PyResult<Exported> {
        let exported = match self.found_again(py, runtime) {
            Some(object) => Exported::new(runtime, object.to_words(), None),
            None => self.export_anew(py, runtime)?,
        };
        *self.exported.lock() = Some(exported.clone());
        Ok(exported)
    }

    /// The object from which this process has the code, if its value is still to be had; it is held from now on.
    fn found_again(&self, py: Python<'_>, runtime: &Runtime) -> Option<ObjectId> {
        let object = self.origin.or_else(|| fetched::origin_of(py, &self.code))?;
        let handle = runtime.adopt_object(object);
        py.detach(|| runtime.keeping_cpu(|| handle.get(None))).ok()?;
        retired::keep(handle);
        runtime.keep_code(object);
        Some(object)
    }

    fn export_anew(&self, py: Python<'_>, runtime: &Runtime) -> PyResult<Exported> {
        EXPORTING.with_borrow_mut(|exporting| exporting.push(self));
        let (pickled, found) = codec::pickle_for(runtime, || self.pickle.call0(py));
        EXPORTING.with_borrow_mut(Vec::pop);
        let pickled = pickled?;
        let pickled = pickled.bind(py).cast::<PyBytes>()?.as_bytes();
        let mut body = Vec::with_capacity(pickled.len() + self.name.len() + 2);
        head::write_text(&mut body, self.name.as_bytes());
        body.extend_from_slice(pickled);
        let is_closure = !found.is_empty();
        if !found.handles.is_empty() {
            crate::object_ref::check_out_of_band(py)?;
        }
        let put = || {
            let handle = runtime.put(Encoded::from_raw(&body, Vec::new(), found.handles, found.actors))?;
            handle.escape();
            Ok(handle)
        };
        let exported = detached(py, || match is_closure {
            true => put().map(|handle| {
                let object = handle.id().to_words();
                retired::note_export(runtime, object);
                Exported::new(runtime, object, Some(handle))
            }),
            false => retired::export(runtime, &body, put).map(|object| {
                runtime.keep_code(ObjectId::from_words(object));
                Exported::new(runtime, object, None)
            }),
        });
        exported.map_err(|error| failure::to_exception(py, error))
    }
}

impl Drop for Export {
    fn drop(&mut self) {
        if let Some(Exported { session, object, closure: Some(_) }) = self.exported.get_mut() {
            retired::forget_export(*session, *object);
        }
    }
}

/// How many arguments a function takes, and who checks the rest.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct Signature {
    minimum: usize,
    maximum: Option<usize>,
    bind: Py<PyAny>,
}

#[pymethods]
impl Signature {
    #[new]
    fn new(minimum: usize, maximum: isize, bind: Py<PyAny>) -> Self {
        Self { minimum, maximum: usize::try_from(maximum).ok(), bind }
    }
}

impl Signature {
    fn check(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<()> {
        let count = args.len();
        let fits = count >= self.minimum && self.maximum.is_none_or(|maximum| count <= maximum);
        if kwargs.is_none() && fits {
            return Ok(());
        }
        self.bind.bind(args.py()).call(args, kwargs)?;
        Ok(())
    }
}

/// What exceptions are worth another attempt.
#[derive(Default)]
struct Retry {
    flags: u8,
    types: Vec<u8>,
}

impl Retry {
    fn new(retry_exceptions: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(types) = retry_exceptions.cast::<PyBytes>() {
            return Ok(Self { flags: flags::RETRY_SOME, types: types.as_bytes().to_vec() });
        }
        let flags = if retry_exceptions.is_truthy()? { flags::RETRY_ANY } else { 0 };
        Ok(Self { flags, types: Vec::new() })
    }
}

/// How a call gives its values.
#[derive(Clone, Copy)]
enum Returned {
    None,
    One,
    Several(u32),
    Stream,
    Dynamic,
}

impl Returned {
    fn new(num_returns: i64) -> PyResult<Self> {
        Ok(match num_returns {
            -2 => Self::Dynamic,
            -1 => Self::Stream,
            0 => Self::None,
            1 => Self::One,
            count => Self::Several(
                u32::try_from(count)
                    .map_err(|_| PyValueError::new_err(format!("num_returns cannot be {count}")))?,
            ),
        })
    }

    fn count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Several(count) => count,
            _ => 1,
        }
    }

    fn flags(self) -> u8 {
        match self {
            Self::Dynamic => flags::DYNAMIC,
            Self::Stream => flags::STREAM,
            Self::None | Self::One | Self::Several(_) => 0,
        }
    }
}

/// Resources by name, from Python's numbers.
pub(crate) fn resources_from(amounts: BTreeMap<String, f64>) -> PyResult<Resources> {
    let mut resources = Resources::none();
    for (name, amount) in amounts {
        let parsed = Amount::from_f64(amount).ok_or_else(|| {
            PyValueError::new_err(format!(
                "{amount} is not an amount of {name}\nhint: amounts are not negative and have at most four decimals"
            ))
        })?;
        resources.set(&name, parsed);
    }
    Ok(resources)
}

/// The number of a concurrency group: its callers know its name alone.
fn group_number(name: &str) -> u16 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    // 0 is the group of all calls that belong to no other.
    (hash % 65_535) as u16 + 1
}

/// A place in a group; a bundle of -1 is any.
fn group_place((group, bundle): (Vec<u8>, i64)) -> PyResult<GroupPlace> {
    let group = GroupId::from_words(crate::object_ref::id_words(&group)?);
    Ok(GroupPlace { group, bundle: u32::try_from(bundle).ok() })
}

/// -1 is for ever.
fn attempts(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// So many seconds; more than any clock counts is no bound.
fn time_allowed(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}

/// Everything of a call but its head: positional arguments, then named ones.
fn push_arguments(
    arguments: &mut Arguments,
    runtime: &Runtime,
    args: &Bound<'_, PyTuple>,
    kwargs: Option<&Bound<'_, PyDict>>,
) -> PyResult<()> {
    for value in args.iter() {
        codec::push_argument(arguments, runtime, &value)?;
    }
    if let Some(kwargs) = kwargs {
        for (_, value) in kwargs.iter() {
            codec::push_argument(arguments, runtime, &value)?;
        }
    }
    Ok(())
}

/// For so many arguments there is room from the start.
const SMALL_ARGUMENTS_MAX: usize = 16;

/// The head of a call.
struct Heading<'a> {
    flags: u8,
    /// What is called, if it is not a method.
    function: Option<&'a Exported>,
    returns: u32,
    max_calls: u32,
    name: &'a str,
    retry: &'a [u8],
    assigned: &'a [u8],
}

impl Heading<'_> {
    /// No arguments yet, with room for the head and small positional ones.
    fn arguments(&self, args: &Bound<'_, PyTuple>) -> Arguments {
        let texts = self.name.len() + self.retry.len() + self.assigned.len();
        let small = args.len().min(SMALL_ARGUMENTS_MAX) * head::SMALL_ARGUMENT_BYTES;
        Arguments::with_capacity(head::FIXED_BYTES + texts + small)
    }

    fn push(
        &self,
        arguments: &mut Arguments,
        runtime: &Runtime,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let named = kwargs.map_or(0, PyDictMethods::len);
        if args.len().max(named) > usize::from(u16::MAX) {
            return Err(PyValueError::new_err("a call can have 65535 arguments at most"));
        }
        let counts = (args.len(), named);
        let write = |out: &mut Vec<u8>| {
            head::write(
                out,
                self.flags,
                self.function.map_or([0, 0], |exported| exported.object),
                [self.returns, self.max_calls],
                counts,
                self.name,
                [self.retry, self.assigned],
            );
            if let Some(kwargs) = kwargs {
                for (name, _) in kwargs.iter() {
                    let text = name.cast::<PyString>().ok().and_then(|name| name.to_str().ok());
                    head::write_text(out, text.unwrap_or_default().as_bytes());
                }
            }
            true
        };
        if let Some(closure) = self.function.and_then(|exported| exported.closure.clone()) {
            let mut body = Vec::new();
            write(&mut body);
            let encoded = Encoded::from_raw(&body, Vec::new(), vec![closure], Vec::new());
            let pushed = detached(args.py(), || arguments.push_encoded(runtime, encoded));
            return pushed.map_err(|error| failure::to_exception(args.py(), error));
        }
        if arguments.push_raw(limits::INLINE_BYTES_MAX, write) {
            return Ok(());
        }
        let mut body = Vec::new();
        write(&mut body);
        let encoded = Encoded::from_raw(&body, Vec::new(), Vec::new(), Vec::new());
        let pushed = detached(args.py(), || arguments.push_encoded(runtime, encoded));
        pushed.map_err(|error| failure::to_exception(args.py(), error))
    }
}

/// Calling it submits a task.
#[pyclass(frozen, module = "aktis._native", weakref)]
pub(crate) struct TaskCaller {
    export: Py<Export>,
    signature: Py<Signature>,
    options: TaskOptions,
    returns: Returned,
    retry: Retry,
    /// The name, if it is not the function's own.
    name: String,
    /// Its resources, if they are not the usual ones.
    assigned: Vec<u8>,
    max_calls: u32,
}

#[pymethods]
impl TaskCaller {
    #[new]
    #[pyo3(signature = (export, signature, *, name, resources, environment, num_returns, max_retries,
                        retry_exceptions, stream_ahead, group, strategy, max_calls, priority=0, deadline=None))]
    #[expect(clippy::too_many_arguments, reason = "each is an option by name")]
    fn new(
        export: &Bound<'_, Export>,
        signature: Py<Signature>,
        name: &str,
        resources: BTreeMap<String, f64>,
        environment: String,
        num_returns: i64,
        max_retries: i64,
        retry_exceptions: &Bound<'_, PyAny>,
        stream_ahead: u32,
        group: Option<(Vec<u8>, i64)>,
        strategy: Wanted,
        max_calls: u32,
        priority: i32,
        deadline: Option<f64>,
    ) -> PyResult<Self> {
        let group = group.map(group_place).transpose()?;
        let strategy = strategy.into_strategy()?;
        let shape = session::shape(resources_from(resources)?, environment, group, strategy);
        let shape = Shape { priority, ..shape };
        let usual = shape == Shape { isolated: true, ..Shape::default() };
        let assigned = if usual { Vec::new() } else { head::assigned_text(&shape.resources, group) };
        let shape = (!usual).then(|| Arc::new(shape));
        let options = TaskOptions {
            shape,
            retries: Some(attempts(max_retries)),
            name: Some(name.into()),
            stream_ahead: (stream_ahead > 0).then_some(stream_ahead),
            deadline: deadline.and_then(time_allowed),
            kind: FunctionId::of(name, "").0 as u32,
        };
        let own = export.get().name == name;
        Ok(Self {
            export: export.clone().unbind(),
            signature,
            options,
            returns: Returned::new(num_returns)?,
            retry: Retry::new(retry_exceptions)?,
            name: if own { String::new() } else { name.to_owned() },
            assigned,
            max_calls,
        })
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyAny>> {
        let py = args.py();
        self.signature.get().check(args, kwargs)?;
        let runtime = session::current_or_start(py)?;
        let function = self.export.get().exported(py, &runtime)?;
        let heading = Heading {
            flags: self.retry.flags | self.returns.flags(),
            function: Some(&function),
            returns: self.returns.count(),
            max_calls: self.max_calls,
            name: &self.name,
            retry: &self.retry.types,
            assigned: &self.assigned,
        };
        let mut arguments = heading.arguments(args);
        heading.push(&mut arguments, &runtime, args, kwargs)?;
        push_arguments(&mut arguments, &runtime, args, kwargs)?;
        let submitted = match self.returns {
            Returned::None | Returned::One | Returned::Dynamic => {
                runtime.submit(&worker::TASK, &self.options, arguments).map(Given::One)
            }
            Returned::Several(count) => {
                runtime.submit_several(&worker::SEVERAL, &self.options, arguments, count).map(Given::Several)
            }
            Returned::Stream => {
                runtime.submit_stream(&worker::STREAM, &self.options, arguments).map(Given::Stream)
            }
        };
        match submitted {
            Ok(given) => given.into_python(py, self.returns),
            Err(error) => Err(failure::to_exception(py, error)),
        }
    }
}

/// What a call gives at once.
enum Given {
    One(Handle),
    Several(Vec<Handle>),
    Stream(aktis_runtime::Stream),
}

impl Given {
    fn into_python(self, py: Python<'_>, returns: Returned) -> PyResult<Py<PyAny>> {
        match (self, returns) {
            (_, Returned::None) => Ok(py.None()),
            (Self::One(handle), _) => Ok(ObjectRef::create(py, handle)?.into_any()),
            (Self::Several(handles), _) => {
                let references = handles.into_iter().map(|handle| ObjectRef::create(py, handle));
                Ok(PyList::new(py, references.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
            }
            (Self::Stream(stream), _) => Ok(Py::new(py, Stream::new(stream))?.into_any()),
        }
    }
}

/// Calling it calls a method of an actor.
#[pyclass(frozen, module = "aktis._native", weakref)]
pub(crate) struct MethodCaller {
    actor: Py<Actor>,
    method: String,
    signature: Option<Py<Signature>>,
    options: CallOptions,
    returns: Returned,
    retry: Retry,
    is_async: bool,
    /// What people call its calls, if not by the class and the method.
    shown: String,
    /// Whether its calls leave the actor as it is.
    read_only: bool,
}

#[pymethods]
impl MethodCaller {
    #[new]
    #[pyo3(signature = (actor, method, signature, *, name, num_returns, max_task_retries, retry_exceptions,
                        concurrency_group, stream_ahead, is_async=false, deadline=None, shown=String::new(),
                        read_only=false))]
    #[expect(clippy::too_many_arguments, reason = "each is an option by name")]
    fn new(
        actor: Py<Actor>,
        method: String,
        signature: Option<Py<Signature>>,
        name: &str,
        num_returns: i64,
        max_task_retries: i64,
        retry_exceptions: &Bound<'_, PyAny>,
        concurrency_group: Option<String>,
        stream_ahead: u32,
        is_async: bool,
        deadline: Option<f64>,
        shown: String,
        read_only: bool,
    ) -> PyResult<Self> {
        let options = CallOptions {
            group: concurrency_group.as_deref().map_or(0, group_number),
            retries: Some(attempts(max_task_retries)),
            name: Some(name.into()),
            stream_ahead: (stream_ahead > 0).then_some(stream_ahead),
            deadline: deadline.and_then(time_allowed),
        };
        let returns = Returned::new(num_returns)?;
        if method.is_empty() {
            return Err(PyTypeError::new_err("a method has a name"));
        }
        Ok(Self {
            actor,
            method,
            signature,
            options,
            returns,
            retry: Retry::new(retry_exceptions)?,
            is_async,
            shown,
            read_only,
        })
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(&self, args: &Bound<'_, PyTuple>, kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<Py<PyAny>> {
        let py = args.py();
        if let Some(signature) = &self.signature {
            signature.get().check(args, kwargs)?;
        }
        let actor = &self.actor.get().handle;
        let runtime = actor.runtime();
        let heading = Heading {
            flags: self.retry.flags | self.returns.flags(),
            function: None,
            returns: self.returns.count(),
            max_calls: 0,
            name: &self.method,
            retry: &self.retry.types,
            // A call has no resources of its own.
            assigned: self.shown.as_bytes(),
        };
        let mut arguments = heading.arguments(args);
        heading.push(&mut arguments, &runtime, args, kwargs)?;
        push_arguments(&mut arguments, &runtime, args, kwargs)?;
        let called = match self.returns {
            Returned::None | Returned::One | Returned::Dynamic => {
                let method = match (self.is_async, self.read_only) {
                    (true, _) => &worker::ASYNC_METHOD,
                    (false, true) => &worker::READ_ONLY_METHOD,
                    (false, false) => &worker::METHOD,
                };
                actor.call(method, &self.options, arguments).map(Given::One)
            }
            Returned::Several(count) => actor
                .call_several(&worker::SEVERAL_METHOD, &self.options, arguments, count)
                .map(Given::Several),
            Returned::Stream => {
                actor.call_stream(&worker::STREAM_METHOD, &self.options, arguments).map(Given::Stream)
            }
        };
        match called {
            Ok(given) => given.into_python(py, self.returns),
            Err(error) => Err(failure::to_exception(py, error)),
        }
    }

    fn actor_id<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &id_bytes(self.actor.get().handle.id().to_words()))
    }
}
