//! Listing a directory from a cookie on.
//!
//! A cookie says *behind* which entry the listing continues. It stays valid while names are added
//! and removed, without any state in memory between two calls:
//!
//! * An indexed directory is listed in hash order (see [`batch`](super::batch)), and so are a
//!   directory of one block that may get an index at any moment, and one inside its inode: the
//!   cookies survive the change. Cookie 1 is behind `.`, 2 behind `..`, else it is the position of
//!   the entry plus one. If the index cannot be used, all leaves together are one run, in the same
//!   order.
//! * Any other directory is listed by byte offsets; the cookie is the offset behind the entry.
//!   Entries never move within a block, but they merge and split, so the block is read from its
//!   start and entries that begin before the cookie are skipped.
//!
//! Damage. A listing hands out all that can be read, and then ends with the first error:
//!
//! * A block with a wrong checksum is left out. In one whose chain of entries breaks, those before
//!   the break are handed out. An entry with an impossible inode number is handed out as it is (a
//!   lookup gets the error); one with an illegal name is left out. An index that cannot be read is
//!   not used.
//!
//! Invariants
//! - RD-1: a listing that left something out never ends without an error, in however many calls it
//!   is read. A call that begins behind the damage does not meet it. So the volume notes that some
//!   directory is damaged ([`Volume::dirs_damaged`]), and from then on a call that reaches the end
//!   but did not begin at the beginning reads all blocks once more ([`check_all`]).
//! - RD-2: the time is bounded ([`Damage::MAX_COST`]): a device that fails everywhere, or a block
//!   map that leads nowhere, ends the listing before all of it is tried.

use std::sync::atomic::Ordering;

use extol_ondisk::dirent::{self, Entry};
use extol_ondisk::htree::{self, NameHash};
use extol_ondisk::{FileType, InodeNr};
use extol_vfs::{DirEntry, FsError, Result};

use super::batch::{self, Batch, Emitted, kind_of};
use super::blocks::Blocks;
use super::hashes::Hashes;
use super::index_path::{IndexError, Path};
use super::place::Place;
use super::shape::{BlockKind, Shape};
use super::{linear, names};
use crate::encrypted;
use crate::inline;
use crate::node::Node;
use crate::volume::Volume;

type Each<'a> = &'a mut dyn FnMut(DirEntry) -> bool;

/// What a listing could not read.
struct Damage {
    first: Option<FsError>,
    /// What is left of [`MAX_COST`](Self::MAX_COST).
    budget: u32,
}

impl Damage {
    /// Most damage behind which a listing continues, in blocks that the map does not find.
    const MAX_COST: u32 = 4096;
    /// A failed read costs as much as so many of them.
    const READ: u32 = 16;

    fn new() -> Self {
        Self { first: None, budget: Self::MAX_COST }
    }

    /// Notes an error behind which the listing can continue; any other ends it.
    fn note(&mut self, error: FsError, cost: u32) -> Result<()> {
        let cost = match &error {
            FsError::Corrupt { .. } => cost,
            FsError::Io(_) => Self::READ,
            _ => return Err(error),
        };
        let first = self.first.get_or_insert(error);
        self.budget = self.budget.checked_sub(cost).ok_or_else(|| first.clone())?;
        Ok(())
    }

    /// [`note`](Self::note) of something that is there but makes no sense, at no cost.
    fn corrupt(&mut self, error: FsError) -> Result<()> {
        self.note(error, 0)
    }
}

