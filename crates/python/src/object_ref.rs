//! References to objects, and what is done with them.

use crate::actor::Actor;
use crate::detached::detached;
use crate::rest::{LAZY_LENGTH_MIN, ReadyAndRest, Rest};
use crate::stream::Stream;
use crate::{callbacks, codec, failure, hooks, session};
use aktis_protocol::ObjectId;
use aktis_runtime::{Handle, Runtime, Value};
use parking_lot::Mutex;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// A counted reference to an object.
///
/// A reference that was found in a list of references has no handle before its first use: programs read lists of
/// thousands and use a few. Until then the list itself keeps the object alive.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct ObjectRef {
    id: ObjectId,
    handle: OnceLock<Handle>,
    /// The list, until the reference has a handle.
    container: Mutex<Option<Handle>>,
}

impl From<Handle> for ObjectRef {
    fn from(handle: Handle) -> Self {
        Self { id: handle.id(), handle: OnceLock::from(handle), container: Mutex::new(None) }
    }
}

impl ObjectRef {
    /// A new reference.
    pub(crate) fn create(py: Python<'_>, handle: Handle) -> PyResult<Py<Self>> {
        Self::untracked(py, Self::from(handle))
    }

    /// A reference to an object that the value of `container` holds.
    pub(crate) fn found_in(py: Python<'_>, container: &Handle, id: ObjectId) -> PyResult<Py<Self>> {
        let container = Mutex::new(Some(container.clone()));
        Self::untracked(py, Self { id, handle: OnceLock::new(), container })
    }

    /// The engine's reference.
    pub(crate) fn handle(&self) -> &Handle {
        self.handle.get_or_init(|| {
            let container = self.container.lock().take();
            container.expect("a reference without a handle has its list").adopt_inside(self.id)
        })
    }

    /// The garbage collector does not look at references: many of them live at a time, and none is part of a cycle.
    #[allow(unsafe_code)]
    fn untracked(py: Python<'_>, reference: Self) -> PyResult<Py<Self>> {
        let reference = Py::new(py, reference)?;
        // SAFETY: it is an object of a class that the collector knows, as all of pyo3's are. It refers to no object of
        // Python's, and deallocation expects objects that are tracked as well as others.
        unsafe { ffi::PyObject_GC_UnTrack(reference.as_ptr().cast()) };
        Ok(reference)
    }
}

/// The bytes of an id, as Python shows them.
pub(crate) fn id_bytes(words: [u64; 2]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&words[0].to_be_bytes());
    bytes[8..].copy_from_slice(&words[1].to_be_bytes());
    bytes
}

/// The words of an id, from the bytes that Python shows.
pub(crate) fn id_words(bytes: &[u8]) -> PyResult<[u64; 2]> {
    let word = |bytes: &[u8]| bytes.try_into().ok().map(u64::from_be_bytes);
    match (bytes.get(..8).and_then(word), bytes.get(8..).and_then(word)) {
        (Some(high), Some(low)) => Ok([high, low]),
        _ => Err(PyValueError::new_err(format!("an id has 16 bytes, not {}", bytes.len()))),
    }
}

/// An id in hexadecimal digits.
pub(crate) fn id_hex(words: [u64; 2]) -> String {
    format!("{:016x}{:016x}", words[0], words[1])
}

#[pymethods]
impl ObjectRef {
    /// A reference to an object that is known by its id.
    #[new]
    #[pyo3(signature = (binary, *_more))]
    fn new(py: Python<'_>, binary: &[u8], _more: &Bound<'_, PyTuple>) -> PyResult<Self> {
        let object = ObjectId::from_words(id_words(binary)?);
        Ok(Self::from(session::current_or_start(py)?.adopt_object(object)))
    }

    fn __copy__(&self, py: Python<'_>) -> PyResult<Py<Self>> {
        Self::create(py, self.handle().clone())
    }

    fn __deepcopy__(&self, py: Python<'_>, _memo: &Bound<'_, PyAny>) -> PyResult<Py<Self>> {
        Self::create(py, self.handle().clone())
    }

