//! An open file.

use std::sync::{Arc, PoisonError, RwLock};

use extol::File;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::device::interrupted;
use crate::{EBADF, Home, fs_error, os_error};

/// Most bytes that one call reads: what is asked for may be far more than the file has.
const MOST: usize = 1 << 30;

/// An open file, without a position.
#[pyclass(frozen, weakref, module = "extol._extol")]
pub(crate) struct RawFile {
    /// Nothing once it was closed.
    file: RwLock<Option<Arc<File>>>,
    home: Home,
}

impl RawFile {
    pub(crate) fn of(file: File) -> Self {
        Self { file: RwLock::new(Some(Arc::new(file))), home: Home::here() }
    }

    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&File) -> extol::vfs::Result<T> + Send,
    ) -> PyResult<T> {
        self.home.check()?;
        let file = self.file.read().unwrap_or_else(PoisonError::into_inner).clone();
        let file = file.ok_or_else(|| os_error(EBADF, "the file is closed"))?;
        let done = py.detach(move || work(&file));
        interrupted()?;
        done.map_err(fs_error)
    }
}

#[pymethods]
impl RawFile {
    /// Reads up to `len` bytes at an offset; fewer only at the end.
    fn pread<'py>(
        &self,
        py: Python<'py>,
        len: usize,
        offset: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        // No more than there is: the length may be any.
        let left = self.size(py)?.saturating_sub(offset);
        let len = len.min(MOST).min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut read = 0;
        let bytes = PyBytes::new_with(py, len, |buffer| {
            read = self.with(py, |file| file.read_at(buffer, offset))?;
            Ok(())
        })?;
        // (Another thread may have cut the end off.)
        Ok(if read == len { bytes } else { PyBytes::new(py, &bytes.as_bytes()[..read]) })
    }

    /// Writes at an offset; fewer bytes only if the volume gets full.
    fn pwrite(&self, py: Python<'_>, data: &[u8], offset: u64) -> PyResult<usize> {
        self.with(py, |file| file.write_at(data, offset))
    }

    /// Writes at the end; gives the offset, and how many bytes were written.
    fn append(&self, py: Python<'_>, data: &[u8]) -> PyResult<(u64, usize)> {
        self.with(py, |file| file.append(data))
    }

    /// Bytes of the file.
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |file| Ok(file.metadata()?.size))
    }

    /// Sets the size.
    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        self.with(py, |file| file.set_len(size))
    }

    /// Makes the file durable.
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        self.with(py, |file| if data_only { file.sync_data() } else { file.sync_all() })
    }

    /// Closes the file; a second time, and in another process, it does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.home.is_here() {
            let file = self.file.write().unwrap_or_else(PoisonError::into_inner).take();
            py.detach(move || drop(file));
        }
        interrupted()
    }
}

impl Drop for RawFile {
    fn drop(&mut self) {
        let file = self.file.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if !self.home.is_here() {
            return std::mem::forget(file);
        }
        if let Some(file) = file {
            // (As of a volume.)
            Python::attach(|py| {
                let on_its_way = PyErr::take(py);
                py.detach(|| drop(file));
                if let Err(interrupt) = interrupted() {
                    interrupt.write_unraisable(py, None);
                }
                if let Some(exception) = on_its_way {
                    exception.restore(py);
                }
            });
        }
    }
}
