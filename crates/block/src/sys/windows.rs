//! What there is in place of the calls of Linux on Windows. Files are in `file/windows.rs`.

use std::fs::File;
use std::io;

/// The error of a write to what is only read. (Linux's number would be that of another error.)
pub(crate) fn read_only() -> io::Error {
    io::ErrorKind::ReadOnlyFilesystem.into()
}

/// Fills a buffer from an offset.
pub(crate) fn read_exact_at(file: &File, mut buf: &mut [u8], mut at: u64) -> io::Result<()> {
    use std::os::windows::fs::FileExt as _;
    while !buf.is_empty() {
        match file.seek_read(buf, at) {
            Ok(0) => {
                let why = "the file is shorter than when it was opened";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, why));
            }
            Ok(n) => (buf, at) = (&mut buf[n..], at + n as u64),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Threads have no numbers here that a priority could be set by.
pub(crate) fn own_thread() -> i32 {
    0
}

pub(crate) fn io_priority(_thread: i32) -> io::Result<i32> {
    Err(io::ErrorKind::Unsupported.into())
}

pub(crate) fn set_io_priority(_thread: i32, _priority: i32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
