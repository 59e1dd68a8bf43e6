//! Directory listings, plain and with attributes.
//!
//! A listing with attributes ("plus") carries a reference for every entry except `.` and `..`, for
//! which the kernel takes none: these have node id 0. An entry whose inode cannot be read has node
//! id 0 as well, so that one bad inode does not hide its neighbours.
//!
//! Attributes are fetched by inode number where the file system can. The kernel holds the
//! directory's lock during the request, so the name and the number still belong together.

use extol_vfs::{DirEntry, FsError, OpenNr};

use super::Context;
use super::names::put_open;
use crate::abi::{DIRENT, ENTRY_OUT, cap, fopen};
use crate::errno::{Errno, Result};
use crate::init::max_data;
use crate::wire::{Reply, Request};

impl Context<'_> {
    pub(super) fn opendir(&self, reply: &mut Reply) -> Result<()> {
        if self.agreed.has(cap::NO_OPENDIR_SUPPORT) {
            return Err(Errno(libc::ENOSYS));
        }
        put_open(reply, OpenNr::default(), fopen::KEEP_CACHE | fopen::CACHE_DIR);
        Ok(())
    }

    pub(super) fn readdir(
        &self,
        request: &Request<'_>,
        reply: &mut Reply,
        plus: bool,
    ) -> Result<()> {
        let dir = self.ino(request.nodeid)?;
        let mut args = request.args();
        args.skip(8)?;
        let (cookie, size) = (args.u64()?, args.u32()?.min(max_data()) as usize);
        let mut failed = Ok(());
        let read = self.fs.readdir(dir, cookie, &mut |entry| {
            let len =
                (DIRENT + entry.name.len()).next_multiple_of(8) + if plus { ENTRY_OUT } else { 0 };
            if reply.body_len() + len > size {
                return false;
            }
            if plus {
                failed = self.put_plus(reply, dir, &entry);
            }
            if failed.is_ok() {
                put_dirent(reply, &entry);
            }
            failed.is_ok()
        });
        match failed.and(read.map_err(Errno::from)) {
            // What was read before the error goes out first; the next request meets the error
            // again.
            Err(error) if reply.body_len() == 0 => Err(error),
            _ => Ok(()),
        }
    }

    fn put_plus(&self, reply: &mut Reply, dir: u32, entry: &DirEntry) -> Result<()> {
        let before = reply.body_len();
        if entry.name != b"." && entry.name != b".." {
            let found = match self.fs.open_entry(dir, entry.ino) {
                Err(FsError::Stale) => self.fs.lookup(dir, &entry.name),
                found => found,
            };
            if let Ok(attr) = found {
                let put = self.put_entry(reply, &attr);
                if put.is_err() {
                    reply.truncate_body(before);
                }
                return put;
            }
        }
        reply.zeros(ENTRY_OUT);
        Ok(())
    }
}

fn put_dirent(reply: &mut Reply, entry: &DirEntry) {
    let kind = entry.kind.map_or(0, |kind| kind.mode_bits() >> 12);
    reply.u64(entry.ino.into()).u64(entry.cookie);
    reply.u32(u32::try_from(entry.name.len()).unwrap_or(u32::MAX)).u32(kind);
    reply.bytes(&entry.name).zeros(entry.name.len().next_multiple_of(8) - entry.name.len());
}
