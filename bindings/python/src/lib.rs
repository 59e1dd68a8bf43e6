//! The part of the Python package that is in Rust: volumes and open files, with paths as bytes and
//! attributes as `os.stat_result`. `python/extol` makes of it what Python programs expect.
//!
//! - PB-1: whatever may wait for a device or a lock runs detached from the interpreter, so other
//!   threads go on.
//! - PB-2: an error is an OSError with Linux's errno, so Python gives it the class that programs
//!   catch.
//! - PB-3: what is here closes itself in the process that opened it, and in no other (`Home`).

mod attributes;
mod device;
mod file;
mod images;
mod volume;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;

use extol::{FsError, OpenError};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;

const EBADF: i32 = 9;
/// What errno the error of a missing feature or a bad argument has.
const EINVAL: i32 = 22;

/// An error as Python has it.
fn os_error(errno: i32, line: impl ToString) -> PyErr {
    PyOSError::new_err((errno, line.to_string()))
}

fn fs_error(error: FsError) -> PyErr {
    os_error(error.errno(), error)
}

/// The same, with the names that the call was about.
fn fs_error_at(error: &FsError, names: &[&[u8]]) -> PyErr {
    let name = |at: usize| names.get(at).map(|name| OsStr::from_bytes(name).to_owned());
    // (The fourth is a number of another system.)
    PyOSError::new_err((error.errno(), error.to_string(), name(0), None::<i32>, name(1)))
}

/// The process that a volume or a file was opened in. Its threads and locks are not in a child that
/// fork(2) makes, so nothing is done there: neither read nor written, nor closed.
#[derive(Clone, Copy)]
struct Home(u32);

impl Home {
    fn here() -> Self {
        Self(std::process::id())
    }

    fn is_here(self) -> bool {
        self.0 == std::process::id()
    }

    fn check(self) -> PyResult<()> {
        match self.is_here() {
            true => Ok(()),
            false => Err(os_error(EBADF, "the volume was opened before fork(): open it again")),
        }
    }
}

fn open_error(error: OpenError) -> PyErr {
    os_error(error.errno(), error)
}

fn invalid(error: impl ToString) -> PyErr {
    os_error(EINVAL, error)
}

/// Nanoseconds since 1970.
type Nanoseconds = i128;

/// The part of the package that is in Rust.
#[pymodule]
mod _extol {
    #[pymodule_export]
    use super::file::RawFile;
    #[pymodule_export]
    use super::images::{build, check, mkfs, replay};
    #[pymodule_export]
    use super::volume::RawVolume;

    /// The version of the package.
    #[pymodule_export]
    #[allow(non_upper_case_globals)]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
