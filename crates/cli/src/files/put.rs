//! `extol put`: into the volume.

mod place;
mod stream;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal as _};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

use extol_cli_common::progress::{self, ProgressBar};
use extol_cli_common::{Failure, Result, counted, warn};
use extol_proc::Shown as _;
use extol_vfs::{FsError, Mode, RenameFlags, SetAttr, SetTime, Timestamp, XattrSet, bytes_text};

use super::attrs::Owner;
use super::change::{Change, Problem};
use super::{CHUNK, InodeRef, Tree, show};
use crate::args::{PutArgs, VolumeArgs};
use crate::interrupt;
use place::{There, make, owner, there};
pub(super) use place::{give_name, with_temporary};
pub(super) use stream::STDIN;
use stream::Stream;

/// A copy under way.
struct CopyIn<'t> {
    tree: &'t Tree,
    /// Where the first name of a file with several was put, by device and inode here.
    made: HashMap<(u64, u64), InodeRef<'t>>,
    bar: ProgressBar,
    buffer: Vec<u8>,
    problems: Vec<String>,
    /// The image itself, which does not go into itself.
    image: Option<(u64, u64)>,
    /// The volume takes nothing any more: an error has stopped it.
    stopped: bool,
    /// Owner and mode of all that is put, in place of its own.
    owner: Owner,
    mode: Option<Mode>,
    told: Told,
}

/// The lines of `--progress`.
#[derive(Debug)]
struct Told {
    /// They are wanted.
    on: bool,
    last: Instant,
    files: u64,
    bytes: u64,
}

/// Time between two lines.
const TOLD_EVERY: Duration = Duration::from_secs(1);

impl Told {
    fn new(wanted: bool) -> Self {
        let on = wanted && !io::stderr().is_terminal();
        Self { on, last: Instant::now(), files: 0, bytes: 0 }
    }

    fn moved(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.on && self.last.elapsed() >= TOLD_EVERY {
            self.last = Instant::now();
            self.say();
        }
    }

    fn say(&self) {
        warn(format_args!("{}, {} MiB copied", counted(self.files, "file"), self.bytes >> 20));
    }
}

impl Change for PutArgs {
    fn volume(&self) -> &VolumeArgs {
        &self.volume
    }

    fn check(&self) -> Result<()> {
        super::sources_and_destination(&self.paths, super::COPIED)?;
        if let Some(mode) = &self.mode {
            Mode::parse(mode).map_err(Failure::usage)?;
        }
        self.owner.as_deref().map_or(Ok(()), Owner::check)
    }

    fn apply(&self, tree: &Tree) -> Result<()> {
        let (paths, dest) = super::sources_and_destination(&self.paths, super::COPIED)?;
        let owner = match &self.owner {
            Some(owner) => match Owner::parse(owner, &|path| tree.table(path)) {
                Ok(owner) => owner,
                Err(why) => return tree.reported(why),
            },
            None => Owner::default(),
        };
        let mode = self.mode.as_deref().map(Mode::parse).transpose().map_err(Failure::usage)?;
        let told = Told::new(self.progress);
        let mut copy = CopyIn { owner, mode, told, ..CopyIn::new(tree) };
        if let Err(problem) = copy.all(paths, dest) {
            copy.problems.push(problem);
        }
        if copy.told.on {
            copy.told.say();
        }
        for problem in copy.end() {
            tree.report_line(problem);
        }
        Ok(())
    }
}

/// Device and inode number of a file here.
fn file_id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

impl<'t> CopyIn<'t> {
    fn new(tree: &'t Tree) -> Self {
        Self {
            tree,
            made: HashMap::new(),
            bar: progress::bytes("copying"),
            buffer: vec![0; CHUNK],
            problems: Vec::new(),
            image: file_id(&tree.source),
            stopped: false,
            owner: Owner::default(),
            mode: None,
            told: Told::new(false),
        }
    }

    /// What was reported, at the end.
    fn end(self) -> Vec<String> {
        self.bar.finish_and_clear();
        self.problems
    }

    fn problem(&mut self, path: &Path, problem: &dyn std::error::Error) {
        self.problems.push(format!("{}: {problem}", path.shown()));
    }

