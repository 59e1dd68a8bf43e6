//! Requests about names: lookup and forget, making, linking, removing, renaming.
//!
//! A lookup that finds nothing is answered with node id 0, so the kernel caches that the name does
//! not exist. `.` and `..` are looked up for file handles (NFS, `open_by_handle_at`): `.`
//! names an inode by its number, on which there may be no reference, and the kernel compares the
//! generation in the answer with that in the handle.
//!
//! CREATE without O_EXCL is sent for a name that is not there as far as the kernel knows. If it is
//! there all the same, as it may be once a stopped volume was opened again, the answer is ESTALE:
//! the kernel looks the name up anew and opens what it finds, with its own check of permissions and
//! O_TRUNC. An answer with the file would say that it was made, and the kernel would do neither.

use extol_vfs::{FsError, NewNode, OpenNr, RenameFlags};

use super::{Context, creds, decode_device};
use crate::abi::{ENTRY_OUT, ROOT_NODE, op};
use crate::errno::{Errno, Result};
use crate::wire::{Reply, Request};

impl Context<'_> {
    pub(super) fn lookup(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let name = request.args().name()?;
        let dir = self.ino(request.nodeid)?;
        let found = match name {
            b"." => self.fs.open_by_number(dir),
            _ => self.fs.lookup(dir, name),
        };
        match found {
            Ok(attr) => {
                self.put_entry(reply, &attr)?;
                // The kernel asks for `.` only if it has the inode no more: unlinked, it is on its
                // way out.
                if name == b"." && attr.nlink == 0 { Err(FsError::Stale.into()) } else { Ok(()) }
            }
            Err(FsError::NotFound) => {
                reply.u64(0).u64(0).u64(self.name_valid()).zeros(ENTRY_OUT - 24);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// FORGET and BATCH_FORGET.
    pub(super) fn forget(&self, request: &Request<'_>) -> Result<()> {
        let mut args = request.args();
        if request.opcode == op::FORGET {
            self.forget_node(request.nodeid, args.u64()?);
            return Ok(());
        }
        let entries = args.u32()?;
        args.skip(4)?;
        for _ in 0..entries {
            let (nodeid, count) = (args.u64()?, args.u64()?);
            self.forget_node(nodeid, count);
        }
        Ok(())
    }

    fn forget_node(&self, nodeid: u64, count: u64) {
        if nodeid != ROOT_NODE
            && count > 0
            && let Ok(ino) = self.ino(nodeid)
        {
            self.fs.forget(ino, count);
        }
    }

    pub(super) fn readlink(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        reply.bytes(&self.fs.readlink(self.ino(request.nodeid)?)?);
        Ok(())
    }

    fn make(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
        new: NewNode,
        made: Made<'_>,
    ) -> Result<u32> {
        let dir = self.ino(request.nodeid)?;
        let perm = (made.mode & 0o7777) as u16;
        let umask = (made.umask & 0o777) as u16;
        let attr = self.fs.create(dir, made.name, new, perm, umask, creds(request))?;
        self.put_entry(reply, &attr)?;
        Ok(attr.id.ino)
    }

    pub(super) fn symlink(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let mut args = request.args();
        let name = args.name()?;
        let target = args.name()?;
        let new = NewNode::Symlink(target.to_vec());
        self.make(request, reply, new, Made { name, mode: 0o777, umask: 0 }).map(drop)
    }

    pub(super) fn mknod(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let mut args = request.args();
        let (mode, device, umask) = (args.u32()?, args.u32()?, args.u32()?);
        args.skip(4)?;
        let name = args.name()?;
        let device = decode_device(device);
        let new = NewNode::of_mode(mode, device).ok_or(Errno(libc::EINVAL))?;
        self.make(request, reply, new, Made { name, mode, umask }).map(drop)
    }

    pub(super) fn mkdir(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let mut args = request.args();
        let (mode, umask) = (args.u32()?, args.u32()?);
        let name = args.name()?;
        self.make(request, reply, NewNode::Directory, Made { name, mode, umask }).map(drop)
    }

    pub(super) fn create(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let mut args = request.args();
        let flags = args.u32()?.cast_signed();
        let (mode, umask) = (args.u32()?, args.u32()?);
        args.skip(4)?;
        let name = args.name()?;
        let made = self.make(request, reply, NewNode::Regular, Made { name, mode, umask });
        let ino = match made {
            Err(Errno(libc::EEXIST)) if flags & libc::O_EXCL == 0 => {
                return Err(FsError::Stale.into());
            }
            made => made?,
        };
        self.put_file(reply, ino, self.agreed.open_flags(), flags)
    }

    pub(super) fn tmpfile(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let mut args = request.args();
        let flags = args.u32()?.cast_signed();
        let (mode, umask) = (args.u32()?, args.u32()?);
        let dir = self.ino(request.nodeid)?;
        let (perm, umask) = ((mode & 0o7777) as u16, (umask & 0o777) as u16);
        let attr = self.fs.create_unnamed(dir, perm, umask, creds(request))?;
        self.put_entry(reply, &attr)?;
        self.put_file(reply, attr.id.ino, self.agreed.open_flags(), flags)
    }

    pub(super) fn link(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let mut args = request.args();
        let ino = self.ino(args.u64()?)?;
        let dir = self.ino(request.nodeid)?;
        let attr = self.fs.link(ino, dir, args.name()?)?;
        self.put_entry(reply, &attr)
    }

    pub(super) fn unlink(&self, request: &Request<'_>) -> Result<()> {
        Ok(self.fs.unlink(self.ino(request.nodeid)?, request.args().name()?)?)
    }

    pub(super) fn rmdir(&self, request: &Request<'_>) -> Result<()> {
        Ok(self.fs.rmdir(self.ino(request.nodeid)?, request.args().name()?)?)
    }

    pub(super) fn rename(&self, request: &Request<'_>, with_flags: bool) -> Result<()> {
        let mut args = request.args();
        let new_dir = self.ino(args.u64()?)?;
        let mut flags = RenameFlags::empty();
        if with_flags {
            flags = RenameFlags::from_bits(args.u32()?).ok_or(Errno(libc::EINVAL))?;
            args.skip(4)?;
        }
        let name = args.name()?;
        let new_name = args.name()?;
        Ok(self.fs.rename(self.ino(request.nodeid)?, name, new_dir, new_name, flags)?)
    }
}

/// What a new name gets.
struct Made<'a> {
    name: &'a [u8],
    mode: u32,
    umask: u32,
}

/// Appends the open part of a reply; the handle is the number of the open.
pub(super) fn put_open(reply: &mut Reply, open: OpenNr, flags: u32) {
    reply.u64(open.0).u32(flags).u32(0);
}
