//! Requests about file contents: open, read, write, fsync, fallocate, lseek.
//!
//! The only state of an open file is its number, by which an fsync is told of lost changes, and a
//! count in the file system, which keeps the file when its last name is removed. The kernel holds a
//! reference on every inode that it used recently, so without the count most removed files would
//! become orphans for a moment, which costs one more transaction. OPEN is needed anyway: the kernel
//! does not know which files are immutable or append-only, and with a write-back cache an error of
//! the write itself would come too late. A file that was deleted between the kernel's lookup and
//! its open gives ESTALE: the kernel repeats the lookup.
//!
//! An append-only file is opened for writing without the page cache: the write-back of a page does
//! not distinguish an append from an overwrite, and O_APPEND, which the open requires, can be
//! cleared later. So each write arrives as the process made it, its offset decides, and there are
//! no writable mappings. If a file was open before it got the flag, its cached pages are written
//! all the same ([`Author::Cache`]): they were accepted before.
//!
//! Linux sends syncfs(2) only to mounts of block devices (`fuseblk`); elsewhere it only begins to
//! write its own dirty pages back, and does not wait for them. A control request does what syncfs
//! should ([`control`](crate::control)).
//!
//! A write ends where the volume is full, and returns how much it wrote; the write-back of pages
//! writes all of them or fails (see [`Context::write_bytes`]).
//!
//! SEEK_DATA, SEEK_HOLE, places of blocks and an allocation of nothing are answered from the file
//! system's state, but the kernel does not write its dirty pages back before: those of a shared
//! mapping, and with a write-back cache those of any write. So the daemon makes the kernel do so
//! ([`Context::write_back`]). An allocation of some blocks is told as it is: programs that look for
//! holes ask for them then, and du(1) sees what is mapped and dirty once it is written back.
//!
//! *Invariants*
//! - KP-1: an answer about where data is, or that all data is durable, comes after the data that
//!   the kernel held when the request came ([`Context::write_back`],
//!   [`Context::write_back_all`]).

use extol_vfs::{Author, Fallocate, OpenNr, Seek, directly};

use super::names::put_open;
use super::{Context, Outcome, creds};
use crate::abi::{FSYNC_FDATASYNC, WRITE_CACHE, WRITE_KILL_SUIDGID, cap, fopen};
use crate::errno::{Errno, Result};
use crate::init::max_data;
use crate::rights::NOT_TOLD;
use crate::wire::{Opened, Reply, Request};

/// Inode flags that decide what may be opened for writing.
pub(super) const IMMUTABLE: u32 = 0x10;
pub(super) const APPEND: u32 = 0x20;
const VERITY: u32 = 0x10_0000;

fn is_for_writing(flags: i32) -> bool {
    flags & libc::O_ACCMODE != libc::O_RDONLY
}