    fn all(&mut self, paths: &[OsString], dest: &OsStr) -> std::result::Result<(), String> {
        let place = |error: FsError| format!("{}: on the volume: {error}", show(dest));
        let many = paths.len() > 1;
        match self.tree.find(dest, true) {
            Ok(inode) if many && !inode.is_dir().map_err(place)? => {
                return Err(place(FsError::NotADirectory));
            }
            Err(error) if many => return Err(place(error)),
            _ => {}
        }
        for path in paths {
            if let Err(problem) = self.path(path, dest) {
                self.problems.push(problem);
            }
        }
        Ok(())
    }

    fn path(&mut self, path: &OsStr, dest: &OsStr) -> std::result::Result<(), String> {
        let place = |error: FsError| format!("{}: on the volume: {error}", show(dest));
        if let Some(stream) = Stream::of(path) {
            let stream = stream.map_err(|error| format!("{}: {error}", show(path)))?;
            return self.stream(stream, dest);
        }
        let into = match self.tree.find(dest, true) {
            Ok(inode) if inode.is_dir().map_err(place)? => Some(inode),
            // A slash says that it should be one.
            Err(error) if dest.as_bytes().ends_with(b"/") && Path::new(path).is_file() => {
                return Err(place(error));
            }
            _ => None,
        };
        if let Some(dir) = into.as_ref().filter(|_| !super::ends_with_name(path)) {
            // What is in it, as with cp(1).
            self.enter_dir(Path::new(path), dir);
            return Ok(());
        }
        let absolute = fs::canonicalize(path).ok();
        let own_name =
            Path::new(path).file_name().or_else(|| absolute.as_deref().and_then(Path::file_name));
        match (into, own_name) {
            (Some(dir), Some(name)) => self.node(Path::new(path), &dir, name.as_bytes()),
            (Some(_), None) => return Err(format!("{}: has no name", show(path))),
            (None, _) => {
                let (dir, name) = self.tree.find_parent(dest).map_err(place)?;
                self.node(Path::new(path), &dir, name);
            }
        }
        Ok(())
    }

    fn node(&mut self, path: &Path, dir: &InodeRef<'t>, name: &[u8]) {
        if interrupt::came() || self.stopped {
            return;
        }
        if let Err(problem) = self.try_node(path, dir, name) {
            self.failed(path, &*problem);
        }
    }

    /// Copies what is in a directory into another one, and its attributes to that.
    fn enter_dir(&mut self, path: &Path, dir: &InodeRef<'t>) {
        let metadata = path.metadata().map_err(Problem::from);
        let put = metadata.and_then(|metadata| self.fill_node(path, &metadata, dir));
        if let Err(problem) = put {
            self.failed(path, &*problem);
        }
    }