    fn binary<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &id_bytes(self.id.to_words()))
    }

    fn hex(&self) -> String {
        id_hex(self.id.to_words())
    }

    fn is_ready(&self) -> bool {
        self.handle().is_ready()
    }

    /// The reference to nothing.
    #[staticmethod]
    fn nil(py: Python<'_>) -> PyResult<Self> {
        Ok(Self::from(session::current_or_start(py)?.adopt_object(ObjectId::from_words(NIL))))
    }

    /// How many bytes an id has.
    #[staticmethod]
    fn size() -> usize {
        id_bytes(NIL).len()
    }

    fn is_nil(&self) -> bool {
        self.id.to_words() == NIL
    }

    fn add_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>) -> PyResult<()> {
        callbacks::when_ready(slf.py(), slf.clone().unbind(), callback)
    }

    fn future(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        hooks::get(slf.py())?.future_of.call1(slf.py(), (slf,))
    }

    fn __await__(slf: &Bound<'_, Self>) -> PyResult<Py<PyAny>> {
        hooks::get(slf.py())?.await_ref.call1(slf.py(), (slf,))
    }

    fn __hash__(&self) -> u64 {
        self.id.to_words()[1]
    }

    fn __eq__(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast_exact::<Self>().is_ok_and(|other| other.get().id == self.id)
    }

    fn __repr__(&self) -> String {
        format!("ObjectRef({})", self.hex())
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let module = py.import("aktis._native")?;
        match codec::attach_handle(self.handle()) {
            Some(number) => (module.getattr("load_ref")?, (number,)).into_pyobject(py),
            None => {
                check_out_of_band(py)?;
                // Nobody knows how long the bytes live: the object stays until the session ends.
                self.handle().escape();
                crate::retired::keep(self.handle().clone());
                (module.getattr("object_from_id")?, (self.binary(py),)).into_pyobject(py)
            }
        }
    }
}

/// Refuses a reference outside of values and arguments, if the program has forbidden that.
pub(crate) fn check_out_of_band(py: Python<'_>) -> PyResult<()> {
    static FORBIDDEN: OnceLock<bool> = OnceLock::new();
    let read = || {
        let given = std::env::var("RAY_allow_out_of_band_object_ref_serialization");
        given.is_ok_and(|value| matches!(value.as_str(), "0" | "false"))
    };
    if !*FORBIDDEN.get_or_init(read) {
        return Ok(());
    }
    let class = py.import("aktis.exceptions")?.getattr("OufOfBandObjectRefSerializationException")?;
    Err(PyErr::from_value(class.call1((
        "a reference was pickled outside of values and arguments, or captured by a function\n\
         hint: pass the reference as an argument, or allow it with \
         RAY_allow_out_of_band_object_ref_serialization=1",
    ))?))
}

/// The reference with this number in the value that is being unpickled.
#[pyfunction]
pub(crate) fn load_ref(py: Python<'_>, number: u32) -> PyResult<Py<ObjectRef>> {
    ObjectRef::create(py, codec::attached_handle(number)?)
}

/// A reference to an object that is known by its id.
#[pyfunction]
pub(crate) fn object_from_id(py: Python<'_>, binary: &[u8]) -> PyResult<Py<ObjectRef>> {
    let object = ObjectId::from_words(id_words(binary)?);
    let runtime = session::current_or_start(py)?;
    ObjectRef::create(py, runtime.adopt_object(object))
}

/// Makes an object of a value.
#[pyfunction]
pub(crate) fn put(value: &Bound<'_, PyAny>) -> PyResult<Py<ObjectRef>> {
    let py = value.py();
    let runtime = session::current_or_start(py)?;
    let encoded = codec::encode(value)?;
    let handle = if encoded.len() <= runtime.inline_bytes_max() {
        runtime.put(encoded)
    } else {
        detached(py, || runtime.put(encoded))
    };
    ObjectRef::create(py, handle.map_err(|error| failure::to_exception(py, error))?)
}

/// The values of one reference or of a list of them.
#[pyfunction]
#[pyo3(signature = (refs, timeout=None))]
pub(crate) fn get(refs: &Bound<'_, PyAny>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
    let py = refs.py();
    let timeout = timeout.map(seconds).transpose()?;
    if let Ok(reference) = refs.cast_exact::<ObjectRef>() {
        let handle = reference.get().handle();
        check_open(py, handle)?;
        let value =
            if handle.is_inline() { handle.get(timeout) } else { detached(py, || handle.get(timeout)) };
        let value = value.map_err(|error| failure::of_object(py, error, handle))?;
        return decode(py, handle, &value);
    }
    let list = refs.cast::<PyList>().map_err(|_| not_references(refs))?;
    let handles = handles_of(list)?;
    handles.iter().try_for_each(|handle| check_open(py, handle))?;
    if let Some(runtime) = handles.iter().find(|handle| !handle.has_outcome()).and_then(Handle::runtime) {
        check_one_session(&handles, &runtime)?;
        let done = detached(py, || runtime.wait_all(&handles, timeout));
        if !done.map_err(|error| failure::to_exception(py, error))? {
            let error = aktis_runtime::Error::TimedOut(timeout.unwrap_or_default());
            return Err(failure::to_exception(py, error));
        }
    }
    if let Some((handle, error)) = handles.iter().find_map(|handle| Some((handle, handle.failure()?))) {
        return Err(failure::of_object(py, error, handle));
    }
    let values = PyList::empty(py);
    for handle in &handles {
        let value =
            if handle.is_inline() { handle.get(timeout) } else { detached(py, || handle.get(timeout)) };
        let value = value.map_err(|error| failure::of_object(py, error, handle))?;
        values.append(decode(py, handle, &value)?)?;
    }
    Ok(values.into_any().unbind())
}

