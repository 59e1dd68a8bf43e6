//! A log that is lent to a volume without a journal, so that it can become smaller as one that has
//! a journal: `give` lends it, on a volume that is closed, and `take_back` takes it away again.
//!
//! The bits behind the end of the last group are set in its bitmap, and no count has them. So a
//! log that lies there is in use as soon as the volume is longer, and not part of the volume as
//! soon as it is shorter: neither a bitmap nor a descriptor changes, only the superblock.
//!
//! ```text
//!            last group                              last group of the smaller volume
//!   give     │ files │ free │ log ┆ (padding)        │ files │ the journal's inode ┆   take_back
//!                           ▲     ▲                          ▲                     ▲
//!                     old end     end with it             new end     end with it, behind the cut
//! ```
//!
//! In between, the log moves behind the new end if that is in another group; the cut ends the
//! volume where the group ends; then the journal's inode gets all that is free behind the new end
//! (`JournalFile::swallow`).
//!
//! Order of the writes, each durable before the next:
//!
//! - LL-1: the device is longer; the log, empty, and map blocks, behind the old end.
//! - LL-2: the inode of the journal. No feature says that there is one, so Linux does not look at
//!   it, and e2fsck clears it.
//! - LL-3: the superblock, one write: the end, the feature, the number of the inode.
//! - LL-4: all that makes the volume smaller: transactions, as with any journal.
//! - LL-5: nothing but blocks of the journal's inode is behind the new end, and none of these is in
//!   front of it; the log is empty, the volume closed.
//! - LL-6: the superblock, one write: the new end, no journal.
//! - LL-7: the inode of the journal is cleared. Before, it is as in LL-2.
//! - LL-8: the copies of superblock and descriptors; then the device is cut.
//!
//! A crash between LL-3 and LL-6 leaves a volume with a journal. The generation of its inode says
//! that it is lent (`LENT`): the next run that makes the volume smaller takes it away.

use extol_block::{BlockDevice, BlockNr, SharedDevice};
use extol_jbd2::format::{Features, JournalSuperblock};
use extol_ondisk::{
    Compat, Geometry, GroupFlags, GroupNr, Incompat, Inode, InodeFlags, InodeNr, Superblock, Time,
    bitmap, extent, indirect,
};
use extol_vfs::FsError;

use super::super::plan::{self, smaller::smaller};
use super::super::second_copy;
use super::super::{ResizeError, refuse};
use super::cut::most_credits;
use super::journal::map::{self as journal_map, Map};
use super::journal::{self, JournalFile, Place, blocks as journal_blocks};
use crate::alloc::{Fixed, Run};
use crate::error::{self, OpenError};
use crate::find_journal;
use crate::mounted::MountedFs;
use crate::superblock::{geometry, has_orphans, read_superblock, write_superblock};
use crate::volume::Volume;

type Result<T> = std::result::Result<T, ResizeError>;

/// The generation of the inode of a journal that is lent.
const LENT: u32 = u32::from_be_bytes(*b"LENT");
/// Bytes that a device writes whole.
const SECTOR: usize = 512;
/// Behind a refusal: what works in any case.
const ADVICE: &str = "give it a journal (extol tune -j), resize it, and take the journal away \
    again (extol tune -O ^has_journal)";

/// True if the volume has a journal that is lent.
pub(crate) fn is_lent(fs: &MountedFs) -> Result<bool> {
    let ino = fs.sb.read(|sb| sb.journal_inum);
    if ino != InodeNr::JOURNAL.0 || !fs.vol.journal.has_log() {
        return Ok(false);
    }
    Ok(fs.vol.read_inode(InodeNr::JOURNAL)?.generation == LENT)
}

