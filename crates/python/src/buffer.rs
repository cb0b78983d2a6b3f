//! Memory that Python and the object store share without copies.

use crate::codec;
use aktis_runtime::Buffer;
use aktis_store::PrivateView;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyByteArray;
use std::ffi::c_int;
use std::sync::Arc;

/// Less is copied: a mapping costs as much.
const PRIVATE_BYTES_MIN: usize = 256 << 10;

/// A part of a stored value, as a read-only Python buffer. It keeps the value pinned.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct Pinned {
    buffer: Buffer,
}

impl Pinned {
    pub(crate) fn new(buffer: Buffer) -> Self {
        Self { buffer }
    }
}

#[pymethods]
impl Pinned {
    fn __len__(&self) -> usize {
        self.buffer.as_slice().len()
    }

    /// The same bytes, to be changed at will: nobody else sees it. Only what is written to is copied, unless it is little.
    fn private<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let bytes = self.buffer.as_slice();
        let view = codec::decoding_runtime()
            .filter(|_| bytes.len() >= PRIVATE_BYTES_MIN)
            .and_then(|runtime| runtime.private_view(&self.buffer));
        Ok(match view {
            Some(view) => Bound::new(py, Private { view, _pinned: self.buffer.clone() })?.into_any(),
            None => PyByteArray::new(py, bytes).into_any(),
        })
    }

    /// Fills in a view of the memory.
    ///
    /// # Safety
    /// `view` is a view to be filled in, as the interpreter gives it.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let bytes = slf.get().buffer.as_slice();
        let Ok(length) = ffi::Py_ssize_t::try_from(bytes.len()) else {
            return Err(PyBufferError::new_err("a buffer of such a length cannot be"));
        };
        // SAFETY: the interpreter gives a view to fill in; the memory lives as long as this object, which the view
        // keeps, and nobody writes to it: the view is read-only.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.as_ptr().cast_mut().cast(), length, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// A private view of a part of a stored value, as a Python buffer that can be written to.
#[pyclass(frozen, module = "aktis._native")]
pub(crate) struct Private {
    view: PrivateView,
    _pinned: Buffer,
}

#[pymethods]
impl Private {
    fn __len__(&self) -> usize {
        self.view.len()
    }

    /// Fills in a view of the memory.
    ///
    /// # Safety
    /// `view` is a view to be filled in, as the interpreter gives it.
    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let memory = &slf.get().view;
        let Ok(length) = ffi::Py_ssize_t::try_from(memory.len()) else {
            return Err(PyBufferError::new_err("a buffer of such a length cannot be"));
        };
        // SAFETY: the interpreter gives a view to fill in; the memory lives as long as this object, which the view
        // keeps. Nothing but such views touches it.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), memory.as_mut_ptr().cast(), length, 0, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Memory that a Python object owns.
struct Borrowed(PyBuffer<u8>);

impl AsRef<[u8]> for Borrowed {
    #[allow(unsafe_code)]
    fn as_ref(&self) -> &[u8] {
        // An empty buffer may have no address.
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: the view is contiguous (checked when it was made) and keeps the memory in place. A program that
        // writes to it while it is being copied gets a mixture, as it would from any copy.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// The contiguous memory of a Python object, without a copy.
pub(crate) fn borrow(object: &Bound<'_, PyAny>) -> PyResult<Buffer> {
    let buffer = PyBuffer::<u8>::get(object)?;
    if !buffer.is_c_contiguous() {
        return Err(PyBufferError::new_err("the buffer is not contiguous"));
    }
    Ok(Buffer::from_owner(Arc::new(Borrowed(buffer))))
}
