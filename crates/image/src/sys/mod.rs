//! The calls that one system has and another has not.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(all(unix, not(target_os = "linux")))]
mod other;
#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux::{DIR_HANDLE, device, open_unnamed, read_xattrs};
#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) use other::{DIR_HANDLE, device, open_unnamed, read_xattrs};
#[cfg(unix)]
pub(crate) use unix::{Dir, Stamp, own_ids, read_at, stamp, unnamed, write_all_at};
#[cfg(windows)]
pub(crate) use windows::{Dir, Stamp, own_ids, read_at, stamp, unnamed, write_all_at};