/// Hands the entries behind `cookie` (0: all) to `each` until it returns false; `.` and `..` come
/// first. An entry that `each` refused counts as not taken: the cookie of the one before it leads
/// to it again. Whatever is added or removed between two calls, every name that is there all the
/// time is listed exactly once.
///
/// # Errors
/// What could not be read, after everything that could.
pub(crate) fn iterate(vol: &Volume, dir: &Node, cookie: u64, each: Each<'_>) -> Result<()> {
    let mut blocks = Blocks::new(vol, dir);
    let mut damage = Damage::new();
    let mut stopped = false;
    let mut problem = None;
    let key = encrypted::names_key(vol, dir)?;
    blocks.shape.decrypts = key.is_some();
    let shape = blocks.shape;
    let outcome = list(&mut blocks, dir, cookie, &mut damage, &mut |mut entry| {
        if let Some(key) = &key
            && !matches!(&entry.name[..], b"." | b"..")
        {
            match names::plain(&shape, key, &entry.name) {
                Ok(name) => entry.name = name,
                Err(error) => {
                    problem.get_or_insert(error);
                    return true;
                }
            }
        }
        let more = each(entry);
        stopped |= !more;
        more
    });
    if let Some(error) = problem {
        damage.corrupt(error)?;
    }
    if outcome.is_ok() && !stopped && damage.first.is_none() && cookie != 0 {
        check_all(&mut blocks, dir, &mut damage)?;
    }
    if damage.first.is_some() {
        vol.dirs_damaged.store(true, Ordering::Relaxed);
    }
    match damage.first {
        Some(error) if !stopped => Err(error),
        _ => outcome,
    }
}

fn list(
    blocks: &mut Blocks<'_, '_>,
    dir: &Node,
    cookie: u64,
    damage: &mut Damage,
    each: Each<'_>,
) -> Result<()> {
    let vol = blocks.vol;
    let inline = inline::is_inline(dir);
    if !inline && blocks.shape.blocks == 0 {
        return Ok(());
    }
    if !is_hashed(blocks, dir) {
        return by_offset(blocks, cookie, damage, each);
    }
    if cookie >= batch::END {
        return Ok(());
    }
    if cookie == 0 && !each(dots(dir.ino.0, 1, b".")) {
        return Ok(());
    }
    if cookie <= 1 {
        match parent(blocks, dir) {
            Ok(parent) => {
                if !each(dots(parent, batch::FIRST, b"..")) {
                    return Ok(());
                }
            }
            Err(error) => damage.corrupt(error)?,
        }
    }
    let from = cookie.max(batch::FIRST);
    if inline {
        let hashes = Hashes::default_for(&blocks.shape);
        let (inside, problem) = inline::list_entries(vol, dir)?;
        if let Some(problem) = problem {
            damage.corrupt(problem)?;
        }
        let mut batch = Batch::new(from, 0);
        for entry in &inside {
            let what = (entry.ino, entry.kind);
            add(&blocks.shape, &mut batch, &hashes, what, (&entry.name, None))
                .or_else(|error| damage.corrupt(error))?;
        }
        return batch.emit(each).map(|_| ());
    }
    if !blocks.shape.indexed {
        return as_one_run(blocks, from, damage, each);
    }
    let mut reached = from;
    match by_index(blocks, &mut reached, damage, each) {
        Ok(()) => Ok(()),
        Err(IndexError::Structure(_) | IndexError::NoHash) => {
            as_one_run(blocks, reached, damage, each)
        }
        Err(IndexError::Other(error)) => {
            damage.corrupt(error)?;
            as_one_run(blocks, reached, damage, each)
        }
    }
}

/// True if the directory is listed in hash order.
fn is_hashed(blocks: &Blocks<'_, '_>, dir: &Node) -> bool {
    let may_get_index = blocks.shape.dir_index && blocks.shape.blocks == 1;
    inline::is_inline(dir) || blocks.shape.indexed || may_get_index
}

/// Where `..` leads.
fn parent(blocks: &mut Blocks<'_, '_>, dir: &Node) -> Result<u32> {
    if inline::is_inline(dir) {
        return inline::checked_parent(blocks.vol, dir).map(|parent| parent.0);
    }
    match linear::find_dots(blocks, b"..")? {
        Place::Found(found) => blocks.shape.inode(found.hit.ino).map(|parent| parent.0),
        Place::Vacant(_) => Err(blocks.shape.corrupt("directory without '..'")),
    }
}

