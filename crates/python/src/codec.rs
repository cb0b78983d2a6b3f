//! Python values as bytes: common small ones directly, all others through pickle.
//!
//! Invariants:
//! 1. A value is read back as the same type: only exact types take the direct way, never subclasses.
//! 2. References and actors' handles that are pickled while a value is encoded become attachments of that value.

use crate::buffer::{self, Pinned};
use crate::detached::detached;
use crate::object_ref::ObjectRef;
use crate::{failure, hooks};
use aktis_runtime::codec::RawArgument;
use aktis_runtime::{ActorHandle, Arguments, Buffer, Encoded, Handle, Runtime, Value};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyList, PyString, PyTuple};
use std::cell::RefCell;

const NONE: u8 = 0;
const TRUE: u8 = 1;
const FALSE: u8 = 2;
const INT: u8 = 3;
const FLOAT: u8 = 4;
const STR: u8 = 5;
const BYTES: u8 = 6;
const TUPLE: u8 = 7;
const LIST: u8 = 8;
const REFERENCES: u8 = 9;
const PICKLE: u8 = 10;
const BYTES_BUFFER: u8 = 11;
const REFERENCE: u8 = 12;

/// Items up to which tuples and lists are written directly.
const ITEMS_MAX: usize = 16;
/// How deep they may be nested.
const DEPTH_MAX: usize = 3;
/// Bytes from which strings and bytes are not written directly.
const DIRECT_BYTES_MAX: usize = 8 * 1024;

/// What was found in a value while it was pickled.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) handles: Vec<Handle>,
    pub(crate) actors: Vec<ActorHandle>,
    /// Nothing else is looked for than what belongs to the session with this [number](Runtime::number).
    session: Option<u64>,
}

impl Found {
    pub(crate) fn is_empty(&self) -> bool {
        self.handles.is_empty() && self.actors.is_empty()
    }

    fn looks_for(&self, session: impl FnOnce() -> Option<u64>) -> bool {
        self.session.is_none() || self.session == session()
    }
}

/// The value that is being unpickled.
struct Source {
    runtime: Runtime,
    value: Value,
}

thread_local! {
    static ENCODING: RefCell<Vec<Found>> = const { RefCell::new(Vec::new()) };
    static DECODING: RefCell<Vec<Source>> = const { RefCell::new(Vec::new()) };
}

/// Writes a common small value; false, with nothing written, if it is none.
fn write_direct(value: &Bound<'_, PyAny>, out: &mut Vec<u8>, depth: usize) -> bool {
    if value.is_none() {
        out.push(NONE);
    } else if let Ok(int) = value.cast_exact::<PyInt>() {
        let Ok(number) = int.extract::<i64>() else { return false };
        out.push(INT);
        out.extend_from_slice(&number.to_le_bytes());
    } else if let Ok(string) = value.cast_exact::<PyString>() {
        // Lone surrogates are not UTF-8: pickle knows how to write them.
        let Ok(text) = string.to_str() else { return false };
        return write_bytes(STR, text.as_bytes(), out);
    } else if let Ok(float) = value.cast_exact::<PyFloat>() {
        out.push(FLOAT);
        out.extend_from_slice(&float.value().to_le_bytes());
    } else if let Ok(flag) = value.cast_exact::<PyBool>() {
        out.push(if flag.is_true() { TRUE } else { FALSE });
    } else if let Ok(bytes) = value.cast_exact::<PyBytes>() {
        return write_bytes(BYTES, bytes.as_bytes(), out);
    } else if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        return write_items(TUPLE, tuple.len(), tuple.iter(), out, depth);
    } else if let Ok(list) = value.cast_exact::<PyList>() {
        return write_items(LIST, list.len(), list.iter(), out, depth);
    } else {
        return false;
    }
    true
}

fn write_bytes(tag: u8, bytes: &[u8], out: &mut Vec<u8>) -> bool {
    if bytes.len() > DIRECT_BYTES_MAX {
        return false;
    }
    out.push(tag);
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
    true
}

