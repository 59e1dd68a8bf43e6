//! The two ioctls that tests need and that no safe wrapper offers. With `mapped.rs` the only unsafe code of this crate.

#![allow(unsafe_code)]

use rustix::ioctl::{Opcode, Setter, Updater, ioctl, opcode};
use std::fs::File;
use std::path::Path;

/// How a kernel file system goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// Everything is written first.
    Sync = 0,
    /// The journal is flushed first.
    FlushLog = 1,
    /// Nothing is written: a power cut.
    Now = 2,
}

const SHUTDOWN: Opcode = opcode::read::<u32>(b'X', 125);
const FITRIM: Opcode = opcode::read_write::<TrimRange>(b'X', 121);

/// `struct fstrim_range`.
#[repr(C)]
struct TrimRange {
    start: u64,
    len: u64,
    min_len: u64,
}

/// Shuts a kernel ext4 mount down (EXT4_IOC_SHUTDOWN): from now on every access fails with EIO.
///
/// # Panics
/// If the kernel refuses.
pub fn shutdown(mount: &Path, how: Shutdown) {
    let dir = File::open(mount).expect("open the mount point");
    // SAFETY: the ioctl reads one u32 through the pointer; `Setter` holds that u32 for the whole call. (The request
    // number says "read" by a historical slip; the kernel takes the value from the caller.)
    unsafe { ioctl(&dir, Setter::<SHUTDOWN, u32>::new(how as u32)) }.expect("shutdown ioctl");
}

/// Discards free space of a mounted file system (FITRIM); gives the number of bytes discarded.
pub fn trim(mount: &Path, start: u64, len: u64, min_len: u64) -> std::io::Result<u64> {
    let dir = File::open(mount)?;
    let mut range = TrimRange { start, len, min_len };
    // SAFETY: FITRIM reads and writes one `struct fstrim_range`, which `TrimRange` mirrors; it lives through the call.
    unsafe { ioctl(&dir, Updater::<FITRIM, TrimRange>::new(&mut range)) }?;
    Ok(range.len)
}
