//! The ioctls that the kernel sends to the daemon: `chattr` flags, project ids, generation, label
//! and UUID, FITRIM, and requests about the whole volume.
//!
//! *Checks.* Any process that can open a file, be it for reading, on a read-only bind mount or in a
//! user namespace, can send any number for it, and the kernel checks nothing of an ioctl that it
//! does not know. So each number has an entry in [`TABLE`] that says what checks it ([`Check`]); a
//! number that makes a change and has no check is refused.
//!
//! | number | name | changes | checked by |
//! | --- | --- | --- | --- |
//! | `_IOR('f', 1, long or u32)` | FS_IOC_GETFLAGS | | |
//! | `_IOR('v', 1, long or u32)` | FS_IOC_GETVERSION | | |
//! | `_IOR('X', 31, fsxattr)` | FS_IOC_FSGETXATTR | | |
//! | `_IOR(0x94, 49, [u8; 256])` | FS_IOC_GETFSLABEL | | |
//! | `_IOR('f', 45, ext4_tune_sb_params)` | EXT4_IOC_GET_TUNE_SB_PARAM | | |
//! | `_IOW('f', 2, long)` | FS_IOC_SETFLAGS | inode flags | kernel: see below |
//! | `_IOW('X', 32, fsxattr)` | FS_IOC_FSSETXATTR | inode flags, project | kernel: see below |
//! | `_IOW('f', 2, u32)` | FS_IOC32_SETFLAGS | inode flags | kernel with 32 bits; else refused |
//! | `_IOWR('X', 121, fstrim_range)` | FITRIM | the device | here: rights over the mount |
//! | `_IOW('f', 43, u32)` | EXT4_IOC_CHECKPOINT | the log | here: rights over the mount |
//! | `_IO(0xE4, 1)`, `_IO(0xE4, 2)` | freeze, thaw | all | here: rights over the mount |
//! | `_IOW(0xE4, 3, u32)` | shutdown (modes of EXT4_IOC_SHUTDOWN) | all | here: rights over the mount |
//! | `_IOR('X', 125, u32)` | EXT4_IOC_SHUTDOWN: see below | all | here: rights over the mount |
//! | `_IOW('f', 16, u64)` | EXT4_IOC_RESIZE_FS | size of the volume | here: CAP_SYS_RESOURCE or rights over the mount |
//! | `_IOW(0x94, 50, [u8; 256])` | FS_IOC_SETFSLABEL | label | here: CAP_SYS_ADMIN |
//! | `_IOW('f', 46, …)` | EXT4_IOC_SET_TUNE_SB_PARAM | superblock | here: CAP_SYS_ADMIN |
//! | `_IOW('f', 133, fsverity_enable_arg)` | FS_IOC_ENABLE_VERITY | a file | here: the right to write to it |
//! | `_IOWR('f', 134, fsverity_digest)` | FS_IOC_MEASURE_VERITY | | |
//! | `_IOR('f', 27, [u8; 16])` | FS_IOC_GET_ENCRYPTION_NONCE | | |
//! | all others | | | refused: ENOTTY |
//!
//! *What the kernel checks.* A `chattr` comes as FS_IOC_SETFLAGS or FS_IOC_FSSETXATTR to the
//! VFS, which requires the owner or CAP_FOWNER, CAP_LINUX_IMMUTABLE where `i` or `a` change, and a
//! writable mount. Then FUSE makes a request of its own, which differs from
//! what a process can send: its argument has no address, and the flags have 4 bytes, not those of a
//! long ([`Call::is_kernels`]). The same number arrives from a process as well: if the reply to the
//! kernel's request is EOPNOTSUPP, some kernels send the request of the process, read from its
//! memory once more. That fails with the same error. The kernel does not know `j` of `chattr`,
//! which uses log space that all files share: here it requires CAP_SYS_RESOURCE,
//! as in ext4, or rights over the mount.
//!
//! *What does not arrive.* FIFREEZE and FITHAW end in the kernel, with EOPNOTSUPP.
//! EXT4_IOC_SHUTDOWN is declared `_IOR` though its mode goes to the kernel, and FUSE follows the
//! declaration: the mode does not arrive, and each of them is EXT4_GOING_FLAGS_LOGFLUSH.
//! EXT4_IOC_GETFSUUID and EXT4_IOC_SETFSUUID declare the size of a structure whose UUID follows its
//! end, and FUSE transfers that many bytes: no UUID. FS_IOC_SET_ENCRYPTION_POLICY is declared
//! `_IOR` though the policy goes to the kernel, those that tell policies and the salt `_IOW` or
//! with the size of a part, and the one that adds a key with that of what stands before the key.
//! (Those that remove a key and tell its state would arrive: `control.rs` has requests for that.)
//! FS_IOC_GETFSUUID and FS_IOC_GETFSSYSFSPATH are answered by the kernel from its own superblock of
//! the mount, where FUSE sets neither.