    fn failed(&mut self, path: &Path, problem: &(dyn std::error::Error + 'static)) {
        if self.is_to_report(problem) {
            self.problem(path, problem);
        }
    }

    /// False for what is said once, of the volume: what it lies on is full.
    fn is_to_report(&mut self, problem: &(dyn std::error::Error + 'static)) -> bool {
        let full = self.tree.volume.is_stopped_by_full();
        // No other file can be put there either.
        self.stopped |= full || problem.downcast_ref() == Some(&FsError::ReadOnly);
        !full || self.tree.keeps_reports()
    }

    fn try_node(
        &mut self,
        path: &Path,
        dir: &InodeRef<'t>,
        name: &[u8],
    ) -> std::result::Result<(), Problem> {
        let metadata = path.symlink_metadata()?;
        let key = (metadata.dev(), metadata.ino());
        if self.image == Some(key) {
            return Err("the image itself is left out".into());
        }
        if metadata.is_symlink() {
            let (len, block) =
                (fs::read_link(path)?.as_os_str().len(), self.tree.volume.block_size());
            if len >= block as usize {
                return Err(format!(
                    "its target of {len} bytes is too long for blocks of {block} bytes: use \
                     larger blocks (mkfs -b)"
                )
                .into());
            }
        }
        let there = there(dir, name, metadata.is_dir())?;
        let shared = !metadata.is_dir() && metadata.nlink() > 1;
        if shared && let Some(first) = self.made.get(&key) {
            return give_name(first, dir, name, matches!(there, There::Other));
        }
        let node = match there {
            There::Directory(node) => {
                self.fill_node(path, &metadata, &node)?;
                node
            }
            There::Nothing if metadata.is_file() => {
                match self.whole_file(path, &metadata, dir, name, false)? {
                    Some(node) => node,
                    None => return Ok(()),
                }
            }
            There::Nothing => {
                let node = make(path, &metadata, dir, name)?;
                if let Err(problem) = self.fill_node(path, &metadata, &node) {
                    if !metadata.is_dir() {
                        let _ = dir.fs.unlink(dir.ino, name);
                    }
                    return Err(problem);
                }
                node
            }
            There::Other => match self.replace(path, &metadata, dir, name)? {
                Some(node) => node,
                None => return Ok(()),
            },
        };
        self.told.files += u64::from(!metadata.is_dir());
        if shared {
            self.made.insert(key, node);
        }
        Ok(())
    }

    /// Puts a regular file; `over` what has the name. It has no name before it is whole, and its
    /// last reference deletes it then. `None` if a signal came before that.
    fn whole_file(
        &mut self,
        path: &Path,
        metadata: &Metadata,
        dir: &InodeRef<'t>,
        name: &[u8],
        over: bool,
    ) -> std::result::Result<Option<InodeRef<'t>>, Problem> {
        let attr = dir.fs.create_unnamed(dir.ino, 0o600, 0, owner(metadata))?;
        let node = InodeRef::from_attr(dir.fs, &attr);
        self.fill_node(path, metadata, &node)?;
        if interrupt::came() {
            return Ok(None);
        }
        give_name(&node, dir, name, over)?;
        Ok(Some(node))
    }

    /// Puts a file in the place of another one, which stays until the new one is whole. `None` if
    /// a signal came before that.
    fn replace(
        &mut self,
        path: &Path,
        metadata: &Metadata,
        dir: &InodeRef<'t>,
        name: &[u8],
    ) -> std::result::Result<Option<InodeRef<'t>>, Problem> {
        if metadata.is_file() {
            return self.whole_file(path, metadata, dir, name, true);
        }
        let (node, temporary) = with_temporary(|temporary| make(path, metadata, dir, temporary))?;
        let put = self.fill_node(path, metadata, &node).and_then(|()| {
            Ok(dir.fs.rename(dir.ino, &temporary, dir.ino, name, RenameFlags::empty())?)
        });
        if put.is_err() {
            let _ = dir.fs.unlink(dir.ino, &temporary);
        }
        put.map(|()| Some(node))
    }

    /// Copies what an inode holds and its attributes.
    fn fill_node(
        &mut self,
        path: &Path,
        metadata: &Metadata,
        node: &InodeRef<'t>,
    ) -> std::result::Result<(), Problem> {
        if metadata.is_dir() {
            // What cannot be read is reported; the directory is as it should be otherwise.
            if let Err(problem) = self.directory(path, node) {
                self.failed(path, &*problem);
            }
        } else if metadata.is_file() {
            self.contents(&File::open(path)?, node)?;
        }
        self.attributes(path, node)?;
        self.put_owner_mode_times(metadata, node)
    }