/// True if the volume has no journal, but the inode of one that was lent, behind the end: a run was
/// interrupted next to the write of the superblock (LL-2, LL-7). Blocks in front of the end are in
/// use, as after `extol tune -O ^has_journal` that was interrupted: e2fsck gives those back.
pub(crate) fn has_unused(fs: &MountedFs) -> Result<bool> {
    let geo = &fs.vol.geo;
    if geo.compat().contains(Compat::HAS_JOURNAL) {
        return Ok(false);
    }
    let inode = fs.vol.read_inode(InodeNr::JOURNAL)?;
    let is_behind = match inode.flags.contains(InodeFlags::EXTENTS) {
        // (A map that names what is behind the end is none.)
        true => extent::Node::decode(&inode.i_block, geo).is_err(),
        false => u64::from(indirect::pointer(&inode.i_block, 0)) >= geo.blocks(),
    };
    Ok(inode.links != 0 && inode.generation == LENT && is_behind)
}

/// Clears it.
pub(crate) fn clear_unused(fs: &MountedFs) -> Result<()> {
    if !has_unused(fs)? {
        return Ok(());
    }
    fs.check_writable()?;
    Ok(fs.transact(1, |h| fs.vol.clear_inode(h, InodeNr::JOURNAL))?)
}

/// A log behind the end.
struct Plan {
    blocks: u32,
    at: Run,
    map: Map,
    inode: Inode,
    /// The superblock with it.
    after: Superblock,
}

/// Lends a log to the volume, which is closed and has none.
pub(crate) fn give(dev: &SharedDevice) -> Result<()> {
    let sb = read_superblock(&**dev, None).map_err(unread)?;
    let geo = geometry(&**dev, &sb).map_err(unread)?;
    let vol = find_journal::without_log(dev, &sb, &geo).map_err(unread)?;
    let plan = Plan::of(&sb, &vol)?;
    make_room(&**dev, &geo, plan.at)?;
    let written = plan.write(&**dev, &vol, &sb);
    written.map_err(|e| FsError::Io(e.line()).into())
}

impl Plan {
    fn of(sb: &Superblock, vol: &Volume) -> Result<Self> {
        let geo = &vol.geo;
        let end = BlockNr(geo.blocks());
        if geo.compat().contains(Compat::HAS_JOURNAL) || sb.journal_inum != 0 || has_orphans(sb) {
            return refuse("the volume is not one without a journal that was closed in order");
        }
        if second_copy::has_one(geo) {
            return refuse(format!(
                "a volume without a journal and with sparse_super2 would lose the second copy of \
                 its superblock: {ADVICE}"
            ));
        }
        let there = vol.read_inode(InodeNr::JOURNAL)?;
        if there.links != 0 {
            return refuse(
                "the inode of the journal is in use, and there is no journal: run e2fsck",
            );
        }
        let blocks = length(vol)?;
        let nodes = if has_extents(geo) {
            0
        } else {
            journal_map::indirect_nodes(blocks.into(), geo.block_len() as u64 / 4)
        };
        // (A few: at most one for some hundred blocks.)
        let at = Run { start: end, len: blocks + nodes as u32 };
        check_padding(vol, at)?;
        let after = Superblock {
            blocks_count: at.end().0,
            r_blocks_count: plan::kept_for_root(sb, at.end().0),
            overhead_clusters: 0,
            feature_compat: sb.feature_compat | Compat::HAS_JOURNAL,
            journal_inum: InodeNr::JOURNAL.0,
            journal_dev: 0,
            journal_uuid: [0; 16],
            jnl_backup_type: 1,
            ..sb.clone()
        };
        let mut plan =
            Self { blocks, at, map: map_of(geo, at, blocks)?, inode: Inode::new_empty(geo), after };
        plan.make_inode(geo);
        Geometry::new(&plan.after, None)
            .or_else(|e| refuse(format!("a log finds no room behind the end: {e}")))?;
        Ok(plan)
    }

