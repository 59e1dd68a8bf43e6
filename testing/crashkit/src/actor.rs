//! A user of the volume: does operations through the library, and keeps the history of them.
//!
//! Each operation is framed by two notes on the tape. What the file system refuses for lack of
//! space is no error: it is a step that changed nothing (or, for a write, what a look at the file
//! shows). Everything else that fails ends the run.

mod common;
mod verity;
mod volume;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol::vfs::{Fallocate, SetAttr, XattrSet};
use extol::{Ext4, File, FileSystem as _, FsError, OpenOptions};
use extol_testkit::fsync_told;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::model::{Common, Content, History, Id, Kind, Tree, Zeros};
use crate::spelling;
use crate::tape::{Note, Tape};

/// Result of an operation; the error ends the run.
pub type Done<T = ()> = Result<T, String>;

/// Where on the volume an actor works, and what its names begin with. It knows them without that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// Everywhere: it is the only one.
    Volume,
    /// In a directory of its own.
    Own(String),
    /// In a directory that all share; the names that begin so are its own.
    Shared(String, String),
}

impl Place {
    /// The path of the directory.
    #[must_use]
    pub fn dir(&self) -> &str {
        match self {
            Self::Volume => "",
            Self::Own(dir) | Self::Shared(dir, _) => dir,
        }
    }

    fn prefix(&self) -> String {
        match self {
            Self::Volume => String::new(),
            Self::Own(dir) => format!("{dir}/"),
            Self::Shared(dir, first) => format!("{dir}/{first}"),
        }
    }
}

/// A user of the volume.
#[derive(Debug)]
pub struct Actor {
    fs: Arc<Ext4>,
    tape: Arc<Tape>,
    nr: usize,
    place: Place,
    common: Option<Common>,
    history: History,
    rng: SmallRng,
    /// Files kept open.
    held: Vec<(File, Id)>,
    /// Bytes of the device at the beginning.
    device: u64,
    /// It asks for names by other spellings of them.
    respells: bool,
}

impl Actor {
    /// A new actor. `nr` names it on the tape; `common`: its share of the common file, if there is
    /// one.
    #[must_use]
    pub fn new(
        fs: &Arc<Ext4>,
        tape: &Arc<Tape>,
        nr: usize,
        place: Place,
        common: Option<Common>,
        seed: u64,
    ) -> Self {
        let mut history = History::new(&place.prefix());
        if let Some(common) = common {
            history.share(common);
        }
        let rng = SmallRng::seed_from_u64(
            seed.wrapping_add(nr as u64).wrapping_mul(0x2545_F491_4F6C_DD1D),
        );
        Self {
            fs: Arc::clone(fs),
            tape: Arc::clone(tape),
            nr,
            history,
            place,
            common,
            rng,
            held: Vec::new(),
            device: fs.device_bytes(),
            respells: false,
        }
    }

    /// Lets it ask for each name that is there by any spelling: all directories are casefolded.
    #[must_use]
    pub fn that_respells(mut self, on: bool) -> Self {
        self.respells = on;
        self
    }

    /// Its own random numbers.
    pub fn rng(&mut self) -> &mut SmallRng {
        &mut self.rng
    }

    /// The names as they are now.
    #[must_use]
    pub fn tree(&self) -> Arc<Tree> {
        self.history.tree()
    }

    /// Size of a file, 0 if there is none.
    #[must_use]
    pub fn size(&self, path: &str) -> usize {
        self.tree().get(path).map_or(0, |id| self.history.content(id).len())
    }

    /// Bytes of a file, as the actor knows them.
    #[must_use]
    pub fn bytes(&self, path: &str) -> Vec<u8> {
        let content = self.tree().get(path).map(|id| self.history.content(id)).unwrap_or_default();
        (0..content.len()).filter_map(|at| content.byte(at)).collect()
    }

    /// Gives up the history.
    #[must_use]
    pub fn into_history(self) -> History {
        self.history
    }

    /// Random bytes, none of them zero.
    pub fn fresh(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.rng.fill(&mut bytes[..]);
        bytes.iter_mut().filter(|b| **b == 0).for_each(|b| *b = 0x5A);
        bytes
    }

    fn full(&self, path: &str) -> PathBuf {
        let path = match self.respells {
            true => spelling::other(&self.tree(), path, self.history.len()),
            false => path.to_owned(),
        };
        spelling::on_disk(&match &path[..] {
            "" => format!("/{}", self.place.dir()),
            path => format!("/{}{path}", self.place.prefix()),
        })
    }

