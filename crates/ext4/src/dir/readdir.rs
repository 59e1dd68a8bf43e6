//! Reading a directory from a cookie on.
//!
//! A cookie says *behind* which entry to go on and stays valid while names come and go, without anything being kept
//! in memory between two calls:
//!
//! * An indexed directory is read in the order of hashes (see [`batch`](super::batch)), and so is a directory of one
//!   block where it may get an index at any moment, and one inside its inode: the cookies survive the change. Cookie
//!   1 is behind `.`, 2 behind `..`, else it is the position of the entry plus one. If the index cannot be used, all
//!   leaves together are one run, in the same order.
//! * Any other directory is read by bytes; the cookie is the offset behind the entry. Within a block entries never
//!   move, but they merge and split, so the block is walked from its start and what begins before the cookie is
//!   skipped.

use extol_ondisk::dirent::{self, Entry};
use extol_ondisk::htree::{self, Hasher};
use extol_ondisk::{FileType, InodeFlags};
use extol_vfs::{DirEntry, Result};

use super::batch::{self, Batch, Emitted};
use super::blocks::{BlockKind, Blocks};
use super::htree::{IndexError, Path};
use super::{Place, kind_of, linear};
use crate::inline;
use crate::node::Node;
use crate::volume::Volume;

type Each<'a> = &'a mut dyn FnMut(DirEntry) -> bool;

/// Hands out the entries behind `cookie` until `each` returns false. An entry that `each` refused was not taken: the
/// cookie of the one before it leads to it again.
pub(super) fn iterate(vol: &Volume, dir: &Node, cookie: u64, each: Each<'_>) -> Result<()> {
    let inline = dir.raw.flags.contains(InodeFlags::INLINE_DATA);
    let mut blocks = Blocks::new(vol, dir);
    if !inline && blocks.shape.blocks == 0 {
        return Ok(());
    }
    let may_get_index = blocks.shape.dir_index && blocks.shape.blocks == 1;
    if !(inline || blocks.shape.indexed || may_get_index) {
        return by_offset(&mut blocks, cookie, each);
    }
    if cookie >= batch::END {
        return Ok(());
    }
    if cookie == 0 && !each(dots(dir.ino.0, 1, b".")) {
        return Ok(());
    }
    if cookie <= 1 {
        let parent = match inline {
            true => inline::dir_entries(vol, dir)?.parent,
            false => match linear::find_dots(&mut blocks, b"..")? {
                Place::Found(found) => blocks.shape.inode(found.hit.ino)?,
                Place::Vacant(_) => return Err(blocks.shape.corrupt("directory without '..'")),
            },
        };
        if !each(dots(parent.0, batch::FIRST, b"..")) {
            return Ok(());
        }
    }
    let from = cookie.max(batch::FIRST);
    if inline {
        let hasher = Hasher::default_for(&vol.geo);
        let entries = inline::dir_entries(vol, dir)?.entries;
        let mut batch = Batch::new(from, 0);
        for entry in &entries {
            batch.push(&hasher, entry.ino, Some(entry.kind), &entry.name);
        }
        batch.emit(each).map(|_| ())
    } else if blocks.shape.searchable {
        let mut reached = from;
        match by_index(&mut blocks, &mut reached, each) {
            Err(IndexError::Structure(_)) => as_one_run(&mut blocks, reached, each),
            Err(IndexError::Fs(e)) => Err(e),
            Ok(()) => Ok(()),
        }
    } else {
        as_one_run(&mut blocks, from, each)
    }
}

fn dots(ino: u32, cookie: u64, name: &[u8]) -> DirEntry {
    DirEntry { ino, cookie, kind: kind_of(Some(FileType::Directory)), name: name.to_vec() }
}

/// A name that could be used to leave the directory, or none at all, is not handed out.
fn checked<'a>(blocks: &Blocks<'_, '_>, entry: &Entry<'a>) -> Result<&'a [u8]> {
    if entry.name.iter().any(|c| matches!(c, b'/' | 0)) {
        return Err(blocks.shape.corrupt("directory entry with a slash or NUL in its name"));
    }
    blocks.shape.inode(entry.ino)?;
    Ok(entry.name)
}

