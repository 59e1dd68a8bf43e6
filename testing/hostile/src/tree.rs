//! All files of a volume, as they are after recovery: to tell whether a change of the volume has
//! changed them.

use std::collections::BTreeMap;

use extol::vfs::{Attr, FileKind, FileSystem, FsError, Seek};
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use sha2::{Digest as _, Sha256};

use crate::disk::Disk;

/// Most files that are looked at.
const MAX_FILES: usize = 2000;
/// Most bytes of a file that are looked at, and most stretches of data.
const MAX_BYTES: u64 = 8 << 20;
const MAX_STRETCHES: usize = 2000;

/// What there is, by path: but for what depends on the place (numbers of inodes, blocks in use).
/// `None` if the volume cannot be opened.
#[must_use]
pub fn of(dev: &MemDevice) -> Option<BTreeMap<Vec<u8>, String>> {
    let options = MountOptions::parse("errors=continue,noatime").ok()?.without_threads();
    let fs = Ext4::open(Disk::new(dev.snapshot(), false), &options).ok()?;
    let mut found = BTreeMap::new();
    let mut queue = vec![(fs.root(), Vec::new())];
    while let Some((ino, path)) = queue.pop() {
        if found.len() >= MAX_FILES {
            break;
        }
        let text = match fs.getattr(ino) {
            Err(e) => without_place(&e),
            Ok(attr) => {
                if attr.kind == FileKind::Directory {
                    let listed = fs.readdir(ino, 0, &mut |entry| {
                        if entry.name != b"." && entry.name != b".." {
                            let name = [&path[..], b"/", &entry.name].concat();
                            queue.push((entry.ino, name));
                        }
                        queue.len() < MAX_FILES
                    });
                    described(&fs, ino, &attr, listed.err())
                } else {
                    described(&fs, ino, &attr, None)
                }
            }
        };
        found.insert(path, text);
    }
    fs.crash();
    Some(found)
}

/// An error without the number of the inode or block.
fn without_place(e: &FsError) -> String {
    match e {
        FsError::Corrupt { what, .. } => format!("corrupt: {what}"),
        e => e.to_string(),
    }
}

fn described(fs: &Ext4, ino: u32, attr: &Attr, listed: Option<FsError>) -> String {
    let Attr { kind, perm, nlink, uid, gid, rdev, mtime, crtime, flags, project, .. } = attr;
    let size = if *kind == FileKind::Directory { 0 } else { attr.size };
    let mut text = format!(
        "{kind:?} {perm:o} {nlink} {uid} {gid} {rdev:?} {size} {mtime:?} {crtime:?} {flags:x} \
         {project}"
    );
    if let Some(e) = listed {
        text += &without_place(&e);
    }
    match kind {
        FileKind::Regular => text += &contents(fs, ino, attr.size),
        FileKind::Symlink => match fs.readlink(ino) {
            Ok(target) => text += &format!(" -> {target:x?}"),
            Err(e) => text += &without_place(&e),
        },
        _ => {}
    }
    match fs.listxattr(ino) {
        Ok(names) => {
            for name in names {
                let value = fs.getxattr(ino, &name).map_err(|e| without_place(&e));
                text += &format!(" {name:x?}={:x?}", Sha256::digest(format!("{value:?}")));
            }
        }
        Err(e) => text += &without_place(&e),
    }
    text
}

/// A hash of the data, hole by hole.
fn contents(fs: &Ext4, ino: u32, size: u64) -> String {
    let mut hash = Sha256::new();
    let (mut at, mut left) = (0, MAX_BYTES);
    let mut buf = vec![0; 64 << 10];
    for _ in 0..MAX_STRETCHES {
        let Ok(start) = fs.seek(ino, at, Seek::Data) else { break };
        let end = fs.seek(ino, start, Seek::Hole).unwrap_or(size).min(size);
        at = start;
        while at < end && left > 0 {
            let len = (end - at).min(buf.len() as u64).min(left) as usize;
            match fs.read(ino, at, &mut buf[..len]) {
                Ok(n) if n > 0 => {
                    // (Zeros count as a hole: an extent may be written or not.)
                    if buf[..n].iter().any(|byte| *byte != 0) {
                        hash.update(at.to_le_bytes());
                        hash.update(&buf[..n]);
                    }
                    at += n as u64;
                    left -= n as u64;
                }
                Ok(_) => return " short".into(),
                Err(e) => return without_place(&e),
            }
        }
        if at >= size || left == 0 {
            break;
        }
    }
    format!(" {:x?}", hash.finalize())
}