    /// Does something on the volume between its two notes. `Ok(None)`: no space.
    fn act<T>(
        &mut self,
        text: &str,
        f: impl FnOnce(&Arc<Ext4>) -> Result<T, FsError>,
    ) -> Done<Option<T>> {
        let step = self.history.len();
        self.tape.note(Note::Begin(self.nr, step));
        let result = f(&self.fs);
        self.tape.note(Note::End(self.nr, step));
        match result {
            Ok(value) => Ok(Some(value)),
            Err(FsError::NoSpace) => Ok(None),
            Err(e) => Err(format!("actor {}: {text}: {e}", self.nr)),
        }
    }

    fn change_names(
        &mut self,
        text: String,
        f: impl FnOnce(&Arc<Ext4>) -> Result<(), FsError>,
        model: impl FnOnce(&mut Tree, &mut History) -> Vec<Option<u32>>,
    ) -> Done<bool> {
        if self.act(&text, f)?.is_none() {
            self.history.quiet(format!("{text}: no space"));
            return Ok(false);
        }
        let mut tree = Tree::clone(&self.tree());
        let touched = model(&mut tree, &mut self.history);
        self.history.names(text, tree, &touched);
        Ok(true)
    }

    /// Makes an empty file. False: no space.
    pub fn create(&mut self, path: &str) -> Done<bool> {
        let full = self.full(path);
        let mut new = 0;
        let made = self.change_names(
            format!("create {path}"),
            |fs| fs.open_file(&full, OpenOptions::new().write(true).create_new(true)).map(drop),
            |tree, history| {
                new = history.new_id();
                tree.add(path, new, Kind::File);
                vec![Some(new), tree.dir_of(path)]
            },
        )?;
        if made {
            self.history.contents(new, Content::default(), Zeros::No);
        }
        Ok(made)
    }

    /// Makes a directory.
    pub fn mkdir(&mut self, path: &str) -> Done<bool> {
        let full = self.full(path);
        self.change_names(
            format!("mkdir {path}"),
            |fs| fs.create_dir(&full),
            |tree, history| {
                let id = history.new_id();
                tree.add(path, id, Kind::Dir);
                vec![Some(id), tree.dir_of(path)]
            },
        )
    }

    /// Makes a symbolic link.
    pub fn symlink(&mut self, target: &str, path: &str) -> Done<bool> {
        let full = self.full(path);
        self.change_names(
            format!("symlink {path} -> {target}"),
            |fs| fs.symlink(target, &full),
            |tree, history| {
                let id = history.new_id();
                tree.add(path, id, Kind::Symlink(target.to_owned()));
                vec![Some(id), tree.dir_of(path)]
            },
        )
    }

    /// Gives a file a second name.
    pub fn link(&mut self, from: &str, to: &str) -> Done<bool> {
        let (old, new) = (self.full(from), self.full(to));
        self.change_names(
            format!("link {from} {to}"),
            |fs| fs.hard_link(&old, &new),
            |tree, _| {
                let id = tree.get(from);
                if let Some(id) = id {
                    let kind = tree.kind(id).cloned().unwrap_or(Kind::File);
                    tree.add(to, id, kind);
                }
                vec![id, tree.dir_of(to)]
            },
        )
    }

    /// Renames, over what is there.
    pub fn rename(&mut self, from: &str, to: &str) -> Done<bool> {
        let (old, new) = (self.full(from), self.full(to));
        self.change_names(
            format!("rename {from} {to}"),
            |fs| fs.rename_path(&old, &new),
            |tree, _| {
                let ids = [tree.get(from), tree.get(to)];
                let dirs = [tree.dir_of(from), tree.dir_of(to)];
                tree.rename(from, to);
                if ids[0] == ids[1] { Vec::new() } else { [ids, dirs].concat() }
            },
        )
    }

    /// Removes a name of a file or link.
    pub fn unlink(&mut self, path: &str) -> Done<bool> {
        let full = self.full(path);
        self.change_names(
            format!("unlink {path}"),
            |fs| fs.remove_file(&full),
            |tree, _| {
                let dir = tree.dir_of(path);
                vec![tree.remove(path), dir]
            },
        )
    }

    /// Removes an empty directory.
    pub fn rmdir(&mut self, path: &str) -> Done<bool> {
        let full = self.full(path);
        self.change_names(
            format!("rmdir {path}"),
            |fs| fs.remove_dir(&full),
            |tree, _| {
                let dir = tree.dir_of(path);
                vec![tree.remove(path), dir]
            },
        )
    }

    /// Opens a file and keeps it open: unlinked, it becomes an orphan.
    pub fn hold(&mut self, path: &str) -> Done {
        let full = self.full(path);
        let text = format!("open {path}");
        let file =
            self.act(&text, |fs| fs.open_file(&full, OpenOptions::new().read(true).write(true)))?;
        self.history.quiet(text);
        let id = self.tree().get(path).unwrap_or_default();
        self.held.extend(file.map(|file| (file, id)));
        Ok(())
    }