/// Refuses references of several sessions at once: who waits for one session does not hear of another.
pub(crate) fn check_one_session(handles: &[Handle], runtime: &Runtime) -> PyResult<()> {
    if handles.iter().all(|handle| handle.belongs_to(runtime)) {
        return Ok(());
    }
    Err(PyValueError::new_err(
        "the references belong to several sessions\nhint: wait for those of each by themselves",
    ))
}

/// Refuses a reference of a session that is over: its value may be there by chance, or not.
pub(crate) fn check_open(py: Python<'_>, handle: &Handle) -> PyResult<()> {
    if handle.is_closed() {
        return Err(failure::to_exception(py, aktis_runtime::Error::Closed));
    }
    Ok(())
}

fn decode(py: Python<'_>, handle: &Handle, value: &Value) -> PyResult<Py<PyAny>> {
    match handle.runtime() {
        Some(runtime) => codec::decode(py, &runtime, value, Some(handle)),
        None => Err(PyValueError::new_err("the reference belongs to no session")),
    }
}

/// The handles of a list of references.
pub(crate) fn handles_of(list: &Bound<'_, PyList>) -> PyResult<Vec<Handle>> {
    let handle = |item: Bound<'_, PyAny>| match item.cast_exact::<ObjectRef>() {
        Ok(reference) => Ok(reference.get().handle().clone()),
        Err(_) => Err(not_references(&item)),
    };
    list.iter().map(handle).collect()
}

#[cold]
fn not_references(found: &Bound<'_, PyAny>) -> PyErr {
    let kind = found.get_type();
    PyTypeError::new_err(format!(
        "an ObjectRef, or a list of them, was expected, not {}\nhint: call the function with .remote() to get one",
        kind.name().map_or_else(|_| "something else".to_owned(), |name| name.to_string())
    ))
}

/// A time span from a number of seconds.
pub(crate) fn seconds(seconds: f64) -> PyResult<Duration> {
    if seconds.is_infinite() && seconds > 0.0 {
        return Ok(Duration::from_secs(u64::from(u32::MAX)));
    }
    Duration::try_from_secs_f64(seconds).map_err(|_| {
        PyValueError::new_err(format!("a timeout is a number of seconds that is not negative, not {seconds}"))
    })
}

/// Waits until `num_returns` of the references are ready; gives those, and the others, in their order. With `fetch`, the
/// values of those are brought to this node. Many others are not copied into a list, but left to `Rest`.
#[pyfunction]
pub(crate) fn wait<'py>(
    refs: &Bound<'py, PyList>,
    num_returns: usize,
    timeout: Option<f64>,
    fetch: bool,
) -> PyResult<ReadyAndRest<'py>> {
    let py = refs.py();
    let timeout = timeout.map(seconds).transpose()?;
    let number = LISTS.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    let positions = match ready_now(refs, num_returns, number)? {
        positions if positions.len() >= num_returns => positions,
        _ => {
            let handles = handles_of(refs)?;
            let Some(runtime) = handles.iter().find_map(Handle::runtime) else {
                return Ok((PyList::empty(py), PyList::empty(py).into_any()));
            };
            check_one_session(&handles, &runtime)?;
            detached(py, || runtime.wait(&handles, num_returns, timeout))
                .map_err(|error| failure::to_exception(py, error))?
        }
    };
    let ready = PyList::empty(py);
    for &position in &positions {
        let item = refs.get_item(position)?;
        if fetch && let Ok(reference) = item.cast_exact::<ObjectRef>() {
            reference.get().handle().fetch();
        }
        ready.append(item)?;
    }
    if refs.len() - positions.len() >= LAZY_LENGTH_MIN {
        return Ok((ready, Rest::new(refs, &positions, number)?.into_any()));
    }
    let mut rest: Option<Bound<'py, PyList>> = None;
    let mut start = 0;
    for position in positions {
        extend(&mut rest, refs, start, position)?;
        start = position + 1;
    }
    extend(&mut rest, refs, start, refs.len())?;
    let rest = rest.unwrap_or_else(|| PyList::empty(py));
    Ok((ready, rest.into_any()))
}

