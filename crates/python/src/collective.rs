//! Groups of `aktis.collective`: seats, and the operations on the memory of Python's arrays.

use crate::detached::detached;
use aktis_collective::{Card, CollectiveError, DataType, Group, Options, ReduceOp, Seat};
use parking_lot::Mutex;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyException, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::net::IpAddr;
use std::time::Duration;

pyo3::create_exception!(_native, CollectiveFailure, PyException);

/// A place in a group that is not yet made.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct CollectiveSeat {
    card: Vec<u8>,
    seat: Mutex<Option<Seat>>,
}

#[pymethods]
impl CollectiveSeat {
    /// Opens a seat. Members with the same place share memory.
    #[new]
    fn new(place: &str, address: Option<&str>) -> PyResult<Self> {
        let parse = |text: &str| {
            let wrong = |_| PyValueError::new_err(format!("`address` must be an IP address, got {text:?}"));
            text.parse::<IpAddr>().map_err(wrong)
        };
        let seat = Seat::open(place, address.map(parse).transpose()?).map_err(exception)?;
        Ok(Self { card: seat.card().to_bytes(), seat: Mutex::new(Some(seat)) })
    }

    /// What the other members need to know of this seat.
    fn card<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.card)
    }

    /// Becomes a member of the group of all these cards.
    fn join(
        &self,
        py: Python<'_>,
        rank: usize,
        cards: Vec<Vec<u8>>,
        timeout: f64,
    ) -> PyResult<CollectiveGroup> {
        let Some(seat) = self.seat.lock().take() else {
            return Err(PyValueError::new_err("this seat has joined a group before"));
        };
        let timeout = duration(timeout)?;
        let joined = detached(py, || {
            let cards: Result<Vec<Card>, _> = cards.iter().map(|card| Card::from_bytes(card)).collect();
            let interrupted = Box::new(crate::failure::interrupted);
            seat.join(rank, &cards?, Options { timeout, interrupted })
        });
        let group = joined.map_err(exception)?;
        let (size, machines) = (group.size(), group.machines());
        Ok(CollectiveGroup { rank, size, machines, group: Mutex::new(Some(group)) })
    }
}

/// One member of a group.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct CollectiveGroup {
    #[pyo3(get)]
    rank: usize,
    #[pyo3(get)]
    size: usize,
    #[pyo3(get)]
    machines: usize,
    group: Mutex<Option<Group>>,
}

#[pymethods]
impl CollectiveGroup {
    /// Leaves the group.
    fn close(&self, py: Python<'_>) {
        detached(py, || drop(self.group.lock().take()));
    }

    /// How long operations wait from now on.
    fn set_timeout(&self, py: Python<'_>, timeout: f64) -> PyResult<()> {
        let timeout = duration(timeout)?;
        self.run(py, |group| {
            group.set_timeout(timeout);
            Ok(())
        })
    }

    #[pyo3(signature = (data_type, op, input, output))]
    fn all_reduce(
        &self,
        py: Python<'_>,
        data_type: &str,
        op: &str,
        input: Option<&Bound<'_, PyAny>>,
        output: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (data_type, op) = (data_type_of(data_type)?, op_of(op)?);
        let (input, mut output) = (input.map(Readable::new).transpose()?, Writable::new(output)?);
        output.check_apart(input.as_ref())?;
        self.run(py, move |group| {
            group.all_reduce_bytes(data_type, op, input.as_ref().map(Readable::bytes), output.bytes())
        })
    }

    /// `output` is the place of the result at the root, and not used at the others.
    fn reduce(
        &self,
        py: Python<'_>,
        data_type: &str,
        op: &str,
        root: usize,
        input: &Bound<'_, PyAny>,
        output: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let (data_type, op, input) = (data_type_of(data_type)?, op_of(op)?, Readable::new(input)?);
        let mut output = output.map(Writable::new).transpose()?;
        let is_in_place = output.as_ref().is_some_and(|output| output.is_same(&input));
        if let Some(output) = output.as_ref().filter(|_| !is_in_place) {
            output.check_apart(Some(&input))?;
        }
        self.run(py, move |group| {
            let mut none = [];
            let output = output.as_mut().map_or(&mut none[..], Writable::bytes);
            let input = (!is_in_place).then(|| input.bytes());
            group.reduce_bytes(data_type, op, root, input, output)
        })
    }

    fn reduce_scatter(
        &self,
        py: Python<'_>,
        data_type: &str,
        op: &str,
        input: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (data_type, op) = (data_type_of(data_type)?, op_of(op)?);
        let (input, mut output) = (Readable::new(input)?, Writable::new(output)?);
        output.check_apart(Some(&input))?;
        self.run(py, move |group| group.reduce_scatter_bytes(data_type, op, input.bytes(), output.bytes()))
    }

    fn all_gather(
        &self,
        py: Python<'_>,
        data_type: &str,
        input: &Bound<'_, PyAny>,
        output: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let data_type = data_type_of(data_type)?;
        let (input, mut output) = (Readable::new(input)?, Writable::new(output)?);
        output.check_apart(Some(&input))?;
        self.run(py, move |group| group.all_gather_bytes(data_type, input.bytes(), output.bytes()))
    }