use extol_vfs::{CheckpointFlags, Identity, SetAttr, Shutdown, Tunables, Tune, TuneFields};

use super::{Context, verity};
use crate::abi::{IOCTL_32BIT, IOCTL_COMPAT, IOCTL_UNRESTRICTED};
use crate::errno::{Errno, Result};
use crate::rights::{FileOwner, capability};
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
const GETFSLABEL: u32 = number(READ, 256, 0x94, 49);
const SETFSLABEL: u32 = number(WRITE, 256, 0x94, 50);
const GET_TUNE: u32 = number(READ, TUNE_SIZE, b'f', 45);
const SET_TUNE: u32 = number(WRITE, TUNE_SIZE, b'f', 46);
/// Bytes of `struct ext4_tune_sb_params`.
const TUNE_SIZE: u32 = 232;
const GETVERSION: u32 = number(READ, 8, b'v', 1);
const GETVERSION_32: u32 = number(READ, 4, b'v', 1);
const FSGETXATTR: u32 = number(READ, 28, b'X', 31);
const FSSETXATTR: u32 = number(WRITE, 28, b'X', 32);
const FITRIM: u32 = number(READ | WRITE, 24, b'X', 121);

const RESIZE: u32 = number(WRITE, 8, b'f', 16);
const ENABLE_VERITY: u32 = number(WRITE, verity::ENABLE_SIZE, b'f', 133);
const MEASURE_VERITY: u32 = number(READ | WRITE, verity::DIGEST_SIZE, b'f', 134);
const GET_NONCE: u32 = number(READ, 16, b'f', 27);
const CHECKPOINT: u32 = number(WRITE, 4, b'f', 43);
const SHUTDOWN: u32 = number(READ, 4, b'X', 125);
const FREEZE: u32 = number(0, 0, 0xE4, 1);
const THAW: u32 = number(0, 0, 0xE4, 2);
const OUR_SHUTDOWN: u32 = number(WRITE, 4, 0xE4, 3);

const ACCESS_LIST: &[u8] = b"system.posix_acl_access";
/// Longest label, and the bytes of FS_IOC_GETFSLABEL.
const LABEL: usize = 16;
const LABEL_FIELD: usize = 256;

/// `chattr +j`: it costs log space of all, and the kernel does not know it.
const JOURNAL_DATA: u32 = 0x4000;

/// Inode flags that both `chattr` and `FS_IOC_FSSETXATTR` know: (inode flag, FS_XFLAG).
const XFLAGS: [(u32, u32); 7] = [
    (0x0000_0008, 0x0000_0020), // SYNC
    (0x0000_0010, 0x0000_0008), // IMMUTABLE
    (0x0000_0020, 0x0000_0010), // APPEND
    (0x0000_0040, 0x0000_0080), // NODUMP
    (0x0000_0080, 0x0000_0040), // NOATIME
    (0x0200_0000, 0x0000_8000), // DAX
    (0x2000_0000, 0x0000_0200), // PROJINHERIT
];

/// What has checked that a process may have what an ioctl asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Check {
    /// Nothing changes, and any process that has the file open may know it.
    Reads,
    /// The kernel, if the request is its own, with so many bytes of argument; else nothing has, and
    /// the answer is this error.
    Kernel { bytes: usize, else_answer: i32 },
    /// This daemon: the caller needs rights over the mount.
    Mount,
    /// This daemon: the caller needs CAP_SYS_RESOURCE, as in ext4, or rights over the mount.
    Resource,
    /// This daemon: the caller needs CAP_SYS_ADMIN.
    Admin,
    /// This daemon: the caller needs the right to write to the file (`verity.rs`).
    Write,
}

/// An ioctl at work.
pub(super) struct Call<'a, 'r> {
    pub(super) request: &'a Request<'r>,
    pub(super) ino: u32,
    flags: u32,
    /// Address of the argument in the process.
    address: u64,
    input: &'r [u8],
}

impl<'r> Call<'_, 'r> {
    /// True if the kernel has made this request itself, and not passed on one of a process. What a
    /// process sends has an address from which the kernel has read it: never 0, where no memory can
    /// be without CAP_SYS_RAWIO.
    fn is_kernels(&self, bytes: usize) -> bool {
        self.address == 0 && self.input.len() == bytes
    }

    /// True if the kernel has 32 bits, so that its own flag requests have the number with a `u32`.
    fn is_of_32_bits(&self) -> bool {
        self.flags & (IOCTL_32BIT | IOCTL_COMPAT) == IOCTL_32BIT
    }

    pub(super) fn input(&self) -> Args<'r> {
        Args(self.input)
    }
}