    /// Copies what is in a directory.
    fn directory(&mut self, path: &Path, node: &InodeRef<'t>) -> std::result::Result<(), Problem> {
        let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            self.node(&entry.path(), node, entry.file_name().as_bytes());
        }
        Ok(())
    }

    /// Copies extended attributes.
    fn attributes(&mut self, path: &Path, node: &InodeRef<'_>) -> std::result::Result<(), Problem> {
        let mut names = vec![0; 65536];
        let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
        for name in names[..len].split(|&byte| byte == 0).filter(|name| is_copied(name)) {
            let mut value = vec![0; 65536];
            if let Ok(len) = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]) {
                let value = &value[..len];
                let Err(error) = node.fs.setxattr(node.ino, name, value, XattrSet::Any) else {
                    continue;
                };
                let why = match attribute_size(self.tree, name, value) {
                    Some(why) if error == FsError::NoSpace => why,
                    _ if error == FsError::NoSpace => return Err(error.into()),
                    _ => error.to_string(),
                };
                // The file is whole without it.
                let why = format!("the attribute {} is left out: {why}", bytes_text(name));
                self.problem(path, &*Problem::from(why));
            }
        }
        Ok(())
    }

    fn contents(&mut self, file: &File, node: &InodeRef<'_>) -> std::result::Result<(), Problem> {
        use rustix::fs::SeekFrom;
        let size = file.metadata()?.len();
        let mut offset = 0;
        while offset < size && !interrupt::came() {
            offset = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
                Ok(start) => start,
                Err(rustix::io::Errno::NXIO) => break,
                Err(rustix::io::Errno::INVAL) => offset,
                Err(error) => return Err(error.into()),
            };
            let end = rustix::fs::seek(file, SeekFrom::Hole(offset)).unwrap_or(size);
            while offset < end && !interrupt::came() {
                let want = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
                let count = file.read_at(&mut self.buffer[..want], offset)?;
                if count == 0 {
                    return Ok(());
                }
                node.fs.write(node.ino, offset, &self.buffer[..count])?;
                offset += count as u64;
                self.bar.inc(count as u64);
                self.told.moved(count as u64);
            }
        }
        if size == 0 {
            // Files of proc and the like have contents all the same.
            return self.copy_all(file, node);
        }
        if node.attr()?.size != size {
            node.fs.setattr(node.ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        }
        Ok(())
    }

    /// Copies a file that does not say how long it is.
    fn copy_all(&mut self, file: &File, node: &InodeRef<'_>) -> std::result::Result<(), Problem> {
        let mut offset = 0;
        while !interrupt::came() {
            let count = file.read_at(&mut self.buffer, offset)?;
            if count == 0 {
                break;
            }
            node.fs.write(node.ino, offset, &self.buffer[..count])?;
            offset += count as u64;
            self.bar.inc(count as u64);
            self.told.moved(count as u64);
        }
        Ok(())
    }

    fn put_owner_mode_times(
        &self,
        metadata: &Metadata,
        node: &InodeRef<'_>,
    ) -> std::result::Result<(), Problem> {
        let time =
            |sec, nsec: i64| SetTime::At(Timestamp { sec, nsec: u32::try_from(nsec).unwrap_or(0) });
        let perm = (metadata.mode() & 0o7777) as u16;
        let perm = match &self.mode {
            Some(mode) => mode.applied(perm, metadata.is_dir(), 0),
            None => perm,
        };
        let set = SetAttr {
            perm: (!metadata.is_symlink()).then_some(perm),
            uid: Some(self.owner.uid.unwrap_or(metadata.uid())),
            gid: Some(self.owner.gid.unwrap_or(metadata.gid())),
            atime: Some(time(metadata.atime(), metadata.atime_nsec())),
            mtime: Some(time(metadata.mtime(), metadata.mtime_nsec())),
            ..SetAttr::default()
        };
        node.fs.setattr(node.ino, &set)?;
        Ok(())
    }
}

/// Why there is no space for an attribute, if the volume is not full.
pub(super) fn attribute_size(tree: &Tree, name: &[u8], value: &[u8]) -> Option<String> {
    let block = tree.volume.block_size();
    let len = value.len();
    if attribute_len(name, len) > block as usize {
        return Some(format!(
            "its {len} bytes are too large for blocks of {block} bytes: use larger blocks \
             (mkfs -b), or the feature ea_inode (tune -O)"
        ));
    }
    let free = tree.fs().statfs().map_or(0, |space| space.blocks_free);
    (free > 0).then(|| format!("all attributes of a file must fit into one block of {block} bytes"))
}

/// Bytes of a block with one attribute: header, entry, value, and the end of the entries.
fn attribute_len(name: &[u8], value: usize) -> usize {
    // Without its namespace, which is a number on the volume.
    let name = name.splitn(2, |byte| *byte == b'.').nth(1).unwrap_or(name);
    32 + (16 + name.len()).next_multiple_of(4) + 4 + value.next_multiple_of(4)
}

/// Extended attributes that ext4 keeps by their names.
fn is_copied(name: &[u8]) -> bool {
    name.starts_with(b"user.")
        || name.starts_with(b"trusted.")
        || name.starts_with(b"system.posix_acl_")
        || name.starts_with(b"security.")
}