fn write_items<'py>(
    tag: u8,
    len: usize,
    items: impl Iterator<Item = Bound<'py, PyAny>>,
    out: &mut Vec<u8>,
    depth: usize,
) -> bool {
    if len > ITEMS_MAX || depth >= DEPTH_MAX {
        return false;
    }
    let start = out.len();
    out.extend_from_slice(&[tag, len as u8]);
    for item in items {
        if !write_direct(&item, out, depth + 1) {
            out.truncate(start);
            return false;
        }
    }
    true
}

/// Encodes a value.
pub(crate) fn encode(value: &Bound<'_, PyAny>) -> PyResult<Encoded> {
    let mut body = Vec::with_capacity(32);
    if write_direct(value, &mut body, 0) {
        return Ok(Encoded::from_raw(&body, Vec::new(), Vec::new(), Vec::new()));
    }
    encode_other(value)
}

#[cold]
fn encode_other(value: &Bound<'_, PyAny>) -> PyResult<Encoded> {
    if let Ok(reference) = value.cast_exact::<ObjectRef>() {
        let handles = vec![reference.get().handle().clone()];
        return Ok(Encoded::from_raw(&[REFERENCE], Vec::new(), handles, Vec::new()));
    }
    if value.cast_exact::<PyBytes>().is_ok() {
        let buffers = vec![buffer::borrow(value)?];
        return Ok(Encoded::from_raw(&[BYTES_BUFFER], buffers, Vec::new(), Vec::new()));
    }
    if let Some(handles) = references_of(value) {
        return Ok(Encoded::from_raw(&[REFERENCES], Vec::new(), handles, Vec::new()));
    }
    pickle(value)
}

/// The references in a list that holds nothing else.
fn references_of(value: &Bound<'_, PyAny>) -> Option<Vec<Handle>> {
    let list = value.cast_exact::<PyList>().ok()?;
    let handle = |item: Bound<'_, PyAny>| Some(item.cast_exact::<ObjectRef>().ok()?.get().handle().clone());
    list.iter().map(handle).collect()
}

fn pickle(value: &Bound<'_, PyAny>) -> PyResult<Encoded> {
    let py = value.py();
    let pickle = || hooks::get(py).and_then(|hooks| hooks.dumps.call1(py, (value,)));
    let (pickled, found) = attaching(Found::default(), pickle);
    let pickled = pickled?.into_bound(py);
    let (data, buffers): (Bound<'_, PyBytes>, Bound<'_, PyList>) = pickled.extract()?;
    let raw = |item: Bound<'_, PyAny>| buffer::borrow(&item.call_method0("raw")?);
    let buffers = buffers.iter().map(raw).collect::<PyResult<Vec<Buffer>>>()?;
    let data = data.as_bytes();
    let mut body = Vec::with_capacity(data.len() + 1);
    body.push(PICKLE);
    body.extend_from_slice(data);
    Ok(Encoded::from_raw(&body, buffers, found.handles, found.actors))
}

fn attaching<R>(found: Found, pickle: impl FnOnce() -> R) -> (R, Found) {
    ENCODING.with_borrow_mut(|stack| stack.push(found));
    let pickled = pickle();
    (pickled, ENCODING.with_borrow_mut(Vec::pop).unwrap_or_default())
}

/// Whether a value for workers is being pickled.
pub(crate) fn is_encoding() -> bool {
    ENCODING.with_borrow(|stack| !stack.is_empty())
}

/// Pickles something that is to be an object of a session, and gives what it refers to in that session. Whatever else
/// it refers to is of an earlier one, and goes by its id.
pub(crate) fn pickle_for<R>(runtime: &Runtime, pickle: impl FnOnce() -> R) -> (R, Found) {
    attaching(Found { session: Some(runtime.number()), ..Found::default() }, pickle)
}

/// Adds an argument; a reference is replaced by its value before the call.
pub(crate) fn push_argument(
    arguments: &mut Arguments,
    runtime: &Runtime,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    if arguments.push_raw(runtime.inline_bytes_max(), |out| write_direct(value, out, 0)) {
        return Ok(());
    }
    if let Ok(reference) = value.cast_exact::<ObjectRef>() {
        crate::object_ref::check_open(value.py(), reference.get().handle())?;
        arguments.push_handle(reference.get().handle().clone());
        return Ok(());
    }
    push_value(arguments, runtime, value)
}

