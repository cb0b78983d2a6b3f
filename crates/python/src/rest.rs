//! The references that a `wait` leaves over: `wait` on a long list again and again, without a copy of it each time.
//!
//! A program passes the rest of one `wait` to the next, and drops the list before. So the references are in the newest list
//! of such a chain; every older list knows what is missing in its successor, and is rebuilt if somebody looks at it.

use crate::object_ref::{ObjectRef, check_one_session, check_open, seconds};
use crate::{detached::detached, failure};
use aktis_runtime::Handle;
use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::PyList;
use std::collections::VecDeque;
use std::sync::Arc;

/// Shorter rests are plain lists: a copy of one costs no more than what keeps it from being copied.
pub(crate) const LAZY_LENGTH_MIN: usize = 128;

/// So many references are taken out of the middle one by one; for more of them, a new list is made.
const SCATTERED_MAX: usize = 16;

/// The elements of a list that the Python class `aktis._rest.RestList` has not copied yet.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct Rest {
    /// Nothing once the list has its elements.
    version: Mutex<Option<Arc<Version>>>,
    /// The number of the list in which `wait` looked for references that come twice.
    list: u32,
}

/// One list of a chain. It is locked for brief moments, with the interpreter's lock held.
struct Version(Mutex<Elements>);

enum Elements {
    Newest(VecDeque<Py<ObjectRef>>),
    Older { length: usize, removed: Vec<Removed>, next: Arc<Version> },
}

/// A reference that the next list lacks, and where it was.
struct Removed {
    position: usize,
    reference: Py<ObjectRef>,
}

/// The references that are ready, and the rest: a list, or a `Rest` of a long one.
pub(crate) type ReadyAndRest<'py> = (Bound<'py, PyList>, Bound<'py, PyAny>);

impl Rest {
    /// The rest of the references of a list that were looked at under a number, without some positions.
    pub(crate) fn new<'py>(
        refs: &Bound<'py, PyList>,
        positions: &[usize],
        list: u32,
    ) -> PyResult<Bound<'py, Self>> {
        let mut removed = positions.iter().copied().peekable();
        let mut left = VecDeque::with_capacity(refs.len());
        for (position, item) in refs.iter().enumerate() {
            if removed.next_if_eq(&position).is_none() {
                left.push_back(item.cast_into_exact::<ObjectRef>()?.unbind());
            }
        }
        let version = Arc::new(Version(Mutex::new(Elements::Newest(left))));
        Bound::new(refs.py(), Self { version: Mutex::new(Some(version)), list })
    }

    fn version(&self) -> Option<Arc<Version>> {
        self.version.lock().clone()
    }
}

#[pymethods]
impl Rest {
    fn __len__(&self) -> usize {
        self.version().map_or(0, |version| version.len())
    }

    /// Gives a list its elements, once.
    fn fill(&self, list: &Bound<'_, PyList>) -> PyResult<()> {
        let Some(version) = self.version() else { return Ok(()) };
        let elements = PyList::new(list.py(), version.elements(list.py()))?;
        // No other thread runs from here on: nothing below gives up the interpreter's lock.
        let first = self.version.lock().take().is_some();
        if first { list.set_slice(0, 0, elements.as_any()) } else { Ok(()) }
    }

    /// Appends a reference if that needs no copy: false if the list has to be filled first.
    fn append(&self, item: &Bound<'_, PyAny>) -> bool {
        let Ok(reference) = item.cast_exact::<ObjectRef>() else { return false };
        let version = self.version.lock();
        let Some(version) = version.as_ref().filter(|version| Arc::strong_count(version) == 1) else {
            return false;
        };
        match &mut *version.0.lock() {
            Elements::Newest(left) if !reference.get().handle().see_in(self.list) => {
                left.push_back(reference.clone().unbind());
                true
            }
            _ => false,
        }
    }

