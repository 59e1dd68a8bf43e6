//! Calls about names.

use extol::path::Inode;
use extol::vfs::{Creds, FileKind, FileSystem, NewNode, Rdev, RenameFlags as Flags};
use rustix::fs::{FileType, RenameFlags};
use rustix::io::Errno;

use super::access::{READ, WRITE};
use super::walk::Last;
use super::{Library, attr, errno};
use crate::posix::Result;

impl Library {
    /// The place of a new name: everything that Linux checks before it asks the file system.
    fn place<'p>(&self, path: &'p str, is_dir: bool) -> Result<Last<'p>> {
        let last = self.free_name(path, is_dir)?;
        self.may_create(&last.dir)?;
        Ok(last)
    }

    /// A name that is not there yet.
    fn free_name<'p>(&self, path: &'p str, is_dir: bool) -> Result<Last<'p>> {
        let last = self.parent(path)?;
        if !last.is_name() {
            return Err(Errno::EXIST);
        }
        match self.find(&last) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) if last.slash && !is_dir => Err(Errno::NOENT),
            Err(Errno::NOENT) => Ok(last),
            Err(e) => Err(e),
        }
    }

    pub(super) fn creds(&self) -> Creds {
        Creds { uid: self.caller.uid, gid: self.caller.gid }
    }

    pub(super) fn make(&self, path: &str, new: NewNode, mode: u32) -> Result<()> {
        let last = self.place(path, new == NewNode::Directory)?;
        let umask = if matches!(new, NewNode::Symlink(_)) { 0 } else { self.caller.umask };
        let perm = match new {
            NewNode::Directory => mode as u16,
            _ => self.new_mode(&last.dir, mode)?,
        };
        let (dir, name) = (last.dir.ino(), last.name.as_bytes());
        let made = self.fs().create(dir, name, new, perm, umask as u16, self.creds());
        drop(Inode::from_attr(&self.fs(), &made.map_err(errno)?));
        Ok(())
    }

    /// The mode of a new file: in a set-group directory of a strange group it cannot be set-group
    /// itself.
    pub(super) fn new_mode(&self, dir: &Inode, mode: u32) -> Result<u16> {
        let d = attr(dir)?;
        let strange = d.perm & 0o2000 != 0 && !self.is_root() && !self.in_group(d.gid);
        let tool = mode & 0o2010 == 0o2010;
        let perm = (mode & 0o7777) as u16;
        Ok(if strange && tool { perm & !0o2000 } else { perm })
    }

    pub(super) fn do_mknod(
        &self,
        path: &str,
        kind: FileType,
        mode: u32,
        dev: (u32, u32),
    ) -> Result<()> {
        let dev = Rdev { major: dev.0, minor: dev.1 };
        let new = match kind {
            FileType::RegularFile => NewNode::Regular,
            FileType::CharacterDevice => NewNode::CharDevice(dev),
            FileType::BlockDevice => NewNode::BlockDevice(dev),
            FileType::Fifo => NewNode::Fifo,
            FileType::Socket => NewNode::Socket,
            FileType::Directory => return Err(Errno::PERM),
            _ => return Err(Errno::INVAL),
        };
        // Every user may make the device 0,0: it is a whiteout.
        let whiteout = new == NewNode::CharDevice(Rdev::default());
        let device = matches!(new, NewNode::CharDevice(_) | NewNode::BlockDevice(_)) && !whiteout;
        if device && !self.is_root() {
            self.place(path, false)?;
            return Err(Errno::PERM);
        }
        self.make(path, new, mode & 0o7777)
    }

    pub(super) fn do_symlink(&self, target: &str, path: &str) -> Result<()> {
        match target.len() {
            0 => Err(Errno::NOENT),
            4096.. => Err(Errno::NAMETOOLONG),
            _ => self.make(path, NewNode::Symlink(target.as_bytes().to_vec()), 0o777),
        }
    }

    pub(super) fn do_link(&self, node: &Inode, to: &str, unnamed: bool) -> Result<()> {
        let last = self.free_name(to, false)?;
        let a = attr(node)?;
        self.may_hard_link(node)?;
        self.may_create(&last.dir)?;
        // A file without a name is the VFS's to refuse: only O_TMPFILE's may get one.
        if a.nlink == 0 && !unnamed {
            return Err(Errno::NOENT);
        }
        let linked =
            self.fs().link(node.ino(), last.dir.ino(), last.name.as_bytes()).map_err(errno)?;
        drop(Inode::from_attr(&self.fs(), &linked));
        Ok(())
    }

    /// The rule of /proc/sys/fs/protected_hardlinks.
    fn may_hard_link(&self, node: &Inode) -> Result<()> {
        let a = attr(node)?;
        let set_id = a.perm & 0o4000 != 0 || a.perm & 0o2010 == 0o2010;
        let safe = a.kind == FileKind::Regular && !set_id && self.permit(&a, READ | WRITE).is_ok();
        let protected = std::fs::read_to_string("/proc/sys/fs/protected_hardlinks");
        let protected = protected.is_ok_and(|text| text.trim() == "1");
        if protected && !self.owns(&a) && !safe { Err(Errno::PERM) } else { Ok(()) }
    }

    pub(super) fn do_unlink(&self, path: &str) -> Result<()> {
        let last = self.parent(path)?;
        if !last.is_name() {
            return Err(Errno::ISDIR);
        }
        let victim = self.find(&last)?;
        if last.slash {
            let is_dir = victim.kind() == FileKind::Directory;
            return Err(if is_dir { Errno::ISDIR } else { Errno::NOTDIR });
        }
        self.may_delete(&last.dir, &victim)?;
        self.fs().unlink(last.dir.ino(), last.name.as_bytes()).map_err(errno)
    }

    pub(super) fn do_rmdir(&self, path: &str) -> Result<()> {
        let last = self.parent(path)?;
        match last.name {
            ".." => return Err(Errno::NOTEMPTY),
            "." => return Err(Errno::INVAL),
            _ => {}
        }
        let victim = self.find(&last)?;
        self.may_delete(&last.dir, &victim)?;
        self.fs().rmdir(last.dir.ino(), last.name.as_bytes()).map_err(errno)
    }

    pub(super) fn do_rename(&self, from: &str, to: &str, flags: RenameFlags) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if exchange && flags != RenameFlags::EXCHANGE {
            return Err(Errno::INVAL);
        }
        let how = Flags::from_bits(flags.bits()).ok_or(Errno::INVAL)?;
        let (old, new) = (self.parent(from)?, self.parent(to)?);
        if !old.is_name() {
            return Err(Errno::BUSY);
        }
        if !new.is_name() {
            let no_replace = flags.contains(RenameFlags::NOREPLACE);
            return Err(if no_replace { Errno::EXIST } else { Errno::BUSY });
        }
        let source = self.find(&old)?;
        let target = match self.find(&new) {
            Ok(target) => Some(target),
            Err(Errno::NOENT) => None,
            Err(e) => return Err(e),
        };
        match &target {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Errno::EXIST),
            None if exchange => return Err(Errno::NOENT),
            _ => {}
        }
        let not_dir = |node: &Inode| node.kind() != FileKind::Directory;
        let slash_on_file = (not_dir(&source) && (old.slash || (new.slash && !exchange)))
            || (exchange && new.slash && target.as_ref().is_some_and(not_dir));
        if slash_on_file {
            return Err(Errno::NOTDIR);
        }
        let done = |fs: &extol::Ext4| {
            fs.rename(old.dir.ino(), old.name.as_bytes(), new.dir.ino(), new.name.as_bytes(), how)
        };
        if target.as_ref().is_none_or(|t| t.id() != source.id()) {
            self.may_delete(&old.dir, &source)?;
            match &target {
                Some(target) => self.may_delete(&new.dir, target)?,
                None => self.may_create(&new.dir)?,
            }
            if old.dir.id() != new.dir.id() {
                // `..` of a directory that moves is written.
                for node in
                    [Some(&source), target.as_ref().filter(|_| exchange)].into_iter().flatten()
                {
                    if !not_dir(node) {
                        self.permit(&attr(node)?, WRITE)?;
                    }
                }
            }
        }
        done(&self.fs()).map_err(errno)
    }
}