    fn broadcast(
        &self,
        py: Python<'_>,
        data_type: &str,
        root: usize,
        array: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (data_type, mut array) = (data_type_of(data_type)?, Writable::new(array)?);
        self.run(py, move |group| group.broadcast_bytes(data_type, root, array.bytes()))
    }

    fn send(&self, py: Python<'_>, data_type: &str, to: usize, array: &Bound<'_, PyAny>) -> PyResult<()> {
        let (data_type, array) = (data_type_of(data_type)?, Readable::new(array)?);
        self.run(py, move |group| group.send_bytes(data_type, to, array.bytes()))
    }

    fn receive(
        &self,
        py: Python<'_>,
        data_type: &str,
        from_rank: usize,
        array: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (data_type, mut array) = (data_type_of(data_type)?, Writable::new(array)?);
        self.run(py, move |group| group.receive_bytes(data_type, from_rank, array.bytes()))
    }

    fn barrier(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, Group::barrier)
    }
}

impl CollectiveGroup {
    fn run<R: Send>(
        &self,
        py: Python<'_>,
        operation: impl FnOnce(&mut Group) -> aktis_collective::Result<R> + Send,
    ) -> PyResult<R> {
        let done = detached(py, || {
            let mut group = self.group.lock();
            match group.as_mut() {
                Some(group) => operation(group),
                None => Err(CollectiveError::Invalid(
                    "this member has left its group\nhint: make a new group with `init_group`".to_owned(),
                )),
            }
        });
        done.map_err(exception)
    }
}

fn exception(error: CollectiveError) -> PyErr {
    let kind = match &error {
        CollectiveError::MemberDied { .. } => "died",
        CollectiveError::TimedOut { .. } => "timed out",
        CollectiveError::Mismatch { .. } => "mismatch",
        CollectiveError::Invalid(_) => "invalid",
        CollectiveError::Interrupted { .. } => {
            // If it was this member, its own exception says more.
            if let Some(raised) = crate::failure::take_raised() {
                return raised;
            }
            "interrupted"
        }
        _ => "setup",
    };
    CollectiveFailure::new_err((kind, error.rank(), error.to_string()))
}

fn duration(seconds: f64) -> PyResult<Duration> {
    let wrong = |_| PyValueError::new_err(format!("`timeout` must be a number of seconds, got {seconds}"));
    Duration::try_from_secs_f64(seconds).map_err(wrong)
}

fn data_type_of(name: &str) -> PyResult<DataType> {
    let names = || DataType::ALL.map(DataType::name).join(", ");
    let wrong = || PyValueError::new_err(format!("arrays of {name} cannot be used\nhint: use {}", names()));
    DataType::from_name(name).ok_or_else(wrong)
}

fn op_of(name: &str) -> PyResult<ReduceOp> {
    let names = || ReduceOp::ALL.map(ReduceOp::name).join(", ");
    let wrong = || PyValueError::new_err(format!("`op` must be one of {}, got {name:?}", names()));
    ReduceOp::from_name(name).ok_or_else(wrong)
}

fn view(object: &Bound<'_, PyAny>) -> PyResult<PyBuffer<u8>> {
    let buffer = PyBuffer::<u8>::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the array is not contiguous"));
    }
    Ok(buffer)
}

/// The memory of an array that an operation reads.
struct Readable(PyBuffer<u8>);

impl Readable {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        view(object).map(Self)
    }

    #[allow(unsafe_code)]
    fn bytes(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the view is contiguous and keeps the memory in place. A program that writes to it meanwhile sends a
        // mixture, as any copy would be.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// The memory of an array that an operation writes.
struct Writable(PyBuffer<u8>);

impl Writable {
    fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = view(object)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err(
                "the array is read-only, and would be written to\nhint: use a copy of it, or `out=`",
            ));
        }
        Ok(Self(buffer))
    }

    #[allow(unsafe_code)]
    fn bytes(&mut self) -> &mut [u8] {
        if self.0.len_bytes() == 0 {
            return &mut [];
        }
        // SAFETY: the view is contiguous, may be written to, and keeps the memory in place; no other slice of this
        // operation overlaps it (`check_apart`).
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }

    fn is_same(&self, input: &Readable) -> bool {
        self.0.buf_ptr() == input.0.buf_ptr() && self.0.len_bytes() == input.0.len_bytes()
    }

    fn check_apart(&self, input: Option<&Readable>) -> PyResult<()> {
        let range = |buffer: &PyBuffer<u8>| {
            let start = buffer.buf_ptr() as usize;
            start..start + buffer.len_bytes()
        };
        let (output, input) = (range(&self.0), input.map_or(0..0, |input| range(&input.0)));
        if output.start < input.end && input.start < output.end {
            let message = "the input and the output overlap\nhint: leave `out` out to work in place, or use another array";
            return Err(PyValueError::new_err(message));
        }
        Ok(())
    }
}
