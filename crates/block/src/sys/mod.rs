//! The calls that one system has and another has not. Where a call is missing, what stands for it
//! fails with EOPNOTSUPP, as the call does on a file system that lacks it: the callers do without.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(crate) use linux::*;
#[cfg(not(target_os = "linux"))]
pub(crate) use other::*;

/// A lock on a range of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RangeLock {
    /// Beside other shared ones.
    Shared,
    /// Alone. The file must be open for writing.
    Exclusive,
    /// None any more.
    Unlocked,
}
