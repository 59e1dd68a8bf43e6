//! `extol put`: into the volume.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use extol_cli_common::{Failure, Result};
use extol_vfs::{Creds, FsError, NewNode, Rdev, SetAttr, SetTime, Timestamp, XattrSet};

use super::copy::{CHUNK, Copy, is_copied};
use super::{InodeRef, Tree, show};
use crate::args::PutArgs;

/// Host device and inode of a file with several names; the inode on the volume.
type In<'t> = Copy<(u64, u64), InodeRef<'t>>;

/// Copies.
pub fn put(args: &PutArgs) -> Result<()> {
    let Some((dest, paths)) = args.paths.split_last() else {
        return Err(Failure::usage("nothing to copy"));
    };
    let mut tree = Tree::open(&args.source, &args.options, true)?;
    let mut problems = Vec::new();
    let mut bar = None;
    {
        let mut copy = In::new();
        bar.replace(copy.bar.clone());
        for path in paths {
            if let Err(error) =
                put_path(&tree, &mut copy, path, dest, paths.len() > 1, &mut problems)
            {
                problems.push(error);
            }
        }
    }
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    for problem in problems {
        tree.report("put", problem);
    }
    tree.close(Ok(()))
}

fn put_path<'t>(
    tree: &'t Tree,
    copy: &mut In<'t>,
    path: &OsStr,
    dest: &OsStr,
    many: bool,
    problems: &mut Vec<String>,
) -> std::result::Result<(), String> {
    let place = |error: FsError| format!("{}: on the volume: {error}", show(dest));
    let into = match tree.find(dest, true) {
        Ok(inode) if inode.is_dir().map_err(place)? => Some(inode),
        Ok(_) if many => return Err(place(FsError::NotADirectory)),
        Err(error) if many => return Err(place(error)),
        _ => None,
    };
    let absolute = fs::canonicalize(path).ok();
    let own_name =
        Path::new(path).file_name().or_else(|| absolute.as_deref().and_then(Path::file_name));
    match (into, own_name) {
        (Some(dir), Some(name)) => put_node(copy, Path::new(path), &dir, name.as_bytes(), problems),
        (Some(_), None) => return Err(format!("{}: has no name", show(path))),
        (None, _) => {
            let (dir, name) = tree.find_parent(dest).map_err(place)?;
            put_node(copy, Path::new(path), &dir, name, problems);
        }
    }
    Ok(())
}

fn put_node<'t>(
    copy: &mut In<'t>,
    path: &Path,
    dir: &InodeRef<'t>,
    name: &[u8],
    problems: &mut Vec<String>,
) {
    if let Err(problem) = try_node(copy, path, dir, name, problems) {
        problems.push(format!("{}: {problem}", path.display()));
    }
}

fn try_node<'t>(
    copy: &mut In<'t>,
    path: &Path,
    dir: &InodeRef<'t>,
    name: &[u8],
    problems: &mut Vec<String>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let metadata = path.symlink_metadata()?;
    let key = (metadata.dev(), metadata.ino());
    let shared = !metadata.is_dir() && metadata.nlink() > 1;
    if shared && let Some(first) = copy.made.get(&key) {
        drop(dir.fs.link(first.ino, dir.ino, name).map(|attr| InodeRef::from_attr(dir.fs, &attr))?);
        return Ok(());
    }
    let node = make(path, &metadata, dir, name)?;
    if metadata.is_dir() {
        let mut entries = fs::read_dir(path)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            put_node(copy, &entry.path(), &node, entry.file_name().as_bytes(), problems);
        }
    } else if metadata.is_file() {
        put_contents(copy, &File::open(path)?, &node)?;
    }
    put_attributes(path, &metadata, &node)?;
    if shared {
        copy.made.insert(key, node);
    }
    Ok(())
}

