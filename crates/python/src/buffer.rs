//! Memory that Python and the object store share without copies.

use aktis_runtime::Buffer;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::c_int;
use std::sync::Arc;

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
