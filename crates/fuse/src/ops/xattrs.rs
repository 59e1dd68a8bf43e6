//! Extended attributes, and the virtual ones of the root: two that describe the mount, and the
//! requests of [`control`].

use extol_vfs::XattrSet;

use super::Context;
use crate::abi::{ROOT_NODE, SETXATTR_ACL_KILL_SGID, cap};
use crate::control::{self, WrittenBack};
use crate::errno::{Errno, Result};
use crate::rights::Caller;
use crate::wire::{Reply, Request};

/// Extended attribute of the root whose value is
/// [`stats_json`](extol_vfs::VolumeControl::stats_json). It is served by the front end, is not
/// listed, and cannot be set.
pub const STATS_XATTR: &str = "user.extol.stats";

/// Extended attribute of the root that names the process that serves the mount: a decimal process
/// id.
pub const DAEMON_XATTR: &str = "user.extol.daemon";

/// Largest value and largest list of names, as for every file system on Linux.
const MAX_SIZE: usize = 65536;

impl Context<'_> {
    pub(super) fn setxattr(&self, request: &Request<'_>) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        let (size, flags) = (args.u32()? as usize, args.u32()?);
        let mut kill_sgid = false;
        if self.agreed.has(cap::SETXATTR_EXT) {
            kill_sgid = args.u32()? & SETXATTR_ACL_KILL_SGID != 0;
            args.skip(4)?;
        }
        let name = args.name()?;
        let value = args.bytes(size)?;
        if is_virtual(request.nodeid, name) {
            return Err(Errno(libc::EPERM));
        }
        let how = match flags as i32 {
            0 => XattrSet::Any,
            libc::XATTR_CREATE => XattrSet::Create,
            libc::XATTR_REPLACE => XattrSet::Replace,
            // Both at once never fits, and Linux says which of them did not.
            both if both == libc::XATTR_CREATE | libc::XATTR_REPLACE => {
                self.fs.getxattr(ino, name)?;
                return Err(Errno(libc::EEXIST));
            }
            _ => return Err(Errno(libc::EINVAL)),
        };
        self.fs.setxattr(ino, name, value, how)?;
        if kill_sgid {
            let perm = self.fs.getattr(ino)?.perm;
            if perm & 0o2000 != 0 {
                let set = extol_vfs::SetAttr { perm: Some(perm & !0o2000), ..Default::default() };
                self.fs.setattr(ino, &set)?;
            }
        }
        Ok(())
    }

    pub(super) fn getxattr(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let mut args = request.args();
        let size = args.u32()?;
        args.skip(4)?;
        let name = args.name()?;
        if let Some(command) = control::request(name).filter(|_| request.nodeid == ROOT_NODE) {
            if size == 0 {
                // A request is made once, with room for the answer.
                return Err(Errno(libc::ERANGE));
            }
            self.server.about_to_wait();
            match control::check(self.owner, request, command)? {
                WrittenBack::Nothing => {}
                WrittenBack::File(ino) => self.write_back(ino)?,
                WrittenBack::All => self.write_back_all()?,
            }
            let answer = control::answer(self.fs, command.1)?;
            let outdated = self.fs.take_outdated();
            if !outdated.is_empty() {
                self.server.drop_caches(outdated);
            }
            return put_sized(reply, size, &answer);
        }
        if is_virtual(request.nodeid, name) {
            return put_sized(reply, size, &self.virtual_value(name));
        }
        put_sized(reply, size, &self.fs.getxattr(ino, name)?)
    }

    pub(super) fn listxattr(&self, request: &Request<'_>, reply: &mut Reply) -> Result<()> {
        let ino = self.ino(request.nodeid)?;
        let size = request.args().u32()?;
        let mut list = Vec::new();
        let mut sees = None;
        for name in self.fs.listxattr(ino)? {
            // Only a process with CAP_SYS_ADMIN may even know of these.
            if name.starts_with(b"trusted.")
                && !*sees.get_or_insert_with(|| self.sees_trusted(request))
            {
                continue;
            }
            list.extend_from_slice(&name);
            list.push(0);
        }
        put_sized(reply, size, &list)
    }

    pub(super) fn removexattr(&self, request: &Request<'_>) -> Result<()> {
        let name = request.args().name()?;
        if is_virtual(request.nodeid, name) {
            return Err(Errno(libc::EPERM));
        }
        Ok(self.fs.removexattr(self.ino(request.nodeid)?, name)?)
    }

    fn sees_trusted(&self, request: &Request<'_>) -> bool {
        let caller = Caller::of(self.owner, request);
        caller.map_or(request.uid == 0, |caller| caller.sees_trusted())
    }

    fn virtual_value(&self, name: &[u8]) -> Vec<u8> {
        if name == STATS_XATTR.as_bytes() {
            self.counts.add_to(&self.fs.stats_json(), self.transport).into_bytes()
        } else {
            std::process::id().to_string().into_bytes()
        }
    }
}

fn is_virtual(nodeid: u64, name: &[u8]) -> bool {
    let mine = name == STATS_XATTR.as_bytes() || name == DAEMON_XATTR.as_bytes();
    nodeid == ROOT_NODE && (mine || control::request(name).is_some())
}

/// Answers with the size if the caller asks for it (`room` 0), else with the bytes if they fit.
fn put_sized(reply: &mut Reply, room: u32, bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_SIZE {
        return Err(Errno(libc::E2BIG));
    }
    if room == 0 {
        reply.u32(bytes.len() as u32).u32(0);
    } else if bytes.len() > room as usize {
        return Err(Errno(libc::ERANGE));
    } else {
        reply.bytes(bytes);
    }
    Ok(())
}