    /// As `wait` for a list; nothing if the list has to be filled first.
    fn wait<'py>(
        &self,
        py: Python<'py>,
        num_returns: usize,
        timeout: Option<f64>,
        fetch: bool,
    ) -> PyResult<Option<ReadyAndRest<'py>>> {
        let timeout = timeout.map(seconds).transpose()?;
        let Some(version) = self.version() else { return Ok(None) };
        let Some(mut positions) = version.ready_now(py, num_returns)? else { return Ok(None) };
        if positions.len() < num_returns {
            let handles = version.handles(py);
            let Some(runtime) = handles.iter().find_map(Handle::runtime) else { return Ok(None) };
            check_one_session(&handles, &runtime)?;
            positions = detached(py, || runtime.wait(&handles, num_returns, timeout))
                .map_err(|error| failure::to_exception(py, error))?;
        }
        let Some((ready, next)) = version.succeed(py, &positions) else { return Ok(None) };
        if fetch {
            ready.iter().for_each(|reference| reference.get().handle().fetch());
        }
        let ready = PyList::new(py, ready)?;
        if next.len() < LAZY_LENGTH_MIN {
            return Ok(Some((ready, PyList::new(py, next.elements(py))?.into_any())));
        }
        let rest = Self { version: Mutex::new(Some(next)), list: self.list };
        Ok(Some((ready, Bound::new(py, rest)?.into_any())))
    }
}

impl Version {
    fn len(&self) -> usize {
        match &*self.0.lock() {
            Elements::Newest(left) => left.len(),
            Elements::Older { length, .. } => *length,
        }
    }

    /// The positions of the first references that are ready now, at most `count`; nothing in an older list.
    fn ready_now(&self, py: Python<'_>, count: usize) -> PyResult<Option<Vec<usize>>> {
        let elements = self.0.lock();
        let Elements::Newest(left) = &*elements else { return Ok(None) };
        let mut positions = Vec::new();
        for (position, reference) in left.iter().enumerate() {
            if positions.len() == count {
                break;
            }
            let handle = reference.get().handle();
            check_open(py, handle)?;
            if handle.has_outcome() {
                positions.push(position);
            }
        }
        Ok(Some(positions))
    }

    fn handles(self: &Arc<Self>, py: Python<'_>) -> Vec<Handle> {
        self.elements(py).iter().map(|reference| reference.get().handle().clone()).collect()
    }

    /// The references at the positions, and a new list of all others, which becomes the newest. Nothing if this list is an older
    /// one, or if there are so many positions in its midst that a copy is cheaper.
    fn succeed(&self, py: Python<'_>, positions: &[usize]) -> Option<(Vec<Py<ObjectRef>>, Arc<Self>)> {
        let mut elements = self.0.lock();
        let Elements::Newest(left) = &mut *elements else { return None };
        let leading = positions.last().is_none_or(|last| last + 1 == positions.len());
        if !leading && positions.len() > SCATTERED_MAX {
            return None;
        }
        let length = left.len();
        let mut left = std::mem::take(left);
        let ready: Vec<Py<ObjectRef>> = if leading {
            left.drain(..positions.len()).collect()
        } else {
            // Each removal moves the positions behind it by one.
            positions.iter().enumerate().filter_map(|(gone, position)| left.remove(position - gone)).collect()
        };
        let removed = positions.iter().zip(&ready);
        let removed = removed
            .map(|(&position, reference)| Removed { position, reference: reference.clone_ref(py) })
            .collect();
        let next = Arc::new(Self(Mutex::new(Elements::Newest(left))));
        *elements = Elements::Older { length, removed, next: next.clone() };
        Some((ready, next))
    }

    /// Copies of all elements.
    fn elements(self: &Arc<Self>, py: Python<'_>) -> VecDeque<Py<ObjectRef>> {
        let mut older = Vec::new();
        let mut version = self.clone();
        let mut elements = loop {
            let next = match &*version.0.lock() {
                Elements::Newest(left) => break left.iter().map(|item| item.clone_ref(py)).collect(),
                Elements::Older { next, .. } => next.clone(),
            };
            older.push(std::mem::replace(&mut version, next));
        };
        for version in older.iter().rev() {
            version.put_back(py, &mut elements);
        }
        elements
    }

    /// Puts what the next list lacks back into a copy of its elements.
    fn put_back(&self, py: Python<'_>, elements: &mut VecDeque<Py<ObjectRef>>) {
        if let Elements::Older { removed, .. } = &*self.0.lock() {
            for Removed { position, reference } in removed {
                elements.insert(*position, reference.clone_ref(py));
            }
        }
    }
}

impl Drop for Version {
    /// Ends a chain in a loop: one of many lists would take one stack frame for each otherwise.
    fn drop(&mut self) {
        let mut next = self.take_next();
        while let Some(mut version) = next.and_then(Arc::into_inner) {
            next = version.take_next();
        }
    }
}

impl Version {
    fn take_next(&mut self) -> Option<Arc<Self>> {
        match std::mem::replace(self.0.get_mut(), Elements::Newest(VecDeque::new())) {
            Elements::Newest(_) => None,
            Elements::Older { next, .. } => Some(next),
        }
    }
}