    /// Writes into the file opened last, whether it has a name or not, but only if it has none any
    /// more. As long as the loss of the name is not durable, the name can come back, and with it
    /// what was written in place: up to the old end, for a larger size cannot be older than the
    /// loss of the name.
    pub fn write_nameless(&mut self, len: usize) -> Done {
        let Some((file, id)) = self.held.pop() else { return Ok(()) };
        let bytes = self.fresh(len);
        let nameless = file.metadata().is_ok_and(|attr| attr.nlink == 0);
        if nameless {
            self.act("write to a file without a name", |_| file.write_all_at(&bytes, 0))?;
            self.history.quiet(format!("write {len} bytes to a file without a name"));
            let mut content = self.history.content(id);
            content.write(0, &bytes[..len.min(content.len())]);
            self.history.contents(id, content, Zeros::No);
        }
        self.held.push((file, id));
        Ok(())
    }

    /// Closes the files kept open; those without a name are gone then.
    pub fn release(&mut self) -> Done {
        let held = std::mem::take(&mut self.held);
        self.act("close", |_| {
            drop(held);
            Ok(())
        })?;
        self.history.quiet("close what was open".to_owned());
        Ok(())
    }

    /// Writes these bytes. False: no space for all of them.
    pub fn write_bytes(&mut self, path: &str, at: usize, bytes: &[u8]) -> Done<bool> {
        let text = format!("write {path}: {} bytes at {at}", bytes.len());
        self.write_with(text, path, at, bytes, |file| file.write_all_at(bytes, at as u64))
    }

    fn write_with(
        &mut self,
        text: String,
        path: &str,
        at: usize,
        bytes: &[u8],
        write: impl FnOnce(&File) -> Result<(), FsError>,
    ) -> Done<bool> {
        let full = self.full(path);
        let done =
            self.act(&text, |fs| write(&fs.open_file(&full, OpenOptions::new().write(true))?))?;
        let id = self.tree().get(path).unwrap_or_default();
        let mut content = self.history.content(id);
        if done.is_some() {
            content.write(at, bytes);
        } else {
            let found =
                self.fs.read_file(&full).map_err(|e| format!("reading {path} back: {e}"))?;
            content = Content::of(&found);
        }
        self.history.quiet(text);
        self.history.contents(id, content, Zeros::No);
        Ok(done.is_some())
    }

    /// Writes random bytes.
    pub fn write(&mut self, path: &str, at: usize, len: usize) -> Done<bool> {
        let bytes = self.fresh(len);
        self.write_bytes(path, at, &bytes)
    }

    /// Writes random bytes behind the end.
    pub fn append(&mut self, path: &str, len: usize) -> Done<bool> {
        let at = self.size(path);
        self.write(path, at, len)
    }

    /// Sets the size.
    pub fn truncate(&mut self, path: &str, len: usize) -> Done<bool> {
        let full = self.full(path);
        let text = format!("truncate {path} to {len}");
        let done = self.act(&text, |fs| {
            fs.open_file(&full, OpenOptions::new().write(true))?.set_len(len as u64)
        })?;
        self.history.quiet(text);
        if done.is_some() {
            let id = self.tree().get(path).unwrap_or_default();
            let mut content = self.history.content(id);
            let zeros = if len > content.len() { Zeros::Grown } else { Zeros::Cut(len) };
            content.resize(len);
            self.history.contents(id, content, zeros);
        }
        Ok(done.is_some())
    }

    /// Allocates, punches or zeroes.
    pub fn allocate(&mut self, path: &str, mode: Fallocate, at: usize, len: usize) -> Done<bool> {
        let full = self.full(path);
        let text = format!("fallocate {path}: {mode:?} {len} bytes at {at}");
        let done = self.act(&text, |fs| {
            let file = fs.open_file(&full, OpenOptions::new().write(true))?;
            match file.allocate(mode, at as u64, len as u64) {
                // Files without extents cannot do it: nothing changes, as without space.
                Err(FsError::NotSupported(_)) => Err(FsError::NoSpace),
                result => result,
            }
        })?;
        self.history.quiet(text);
        if done.is_some() {
            let id = self.tree().get(path).unwrap_or_default();
            let mut content = self.history.content(id);
            let (old, end) = (content.len(), at + len);
            let (zero, keep) = match mode {
                Fallocate::Allocate { keep_size } => (false, keep_size),
                Fallocate::ZeroRange { keep_size } => (true, keep_size),
                _ => (true, true),
            };
            if zero && at < old {
                content.write(at, &vec![0; end.min(old) - at]);
            }
            if !keep && end > old {
                content.resize(end);
            }
            let zeros = if content.len() > old { Zeros::Grown } else { Zeros::No };
            self.history.contents(id, content, zeros);
        }
        Ok(done.is_some())
    }

