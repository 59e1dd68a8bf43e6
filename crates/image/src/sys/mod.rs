//! The calls that one system has and another has not.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(not(target_os = "linux"))]
mod other;

#[cfg(target_os = "linux")]
pub(crate) use linux::{DIR_HANDLE, device, open_unnamed, read_xattrs};
#[cfg(not(target_os = "linux"))]
pub(crate) use other::{DIR_HANDLE, device, open_unnamed, read_xattrs};
