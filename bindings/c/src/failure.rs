//! Why a call failed: errno, and a line.

use std::cell::RefCell;
use std::ffi::c_char;
use std::os::unix::ffi::OsStrExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use extol::vfs::{bytes_text, errno_of, plain};
use extol::{FsError, OpenError};

/// EIO: also of what should not happen.
pub(crate) const EIO: i32 = 5;
/// EINVAL.
pub(crate) const EINVAL: i32 = 22;

/// A failure on its way to the caller.
#[derive(Debug)]
pub(crate) struct Failure {
    errno: i32,
    line: String,
}

pub(crate) type Result<T> = std::result::Result<T, Failure>;

impl Failure {
    pub(crate) fn new(errno: i32, line: impl ToString) -> Self {
        Self { errno, line: line.to_string() }
    }

    /// The same, with the names that the call was about in front.
    pub(crate) fn about(self, names: &[&Path]) -> Self {
        let names: Vec<_> = names.iter().map(|name| shown(name)).collect();
        Self::new(self.errno, format_args!("{}: {}", names.join(", "), self.line))
    }

    pub(crate) fn invalid(line: impl ToString) -> Self {
        Self::new(EINVAL, line)
    }
}

impl From<FsError> for Failure {
    fn from(error: FsError) -> Self {
        Self::new(error.errno(), error)
    }
}

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::new(error.errno(), error)
    }
}

impl From<extol::device::DeviceError> for Failure {
    fn from(error: extol::device::DeviceError) -> Self {
        Self::new(errno_of(&error.source), error)
    }
}

impl From<extol::device::open::OpenFailed> for Failure {
    fn from(error: extol::device::open::OpenFailed) -> Self {
        OpenError::from(error).into()
    }
}

impl From<extol::image::BuildError> for Failure {
    fn from(error: extol::image::BuildError) -> Self {
        Self::new(error.errno(), error)
    }
}

/// Most bytes of a line, with the zero behind it.
const LONGEST: usize = 4096;

/// A name in a line: what is no text, or acts on a terminal, is written out.
fn shown(name: &Path) -> String {
    match name.as_os_str().as_bytes() {
        b"" => "''".to_owned(),
        bytes => plain(&bytes_text(bytes)).into_owned(),
    }
}

thread_local! {
    /// It stays where it is: a caller may have the address before the call that fails.
    static LAST: RefCell<[u8; LONGEST]> = const { RefCell::new([0; LONGEST]) };
}

/// Does the work of a function (CB-1). `failed` is what it returns for a failure.
pub(crate) fn call<T>(failed: T, work: impl FnOnce() -> Result<T>) -> T {
    let outcome = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        Err(Failure::new(EIO, format_args!("internal error: {text}")))
    });
    outcome.unwrap_or_else(|failure| {
        // A line has no zero inside; where a name in it has one, the line ends there.
        let line = failure.line.bytes().take_while(|byte| *byte != 0).take(LONGEST - 1);
        // (While a thread ends, its last failure may be gone already.)
        let _ = LAST.try_with(|last| {
            let mut last = last.borrow_mut();
            let line = line.chain([0]);
            last.iter_mut().zip(line).for_each(|(to, byte)| *to = byte);
        });
        errno::set_errno(errno::Errno(failure.errno));
        failed
    })
}

/// The same for functions that return 0, or -1.
pub(crate) fn done(work: impl FnOnce() -> Result<()>) -> i32 {
    call(-1, || work().map(|()| 0))
}

/// Why the last call of this thread that failed did so, in one line; "" before the first. The text
/// stays until the next call that fails, and its address as long as the thread.
#[unsafe(no_mangle)]
pub extern "C" fn extol_last_error() -> *const c_char {
    LAST.try_with(|last| last.borrow().as_ptr().cast()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn last() -> String {
        // SAFETY: the text stays until the next failure of this thread.
        unsafe { CStr::from_ptr(extol_last_error()) }.to_str().unwrap().to_owned()
    }

    #[test]
    fn a_panic_does_not_cross() {
        assert_eq!(last(), "");
        assert_eq!(done(|| panic!("on purpose {}", 1)), -1);
        assert_eq!((errno::errno().0, last()), (EIO, "internal error: on purpose 1".into()));
        assert_eq!(done(|| Err(FsError::NotFound.into())), -1);
        assert_eq!((errno::errno().0, last()), (2, "no such file or directory".into()));
        assert_eq!(done(|| Err(Failure::invalid("a\0b"))), -1);
        assert_eq!((errno::errno().0, last()), (EINVAL, "a".into()));
        // Success changes neither.
        assert_eq!(done(|| Ok(())), 0);
        assert_eq!((errno::errno().0, last()), (EINVAL, "a".into()));
    }
}
