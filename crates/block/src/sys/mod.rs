//! The calls that one system has and another has not. Where a call is missing, what stands for it
//! fails with EOPNOTSUPP, as the call does on a file system that lacks it: the callers do without.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(all(unix, not(target_os = "linux")))]
mod other;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) use other::*;
#[cfg(windows)]
pub(crate) use windows::*;

/// A lock on a range of a file.
#[cfg(unix)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RangeLock {
    /// Beside other shared ones.
    Shared,
    /// Alone. The file must be open for writing.
    Exclusive,
    /// None any more.
    Unlocked,
}

/// The error of a write to what is only read.
#[cfg(unix)]
pub(crate) fn read_only() -> std::io::Error {
    std::io::Error::from_raw_os_error(libc::EROFS)
}

/// Fills a buffer from an offset.
#[cfg(unix)]
pub(crate) fn read_exact_at(file: &std::fs::File, buf: &mut [u8], at: u64) -> std::io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, buf, at)
}
