//! The ioctls that tests need and that no safe wrapper offers. With `mapped.rs` and `user.rs` the
//! only unsafe code of this crate.

#![allow(unsafe_code)]

use rustix::ioctl::{Ioctl, Opcode, Setter, Updater, ioctl, opcode};
use std::ffi::c_void;
use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicU64;

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
    // SAFETY: the ioctl reads one u32 through the pointer; `Setter` holds that u32 for the whole
    // call. (The request number says "read" by a historical slip; the kernel takes the value from
    // the caller.)
    unsafe { ioctl(&dir, Setter::<SHUTDOWN, u32>::new(how as u32)) }.expect("shutdown ioctl");
}

/// Discards free space of a mounted file system (FITRIM); gives the number of bytes discarded.
pub fn trim(mount: &Path, start: u64, len: u64, min_len: u64) -> std::io::Result<u64> {
    let dir = File::open(mount)?;
    let mut range = TrimRange { start, len, min_len };
    // SAFETY: FITRIM reads and writes one `struct fstrim_range`, which `TrimRange` mirrors; it
    // lives through the call.
    unsafe { ioctl(&dir, Updater::<FITRIM, TrimRange>::new(&mut range)) }?;
    Ok(range.len)
}

/// Any number with any argument.
struct Any {
    number: Opcode,
    argument: *mut c_void,
}

// SAFETY: the makers of this see to it that the argument has the bytes that its number says, for
// the whole call.
unsafe impl Ioctl for Any {
    type Output = ();
    const IS_MUTATING: bool = true;

    fn opcode(&self) -> Opcode {
        self.number
    }

    fn as_ptr(&mut self) -> *mut c_void {
        self.argument
    }

    unsafe fn output_from_ptr(
        _: rustix::ioctl::IoctlOutput,
        _: *mut c_void,
    ) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// Bytes of the argument that a number names.
fn size_of_argument(number: Opcode) -> usize {
    (number >> 16 & 0x3fff) as usize
}

/// Sends any ioctl whose argument is the bytes that its number says, and nothing that they point
/// to.
///
/// # Panics
/// If `argument` is too short.
pub fn raw_ioctl(file: &File, number: u32, argument: &mut [u8]) -> std::io::Result<()> {
    let number = Opcode::from(number);
    assert!(argument.len() >= size_of_argument(number), "an argument that is too short");
    // SAFETY: the argument has the bytes that the number says. (Those of file systems, which tests
    // send, follow that.)
    unsafe { ioctl(file, Any { number, argument: argument.as_mut_ptr().cast() }) }?;
    Ok(())
}

/// The same with an argument of at most 8 bytes that other threads change meanwhile.
///
/// # Panics
/// If the number wants more.
pub fn raw_ioctl_shared(file: &File, number: u32, argument: &AtomicU64) -> std::io::Result<()> {
    let number = Opcode::from(number);
    assert!(size_of_argument(number) <= 8, "a larger argument");
    // SAFETY: as above; the kernel reads and writes memory that only atomic operations touch.
    unsafe { ioctl(file, Any { number, argument: argument.as_ptr().cast() }) }?;
    Ok(())
}

/// A request to a mount. The first is Linux's own, the others are Extol's (answered by
/// `ops/ioctl.rs` of the FUSE front end).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MountRequest {
    /// `EXT4_IOC_CHECKPOINT` with its flags.
    Checkpoint(u32),
    /// Checkpoints everything and refuses writes until the thaw.
    Freeze,
    /// Ends a freeze.
    Thaw,
    /// As `EXT4_IOC_SHUTDOWN`, with its mode (which Linux does not pass on to a FUSE daemon).
    Shutdown(u32),
}

impl MountRequest {
    /// Sends the request to the mount that `dir` is on.
    ///
    /// # Errors
    /// What the mount answers; ENOTTY if it does not know the request.
    pub fn send(self, dir: &File) -> std::io::Result<()> {
        let (number, argument) = match self {
            Self::Checkpoint(flags) => (0x4004_662b, flags),
            Self::Freeze => (0xe401, 0),
            Self::Thaw => (0xe402, 0),
            Self::Shutdown(mode) => (0x4004_e403, mode),
        };
        raw_ioctl(dir, number, &mut argument.to_ne_bytes())
    }
}