type Work = fn(&Context<'_>, &Call<'_, '_>, &mut Reply) -> Result<()>;

/// All ioctls that are answered, and the check of each. What is not here is refused.
const TABLE: [(u32, Check, Work); 22] = [
    (GETFLAGS, Check::Reads, get_flags),
    (GETFLAGS_32, Check::Reads, get_flags),
    (SETFLAGS, Check::Kernel { bytes: 4, else_answer: libc::EOPNOTSUPP }, set_flags),
    (SETFLAGS_32, Check::Kernel { bytes: 4, else_answer: libc::ENOTTY }, set_flags_32),
    (GETVERSION, Check::Reads, get_version),
    (GETVERSION_32, Check::Reads, get_version),
    (FSGETXATTR, Check::Reads, get_xflags),
    (FSSETXATTR, Check::Kernel { bytes: 28, else_answer: libc::EOPNOTSUPP }, set_xflags),
    (GETFSLABEL, Check::Reads, get_label),
    (SETFSLABEL, Check::Admin, set_label),
    (GET_TUNE, Check::Reads, get_tune),
    (SET_TUNE, Check::Admin, set_tune),
    (FITRIM, Check::Mount, fitrim),
    (RESIZE, Check::Resource, resize),
    (ENABLE_VERITY, Check::Write, verity::enable),
    (MEASURE_VERITY, Check::Reads, verity::measure),
    (GET_NONCE, Check::Reads, get_nonce),
    (CHECKPOINT, Check::Mount, checkpoint),
    (FREEZE, Check::Mount, freeze),
    (THAW, Check::Mount, thaw),
    (OUR_SHUTDOWN, Check::Mount, our_shutdown),
    (SHUTDOWN, Check::Mount, shutdown),
];

impl Context<'_> {
    pub(super) fn ioctl(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let mut args = request.args();
        args.skip(8)?;
        let (flags, command, address) = (args.u32()?, args.u32()?, args.u64()?);
        let in_size = args.u32()? as usize;
        args.skip(4)?;
        let input = args.bytes(in_size)?;
        if flags & IOCTL_UNRESTRICTED != 0 {
            return Err(Errno(libc::ENOTTY));
        }
        let ino = self.ino(request.nodeid)?;
        let found = TABLE.iter().find(|(number, ..)| *number == command);
        let (_, check, work) = found.ok_or(Errno(libc::ENOTTY))?;
        let call = Call { request, ino, flags, address, input };
        self.check(*check, &call)?;
        reply.zeros(16);
        work(self, &call, reply)
    }

    /// Err unless the ioctl is checked.
    fn check(&self, check: Check, call: &Call<'_, '_>) -> Result<()> {
        match check {
            Check::Reads => Ok(()),
            Check::Kernel { bytes, .. } if call.is_kernels(bytes) => Ok(()),
            Check::Kernel { else_answer, .. } => Err(Errno(else_answer)),
            Check::Mount => self.owner.check(call.request),
            Check::Resource => {
                let may = self.owner.check_capability(call.request, capability::SYS_RESOURCE);
                may.or_else(|_| self.owner.check(call.request))
            }
            Check::Admin => self.owner.check_capability(call.request, capability::SYS_ADMIN),
            Check::Write => {
                let attr = self.fs.getattr(call.ino)?;
                let shown = self.agreed.shown;
                let has_list = self.fs.getxattr(call.ino, ACCESS_LIST).is_ok();
                let file = FileOwner {
                    uid: shown.uid.unwrap_or(attr.uid),
                    gid: shown.gid.unwrap_or(attr.gid),
                    perm: shown.perm(attr.perm),
                    owner_alone: has_list,
                };
                self.owner.check_write(call.request, &file)
            }
        }
    }
}

fn get_flags(context: &Context<'_>, call: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    reply.u32(context.fs.getattr(call.ino)?.flags);
    Ok(())
}

fn set_flags(context: &Context<'_>, call: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    let flags = call.input().u32()?;
    let changed = flags ^ context.fs.getattr(call.ino)?.flags;
    if changed & JOURNAL_DATA != 0 {
        context.check(Check::Resource, call)?;
    }
    change(context, call, SetAttr { flags: Some(flags), ..SetAttr::default() })
}

