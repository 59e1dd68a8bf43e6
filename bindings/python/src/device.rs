//! A device that is a binary file of Python.
//!
//! An interrupt (Ctrl-C) may come while the file's code runs. It is no failure of the device, which
//! would stop the volume: the request is made again, and the interrupt is raised when the call of
//! the library that it came in returns (`interrupted`).

use std::cell::RefCell;
use std::fmt;
use std::io;
use std::sync::{Mutex, PoisonError};

use extol::device::{BlockDevice, DeviceError, DeviceOp, Result as DeviceResult, check_range};
use pyo3::exceptions::{PyException, PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// How often a request is made again that was interrupted.
const TRIES: u32 = 4;

thread_local! {
    /// What interrupted a call of this thread.
    static INTERRUPT: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// What interrupted the call that has just ended, to be raised.
pub(crate) fn interrupted() -> PyResult<()> {
    INTERRUPT.take().map_or(Ok(()), Err)
}

/// A file object with `seek`, `read` and, to be written, `write` and `flush`.
pub(crate) struct PythonDevice {
    /// One thread at a time seeks and reads. (The lock is taken detached from the interpreter, for
    /// which the thread that holds it waits.)
    file: Mutex<Py<PyAny>>,
    size: u64,
    writable: bool,
}

impl fmt::Debug for PythonDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PythonDevice").field("size", &self.size).finish_non_exhaustive()
    }
}

impl PythonDevice {
    pub(crate) fn new(file: Py<PyAny>, size: u64, writable: bool) -> Self {
        Self { file: Mutex::new(file), size, writable }
    }

    fn call(
        &self,
        (op, offset, len): (DeviceOp, u64, usize),
        mut work: impl for<'py> FnMut(&Bound<'py, PyAny>) -> PyResult<()> + Send,
    ) -> DeviceResult<()> {
        let fail = |why: io::Error| DeviceError::new(op, offset, len as u64, why);
        check_range(op, offset, len as u64, self.size)?;
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Python::attach(|py| {
            let mut outcome = work(file.bind(py));
            for _ in 0..TRIES {
                match outcome {
                    Err(error) if !error.is_instance_of::<PyException>(py) => {
                        INTERRUPT.replace(Some(error));
                        outcome = work(file.bind(py));
                    }
                    _ => break,
                }
            }
            outcome.map_err(|error| {
                // An OSError keeps its number.
                let errno = error.value(py).getattr("errno").and_then(|errno| errno.extract());
                match errno {
                    Ok(errno) if error.is_instance_of::<PyOSError>(py) => {
                        fail(io::Error::from_raw_os_error(errno))
                    }
                    _ => fail(io::Error::other(error)),
                }
            })
        })
    }
}

impl BlockDevice for PythonDevice {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        !self.writable
    }

    /// The file: of two volumes on it one may write if the other is closed.
    fn object(&self) -> Option<usize> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        Some(file.as_ptr().addr())
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        self.call((DeviceOp::Read, offset, buf.len()), |file| {
            file.call_method1("seek", (offset,))?;
            let mut filled = 0;
            while filled < buf.len() {
                let piece = file.call_method1("read", (buf.len() - filled,))?;
                let piece = piece.cast_into::<PyBytes>()?;
                let piece = piece.as_bytes();
                let Some(target) = buf[filled..].get_mut(..piece.len()) else {
                    return Err(PyValueError::new_err("read() gave more than was asked for"));
                };
                if piece.is_empty() {
                    return Err(PyValueError::new_err("the file ends too early"));
                }
                target.copy_from_slice(piece);
                filled += piece.len();
            }
            Ok(())
        })
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.call((DeviceOp::Write, offset, buf.len()), |file| {
            file.call_method1("seek", (offset,))?;
            let mut written = 0;
            while written < buf.len() {
                let piece = PyBytes::new(file.py(), &buf[written..]);
                let n: usize = file.call_method1("write", (piece,))?.extract()?;
                if n == 0 || n > buf.len() - written {
                    return Err(PyValueError::new_err("write() did not write"));
                }
                written += n;
            }
            Ok(())
        })
    }

    fn flush(&self) -> DeviceResult<()> {
        self.call((DeviceOp::Flush, 0, 0), |file| file.call_method0("flush").map(drop))
    }

    fn can_discard(&self) -> bool {
        false
    }
}
