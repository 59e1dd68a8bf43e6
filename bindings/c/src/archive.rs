//! Archives of the files of a volume.

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt as _;

use extol::image::edits::Pattern;
use extol::image::tar::{TarError, TarOptions, write_tar};

use crate::failure::{Failure, call};
use crate::given;
use crate::volume::extol_fs;

/// What takes the bytes of the archive.
struct Taker {
    write: unsafe extern "C" fn(data: *mut c_void, bytes: *const c_void, len: usize) -> c_int,
    data: *mut c_void,
}

impl io::Write for Taker {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the callback reads so many bytes, by the header.
        match unsafe { (self.write)(self.data, bytes.as_ptr().cast(), bytes.len()) } {
            0 => Ok(bytes.len()),
            errno => Err(io::Error::from_raw_os_error(errno.saturating_abs())),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes a tar archive of a file, or of a directory with all that is in it, as extol tar does.
/// `write` takes the bytes one after the other, and returns 0, or a number of errno that ends the
/// work. `exclude` is NULL, or has patterns of names that are left out; the last is NULL. Returns
/// how many files could not be read, and so are not in the archive as they should be.
///
/// # Safety
/// `fs` is open; `path` ends with a zero, as do the texts of `exclude`; `write` takes `data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extol_tar(
    fs: *const extol_fs,
    path: *const c_char,
    exclude: *const *const c_char,
    write: Option<
        unsafe extern "C" fn(data: *mut c_void, bytes: *const c_void, len: usize) -> c_int,
    >,
    data: *mut c_void,
) -> i64 {
    call(-1, || {
        // SAFETY: by the contract.
        let (fs, path, exclude) =
            unsafe { (given::held(fs, "the volume")?, given::path(path)?, given::list(exclude)?) };
        let write = write.ok_or_else(|| Failure::invalid("write is NULL"))?;
        let mut options = TarOptions::default();
        for pattern in exclude {
            options.exclude.push(Pattern::parse("exclude", pattern)?);
        }
        let named = |error| Failure::from(error).about(&[path]);
        let inode = fs.0.inode(path).map_err(named)?;
        let name = path.file_name().unwrap_or_default().as_bytes();
        let out = &mut Taker { write, data };
        let written =
            write_tar(&*fs.0, inode.ino(), name, out, &options, &mut |_| ControlFlow::Continue(()));
        let written = written.map_err(|error| match error {
            TarError::Output(error) => Failure::new(extol::vfs::errno_of(&error), error),
            error => Failure::invalid(error),
        })?;
        i64::try_from(written.failed).map_err(|_| Failure::invalid("too many files failed"))
    })
}