fn dots(ino: u32, cookie: u64, name: &[u8]) -> DirEntry {
    DirEntry { ino, cookie, kind: kind_of(Some(FileType::Directory)), name: name.to_vec() }
}

/// Hands out the readable entries of a leaf until `each` returns false; then false.
fn leaf_entries(
    blocks: &mut Blocks<'_, '_>,
    lblk: u32,
    damage: &mut Damage,
    each: &mut dyn FnMut(&Entry<'_>, Option<NameHash>) -> bool,
) -> Result<bool> {
    let buf = match blocks.leaf_to_list(lblk) {
        Ok(Some((buf, None))) => buf,
        Ok(Some((buf, Some(problem)))) => {
            damage.corrupt(problem)?;
            buf
        }
        Ok(None) => return Ok(true),
        Err(error) => return damage.corrupt(error).map(|()| true),
    };
    let data = buf.data();
    let area = blocks.shape.area(&data);
    for entry in dirent::iter(area) {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => {
                damage.corrupt(blocks.shape.bad(error))?;
                break;
            }
        };
        if !entry.is_used() {
            continue;
        }
        // A name with a slash could lead out of the directory. Encrypted ones are shown as others.
        if !blocks.shape.encrypted && entry.name.iter().any(|c| matches!(c, b'/' | 0)) {
            let what = "directory entry with a slash or NUL in its name";
            damage.corrupt(blocks.shape.corrupt(what).at_block(buf.nr().0))?;
            continue;
        }
        let stored = match blocks.shape.hash_len {
            0 => None,
            _ => dirent::hash_behind(area, &entry),
        };
        if !each(&entry, stored) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Adds the entries of a leaf to a batch.
fn load(
    blocks: &mut Blocks<'_, '_>,
    lblk: u32,
    hashes: &Hashes,
    batch: &mut Batch,
    damage: &mut Damage,
) -> Result<()> {
    let shape = blocks.shape;
    let mut problem = None;
    leaf_entries(blocks, lblk, damage, &mut |entry, stored| {
        if !entry.is_dot() {
            let what = (entry.ino, entry.file_type.filter(|_| shape.filetype));
            if let Err(error) = add(&shape, batch, hashes, what, (entry.name, stored)) {
                problem.get_or_insert(error);
            }
        }
        true
    })?;
    problem.map_or(Ok(()), |error| damage.corrupt(error))
}

/// Adds an entry to a batch: with encrypted names as it is shown without a key.
fn add(
    shape: &Shape<'_>,
    batch: &mut Batch,
    hashes: &Hashes,
    what: (InodeNr, Option<FileType>),
    (name, stored): (&[u8], Option<NameHash>),
) -> Result<()> {
    let encrypted = shape.encrypted && !shape.decrypts;
    batch.push((hashes, shape), what, (name, stored), |hash| {
        encrypted.then(|| names::shown(shape, name, hash)).transpose()
    })
}

/// The first block at or behind `at` that is no hole. Parts of the map that cannot be read are
/// stepped over.
fn next_block(
    blocks: &mut Blocks<'_, '_>,
    mut at: u32,
    damage: &mut Damage,
) -> Result<Option<u32>> {
    while at < blocks.shape.blocks {
        match blocks.next(at) {
            Ok(next) => return Ok(next),
            Err(error) => damage.note(error, 1)?,
        }
        at += 1;
    }
    Ok(None)
}

/// The first leaf at or behind `at`.
fn next_leaf(blocks: &mut Blocks<'_, '_>, mut at: u32, damage: &mut Damage) -> Result<Option<u32>> {
    while let Some(lblk) = next_block(blocks, at, damage)? {
        match blocks.index_node(lblk) {
            Ok(None) => return Ok(Some(lblk)),
            Ok(Some(_)) => {}
            Err(error) => damage.note(error, 1)?,
        }
        at = lblk + 1;
    }
    Ok(None)
}

/// RD-1: looks for damage in all of the directory, if there may be some.
fn check_all(blocks: &mut Blocks<'_, '_>, dir: &Node, damage: &mut Damage) -> Result<()> {
    if !blocks.vol.dirs_damaged.load(Ordering::Relaxed) {
        return Ok(());
    }
    if is_hashed(blocks, dir)
        && let Err(error) = parent(blocks, dir)
    {
        damage.corrupt(error)?;
    }
    if inline::is_inline(dir) {
        // Each call reads all of it.
        return Ok(());
    }
    let mut at = 0;
    while damage.first.is_none()
        && let Some(lblk) = next_leaf(blocks, at, damage)?
    {
        leaf_entries(blocks, lblk, damage, &mut |_, _| true)?;
        at = lblk + 1;
    }
    Ok(())
}

/// Lists run after run through the index. `reached` is where to continue if the index turns out to
/// be unusable.
fn by_index(
    blocks: &mut Blocks<'_, '_>,
    reached: &mut u64,
    damage: &mut Damage,
    each: Each<'_>,
) -> std::result::Result<(), IndexError> {
    'search: loop {
        let (mut path, hashes) = Path::find(blocks, |_| Some(batch::hash_at(*reached)))?;
        let mut batch = Batch::new(*reached, batch::position(path.key & !1, 0));
        for _ in 0..blocks.shape.blocks {
            load(blocks, path.leaf(), &hashes, &mut batch, damage)?;
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

/// Lists all leaves as one run, without the index.
fn as_one_run(
    blocks: &mut Blocks<'_, '_>,
    mut from: u64,
    damage: &mut Damage,
    each: Each<'_>,
) -> Result<()> {
    let geo = blocks.shape.geo;
    // (Damage there is found again below.)
    let hashes = match blocks.any(0) {
        Ok(Some((buf, BlockKind::Index(_)))) => htree::decode_info(&buf.data(), geo)
            .ok()
            .and_then(|info| Hashes::new(&blocks.shape, info.hash_version)),
        _ => None,
    };
    let hashes = hashes.unwrap_or_else(|| Hashes::default_for(&blocks.shape));
    loop {
        let mut batch = Batch::new(from, 0);
        let mut at = 0;
        while let Some(lblk) = next_leaf(blocks, at, damage)? {
            at = lblk + 1;
            load(blocks, lblk, &hashes, &mut batch, damage)?;
        }
        match batch.emit(each)? {
            Emitted::Again(position) => from = position,
            Emitted::Stopped | Emitted::Finished(_) => return Ok(()),
        }
    }
}

fn by_offset(
    blocks: &mut Blocks<'_, '_>,
    cookie: u64,
    damage: &mut Damage,
    each: Each<'_>,
) -> Result<()> {
    let bs = blocks.shape.geo.block_len() as u64;
    let shape = blocks.shape;
    let Ok(mut at) = u32::try_from(cookie / bs) else { return Ok(()) };
    while let Some(lblk) = next_block(blocks, at, damage)? {
        at = lblk + 1;
        let start = u64::from(lblk) * bs;
        let mut problem = None;
        let more = leaf_entries(blocks, lblk, damage, &mut |entry, stored| {
            if start + (entry.offset as u64) < cookie {
                return true;
            }
            let name = if shape.encrypted && !shape.decrypts && !entry.is_dot() {
                let hash = stored.map_or([0; 2], |hash| [hash.hash, hash.minor]);
                match names::shown(&shape, entry.name, hash) {
                    Ok(name) => name,
                    Err(error) => {
                        problem.get_or_insert(error);
                        return true;
                    }
                }
            } else {
                entry.name.to_vec()
            };
            each(DirEntry {
                ino: entry.ino.0,
                cookie: start + (entry.offset + entry.rec_len) as u64,
                kind: kind_of(entry.file_type.filter(|_| shape.filetype)),
                name,
            })
        })?;
        if let Some(error) = problem {
            damage.corrupt(error)?;
        }
        if !more {
            return Ok(());
        }
    }
    Ok(())
}
