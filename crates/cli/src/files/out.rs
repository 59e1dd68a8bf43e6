//! `extol cp`: out of the volume.
//!
//! A hostile volume must not make us write outside of the destination: what is there already is replaced, never written
//! through, and a directory is entered only if it is one.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use extol_vfs::{Attr, FileKind, FsError, Seek, Timestamp};
use rustix::fs::{AtFlags, CWD, FileType, Mode, Timespec, Timestamps, XattrFlags};

use super::copy::{CHUNK, Copy, is_copied};
use super::{Held, Trail, Tree, show};
use crate::args::CpArgs;
use crate::error::{Failure, Result};

type Out = Copy<u32, PathBuf>;

/// Copies.
pub fn cp(args: &CpArgs) -> Result<()> {
    let Some((dest, paths)) = args.paths.split_last() else { return Err(Failure::usage("nothing to copy")) };
    let dest = Path::new(dest);
    let into = dest.is_dir();
    if paths.len() > 1 && !into {
        return Err(Failure::usage(format_args!("{} is no directory", dest.display())));
    }
    let mut tree = Tree::open(&args.source, &args.options, false)?;
    let mut copy = Out::new();
    for path in paths {
        let target = match Path::new(path).file_name() {
            Some(name) if into => dest.join(name),
            _ => dest.to_path_buf(),
        };
        let problems = match tree.find(path, false) {
            Ok(held) => {
                let mut problems = Vec::new();
                copy_node(&mut copy, &held, &target, &mut Trail::default(), &mut problems);
                problems
            }
            Err(error) => vec![format!("{}: {error}", show(path))],
        };
        for problem in problems {
            tree.report("cp", problem);
        }
    }
    copy.bar.finish_and_clear();
    tree.close(Ok(()))
}

/// A failure on either side.
#[derive(Debug)]
enum Problem {
    Volume(FsError),
    Host(io::Error),
}

impl From<FsError> for Problem {
    fn from(error: FsError) -> Self {
        Self::Volume(error)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Host(error)
    }
}

impl From<rustix::io::Errno> for Problem {
    fn from(error: rustix::io::Errno) -> Self {
        Self::Host(error.into())
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Volume(error) => write!(f, "on the volume: {error}"),
            Self::Host(error) => error.fmt(f),
        }
    }
}

fn copy_node(copy: &mut Out, held: &Held<'_>, target: &Path, trail: &mut Trail, problems: &mut Vec<String>) {
    if let Err(problem) = try_node(copy, held, target, trail, problems) {
        problems.push(format!("{}: {problem}", target.display()));
    }
}

fn try_node(
    copy: &mut Out,
    held: &Held<'_>,
    target: &Path,
    trail: &mut Trail,
    problems: &mut Vec<String>,
) -> std::result::Result<(), Problem> {
    let attr = held.attr()?;
    if attr.kind != FileKind::Directory {
        if target.symlink_metadata().is_ok() {
            fs::remove_file(target)?;
        }
        if attr.nlink > 1 {
            if let Some(first) = copy.made.get(&attr.id.ino) {
                return Ok(fs::hard_link(first, target)?);
            }
            copy.made.insert(attr.id.ino, target.to_path_buf());
        }
    }
    match attr.kind {
        FileKind::Directory => {
            if !target.symlink_metadata().is_ok_and(|metadata| metadata.is_dir()) {
                fs::DirBuilder::new().mode(0o700).create(target)?;
            }
            trail.enter(held.ino)?;
            for entry in held.entries()? {
                let target = target.join(OsStr::from_bytes(&entry.name));
                match held.child(&entry.name) {
                    Ok(child) => copy_node(copy, &child, &target, trail, problems),
                    Err(error) => problems.push(format!("{}: on the volume: {error}", target.display())),
                }
            }
            trail.leave();
        }
        FileKind::Regular => copy_contents(copy, held, &attr, target)?,
        FileKind::Symlink => {
            std::os::unix::fs::symlink(OsStr::from_bytes(&held.fs.readlink(held.ino)?), target)?;
        }
        FileKind::CharDevice => make_special(target, FileType::CharacterDevice, &attr)?,
        FileKind::BlockDevice => make_special(target, FileType::BlockDevice, &attr)?,
        FileKind::Fifo => make_special(target, FileType::Fifo, &attr)?,
        FileKind::Socket => make_special(target, FileType::Socket, &attr)?,
    }
    copy_attributes(copy, held, &attr, target)
}

fn make_special(target: &Path, kind: FileType, attr: &Attr) -> rustix::io::Result<()> {
    let device = rustix::fs::makedev(attr.rdev.major, attr.rdev.minor);
    rustix::fs::mknodat(CWD, target, kind, Mode::from_raw_mode(0o600), device)
}

fn copy_contents(
    copy: &mut Out,
    held: &Held<'_>,
    attr: &Attr,
    target: &Path,
) -> std::result::Result<(), Problem> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(target)?;
    file.set_len(attr.size)?;
    let reader = held.reader();
    let mut offset = 0;
    while offset < attr.size {
        let start = match held.fs.seek(held.ino, offset, Seek::Data) {
            Ok(start) => start,
            Err(FsError::NoDataThere) => break,
            Err(error) => return Err(error.into()),
        };
        // A position that does not move on would keep us here for ever.
        let end = held.fs.seek(held.ino, start, Seek::Hole)?.min(attr.size);
        if start < offset || end <= start {
            break;
        }
        offset = start;
        while offset < end {
            let want = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
            let count = reader.read(offset, &mut copy.buffer[..want])?;
            if count == 0 {
                return Err(FsError::Io("the file ended early".into()).into());
            }
            file.write_all_at(&copy.buffer[..count], offset)?;
            offset += count as u64;
            copy.bar.inc(count as u64);
        }
    }
    Ok(())
}

fn copy_attributes(
    copy: &Out,
    held: &Held<'_>,
    attr: &Attr,
    target: &Path,
) -> std::result::Result<(), Problem> {
    if copy.is_root {
        std::os::unix::fs::lchown(target, Some(attr.uid), Some(attr.gid))?;
    }
    if attr.kind != FileKind::Symlink {
        // Without the right owner, set-id bits would mean something else.
        let mask = if copy.is_root { 0o7777 } else { 0o1777 };
        fs::set_permissions(target, fs::Permissions::from_mode(u32::from(attr.perm & mask)))?;
    }
    for name in held.fs.listxattr(held.ino)?.into_iter().filter(|name| is_copied(name)) {
        let value = held.fs.getxattr(held.ino, &name)?;
        let name: OsString = OsStr::from_bytes(&name).to_owned();
        // Not every file system keeps them, and not everybody may set them.
        let _ = rustix::fs::lsetxattr(target, name.as_os_str(), &value, XattrFlags::empty());
    }
    let spec = |time: Timestamp| Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    let times = Timestamps { last_access: spec(attr.atime), last_modification: spec(attr.mtime) };
    rustix::fs::utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    Ok(())
}