/// Adds an argument; a reference stays one.
pub(crate) fn push_value(
    arguments: &mut Arguments,
    runtime: &Runtime,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let encoded = encode(value)?;
    // A large one is copied into the object store.
    detached(value.py(), || arguments.push_encoded(runtime, encoded))
        .map_err(|error| failure::to_exception(value.py(), error))
}

/// A reference is being pickled: its number among the attachments, or `None` outside of a value.
pub(crate) fn attach_handle(handle: &Handle) -> Option<usize> {
    ENCODING.with_borrow_mut(|stack| {
        let session = || handle.runtime().map(|runtime| runtime.number());
        let found = stack.last_mut().filter(|found| found.looks_for(session))?;
        found.handles.push(handle.clone());
        Some(found.handles.len() - 1)
    })
}

/// An actor's handle is being pickled: its number among the attachments, or `None` outside of a value.
pub(crate) fn attach_actor(actor: &ActorHandle) -> Option<usize> {
    ENCODING.with_borrow_mut(|stack| {
        let session = || Some(actor.runtime().number());
        let found = stack.last_mut().filter(|found| found.looks_for(session))?;
        found.actors.push(actor.clone());
        Some(found.actors.len() - 1)
    })
}

/// Decodes a value; references inside belong to the session of `runtime`.
///
/// `container` is the reference to the value itself, if there is one.
pub(crate) fn decode(
    py: Python<'_>,
    runtime: &Runtime,
    value: &Value,
    container: Option<&Handle>,
) -> PyResult<Py<PyAny>> {
    let raw = value.raw().map_err(PyValueError::new_err)?;
    let (&tag, rest) = raw.body().split_first().ok_or_else(broken)?;
    match tag {
        PICKLE => unpickle(py, runtime, value, rest),
        BYTES_BUFFER => {
            let buffer = raw.buffer(0).ok_or_else(broken)?;
            Ok(PyBytes::new(py, buffer.as_slice()).into_any().unbind())
        }
        REFERENCE => {
            let object = raw.object(0).ok_or_else(broken)?;
            Ok(ObjectRef::create(py, runtime.adopt_object(object))?.into_any())
        }
        REFERENCES => {
            let objects = (0..raw.objects()).map(|index| raw.object(index).ok_or_else(broken));
            let references = objects.map(|object| match container {
                Some(container) => ObjectRef::found_in(py, container, object?),
                None => ObjectRef::create(py, runtime.adopt_object(object?)),
            });
            Ok(PyList::new(py, references.collect::<PyResult<Vec<_>>>()?)?.into_any().unbind())
        }
        _ => decode_direct(py, raw.body()),
    }
}

/// Decodes an argument.
pub(crate) fn decode_argument(
    py: Python<'_>,
    runtime: &Runtime,
    argument: &RawArgument<'_>,
) -> PyResult<Py<PyAny>> {
    match argument {
        RawArgument::Plain(body) if body.first() == Some(&PICKLE) => {
            let hooks = hooks::get(py)?;
            hooks.loads.call1(py, (PyBytes::new(py, &body[1..]), PyTuple::empty(py)))
        }
        RawArgument::Plain(body) => decode_direct(py, body),
        RawArgument::Value(value) => decode(py, runtime, value, None),
    }
}

fn unpickle(py: Python<'_>, runtime: &Runtime, value: &Value, data: &[u8]) -> PyResult<Py<PyAny>> {
    let raw = value.raw().map_err(PyValueError::new_err)?;
    let buffers = (0..raw.buffers()).map(|index| {
        let buffer = raw.buffer(index).ok_or_else(broken)?;
        Py::new(py, Pinned::new(buffer))
    });
    let buffers = PyTuple::new(py, buffers.collect::<PyResult<Vec<_>>>()?)?;
    reading(runtime, value, || {
        hooks::get(py).and_then(|hooks| hooks.loads.call1(py, (PyBytes::new(py, data), buffers)))
    })
}