    fn make_inode(&mut self, geo: &Geometry) {
        let now = Time { sec: self.after.wtime.cast_signed(), nsec: 0 };
        let bytes = u64::from(geo.block_size.bytes());
        let inode = &mut self.inode;
        inode.mode = 0o100_600;
        inode.links = 1;
        inode.size = u64::from(self.blocks) * bytes;
        inode.blocks = u64::from(self.at.len) * (bytes / 512);
        (inode.mtime, inode.ctime, inode.atime) = (now, now, now);
        inode.generation = LENT;
        inode.flags.set(InodeFlags::EXTENTS, has_extents(geo));
        inode.i_block = self.map.i_block;
        let words = inode.i_block.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word));
        let size = [(inode.size >> 32) as u32, inode.size as u32];
        let places = self.after.jnl_blocks.iter_mut();
        places.zip(words.chain(size)).for_each(|(to, word)| *to = word);
    }

    /// LL-1 to LL-3.
    fn write(
        &self,
        dev: &dyn BlockDevice,
        vol: &Volume,
        sb: &Superblock,
    ) -> std::result::Result<(), OpenError> {
        let geo = &vol.geo;
        let size = geo.block_size;
        dev.zero_range(self.at.start.offset(size), u64::from(self.at.len) << size.bits())?;
        let log = JournalSuperblock::new(size, self.blocks, 1, Features::default(), sb.uuid);
        dev.write_at(&log.encode(), self.at.start.offset(size))?;
        for (nr, bytes) in &self.map.nodes {
            dev.write_at(bytes, BlockNr(*nr).offset(size))?;
        }
        dev.flush()?;
        write_inode(dev, vol, |slot| self.inode.encode_into(slot, InodeNr::JOURNAL, geo))?;
        write_superblock(dev, &self.after)
    }
}

pub(super) fn has_extents(geo: &Geometry) -> bool {
    geo.incompat().contains(Incompat::EXTENTS)
}

/// Blocks of the log: it holds the transaction of any cut.
fn length(vol: &Volume) -> Result<u32> {
    Ok(journal::shortest_plain(most_credits(vol)?))
}

fn map_of(geo: &Geometry, at: Run, blocks: u32) -> Result<Map> {
    let data = [(at.start.0, blocks)];
    let nodes: Vec<u64> = (at.start.0 + u64::from(blocks)..at.end().0).collect();
    let map = if has_extents(geo) {
        let seed = geo.fs_seed.inode(InodeNr::JOURNAL, LENT);
        journal_map::by_extents(&data, &nodes, geo, seed)
    } else {
        journal_map::by_blocks(&data, &nodes, geo.block_len())
    };
    map.map_or_else(|| refuse("the volume is too large for a log behind its end"), Ok)
}

/// The last group has so many blocks less than others, and their bits are set.
fn check_padding(vol: &Volume, at: Run) -> Result<()> {
    let geo = &vol.geo;
    let last = GroupNr(geo.groups() - 1);
    let used = geo.group_blocks(last);
    let room = geo.blocks_per_group.saturating_sub(used);
    if room < at.len {
        return refuse(format!(
            "a volume without a journal becomes smaller with a log of {} blocks behind its end, \
             and its last block group has room for {room} there: {ADVICE}",
            at.len
        ));
    }
    let desc = vol.alloc.group_desc(last)?;
    let unused = geo.has_gdt_csum() && desc.flags.contains(GroupFlags::BLOCK_UNINIT);
    let bytes = vol.journal.read(BlockNr(desc.block_bitmap)).map_err(error::journal)?.data();
    if unused || bitmap::find_zero(&bytes, used, used + at.len).is_some() {
        return refuse(format!("the last block group has an incomplete bitmap: {ADVICE}"));
    }
    Ok(())
}

/// The size that a volume is to get first, so that its last group has room for a log. `None`: it
/// has room, or no group can be added by one write of the superblock (behind others that nothing
/// looks at).
pub(crate) fn size_with_room(fs: &MountedFs) -> Result<Option<u64>> {
    let geo = &fs.vol.geo;
    let next = GroupNr(geo.groups());
    let room = geo.blocks_per_group - geo.group_blocks(GroupNr(geo.groups() - 1));
    // (With its map blocks.)
    let log = length(&fs.vol)?;
    let log = log.saturating_add(log / 64 + 4);
    let has_lists = geo.compat().contains(Compat::RESIZE_INODE) && geo.reserved_gdt() > 0;
    let has_copy = has_lists && geo.has_super(next);
    let has_slot = !next.0.is_multiple_of(geo.descs_per_block());
    let fits = geo.blocks_per_group.saturating_sub(needed_by_group(geo)) >= log;
    let grows = room == 0 && fits && has_slot && !has_copy;
    Ok(grows.then(|| geo.blocks() + u64::from(needed_by_group(geo))))
}

