//! The ioctls that the kernel passes on: `chattr` flags, project ids, generation, FITRIM, and requests about the whole
//! volume.
//!
//! The kernel copies arguments by the direction and size in the number ("restricted"), except for the flag ioctls,
//! which it sends itself with the sizes that the structures really have. It has checked owner and capabilities for
//! those; FITRIM and what concerns the whole volume we check here: it is for root and for the owner of the mount, whose
//! process we are.
//!
//! | number | name | |
//! | --- | --- | --- |
//! | `_IOW('f', 43, u32)` | EXT4_IOC_CHECKPOINT | Linux's own |
//! | `_IO(0xE4, 1)`, `_IO(0xE4, 2)` | freeze, thaw | FIFREEZE and FITHAW end in the kernel, with EOPNOTSUPP |
//! | `_IOW(0xE4, 3, u32)` | shutdown, with the modes of EXT4_IOC_SHUTDOWN | see below |
//!
//! EXT4_IOC_SHUTDOWN says `_IOR` though its mode goes to the kernel, and FUSE believes it: the mode does not arrive. It is refused
//! (EOPNOTSUPP) rather than guessed.

use extol_vfs::{CheckpointFlags, SetAttr, Shutdown};

use super::Context;
use crate::abi::IOCTL_UNRESTRICTED;
use crate::errno::{Errno, Result};
use crate::wire::{Args, Reply, Request};

/// `_IOR` / `_IOW` / `_IOWR` of asm-generic: direction, size, type, number.
const fn number(direction: u32, size: u32, kind: u8, nr: u32) -> u32 {
    (direction << 30) | (size << 16) | ((kind as u32) << 8) | nr
}
const WRITE: u32 = 1;
const READ: u32 = 2;

const GETFLAGS: u32 = number(READ, 8, b'f', 1);
const SETFLAGS: u32 = number(WRITE, 8, b'f', 2);
const GETFLAGS_32: u32 = number(READ, 4, b'f', 1);
const SETFLAGS_32: u32 = number(WRITE, 4, b'f', 2);
const GETVERSION: u32 = number(READ, 8, b'v', 1);
const GETVERSION_32: u32 = number(READ, 4, b'v', 1);
const FSGETXATTR: u32 = number(READ, 28, b'X', 31);
const FSSETXATTR: u32 = number(WRITE, 28, b'X', 32);
const FITRIM: u32 = number(READ | WRITE, 24, b'X', 121);

const CHECKPOINT: u32 = number(WRITE, 4, b'f', 43);
const SHUTDOWN: u32 = number(READ, 4, b'X', 125);
const FREEZE: u32 = number(0, 0, 0xE4, 1);
const THAW: u32 = number(0, 0, 0xE4, 2);
const OUR_SHUTDOWN: u32 = number(WRITE, 4, 0xE4, 3);

/// `chattr +j`: costs everybody's log space, so it is root's. (The kernel checks the flags that it knows.)
const JOURNAL_DATA: u32 = 0x4000;

/// Inode flags that both `chattr` and `FS_IOC_FSSETXATTR` know: (inode flag, FS_XFLAG).
const XFLAGS: [(u32, u32); 6] = [
    (0x0000_0008, 0x0000_0020), // SYNC
    (0x0000_0010, 0x0000_0008), // IMMUTABLE
    (0x0000_0020, 0x0000_0010), // APPEND
    (0x0000_0040, 0x0000_0080), // NODUMP
    (0x0000_0080, 0x0000_0040), // NOATIME
    (0x2000_0000, 0x0000_0200), // PROJINHERIT
];