fn set_flags_32(context: &Context<'_>, call: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    if call.is_of_32_bits() { set_flags(context, call, reply) } else { Err(Errno(libc::ENOTTY)) }
}

fn get_version(context: &Context<'_>, call: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    reply.u32(context.fs.getattr(call.ino)?.id.generation);
    Ok(())
}

fn get_xflags(context: &Context<'_>, call: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    let attr = context.fs.getattr(call.ino)?;
    reply.u32(to_xflags(attr.flags)).zeros(8).u32(attr.project).zeros(12);
    Ok(())
}

fn set_xflags(context: &Context<'_>, call: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    let mut input = call.input();
    let xflags = input.u32()?;
    input.skip(8)?;
    let project = input.u32()?;
    let attr = context.fs.getattr(call.ino)?;
    let flags = from_xflags(attr.flags, xflags)?;
    let set = SetAttr {
        flags: (flags != attr.flags).then_some(flags),
        project: (project != attr.project).then_some(project),
        ..SetAttr::default()
    };
    change(context, call, set)
}

fn get_label(context: &Context<'_>, _: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    let Identity { mut label, .. } = context.fs.identity()?;
    label.truncate(LABEL);
    reply.bytes(&label).zeros(LABEL_FIELD - label.len());
    Ok(())
}

fn get_nonce(context: &Context<'_>, call: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    reply.bytes(&context.fs.encryption_nonce(call.ino)?);
    Ok(())
}

fn set_label(context: &Context<'_>, call: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    let label = call.input.split(|byte| *byte == 0).next().unwrap_or_default();
    if label.len() > LABEL {
        return Err(Errno(libc::EINVAL));
    }
    Ok(context.fs.tune(&Tune { label: Some(label.to_vec()), ..Tune::default() })?)
}

/// `struct ext4_tune_sb_params`: fields that Extol does not set are zero.
fn get_tune(context: &Context<'_>, _: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    let it = context.fs.tunables()?;
    reply.u32(TuneFields::all().bits()).u32(it.check_interval);
    reply.u16(it.errors).u16(it.mounts).u16(it.most_mounts).u16(it.raid_stride);
    reply.u64(it.last_check).u64(it.reserved_blocks).u64(it.blocks);
    reply
        .u32(it.default_options)
        .u32(it.reserved_uid)
        .u32(it.reserved_gid)
        .u32(it.raid_stripe_width);
    reply.zeros(4).bytes(&[it.hash, 0, 0, 0]);
    it.features.iter().for_each(|features| {
        reply.u32(*features);
    });
    reply.zeros(6 * 4).bytes(&it.mount_options).zeros(68);
    Ok(())
}

fn set_tune(context: &Context<'_>, call: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    let mut input = call.input();
    let fields = TuneFields::from_bits(input.u32()?).ok_or(Errno(libc::EOPNOTSUPP))?;
    let check_interval = input.u32()?;
    let (errors, mounts) = (input.u16()?, input.u16()?);
    let (most_mounts, raid_stride) = (input.u16()?, input.u16()?);
    let (last_check, reserved_blocks) = (input.u64()?, input.u64()?);
    input.skip(8)?;
    let (default_options, reserved_uid) = (input.u32()?, input.u32()?);
    let (reserved_gid, raid_stripe_width) = (input.u32()?, input.u32()?);
    input.skip(4)?;
    let hash = input.bytes(4)?[0];
    input.skip(9 * 4)?;
    let mut mount_options = [0; 64];
    mount_options.copy_from_slice(input.bytes(64)?);
    let values = Tunables {
        errors,
        mounts,
        most_mounts,
        check_interval,
        last_check,
        reserved_blocks,
        reserved_uid,
        reserved_gid,
        default_options,
        hash,
        raid_stride,
        raid_stripe_width,
        mount_options,
        ..Tunables::default()
    };
    Ok(context.fs.tune(&Tune { fields, values, label: None })?)
}

fn fitrim(context: &Context<'_>, call: &Call<'_, '_>, reply: &mut Reply) -> Result<()> {
    let mut input = call.input();
    let (start, len, min_len) = (input.u64()?, input.u64()?, input.u64()?);
    let trimmed = context.fs.trim(start, len, min_len)?;
    reply.u64(start).u64(trimmed).u64(min_len);
    Ok(())
}

/// The argument is the number of blocks. It is done when this returns, as in ext4.
fn resize(context: &Context<'_>, call: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    let blocks = call.input().u64()?;
    let size = u64::from(context.fs.statfs()?.block_size);
    let bytes = blocks.checked_mul(size).ok_or(Errno(libc::EINVAL))?;
    context.fs.grow(Some(bytes), None).map_err(|refused| refused.error)?;
    Ok(())
}