/// Blocks that a new last group takes to be worth its metadata.
fn needed_by_group(geo: &Geometry) -> u32 {
    let copies = geo.base_meta_blocks(GroupNr(geo.groups()));
    copies + 3 + geo.inode_table_blocks + 50
}

/// Makes the device long enough. What a disk image has behind the volume goes, as it does when the
/// volume has become smaller; what a device has there is refused unless it is zeros.
fn make_room(dev: &dyn BlockDevice, geo: &Geometry, at: Run) -> Result<()> {
    let size = geo.block_size;
    let align = dev.alignment() as u64;
    let (from, to) = (at.start.offset(size), at.end().offset(size));
    let lengthened = dev
        .set_size(from.next_multiple_of(align))
        .and_then(|()| dev.set_size(to.next_multiple_of(align)));
    match lengthened {
        Ok(()) => return Ok(()),
        Err(e) if !e.is_unsupported() => return Err(FsError::Io(e.to_string()).into()),
        Err(_) => {}
    }
    if dev.size() < to {
        return refuse(format!(
            "a volume without a journal becomes smaller with a log of {} blocks behind its end, \
             and the device ends there: {ADVICE}",
            at.len
        ));
    }
    let mut bytes = vec![0; size.len()];
    for nr in 0..u64::from(at.len) {
        dev.read_at(&mut bytes, at.start.plus(nr).offset(size)).map_err(error::device)?;
        if bytes.iter().any(|byte| *byte != 0) {
            return refuse(format!(
                "the device has other data behind the volume, where a log would lie: {ADVICE}"
            ));
        }
    }
    Ok(())
}

/// Writes the slot of the journal's inode in place, with the sectors that it lies in.
fn write_inode(
    dev: &dyn BlockDevice,
    vol: &Volume,
    change: impl FnOnce(&mut [u8]),
) -> std::result::Result<(), OpenError> {
    let (buf, at) = vol.inode_buf(InodeNr::JOURNAL)?;
    let mut block = buf.data().to_vec();
    let end = at + usize::from(vol.geo.inode_size);
    if let Some(slot) = block.get_mut(at..end) {
        change(slot);
    }
    let sectors = at / SECTOR * SECTOR..end.next_multiple_of(SECTOR);
    let first = sectors.start as u64;
    let bytes = block.get(sectors).unwrap_or_default();
    dev.write_at(bytes, buf.nr().offset(vol.geo.block_size) + first)?;
    dev.flush()?;
    Ok(())
}

/// The first block of the journal's inode, if nothing else is in use from there on. `None`:
/// something is, or there is another block group behind it.
pub(crate) fn tail(fs: &MountedFs) -> Result<Option<u64>> {
    let places = journal_blocks::all(&fs.vol, InodeNr::JOURNAL)?;
    let Some(first) = places.first().map(|run| run.start) else { return Ok(None) };
    let vol = &fs.vol;
    let last = GroupNr(vol.geo.groups() - 1);
    if vol.geo.group_of_block(first) != last || has_tables_behind(vol, first)? {
        return Ok(None);
    }
    let desc = vol.alloc.group_desc(last)?;
    let bytes = vol.journal.read(BlockNr(desc.block_bitmap)).map_err(error::journal)?.data();
    let start = vol.geo.group_first_block(last).0;
    let from = u32::try_from(first.0 - start).unwrap_or(u32::MAX);
    let all = vol.geo.group_blocks(last);
    let free = bitmap::count_zeros(&bytes, all) - bitmap::count_zeros(&bytes, from);
    let own: u64 = places.iter().map(|run| u64::from(run.len)).sum();
    let used = u64::from(all - from - free);
    Ok((used == own).then_some(first.0))
}

