//! Requests about attributes: getattr, statx, setattr, statfs.
//!
//! Set-id bits: with `HANDLE_KILLPRIV_V2` the daemon clears them in each request that the kernel
//! marks (`KILL_SUIDGID`); with the older `HANDLE_KILLPRIV` in every chown, truncate and write;
//! without both the kernel sends the new mode itself. The mark says that the caller has no
//! CAP_FSETID (a chown always has it), and nothing about the file's group: a set-group-id bit
//! without group execution is cleared only if the caller is not in that group, which the daemon
//! finds out ([`Context::is_outsider`]). A fallocate has no mark.

use extol_vfs::{Attr, FileKind, SetAttr, SetTime};

use super::data::{APPEND, IMMUTABLE};
use super::{Context, VALID, timestamp};
use crate::abi::{cap, fattr};
use crate::errno::{Errno, Result};
use crate::rights::{Caller, NOT_TOLD};
use crate::wire::{Reply, Request};

/// What a SETATTR can set.
const ATTRIBUTES: [u32; 6] =
    [fattr::MODE, fattr::UID, fattr::GID, fattr::SIZE, fattr::ATIME, fattr::MTIME];

impl Context<'_> {
    pub(super) fn getattr(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let attr = self.attributes(request)?;
        reply.u64(VALID).u64(0);
        self.put_attr(reply, &attr);
        Ok(())
    }

    pub(super) fn statx(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let attr = self.attributes(request)?;
        let shown = self.agreed.shown;
        let mode = attr.kind.mode_bits() | shown.perm(attr.perm);
        reply.u64(VALID).u32(0).u32(0).zeros(16);
        reply
            .u32(libc::STATX_BASIC_STATS | libc::STATX_BTIME)
            .u32(attr.blksize)
            .u64(0)
            .u32(attr.nlink)
            .u32(shown.uid.unwrap_or(attr.uid))
            .u32(shown.gid.unwrap_or(attr.gid))
            .u16(mode as u16)
            .u16(0)
            .u64(attr.id.ino.into())
            .u64(attr.size)
            .u64(attr.blocks)
            .u64(0);
        for time in [attr.atime, attr.crtime, attr.ctime, attr.mtime] {
            reply.u64(time.sec as u64).u32(time.nsec).u32(0);
        }
        reply.u32(attr.rdev.major).u32(attr.rdev.minor).zeros(8 + 112);
        Ok(())
    }

    /// The attributes of the node. Programs take a file that has a size and no blocks for one
    /// hole, and do not even look for data in it. So what the kernel holds of such a file is
    /// written back first (where a thread can wait for that), and its blocks are counted.
    fn attributes(&self, request: &Request<'_>) -> Result<Attr> {
        let ino = self.ino(request.nodeid)?;
        let attr = self.fs.getattr(ino)?;
        let is_hole = attr.kind == FileKind::Regular && attr.size > 0 && attr.blocks == 0;
        if is_hole && self.writers.has(ino) && self.write_back(ino).is_ok() {
            return Ok(self.fs.getattr(ino)?);
        }
        Ok(attr)
    }

    pub(super) fn setattr(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        let valid = args.u32()?;
        args.skip(4 + 8)?;
        let size = args.u64()?;
        args.skip(8)?;
        let seconds = [args.u64()?, args.u64()?, args.u64()?];
        let nanoseconds = [args.u32()?, args.u32()?, args.u32()?];
        let mode = args.u32()?;
        args.skip(4)?;
        let (uid, gid) = (args.u32()?, args.u32()?);

        let has = |bit| valid & bit != 0;
        let at = |n: usize| timestamp(seconds[n], nanoseconds[n]);
        let time = |n: usize, now| if has(now) { SetTime::Now } else { SetTime::At(at(n)) };
        let set = SetAttr {
            perm: has(fattr::MODE).then_some((mode & 0o7777) as u16),
            uid: has(fattr::UID).then_some(uid),
            gid: has(fattr::GID).then_some(gid),
            size: has(fattr::SIZE).then_some(size),
            atime: has(fattr::ATIME).then(|| time(0, fattr::ATIME_NOW)),
            mtime: if has(fattr::MTIME) {
                Some(time(1, fattr::MTIME_NOW))
            } else {
                // A handle, or a truncating open: both times move, even if the size stays.
                (has(fattr::SIZE) && (has(fattr::FH) || size == 0)).then_some(SetTime::Now)
            },
            ctime: if has(fattr::CTIME) {
                Some(SetTime::At(at(2)))
            } else {
                // chown(2) that changes nothing.
                (!ATTRIBUTES.into_iter().any(has)).then_some(SetTime::Now)
            },
            ..SetAttr::default()
        };
        let kill = has(fattr::KILL_SUIDGID)
            || (self.agreed.has(cap::HANDLE_KILLPRIV)
                && has(fattr::SIZE | fattr::UID | fattr::GID));
        if kill {
            let marks = self.fs.getattr(ino)?.flags;
            if marks & (IMMUTABLE | APPEND) != 0 {
                return Err(Errno(libc::EPERM));
            }
            // First, so that no crash leaves a file with a new owner and old privileges.
            let owner = has(fattr::UID | fattr::GID);
            self.kill_as(request, owner)?;
        }
        let attr = self.fs.setattr(ino, &set)?;
        reply.u64(VALID).u64(0);
        self.put_attr(reply, &attr);
        Ok(())
    }

    /// Clears set-id bits and file capabilities on behalf of a write, and tells the kernel.
    pub(super) fn kill_privileges(&self, request: &Request<'_>) -> Result<()> {
        let had = self.fs.getattr(self.ino(request.nodeid)?)?.perm & 0o6000 != 0;
        self.kill_as(request, false)?;
        if had {
            self.server.invalidate(request.nodeid, -1);
        }
        Ok(())
    }

    /// The same where the kernel does not say whether the caller has CAP_FSETID. (File capabilities
    /// it takes off itself.)
    pub(super) fn kill_privileges_unless_kept(&self, request: &Request<'_>) -> Result<()> {
        let had = self.fs.getattr(self.ino(request.nodeid)?)?.perm & 0o6000 != 0;
        let kept = || Caller::of(self.owner, request).is_some_and(|caller| caller.keeps_set_id());
        if had && !kept() { self.kill_privileges(request) } else { Ok(()) }
    }

    /// Clears them. `may_keep`: nothing says yet that the caller has no CAP_FSETID.
    fn kill_as(&self, request: &Request<'_>, may_keep: bool) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let attr = self.fs.getattr(ino)?;
        // Looking is for the odd case only.
        let odd = attr.perm & 0o2010 == 0o2000;
        let outsider = odd && self.is_outsider(request, attr.gid, may_keep);
        Ok(self.fs.kill_privileges(ino, outsider)?)
    }

    /// True unless the caller is in the group, or `may_keep` set-id bits and does. What is not
    /// known is not so.
    fn is_outsider(&self, request: &Request<'_>, group: u32, may_keep: bool) -> bool {
        if request.gid == group {
            return false;
        }
        let caller = Caller::of(self.owner, request);
        // Where bind mounts map owners, a group of the caller is not the file's of the same number.
        let same = request.gid != NOT_TOLD;
        !caller.is_some_and(|caller| {
            (same && caller.is_in(group)) || (may_keep && caller.keeps_set_id())
        })
    }

    pub(super) fn statfs(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let stat = self.fs.statfs_at(self.ino(request.nodeid)?)?;
        reply
            .u64(stat.blocks)
            .u64(stat.blocks_free)
            .u64(stat.blocks_available)
            .u64(stat.inodes)
            .u64(stat.inodes_free)
            .u32(stat.block_size)
            .u32(stat.name_max)
            .u32(stat.block_size)
            .zeros(4 + 24);
        Ok(())
    }
}