impl Context<'_> {
    pub(super) fn ioctl(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let mut args = request.args();
        args.skip(8)?;
        let (flags, command) = (args.u32()?, args.u32()?);
        args.skip(8)?;
        let in_size = args.u32()? as usize;
        args.skip(4)?;
        let mut input = Args(args.bytes(in_size)?);
        if flags & IOCTL_UNRESTRICTED != 0 {
            return Err(Errno(libc::ENOTTY));
        }
        let ino = self.ino(request.nodeid)?;
        reply.zeros(16);
        match command {
            GETFLAGS | GETFLAGS_32 => {
                reply.u32(self.fs.getattr(ino)?.flags);
            }
            SETFLAGS | SETFLAGS_32 => {
                let flags = input.u32()?;
                let changed = flags ^ self.fs.getattr(ino)?.flags;
                if changed & JOURNAL_DATA != 0 && request.uid != 0 {
                    return Err(Errno(libc::EPERM));
                }
                self.change(request.nodeid, SetAttr { flags: Some(flags), ..SetAttr::default() })?;
            }
            GETVERSION | GETVERSION_32 => {
                reply.u32(self.fs.getattr(ino)?.id.generation);
            }
            FSGETXATTR => {
                let attr = self.fs.getattr(ino)?;
                reply.u32(to_xflags(attr.flags)).zeros(8).u32(attr.project).zeros(12);
            }
            FSSETXATTR => {
                let xflags = input.u32()?;
                input.skip(8)?;
                let project = input.u32()?;
                let attr = self.fs.getattr(ino)?;
                let flags = from_xflags(attr.flags, xflags)?;
                let set = SetAttr {
                    flags: (flags != attr.flags).then_some(flags),
                    project: (project != attr.project).then_some(project),
                    ..SetAttr::default()
                };
                self.change(request.nodeid, set)?;
            }
            FITRIM => {
                if request.uid != 0 {
                    return Err(Errno(libc::EPERM));
                }
                let (start, len, min_len) = (input.u64()?, input.u64()?, input.u64()?);
                let trimmed = self.fs.trim(start, len, min_len)?;
                reply.u64(start).u64(trimmed).u64(min_len);
            }
            CHECKPOINT => {
                owner_only(request)?;
                let flags = CheckpointFlags::from_bits(input.u32()?).ok_or(Errno(libc::EINVAL))?;
                self.fs.checkpoint(flags)?;
            }
            FREEZE => {
                owner_only(request)?;
                self.fs.freeze()?;
            }
            THAW => {
                owner_only(request)?;
                self.fs.thaw()?;
            }
            OUR_SHUTDOWN => {
                owner_only(request)?;
                let how = Shutdown::from_number(input.u32()?).ok_or(Errno(libc::EINVAL))?;
                self.fs.shut_down(how)?;
            }
            SHUTDOWN => {
                owner_only(request)?;
                return Err(Errno(libc::EOPNOTSUPP));
            }
            _ => return Err(Errno(libc::ENOTTY)),
        }
        Ok(())
    }

    fn change(&self, nodeid: u64, set: SetAttr) -> Result<()> {
        self.fs.setattr(self.ino(nodeid)?, &set)?;
        self.kernel.invalidate_attributes(nodeid);
        Ok(())
    }
}

/// Err unless root asks, or the user whose process this is.
fn owner_only(request: &Request<'_>) -> Result<()> {
    let owner = rustix::process::geteuid().as_raw();
    if request.uid == 0 || request.uid == owner { Ok(()) } else { Err(Errno(libc::EPERM)) }
}

fn to_xflags(flags: u32) -> u32 {
    XFLAGS.iter().filter(|(flag, _)| flags & flag != 0).fold(0, |xflags, (_, xflag)| xflags | xflag)
}

/// The inode flags after the six that can be said in FS_XFLAGs are replaced.
fn from_xflags(flags: u32, xflags: u32) -> Result<u32> {
    let mut rest = xflags & !0x8000_0000; // HASATTR can only be read
    let mut flags = flags;
    for (flag, xflag) in XFLAGS {
        flags = if xflags & xflag != 0 { flags | flag } else { flags & !flag };
        rest &= !xflag;
    }
    if rest == 0 { Ok(flags) } else { Err(Errno(libc::EOPNOTSUPP)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_linux() {
        assert_eq!(GETFLAGS, 0x8008_6601);
        assert_eq!(SETFLAGS, 0x4008_6602);
        assert_eq!(FSGETXATTR, 0x801c_581f);
        assert_eq!(FSSETXATTR, 0x401c_5820);
        assert_eq!(FITRIM, 0xc018_5879);
        assert_eq!(CHECKPOINT, 0x4004_662b);
        assert_eq!(SHUTDOWN, 0x8004_587d);
    }

    #[test]
    fn xflags_leave_other_flags_alone() {
        let flags = 0x8_0000 | 0x10; // EXTENTS, IMMUTABLE
        assert_eq!(to_xflags(flags), 0x8);
        assert_eq!(from_xflags(flags, 0x210), Ok(0x8_0000 | 0x20 | 0x2000_0000));
        assert_eq!(from_xflags(flags, 0x2), Err(Errno(libc::EOPNOTSUPP)));
    }
}
