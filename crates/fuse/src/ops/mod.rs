//! The requests, one function each, in files by subject. They use the file system through `vfs`
//! only and append their result to a [`Reply`]. [`handle`](crate::handle) deals with errors and
//! panics; the transports send the replies.

mod attrs;
mod data;
mod dirs;
mod ioctl;
mod names;
mod verity;
mod xattrs;

pub use xattrs::{DAEMON_XATTR, STATS_XATTR};

use extol_vfs::{Attr, Creds, Done, Mountable, Rdev, Timestamp, acting_for};

use crate::abi::{ROOT_NODE, op};
use crate::config::Transport;
use crate::counts::Counts;
use crate::errno::{Errno, Result};
use crate::init::Agreed;
use crate::interrupts::Interrupts;
use crate::pool;
use crate::rights::{NOT_TOLD, Owner};
use crate::wire::{Opened, Reply, Request};
use crate::writers::Writers;

/// Seconds for which names and attributes stay valid in the kernel: only this daemon changes the
/// volume.
const VALID: u64 = 24 * 60 * 60;

/// Whether the thread that has worked on a request sends a reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The reply is to be sent.
    Reply,
    /// Another thread sends it later, or this kind of request has none.
    NoReply,
}

/// The thread that serves a request: what its transport can do for it.
pub(crate) trait Server {
    /// Makes the kernel drop the cached attributes of a node, and its cached pages from `offset` on
    /// unless that is negative. The kernel writes dirty pages back before.
    fn invalidate(&self, nodeid: u64, offset: i64);

    /// Calls `wait`, which waits for other requests, while other threads serve them. False if there
    /// would be no such thread; then `wait` is not called.
    fn wait_for_others(&self, wait: &mut dyn FnMut()) -> bool;

    /// Makes the kernel drop all that it caches of these inodes, and all names.
    fn drop_caches(&self, _inodes: Vec<u32>) {}

    /// This thread is going to wait for a device: another one takes requests.
    fn about_to_wait(&self) {}

    /// The reply to the request, to be sent later by any thread, if that is possible. If it is
    /// dropped instead, EIO is sent.
    fn defer(&self, _request: &Request<'_>) -> Option<Done> {
        None
    }

    /// Its number, if it is a worker of `/dev/fuse`.
    fn worker(&self) -> Option<pool::Id> {
        None
    }
}

/// Everything a handler needs.
pub(crate) struct Context<'a> {
    pub(crate) fs: &'a dyn Mountable,
    pub(crate) root: u32,
    pub(crate) agreed: Agreed,
    pub(crate) server: &'a dyn Server,
    pub(crate) counts: &'a Counts,
    pub(crate) writers: &'a Writers,
    pub(crate) interrupts: &'a Interrupts,
    pub(crate) transport: Transport,
    pub(crate) owner: &'a Owner,
}

/// Works on one request.
pub(crate) fn dispatch(
    context: &Context<'_>,
    request: &Request<'_>,
    reply: &mut Reply,
) -> Result<Outcome> {
    context.counts.note(request.opcode);
    if let Some(user) = context.agreed.only_user
        && request.uid != user
        && request.uid != 0
        && !is_for_open_file(request.opcode)
    {
        return Err(Errno(libc::EACCES));
    }
    let caller = (request.uid != NOT_TOLD).then(|| creds(request));
    acting_for(caller, || work(context, request, reply))
}

fn work(context: &Context<'_>, request: &Request<'_>, reply: &mut Reply) -> Result<Outcome> {
    match request.opcode {
        op::LOOKUP => context.lookup(request, reply),
        op::FORGET | op::BATCH_FORGET => {
            // What cannot be decoded has no reply either.
            let _ = context.forget(request);
            return Ok(Outcome::NoReply);
        }
        op::INTERRUPT => {
            if let Ok(unique) = request.args().u64() {
                context.interrupts.note(unique);
            }
            return Ok(Outcome::NoReply);
        }
        op::GETATTR => context.getattr(request, reply),
        op::STATX => context.statx(request, reply),
        op::SETATTR => context.setattr(request, reply),
        op::READLINK => context.readlink(request, reply),
        op::SYMLINK => context.symlink(request, reply),
        op::MKNOD => context.mknod(request, reply),
        op::MKDIR => context.mkdir(request, reply),
        op::CREATE => context.create(request, reply),
        op::TMPFILE => context.tmpfile(request, reply),
        op::LINK => context.link(request, reply),
        op::UNLINK => context.unlink(request),
        op::RMDIR => context.rmdir(request),
        op::RENAME => context.rename(request, false),
        op::RENAME2 => context.rename(request, true),
        op::OPEN => context.open(request, reply),
        op::OPENDIR => context.opendir(reply),
        op::READ => context.read(request, reply),
        op::WRITE => context.write(request, reply),
        op::RELEASE => context.release(request),
        op::RELEASEDIR => Ok(()),
        op::DESTROY => Ok(context.fs.unmounted()?),
        op::FSYNC | op::FSYNCDIR => return context.fsync(request),
        op::SYNCFS => Ok(context.fs.sync()?),
        op::STATFS => context.statfs(request, reply),
        op::FALLOCATE => context.fallocate(request),
        op::LSEEK => context.lseek(request, reply),
        op::BMAP => context.bmap(request, reply),
        op::READDIR => context.readdir(request, reply, false),
        op::READDIRPLUS => context.readdir(request, reply, true),
        op::SETXATTR => context.setxattr(request),
        op::GETXATTR => context.getxattr(request, reply),
        op::LISTXATTR => context.listxattr(request, reply),
        op::REMOVEXATTR => context.removexattr(request),
        op::IOCTL => context.ioctl(request, reply),
        // Flush, locks, access, poll, copy_file_range …: the kernel does without these.
        _ => Err(Errno(libc::ENOSYS)),
    }?;
    Ok(Outcome::Reply)
}