/// Has the values of those references that are ready brought to this node. Nobody waits for that.
#[pyfunction]
pub(crate) fn fetch(refs: &Bound<'_, PyList>) -> PyResult<()> {
    for item in refs.iter() {
        if let Ok(reference) = item.cast_exact::<ObjectRef>() {
            reference.get().handle().fetch();
        }
    }
    Ok(())
}

/// Appends a part of the list: by slices, which cost next to nothing per element.
fn extend<'py>(
    rest: &mut Option<Bound<'py, PyList>>,
    refs: &Bound<'py, PyList>,
    from: usize,
    to: usize,
) -> PyResult<()> {
    if from >= to {
        return Ok(());
    }
    let slice = refs.get_slice(from, to);
    match rest {
        None => *rest = Some(slice),
        Some(rest) => {
            let end = rest.len();
            rest.set_slice(end, end, slice.as_any())?;
        }
    }
    Ok(())
}

/// How many lists have been waited for.
static LISTS: AtomicU32 = AtomicU32::new(0);

/// The positions of the first references that are ready now, at most `count`. Refuses what is no reference, and
/// references that come twice: so all of them are looked at. Of a long list that is left over, only the first ones are, by
/// [`Rest`].
fn ready_now(refs: &Bound<'_, PyList>, count: usize, list: u32) -> PyResult<Vec<usize>> {
    let mut positions = Vec::new();
    for (position, item) in refs.iter().enumerate() {
        let Ok(reference) = item.cast_exact::<ObjectRef>() else { return Err(not_references(&item)) };
        let handle = reference.get().handle();
        check_open(item.py(), handle)?;
        if handle.see_in(list) {
            check_distinct(refs)?;
        }
        if positions.len() < count && handle.has_outcome() {
            positions.push(position);
        }
    }
    Ok(positions)
}

/// Refuses references that come twice.
#[cold]
fn check_distinct(refs: &Bound<'_, PyList>) -> PyResult<()> {
    let mut addresses: Vec<usize> = handles_of(refs)?.iter().map(Handle::address).collect();
    addresses.sort_unstable();
    match addresses.windows(2).any(|pair| pair[0] == pair[1]) {
        true => Err(PyValueError::new_err("a reference comes twice in the list to wait for")),
        false => Ok(()),
    }
}

/// Cancels the task that makes an object.
#[pyfunction]
pub(crate) fn cancel(what: &Bound<'_, PyAny>, force: bool, recursive: bool) -> PyResult<()> {
    let py = what.py();
    let cancelled = if let Ok(reference) = what.cast_exact::<ObjectRef>() {
        let handle = reference.get().handle();
        if force && detached(py, || handle.is_made_by_actor()) {
            return Err(PyValueError::new_err(FORCED_CALL));
        }
        detached(py, || handle.cancel(force, recursive))
    } else if let Ok(stream) = what.cast_exact::<Stream>() {
        let stream = stream.get();
        detached(py, || stream.cancel(force, recursive))
    } else {
        return Err(not_references(what));
    };
    cancelled.map_err(|error| failure::to_exception(py, error))
}

const FORCED_CALL: &str = "force=True is not supported for actor tasks: it would end the actor with all its calls\n\
    hint: cancel(ref) cancels the call, kill(actor) ends the actor";

/// The id of nothing, as `aktis.TaskID.nil()` has it.
const NIL: [u64; 2] = [u64::MAX; 2];

/// Says why something has not run, or where it is.
#[pyfunction]
pub(crate) fn explain(what: &Bound<'_, PyAny>) -> PyResult<String> {
    let py = what.py();
    if let Ok(reference) = what.cast_exact::<ObjectRef>() {
        let handle = reference.get().handle();
        return Ok(detached(py, || handle.explain()));
    }
    let actor = what.cast_exact::<Actor>().map_err(|_| not_references(what))?.get();
    Ok(detached(py, || actor.handle.explain()))
}

/// How many references this process has to each object that it refers to: id in hexadecimal digits to counts.
#[pyfunction]
pub(crate) fn reference_counts<'py>(py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
    let counts = PyDict::new(py);
    if let Ok(runtime) = Runtime::current() {
        let session = runtime.number();
        for count in detached(py, || runtime.reference_counts()) {
            let words = count.object.to_words();
            if crate::retired::is_export(session, words) {
                continue;
            }
            let row = PyDict::new(py);
            row.set_item("local", count.local)?;
            row.set_item("submitted", count.submitted)?;
            counts.set_item(id_hex(words), row)?;
        }
    }
    Ok(counts)
}
