//! New values.

use extol_jbd2::Handle;
use extol_ondisk::xattr as format;
use extol_ondisk::{FileType, Inode, InodeFlags, InodeNr};
use extol_vfs::{FsError, Result};

use super::{Values, count, end, load, write};
use crate::alloc::Run;
use crate::error;
use crate::map;
use crate::node::Node;
use crate::volume::Volume;

/// An inode with this value and its checksum, of which the caller is one user: one that has it
/// already, or a new one. `NoSpace` changes nothing.
pub(crate) fn obtain(
    vol: &Volume,
    h: &mut Handle,
    values: &mut Values<'_>,
    owner: &Node,
    value: &[u8],
) -> Result<(InodeNr, u32)> {
    let hash = format::value_hash(value, vol.geo.fs_seed);
    let ino = match share(vol, h, hash, value)? {
        Some(ino) => ino,
        None => create(vol, h, values, owner, hash, value)?,
    };
    Ok((ino, hash))
}

/// One more user of an inode that is known to have this value.
fn share(vol: &Volume, h: &mut Handle, hash: u32, value: &[u8]) -> Result<Option<InodeNr>> {
    let mut noted = vol.sharing.values.lock();
    let Some(ino) = noted.by_hash.get(&hash).copied() else { return Ok(None) };
    match load(vol, ino).filter(|found| has(vol, found, hash, value)) {
        Some(found) => count(vol, h, found, 1).map(|()| Some(ino)),
        None => {
            noted.remove(hash, ino);
            Ok(None)
        }
    }
}

fn has(vol: &Volume, found: &Node, hash: u32, value: &[u8]) -> bool {
    format::stated_hash(&found.raw) == hash
        && format::stated_users(&found.raw) > 0
        && found.raw.size == value.len() as u64
        && super::read::contents(vol, found, value.len()).is_ok_and(|bytes| bytes == value)
}

fn create(
    vol: &Volume,
    h: &mut Handle,
    values: &mut Values<'_>,
    owner: &Node,
    hash: u32,
    value: &[u8],
) -> Result<InodeNr> {
    let ino = vol.alloc.alloc_inode(h, owner.ino, false, false)?;
    if values.orphans.is_orphan(ino) {
        return Err(vol.alloc.refuse_used(h, ino, false)?);
    }
    let mut node = Node { ino, raw: new_raw(vol, owner, values) };
    if let Err(e) = fill(vol, h, &mut node, value) {
        write(vol, h, &node, true)?;
        end(vol, h, values, &mut node)?;
        return Err(e);
    }
    node.raw.size = value.len() as u64;
    format::set_stated_hash(&mut node.raw, hash);
    format::set_stated_users(&mut node.raw, 1);
    write(vol, h, &node, true)?;
    vol.sharing.values.lock().insert(hash, ino);
    Ok(ino)
}

fn new_raw(vol: &Volume, owner: &Node, values: &Values<'_>) -> Inode {
    let mut raw = Inode::new_empty(&vol.geo);
    raw.mode = FileType::Regular.mode_bits() | 0o600;
    (raw.uid, raw.gid) = (owner.raw.uid, owner.raw.gid);
    raw.links = 1;
    (raw.mtime, raw.crtime) = (values.now, values.now);
    // With the owner's generation it could be taken for one of the old form.
    raw.generation = extol_proc::random_number() as u32;
    if raw.generation == owner.raw.generation {
        raw.generation = raw.generation.wrapping_add(1);
    }
    raw.flags = InodeFlags::EA_INODE;
    map::init(&vol.geo, &mut raw);
    raw
}

/// Writes the value into new blocks, through the log.
fn fill(vol: &Volume, h: &mut Handle, node: &mut Node, value: &[u8]) -> Result<()> {
    let bs = vol.geo.block_len();
    let mut goal = vol.alloc.inode_goal(node.ino);
    let mut at = 0u32;
    let mut parts = value.chunks(bs);
    while parts.len() > 0 {
        let run = vol.alloc.take(goal, u32::try_from(parts.len()).unwrap_or(u32::MAX), 1)?;
        insert(vol, h, node, at, run)?;
        for (nr, part) in (run.start.0..).zip(parts.by_ref().take(run.len as usize)) {
            let buf = h.create(extol_block::BlockNr(nr)).map_err(error::journal)?;
            h.modify(&buf, |block| {
                if let Some(head) = block.get_mut(..part.len()) {
                    head.copy_from_slice(part);
                }
            })
            .map_err(error::journal)?;
        }
        at = at.saturating_add(run.len);
        goal = run.start.plus(u64::from(run.len));
    }
    Ok(())
}

/// Makes a run that was taken part of the value, if the transaction has room for it.
fn insert(vol: &Volume, h: &mut Handle, node: &mut Node, at: u32, run: Run) -> Result<()> {
    let block_size = vol.geo.block_size.bytes();
    let wanted = run.len + 2 + map::credits_for_insert(node, run.len, block_size);
    let missing = wanted.saturating_sub(h.credits());
    if missing > 0 && !h.extend(missing).map_err(error::journal)? {
        vol.alloc.give_back(run);
        return Err(FsError::NoSpace);
    }
    if let Err(e) = vol.alloc.commit_take(h, run) {
        vol.alloc.give_back(run);
        return Err(e);
    }
    map::insert(vol, h, node, at, run, false).or_else(|e| {
        vol.alloc.free(h, run)?;
        Err(e)
    })
}