/// Makes the inode, or takes a directory that is there.
fn make<'t>(
    path: &Path,
    metadata: &Metadata,
    dir: &InodeRef<'t>,
    name: &[u8],
) -> std::result::Result<InodeRef<'t>, Box<dyn std::error::Error>> {
    let kind = metadata.file_type();
    match dir.child(name) {
        Ok(there) if kind.is_dir() && there.is_dir()? => return Ok(there),
        Ok(there) if there.is_dir()? => return Err(FsError::IsADirectory.into()),
        Ok(there) => {
            drop(there);
            dir.fs.unlink(dir.ino, name)?;
        }
        Err(FsError::NotFound) => {}
        Err(error) => return Err(error.into()),
    }
    let device = Rdev {
        major: rustix::fs::major(metadata.rdev()),
        minor: rustix::fs::minor(metadata.rdev()),
    };
    let new = if kind.is_dir() {
        NewNode::Directory
    } else if kind.is_symlink() {
        NewNode::Symlink(fs::read_link(path)?.as_os_str().as_bytes().to_vec())
    } else if kind.is_char_device() {
        NewNode::CharDevice(device)
    } else if kind.is_block_device() {
        NewNode::BlockDevice(device)
    } else if kind.is_fifo() {
        NewNode::Fifo
    } else if kind.is_socket() {
        NewNode::Socket
    } else {
        NewNode::Regular
    };
    let owner = Creds { uid: metadata.uid(), gid: metadata.gid() };
    let perm = if kind.is_symlink() { 0o777 } else { 0o600 };
    let attr = dir.fs.create(dir.ino, name, new, perm, 0, owner)?;
    Ok(InodeRef::from_attr(dir.fs, &attr))
}

fn put_contents(
    copy: &mut In<'_>,
    file: &File,
    node: &InodeRef<'_>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    use rustix::fs::SeekFrom;
    let size = file.metadata()?.len();
    let mut offset = 0;
    while offset < size {
        offset = match rustix::fs::seek(file, SeekFrom::Data(offset)) {
            Ok(start) => start,
            Err(rustix::io::Errno::NXIO) => break,
            Err(rustix::io::Errno::INVAL) => offset,
            Err(error) => return Err(error.into()),
        };
        let end = rustix::fs::seek(file, SeekFrom::Hole(offset)).unwrap_or(size);
        while offset < end {
            let want = usize::try_from(end - offset).unwrap_or(CHUNK).min(CHUNK);
            let count = file.read_at(&mut copy.buffer[..want], offset)?;
            if count == 0 {
                return Ok(());
            }
            node.fs.write(node.ino, offset, &copy.buffer[..count])?;
            offset += count as u64;
            copy.bar.inc(count as u64);
        }
    }
    if node.attr()?.size != size {
        node.fs.setattr(node.ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
    }
    Ok(())
}

fn put_attributes(
    path: &Path,
    metadata: &Metadata,
    node: &InodeRef<'_>,
) -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut names = vec![0; 65536];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap_or(0);
    for name in names[..len].split(|&byte| byte == 0).filter(|name| is_copied(name)) {
        let mut value = vec![0; 65536];
        if let Ok(len) = rustix::fs::lgetxattr(path, OsStr::from_bytes(name), &mut value[..]) {
            node.fs.setxattr(node.ino, name, &value[..len], XattrSet::Any)?;
        }
    }
    let time =
        |sec, nsec: i64| SetTime::At(Timestamp { sec, nsec: u32::try_from(nsec).unwrap_or(0) });
    let set = SetAttr {
        perm: (!metadata.is_symlink()).then_some((metadata.mode() & 0o7777) as u16),
        uid: Some(metadata.uid()),
        gid: Some(metadata.gid()),
        atime: Some(time(metadata.atime(), metadata.atime_nsec())),
        mtime: Some(time(metadata.mtime(), metadata.mtime_nsec())),
        ..SetAttr::default()
    };
    node.fs.setattr(node.ino, &set)?;
    Ok(())
}