/// True for a request about what is open already, by whichever user: an open file may have been
/// handed on, and the kernel reads ahead and writes back in the name of any.
fn is_for_open_file(opcode: u32) -> bool {
    let of_file = [op::READ, op::WRITE, op::FSYNC, op::RELEASE, op::FALLOCATE, op::LSEEK];
    let of_dir = [op::READDIR, op::READDIRPLUS, op::FSYNCDIR, op::RELEASEDIR];
    let of_kernel = [op::FORGET, op::BATCH_FORGET, op::INTERRUPT, op::DESTROY];
    of_file.contains(&opcode) || of_dir.contains(&opcode) || of_kernel.contains(&opcode)
}

/// Gives back what a reply carries that is an error or is not delivered.
pub(crate) fn take_back(fs: &dyn Mountable, writers: &Writers, reply: &mut Reply<'_>) {
    if let Some(Opened { ino, writes }) = reply.opened.take() {
        if writes {
            writers.remove(ino);
        }
        fs.closed(ino);
    }
    reply.references.drain(..).for_each(|ino| fs.forget(ino, 1));
}

impl Context<'_> {
    /// The inode of a node id.
    fn ino(&self, nodeid: u64) -> Result<u32> {
        match nodeid {
            ROOT_NODE => Ok(self.root),
            _ => u32::try_from(nodeid).map_err(|_| Errno(libc::ESTALE)),
        }
    }

    /// The node id of an inode.
    fn nodeid(&self, ino: u32) -> u64 {
        if ino == self.root { ROOT_NODE } else { u64::from(ino) }
    }

    /// Appends the entry part of a reply and remembers the reference that it carries.
    fn put_entry(&self, reply: &mut Reply, attr: &Attr) -> Result<()> {
        reply.references.push(attr.id.ino);
        if u64::from(attr.id.ino) == ROOT_NODE && self.root != attr.id.ino {
            // Cannot be told from the root; no sound volume names this inode.
            return Err(Errno(libc::EUCLEAN));
        }
        reply
            .u64(self.nodeid(attr.id.ino))
            .u64(attr.id.generation.into())
            .u64(self.name_valid())
            .u64(VALID)
            .u64(0);
        self.put_attr(reply, attr);
        Ok(())
    }

    /// Seconds for which a name, or that it is missing, stays valid in the kernel, which knows of
    /// no other spellings: none where there may be some.
    fn name_valid(&self) -> u64 {
        if self.fs.names_have_spellings() { 0 } else { VALID }
    }

    /// Appends a `fuse_attr` (88 bytes).
    fn put_attr(&self, reply: &mut Reply, attr: &Attr) {
        let shown = self.agreed.shown;
        reply.u64(attr.id.ino.into()).u64(attr.size).u64(attr.blocks);
        let times = [attr.atime, attr.mtime, attr.ctime];
        for time in times {
            reply.u64(time.sec as u64);
        }
        for time in times {
            reply.u32(time.nsec);
        }
        reply
            .u32(attr.kind.mode_bits() | shown.perm(attr.perm))
            .u32(attr.nlink)
            .u32(shown.uid.unwrap_or(attr.uid))
            .u32(shown.gid.unwrap_or(attr.gid))
            .u32(encode_device(attr.rdev))
            .u32(attr.blksize)
            .u32(0);
    }
}

fn creds(request: &Request<'_>) -> Creds {
    Creds { uid: request.uid, gid: request.gid }
}

/// The kernel's 32-bit form of a device number: 12 bits of major, 20 bits of minor.
fn encode_device(device: Rdev) -> u32 {
    (device.minor & 0xff) | ((device.major & 0xfff) << 8) | ((device.minor & 0xf_ff00) << 12)
}

fn decode_device(device: u32) -> Rdev {
    Rdev { major: (device >> 8) & 0xfff, minor: (device & 0xff) | ((device >> 12) & 0xf_ff00) }
}

fn timestamp(sec: u64, nsec: u32) -> Timestamp {
    Timestamp { sec: sec as i64, nsec: nsec.min(999_999_999) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_survive() {
        for (major, minor) in [(0, 0), (8, 1), (259, 70_000), (0xfff, 0xf_ffff)] {
            let device = Rdev { major, minor };
            assert_eq!(decode_device(encode_device(device)), device);
        }
        assert_eq!(encode_device(Rdev { major: 8, minor: 1 }), 0x801);
    }
}