/// True if a bitmap or an inode table of any group lies there or behind.
fn has_tables_behind(vol: &Volume, first: BlockNr) -> Result<bool> {
    for nr in (0..vol.geo.groups()).map(GroupNr) {
        let desc = vol.alloc.group_desc(nr)?;
        if Fixed::ALL.iter().any(|what| what.run(&vol.geo, &desc).end() > first) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The journal's inode gives back what an earlier run has put behind the log.
pub(super) fn keep_log(fs: &MountedFs) -> Result<()> {
    JournalFile::open(fs)?;
    Ok(super::mover::settle(fs)?)
}

/// Blocks that the journal's inode has.
pub(super) fn blocks(fs: &MountedFs) -> Result<u64> {
    let places = journal_blocks::all(&fs.vol, InodeNr::JOURNAL)?;
    Ok(places.iter().map(|run| u64::from(run.len)).sum())
}

/// Moves the log behind block `target`, in front of `end`. All else in front of `end` is free.
pub(super) fn move_behind(fs: &MountedFs, target: u64, end: u64, transaction: u32) -> Result<()> {
    super::mover::settle(fs)?;
    fs.vol.alloc.set_limit(None)?;
    // (They are of one group.)
    let len = u32::try_from(end.saturating_sub(target)).unwrap_or(u32::MAX);
    let within = Run { start: BlockNr(target), len };
    let place = Place { limit: end, within: Some(within), transaction };
    journal::move_log(fs, &place, &mut |_, _| true)
}

/// The journal's inode gets all that is free from block `end` on (LL-5).
pub(crate) fn swallow(fs: &MountedFs, end: u64) -> Result<()> {
    super::mover::settle(fs)?;
    fs.vol.alloc.set_limit(None)?;
    let mut file = JournalFile::read(fs, InodeNr::JOURNAL)?;
    let rest = fs.vol.geo.blocks().saturating_sub(end);
    // (They are of one group.)
    let len = u32::try_from(rest).unwrap_or(u32::MAX);
    file.swallow(Run { start: BlockNr(end), len })
}

/// Takes the log away from the volume, which is closed, and ends the volume at `end`.
pub(crate) fn take_back(dev: &SharedDevice, end: u64) -> Result<()> {
    let sb = read_superblock(&**dev, None).map_err(unread)?;
    let geo = geometry(&**dev, &sb).map_err(unread)?;
    let vol = find_journal::without_log(dev, &sb, &geo).map_err(unread)?;
    check_tail(&sb, &vol, end)?;
    let plan = smaller(&sb, &geo, end)?;
    let mut after = sb;
    plan::apply(&mut after, &plan.sb);
    after.feature_compat.remove(Compat::HAS_JOURNAL);
    after.journal_inum = 0;
    after.jnl_backup_type = 0;
    after.jnl_blocks.fill(0);
    let written = write_superblock(&**dev, &after)
        .and_then(|()| write_inode(&**dev, &vol, |slot| slot.fill(0)));
    written.map_err(|e| FsError::Io(e.line()).into())
}

/// Makes sure of LL-5.
fn check_tail(sb: &Superblock, vol: &Volume, end: u64) -> Result<()> {
    let geo = &vol.geo;
    let is_closed = !sb.feature_incompat.contains(Incompat::NEEDS_RECOVERY) && !has_orphans(sb);
    let has = sb.feature_compat.contains(Compat::HAS_JOURNAL)
        && sb.journal_inum == InodeNr::JOURNAL.0
        && vol.read_inode(InodeNr::JOURNAL)?.generation == LENT;
    let last = GroupNr(geo.groups() - 1);
    if !is_closed || !has || geo.group_of_block(BlockNr(end)) != last || end >= geo.blocks() {
        return refuse("the lent log cannot be taken away");
    }
    let own = journal_blocks::all(vol, InodeNr::JOURNAL)?;
    let [run] = own[..] else { return stays(end) };
    if (run.start.0, run.end().0) != (end, geo.blocks()) || has_tables_behind(vol, run.start)? {
        return stays(end);
    }
    Ok(())
}

fn stays<T>(end: u64) -> Result<T> {
    refuse(format!("the lent log stays: other blocks are in use behind block {end}"))
}

fn unread(e: OpenError) -> ResizeError {
    ResizeError::Refused(e.line())
}