impl Context<'_> {
    pub(super) fn open(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let flags = request.args().u32()?.cast_signed();
        let writes = is_for_writing(flags);
        let mut how = self.agreed.open_flags();
        if writes || flags & libc::O_TRUNC != 0 {
            let marks = self.fs.getattr(self.ino(request.nodeid)?)?.flags;
            let append_only = flags & libc::O_APPEND != 0 && flags & libc::O_TRUNC == 0;
            if marks & (IMMUTABLE | VERITY) != 0 || (marks & APPEND != 0 && !append_only) {
                return Err(Errno(libc::EPERM));
            }
            if marks & APPEND != 0 {
                how = fopen::DIRECT_IO;
            }
        }
        self.put_file(reply, self.ino(request.nodeid)?, how, flags)
    }

    /// Counts a file as open and appends the open part of a reply: `how` the kernel is to treat it,
    /// and the flags of open(2).
    pub(super) fn put_file(&self, reply: &mut Reply, ino: u32, how: u32, flags: i32) -> Result<()> {
        let open = self.fs.opened(ino)?;
        let writes = is_for_writing(flags);
        if writes {
            self.writers.add(ino);
        }
        reply.opened = Some(Opened { ino, writes });
        put_open(reply, open, how);
        Ok(())
    }

    pub(super) fn release(&self, request: &Request<'_>) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        args.skip(8)?;
        if is_for_writing(args.u32()?.cast_signed()) {
            self.writers.remove(ino);
        }
        self.fs.closed(ino);
        Ok(())
    }

    pub(super) fn read(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        args.skip(8)?;
        let (offset, size) = (args.u64()?, args.u32()?.min(max_data()) as usize);
        let count = self.fs.read(ino, offset, reply.room(size))?;
        reply.truncate_body(count);
        Ok(())
    }

    pub(super) fn write(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        args.skip(8)?;
        let offset = args.u64()?;
        let size = args.u32()? as usize;
        let flags = args.u32()?;
        args.skip(8)?;
        let is_direct = args.u32()? & libc::O_DIRECT as u32 != 0;
        args.skip(4)?;
        let author = if flags & WRITE_CACHE != 0 { Author::Cache } else { author(request) };
        if author == Author::Cache {
            self.writers.note_write_back(ino);
        }
        if flags & WRITE_KILL_SUIDGID != 0 || self.agreed.has(cap::HANDLE_KILLPRIV) {
            match self.kill_privileges(request) {
                // What is written back was accepted before the file became immutable.
                Err(Errno(libc::EPERM)) if author == Author::Cache => {}
                killed => killed?,
            }
        }
        let bytes = args.bytes(size)?;
        let count = match is_direct && author != Author::Cache {
            true => directly(|| self.write_bytes(ino, offset, bytes, author)),
            false => self.write_bytes(ino, offset, bytes, author),
        }?;
        reply.u32(u32::try_from(count).unwrap_or(u32::MAX)).u32(0);
        Ok(())
    }

    fn write_bytes(&self, ino: u32, offset: u64, data: &[u8], author: Author) -> Result<usize> {
        let mut count = self.fs.write_as(ino, offset, data, author)?;
        // The kernel looks at the count only where a process waits for it. Of its write-back it
        // takes any answer that is no error for all of it, and lets go of pages that a full volume
        // had no room for.
        while author == Author::Cache && count < data.len() {
            match self.fs.write_as(ino, offset + count as u64, &data[count..], author)? {
                0 => return Err(Errno(libc::EIO)),
                more => count += more,
            }
        }
        Ok(count)
    }

    pub(super) fn fsync(&self, request: &Request<'_>) -> Result<Outcome> {
        let mut args = request.args();
        let open = OpenNr(args.u64()?);
        let data_only = args.u32()? & FSYNC_FDATASYNC != 0;
        let ino = self.ino(request.nodeid)?;
        let Some(done) = self.server.defer(request) else {
            self.fs.fsync_open(ino, open, data_only)?;
            return Ok(Outcome::Reply);
        };
        self.fs.fsync_then((ino, open), data_only, done, &mut |job| {
            self.server.about_to_wait();
            job();
        });
        Ok(Outcome::NoReply)
    }

    pub(super) fn fallocate(&self, request: &Request<'_>) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        args.skip(8)?;
        let (offset, len, mode) = (args.u64()?, args.u64()?, args.u32()?);
        let keep_size = mode & libc::FALLOC_FL_KEEP_SIZE as u32 != 0;
        let mode = match (mode & !(libc::FALLOC_FL_KEEP_SIZE as u32)) as i32 {
            0 => Fallocate::Allocate { keep_size },
            libc::FALLOC_FL_PUNCH_HOLE if keep_size => Fallocate::PunchHole,
            libc::FALLOC_FL_ZERO_RANGE => Fallocate::ZeroRange { keep_size },
            libc::FALLOC_FL_COLLAPSE_RANGE if !keep_size => Fallocate::CollapseRange,
            libc::FALLOC_FL_INSERT_RANGE if !keep_size => Fallocate::InsertRange,
            _ => return Err(Errno(libc::EOPNOTSUPP)),
        };
        // (The request does not say whether the bits go.)
        if self.agreed.caps & (cap::HANDLE_KILLPRIV | cap::HANDLE_KILLPRIV_V2) != 0 {
            self.kill_privileges_unless_kept(request)?;
        }
        Ok(self.fs.fallocate_as(ino, mode, offset, len, author(request))?)
    }

    pub(super) fn lseek(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        args.skip(8)?;
        let (offset, whence) = (args.u64()?, args.u32()?);
        let what = match whence as i32 {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno(libc::EINVAL)),
        };
        self.write_back(ino)?;
        reply.u64(self.fs.seek(ino, offset, what)?);
        Ok(())
    }

    /// Makes the kernel write back what it holds of a file, and waits until that has arrived
    /// (KP-1). An invalidation of pages does it, while other threads handle the writes. EAGAIN if
    /// there is no other thread.
    pub(crate) fn write_back(&self, ino: u32) -> Result<()> {
        if self.writers.has(ino) { self.write_back_each(&[ino]) } else { Ok(()) }
    }

    /// The same for all files. EOPNOTSUPP if the kernel does not wait for data that is on its way
    /// already, and there may be some.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        if !self.agreed.waits_for_pages && self.writers.any_is_cached() {
            return Err(Errno(libc::EOPNOTSUPP));
        }
        match &self.writers.all()[..] {
            [] => Ok(()),
            all => self.write_back_each(all),
        }
    }

    fn write_back_each(&self, inodes: &[u32]) -> Result<()> {
        let mut each =
            || inodes.iter().for_each(|&ino| self.server.invalidate(self.nodeid(ino), 0));
        if self.server.wait_for_others(&mut each) { Ok(()) } else { Err(Errno(libc::EAGAIN)) }
    }
}

impl Context<'_> {
    /// FIBMAP, which Linux passes on for mounts of block devices: where on the device a block of a
    /// file is, in blocks of the kernel's choice (a page); 0 for a hole. EINVAL for what these
    /// blocks cannot say: blocks of the file system may be smaller, and lie anywhere. Data that has
    /// no place yet gets one first.
    pub(super) fn bmap(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        let (block, size) = (args.u64()?, u64::from(args.u32()?));
        let offset = block.checked_mul(size).filter(|_| size > 0).ok_or(Errno(libc::EINVAL))?;
        self.write_back(ino)?;
        let mut extents = self.fs.fiemap(ino, offset, size)?;
        if extents.iter().any(|extent| extent.delayed) {
            self.fs.fsync(ino, true)?;
            extents = self.fs.fiemap(ino, offset, size)?;
        }
        let end = offset.saturating_add(size).min(self.fs.getattr(ino)?.size);
        let mut data = extents.iter().filter(|e| !e.unwritten && !e.inline);
        reply.u64(match data.next() {
            None => 0,
            Some(e) if e.logical <= offset && e.logical + e.len >= end => {
                let place = e.physical + (offset - e.logical);
                if !place.is_multiple_of(size) {
                    return Err(Errno(libc::EINVAL));
                }
                place / size
            }
            Some(_) => return Err(Errno(libc::EINVAL)),
        });
        Ok(())
    }
}

/// The author of a change that a request makes.
fn author(request: &Request<'_>) -> Author {
    if request.uid == NOT_TOLD { Author::Owner } else { Author::Process(creds(request)) }
}