/// Adds the entries of a leaf to a batch.
fn load(blocks: &mut Blocks<'_, '_>, lblk: u32, hasher: &Hasher, batch: &mut Batch) -> Result<()> {
    let Some(buf) = blocks.leaf(lblk)? else { return Ok(()) };
    let data = buf.data();
    for entry in dirent::iter(blocks.shape.area(&data)) {
        let entry = entry.map_err(|e| blocks.shape.bad(e))?;
        if !entry.is_used() || entry.is_dot() {
            continue;
        }
        let name = checked(blocks, &entry)?;
        batch.push(hasher, entry.ino, entry.file_type.filter(|_| blocks.shape.filetype), name);
    }
    Ok(())
}

/// Run after run through the index. `reached` is where to go on if the index turns out to be unusable.
fn by_index(
    blocks: &mut Blocks<'_, '_>,
    reached: &mut u64,
    each: Each<'_>,
) -> std::result::Result<(), IndexError> {
    'search: loop {
        let (mut path, hasher) = Path::find(blocks, |_| batch::hash_at(*reached))?;
        let mut batch = Batch::new(*reached, batch::position(path.key & !1, 0));
        for _ in 0..blocks.shape.blocks {
            load(blocks, path.leaf(), &hasher, &mut batch)?;
            let next = path.next_key();
            let high = match next {
                Some((_, key)) => batch::position(key & !1, 0),
                None => batch::END,
            };
            if let Some(next) = next
                && (next.1 & 1 != 0 || high <= batch.low())
            {
                path.advance(blocks, next)?;
                continue;
            }
            batch.end_at(high);
            match batch.emit(each)? {
                Emitted::Stopped => return Ok(()),
                Emitted::Again(position) => {
                    *reached = position;
                    continue 'search;
                }
                Emitted::Finished(position) => *reached = position,
            }
            let Some(next) = next else { return Ok(()) };
            path.advance(blocks, next)?;
            batch.restart(*reached, high);
        }
        return Err(IndexError::Structure("directory index with a loop"));
    }
}

/// All leaves at once, whatever leads to them.
fn as_one_run(blocks: &mut Blocks<'_, '_>, mut from: u64, each: Each<'_>) -> Result<()> {
    let geo = blocks.shape.geo;
    let hasher = match blocks.any(0)? {
        Some((buf, BlockKind::Index(_))) => {
            htree::decode_info(&buf.data(), geo).ok().and_then(|info| Hasher::new(geo, info.hash_version))
        }
        _ => None,
    };
    let hasher = hasher.unwrap_or_else(|| Hasher::default_for(geo));
    loop {
        let mut batch = Batch::new(from, 0);
        let mut at = 0;
        while let Some(lblk) = blocks.next(at)? {
            at = lblk + 1;
            if matches!(blocks.any(lblk)?, Some((_, BlockKind::Leaf))) {
                load(blocks, lblk, &hasher, &mut batch)?;
            }
        }
        match batch.emit(each)? {
            Emitted::Again(position) => from = position,
            Emitted::Stopped | Emitted::Finished(_) => return Ok(()),
        }
    }
}

fn by_offset(blocks: &mut Blocks<'_, '_>, cookie: u64, each: Each<'_>) -> Result<()> {
    let bs = blocks.shape.geo.block_len() as u64;
    let Ok(first) = u32::try_from(cookie / bs) else { return Ok(()) };
    let mut at = first;
    while let Some(lblk) = blocks.next(at)? {
        at = lblk + 1;
        let Some(buf) = blocks.leaf(lblk)? else { continue };
        let data = buf.data();
        let start = u64::from(lblk) * bs;
        for entry in dirent::iter(blocks.shape.area(&data)) {
            let entry = entry.map_err(|e| blocks.shape.bad(e))?;
            if !entry.is_used() || start + (entry.offset as u64) < cookie {
                continue;
            }
            let name = checked(blocks, &entry)?.to_vec();
            let cookie = start + (entry.offset + entry.rec_len) as u64;
            let file_type = entry.file_type.filter(|_| blocks.shape.filetype);
            if !each(DirEntry { ino: entry.ino.0, cookie, kind: kind_of(file_type), name }) {
                return Ok(());
            }
        }
    }
    Ok(())
}