fn checkpoint(context: &Context<'_>, call: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    let flags = CheckpointFlags::from_bits(call.input().u32()?).ok_or(Errno(libc::EINVAL))?;
    Ok(context.fs.checkpoint(flags)?)
}

fn freeze(context: &Context<'_>, _: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    context.write_back_all()?;
    Ok(context.fs.freeze()?)
}

fn thaw(context: &Context<'_>, _: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    Ok(context.fs.thaw()?)
}

fn our_shutdown(context: &Context<'_>, call: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    let how = Shutdown::from_number(call.input().u32()?).ok_or(Errno(libc::EINVAL))?;
    if how == Shutdown::Sync {
        context.write_back_all()?;
    }
    Ok(context.fs.shut_down(how)?)
}

/// The mode has not arrived. So the log is flushed: no mode forbids that, and it keeps what the two
/// others that a crash test asks for keep. (`godown`, `godown -f` and fio's trigger ask so.)
fn shutdown(context: &Context<'_>, _: &Call<'_, '_>, _: &mut Reply) -> Result<()> {
    Ok(context.fs.shut_down(Shutdown::FlushLog)?)
}

fn change(context: &Context<'_>, call: &Call<'_, '_>, set: SetAttr) -> Result<()> {
    context.fs.setattr(call.ino, &set)?;
    context.server.invalidate(call.request.nodeid, -1);
    Ok(())
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
        assert_eq!(RESIZE, 0x4008_6610);
        assert_eq!(SHUTDOWN, 0x8004_587d);
        assert_eq!(ENABLE_VERITY, 0x4080_6685);
        assert_eq!(MEASURE_VERITY, 0xc004_6686);
        assert_eq!(GET_NONCE, 0x8010_661b);
    }

    /// Every number that makes a change is checked by the kernel, in a request that no process can
    /// make, or by the daemon.
    #[test]
    fn what_changes_something_is_checked() {
        let reads = [
            GETFLAGS,
            GETFLAGS_32,
            GETVERSION,
            GETVERSION_32,
            FSGETXATTR,
            GETFSLABEL,
            GET_TUNE,
            MEASURE_VERITY,
            GET_NONCE,
        ];
        for (number, check, _) in TABLE {
            assert_eq!(check == Check::Reads, reads.contains(&number), "{number:#x}");
            assert_eq!(TABLE.iter().filter(|row| row.0 == number).count(), 1, "{number:#x}");
        }
    }

    #[test]
    fn only_the_kernels_own_flag_requests_count() {
        let request = Request {
            opcode: crate::abi::op::IOCTL,
            unique: 1,
            nodeid: 1,
            uid: 1000,
            gid: 1000,
            pid: 0,
            body: &[],
        };
        let taken = |flags, command, address, len| {
            let (_, check, _) = TABLE.into_iter().find(|row| row.0 == command).unwrap();
            let call = Call { request: &request, ino: 2, flags, address, input: &[0; 28][..len] };
            let Check::Kernel { bytes, .. } = check else { panic!("{command:#x}") };
            call.is_kernels(bytes) && (command != SETFLAGS_32 || call.is_of_32_bits())
        };
        assert!(taken(0, SETFLAGS, 0, 4), "of the kernel");
        assert!(!taken(0, SETFLAGS, 0x7000_0000, 8), "of a process");
        assert!(!taken(0, SETFLAGS, 0, 8) && !taken(0, SETFLAGS, 0x7000_0000, 4), "of neither");
        assert!(taken(0, FSSETXATTR, 0, 28) && !taken(0, FSSETXATTR, 0x7000_0000, 28));
        assert!(taken(IOCTL_32BIT, SETFLAGS_32, 0, 4), "of a kernel of 32 bits");
        assert!(
            !taken(0, SETFLAGS_32, 0, 4) && !taken(IOCTL_32BIT | IOCTL_COMPAT, SETFLAGS_32, 0, 4)
        );
        assert!(!taken(IOCTL_32BIT, SETFLAGS_32, 0x7000_0000, 4));
    }

    #[test]
    fn xflags_leave_other_flags_alone() {
        let flags = 0x8_0000 | 0x10; // EXTENTS, IMMUTABLE
        assert_eq!(to_xflags(flags), 0x8);
        assert_eq!(from_xflags(flags, 0x210), Ok(0x8_0000 | 0x20 | 0x2000_0000));
        assert_eq!(from_xflags(flags, 0x2), Err(Errno(libc::EOPNOTSUPP)));
    }
}