    fn sync_path(&mut self, path: &str, data_only: bool) -> Done {
        if path.is_empty() && matches!(self.place, Place::Shared(..)) {
            // An fsync of that directory may make names of others durable, and not what else they
            // did before.
            return self.syncfs();
        }
        let done = self.sync_full(&self.full(path), path, data_only)?;
        // Data that has no room is not on the device, and was not acknowledged.
        let id = if path.is_empty() { Some(Tree::TOP) } else { self.tree().get(path) };
        if let (Some(()), Some(id)) = (done, id) {
            let is_file = self.tree().kind(id) == Some(&Kind::File);
            self.history.synced(id, is_file, data_only);
        }
        Ok(())
    }

    /// As [`act`](Self::act), and a step.
    fn sync_full(&mut self, full: &Path, path: &str, data_only: bool) -> Done<Option<()>> {
        let text = format!("{} {path}", if data_only { "fdatasync" } else { "fsync" });
        // By turns as a program asks, and as a mount does for its programs.
        let later = self.history.len() % 2 == 1;
        let done = self.act(&text, |fs| {
            let file = fs.open_file(full, OpenOptions::new().read(true))?;
            match (later, data_only) {
                (true, _) => fsync_told(&**fs, file.inode().ino(), data_only),
                (false, true) => file.sync_data(),
                (false, false) => file.sync_all(),
            }
        })?;
        self.history.quiet(text);
        Ok(done)
    }

    /// fsync of a file or directory.
    pub fn fsync(&mut self, path: &str) -> Done {
        self.sync_path(path, false)
    }

    /// fdatasync of a file.
    pub fn fdatasync(&mut self, path: &str) -> Done {
        self.sync_path(path, true)
    }

    /// Sets an extended attribute, which the model does not look at.
    pub fn set_xattr(&mut self, path: &str, value: &[u8]) -> Done {
        let full = self.full(path);
        let text = format!("set an attribute of {} bytes of {path}", value.len());
        self.act(&text, |fs| fs.set_xattr(&full, "user.x", value, XattrSet::Any))?;
        self.history.quiet(text);
        Ok(())
    }

    /// Sets or removes an attribute by its name, which the model does not look at. (Where it finds
    /// no room, or nothing to remove, nothing has changed.)
    pub fn change_xattr(&mut self, path: &str, name: &str, value: Option<&[u8]>) -> Done {
        let full = self.full(path);
        let len = value.map(<[u8]>::len);
        let text = format!("set {name} of {path} to {len:?} bytes");
        self.act(&text, |fs| {
            let done = match value {
                Some(value) => fs.set_xattr(&full, name, value, XattrSet::Any),
                None => fs.remove_xattr(&full, name),
            };
            match done {
                Err(FsError::NoSpace | FsError::NoAttribute) => Ok(()),
                done => done,
            }
        })?;
        self.history.quiet(text);
        Ok(())
    }

    /// Sets owner, group and project, which the model does not look at. (Where quota files have no
    /// room for a new owner, nothing changes.)
    pub fn change_owners(&mut self, path: &str, (uid, gid, project): (u32, u32, u32)) -> Done {
        let full = self.full(path);
        let text = format!("{path} goes to {uid}, {gid}, {project}");
        let to = SetAttr {
            uid: Some(uid),
            gid: Some(gid),
            project: Some(project),
            ..SetAttr::default()
        };
        self.act(&text, |fs| {
            let ino = fs.symlink_metadata(&full)?.id.ino;
            fs.setattr(ino, &to).map(drop)
        })?;
        self.history.quiet(text);
        Ok(())
    }

    /// Gives a directory a project, which it hands down to what is made in it.
    pub fn hand_down_project(&mut self, path: &str, project: u32) -> Done {
        const PROJINHERIT: u32 = 0x2000_0000;
        let full = self.full(path);
        let text = format!("{path} hands down project {project}");
        self.act(&text, |fs| {
            let attr = fs.symlink_metadata(&full)?;
            let flags = Some(attr.flags | PROJINHERIT);
            let to = SetAttr { project: Some(project), flags, ..SetAttr::default() };
            fs.setattr(attr.id.ino, &to).map(drop)
        })?;
        self.history.quiet(text);
        Ok(())
    }

    /// Sets permissions, which the model does not look at.
    pub fn chmod(&mut self, path: &str, mode: u16) -> Done {
        let full = self.full(path);
        let text = format!("chmod {mode:o} {path}");
        self.act(&text, |fs| fs.set_permissions(&full, mode))?;
        self.history.quiet(text);
        Ok(())
    }
}