/// Unpickles something that is in this value: numbers of references and actors are those of the value's attachments.
pub(crate) fn reading<R>(runtime: &Runtime, value: &Value, unpickle: impl FnOnce() -> R) -> R {
    DECODING.with_borrow_mut(|stack| stack.push(Source { runtime: runtime.clone(), value: value.clone() }));
    let read = unpickle();
    let source = DECODING.with_borrow_mut(Vec::pop);
    drop(source);
    read
}

/// The session of the value that is being unpickled.
pub(crate) fn decoding_runtime() -> Option<Runtime> {
    DECODING.with_borrow(|stack| stack.last().map(|source| source.runtime.clone()))
}

/// The reference with this number in the value that is being unpickled.
pub(crate) fn attached_handle(index: u32) -> PyResult<Handle> {
    DECODING.with_borrow(|stack| {
        let source = stack.last().ok_or_else(outside)?;
        let object = source.value.raw().ok().and_then(|raw| raw.object(index)).ok_or_else(broken)?;
        Ok(source.runtime.adopt_object(object))
    })
}

/// The actor with this number in the value that is being unpickled.
pub(crate) fn attached_actor(index: u32) -> PyResult<ActorHandle> {
    DECODING.with_borrow(|stack| {
        let source = stack.last().ok_or_else(outside)?;
        let actor = source.value.raw().ok().and_then(|raw| raw.actor(index)).ok_or_else(broken)?;
        Ok(source.runtime.adopt_actor(actor))
    })
}

fn decode_direct(py: Python<'_>, body: &[u8]) -> PyResult<Py<PyAny>> {
    let mut rest = body;
    let value = read_direct(py, &mut rest)?;
    if rest.is_empty() { Ok(value) } else { Err(broken()) }
}

fn read_direct(py: Python<'_>, rest: &mut &[u8]) -> PyResult<Py<PyAny>> {
    let (&tag, after) = rest.split_first().ok_or_else(broken)?;
    *rest = after;
    let value = match tag {
        NONE => py.None(),
        TRUE => PyBool::new(py, true).to_owned().into_any().unbind(),
        FALSE => PyBool::new(py, false).to_owned().into_any().unbind(),
        INT => PyInt::new(py, i64::from_le_bytes(take(rest)?)).into_any().unbind(),
        FLOAT => PyFloat::new(py, f64::from_le_bytes(take(rest)?)).into_any().unbind(),
        STR => {
            let text = std::str::from_utf8(take_bytes(rest)?).map_err(|_| broken())?;
            PyString::new(py, text).into_any().unbind()
        }
        BYTES => PyBytes::new(py, take_bytes(rest)?).into_any().unbind(),
        TUPLE | LIST => {
            let [len] = take(rest)?;
            let items: Vec<_> = (0..len).map(|_| read_direct(py, rest)).collect::<PyResult<_>>()?;
            match tag {
                TUPLE => PyTuple::new(py, items)?.into_any().unbind(),
                _ => PyList::new(py, items)?.into_any().unbind(),
            }
        }
        _ => return Err(broken()),
    };
    Ok(value)
}

fn take<const N: usize>(rest: &mut &[u8]) -> PyResult<[u8; N]> {
    let (taken, after) = rest.split_first_chunk().ok_or_else(broken)?;
    *rest = after;
    Ok(*taken)
}

fn take_bytes<'a>(rest: &mut &'a [u8]) -> PyResult<&'a [u8]> {
    let len = u32::from_le_bytes(take(rest)?) as usize;
    let (taken, after) = rest.split_at_checked(len).ok_or_else(broken)?;
    *rest = after;
    Ok(taken)
}

#[cold]
fn broken() -> PyErr {
    PyValueError::new_err(
        "the bytes are not those of a Python value\nhint: a value that a Rust program made has no meaning in Python",
    )
}

#[cold]
fn outside() -> PyErr {
    PyValueError::new_err("a reference inside a value can only be read with that value")
}
