//! Writes a planned volume.
//!
//! Order: the old superblock is wiped first and the new one is written last, behind a flush.
//! An interruption leaves something that is no file system rather than half of one.

use super::bad_blocks::spoils;
use super::journal::LogStart;
use super::options::MkfsOptions;
use super::plan::{JournalPlan, Plan};
use super::{MkfsProgress, Result, Stage, journal};
use extol_block::{BlockDevice, BlockNr};
use extol_ondisk::superblock::State;
use extol_ondisk::{GroupFlags, GroupNr, Incompat, RoCompat, bitmap};
use std::ops::Range;

/// Bytes discarded or zeroed in one request, so that progress can be shown.
const STEP: u64 = 2 << 30;
/// Signatures of RAID and the like at the end of the device are wiped that far.
const TAIL: u64 = 64 << 10;

type Progress<'a> = &'a mut dyn FnMut(MkfsProgress);

/// The device, and how much was written to it.
pub(crate) struct Output<'a> {
    pub(crate) device: &'a dyn BlockDevice,
    pub(crate) block_len: u64,
    /// Bytes written.
    pub(crate) bytes: u64,
    /// The device read as zeros when the writing began.
    pub(crate) zeroed: bool,
}

impl Output<'_> {
    pub(crate) fn write(&mut self, at: BlockNr, bytes: &[u8]) -> Result<()> {
        self.device.write_at(bytes, at.0 * self.block_len)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }

    fn zero(&mut self, blocks: &Range<u64>) -> Result<()> {
        let mut at = blocks.start * self.block_len;
        let end = blocks.end * self.block_len;
        while at < end {
            let n = (end - at).min(STEP);
            self.device.zero_range(at, n)?;
            at += n;
        }
        Ok(())
    }
}

/// Wipes what identifies an old volume, then discards everything. True if the device reads as zeros
/// now.
pub(crate) fn prepare(
    device: &dyn BlockDevice,
    len: u64,
    options: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<bool> {
    let wiped = len.min(4096);
    if wiped > 1024 {
        device.write_at(&vec![0; (wiped - 1024) as usize], 1024)?;
        device.flush()?;
    }
    if options.extended.prezeroed {
        return Ok(true);
    }
    if options.extended.discard == Some(false) {
        return Ok(false);
    }
    let mut at = 0;
    while at < len {
        progress(MkfsProgress { stage: Stage::Discard, done: at, total: len });
        let n = (len - at).min(STEP);
        // A device that cannot discard is as good as any other.
        if device.discard(at, n).is_err() {
            return Ok(false);
        }
        at += n;
    }
    progress(MkfsProgress { stage: Stage::Discard, done: len, total: len });
    Ok(device.discard_zeroes())
}

pub(crate) fn write(
    plan: &mut Plan,
    device: &dyn BlockDevice,
    options: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<()> {
    let mut out = begin(plan, device, options, progress)?;
    end(plan, &mut out, options, write_inodes, progress)
}

/// Wipes what was there. Files may be written now.
pub(crate) fn begin<'a>(
    plan: &Plan,
    device: &'a dyn BlockDevice,
    options: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<Output<'a>> {
    let block_len = plan.geo.block_len() as u64;
    let zeroed = prepare(device, plan.geo.blocks() * block_len, options, progress)?;
    let mut out = Output { device, block_len, bytes: 0, zeroed };
    if !zeroed {
        let tail = (plan.geo.blocks() - plan.geo.blocks().min(TAIL / block_len))
            .max(plan.geo.first_data_block + 1);
        out.zero(&(tail..plan.geo.blocks()))?;
    }
    Ok(out)
}

/// Writes the volume itself. `tables` writes the inodes into their tables.
pub(crate) fn end(
    plan: &mut Plan,
    out: &mut Output<'_>,
    options: &MkfsOptions,
    tables: impl FnOnce(&mut Plan, &mut Output<'_>) -> Result<()>,
    progress: Progress<'_>,
) -> Result<()> {
    let zeroed = out.zeroed;
    let lazy = plan.geo.has_gdt_csum() && options.extended.lazy_itable_init.unwrap_or(true);
    let tables_zeroed = zeroed || !lazy;
    if !zeroed && !lazy {
        zero_tables(plan, out, progress)?;
    }
    tables(plan, out)?;
    let table = write_groups(plan, out, tables_zeroed, progress)?;
    write_files(plan, out)?;
    if let Some(journal) = &plan.journal {
        let lazy = options.extended.lazy_journal_init;
        let start = LogStart::choose(zeroed, lazy, plan.geo.has_metadata_csum());
        write_journal(journal, out, start, progress)?;
        if lazy && start == LogStart::ToZero {
            plan.notes.notes.push(journal::NOT_LAZY.into());
        }
    }
    if let Some(external) = &options.journal.device {
        journal::attach(external, &mut plan.sb, plan.geo.block_size, true)?;
    }
    write_supers(plan, out, &table, &vec![0; 1024], progress)
}

/// Writes superblocks and descriptors only. No group says that parts of it were never used, since
/// they may have been.
pub(crate) fn write_superblocks(
    plan: &mut Plan,
    device: &dyn BlockDevice,
    progress: Progress<'_>,
) -> Result<()> {
    let geo = plan.geo.clone();
    let mut table = vec![0; geo.desc_blocks() as usize * geo.block_len()];
    let groups = (0..geo.groups()).map(GroupNr);
    for (group, bytes) in groups.zip(table.chunks_exact_mut(usize::from(geo.desc_size))) {
        let mut desc = plan.descriptor(group, false);
        (desc.flags, desc.itable_unused) = (GroupFlags::empty(), 0);
        desc.encode_into(bytes, &geo, group);
    }
    let mut boot = vec![0; 1024];
    device.read_at(&mut boot, 0)?;
    let mut out = Output { device, block_len: geo.block_len() as u64, bytes: 0, zeroed: false };
    write_supers(plan, &mut out, &table, &boot, progress)
}

/// Zeros all inode tables; neighbours in one go.
fn zero_tables(plan: &Plan, out: &mut Output<'_>, progress: Progress<'_>) -> Result<()> {
    let len = u64::from(plan.geo.inode_table_blocks);
    let total = plan.places.len() as u64;
    let mut run = 0..0;
    for (done, place) in (0..).zip(&plan.places) {
        progress(MkfsProgress { stage: Stage::InodeTables, done, total });
        let table = place.inode_table..place.inode_table + len;
        if run.end == table.start {
            run.end = table.end;
        } else {
            out.zero(&run)?;
            run = table;
        }
    }
    out.zero(&run)?;
    progress(MkfsProgress { stage: Stage::InodeTables, done: total, total });
    Ok(())
}

/// Writes the parts of the inode tables that hold inodes.
fn write_inodes(plan: &mut Plan, out: &mut Output<'_>) -> Result<()> {
    let geo = &plan.geo;
    let inode_len = usize::from(geo.inode_size);
    for group in (0..geo.groups()).map(GroupNr) {
        let used = plan.used_inodes(group);
        if used == 0 {
            return Ok(());
        }
        let mut bytes = vec![0; (used as usize * inode_len).next_multiple_of(geo.block_len())];
        for (ino, inode) in &plan.inodes {
            let (home, index) = geo.group_of_inode(*ino);
            if home == group {
                inode.encode_into(&mut bytes[index as usize * inode_len..][..inode_len], *ino, geo);
            }
        }
        out.write(BlockNr(plan.places[group.0 as usize].inode_table), &bytes)?;
    }
    Ok(())
}

/// Writes the bitmaps of groups that have any; gives the descriptor table.
fn write_groups(
    plan: &Plan,
    out: &mut Output<'_>,
    zeroed: bool,
    progress: Progress<'_>,
) -> Result<Vec<u8>> {
    let geo = &plan.geo;
    let desc_len = usize::from(geo.desc_size);
    let mut table = vec![0; geo.desc_blocks() as usize * geo.block_len()];
    let total = u64::from(geo.groups());
    for (group, bytes) in (0..geo.groups()).map(GroupNr).zip(table.chunks_exact_mut(desc_len)) {
        if group.0.is_multiple_of(64) {
            progress(MkfsProgress { stage: Stage::Groups, done: u64::from(group.0), total });
        }
        let mut desc = plan.descriptor(group, zeroed);
        if !desc.flags.contains(GroupFlags::BLOCK_UNINIT) {
            let bits = block_bitmap(plan, group);
            if geo.has_metadata_csum() {
                desc.block_bitmap_csum = bitmap::block_bitmap_csum(geo, &bits);
            }
            out.write(BlockNr(desc.block_bitmap), &bits)?;
        }
        if !desc.flags.contains(GroupFlags::INODE_UNINIT) {
            let mut bits = vec![0xFF; geo.block_len()];
            bitmap::clear_range(&mut bits, plan.used_inodes(group), geo.inodes_per_group);
            if geo.has_metadata_csum() {
                desc.inode_bitmap_csum = bitmap::inode_bitmap_csum(geo, &bits);
            }
            out.write(BlockNr(desc.inode_bitmap), &bits)?;
        }
        desc.encode_into(bytes, geo, group);
    }
    progress(MkfsProgress { stage: Stage::Groups, done: total, total });
    Ok(table)
}

/// Bits beyond the group are set. With bigalloc each bit is a cluster, and those taken are whole.
fn block_bitmap(plan: &Plan, group: GroupNr) -> Vec<u8> {
    let mut bits = vec![0xFF; plan.geo.block_len()];
    let all = plan.group_blocks(group);
    let bit = |block: u64| plan.geo.clusters(block - all.start) as u32;
    bitmap::clear_range(&mut bits, 0, bit(all.end));
    for run in plan.space.taken_in(all.clone()) {
        bitmap::set_range(&mut bits, bit(run.start), bit(run.end));
    }
    bits
}

/// Writes the contents of files, neighbouring blocks in one request.
fn write_files(plan: &mut Plan, out: &mut Output<'_>) -> Result<()> {
    plan.blocks.extend(plan.quotas.blocks(plan.geo.block_len())?);
    plan.blocks.sort_by_key(|(at, _)| *at);
    let mut run: Vec<u8> = Vec::new();
    let mut start = BlockNr(0);
    for (at, bytes) in &plan.blocks {
        let next = start.plus(run.len() as u64 / out.block_len);
        if run.is_empty() || next != *at || run.len() >= 1 << 20 {
            if !run.is_empty() {
                out.write(start, &run)?;
            }
            run.clear();
            start = *at;
        }
        run.extend_from_slice(bytes);
    }
    if !run.is_empty() {
        out.write(start, &run)?;
    }
    Ok(())
}

/// Writes an internal journal.
fn write_journal(
    journal: &JournalPlan,
    out: &mut Output<'_>,
    start: LogStart,
    progress: Progress<'_>,
) -> Result<()> {
    let total = u64::from(journal.size.total());
    let to_zero = match start {
        LogStart::Zero => 0..0,
        LogStart::ToZero => 0..total,
        LogStart::OverOld => u64::from(journal.size.log)..total,
    };
    let mut done = 0;
    for run in &journal.map.runs {
        progress(MkfsProgress { stage: Stage::Journal, done, total });
        let len = run.end - run.start;
        let part = to_zero.start.clamp(done, done + len)..to_zero.end.clamp(done, done + len);
        out.zero(&(run.start + part.start - done..run.start + part.end - done))?;
        done += len;
    }
    let mut block = vec![0; out.block_len as usize];
    block[..1024].copy_from_slice(&start.fresh(journal.superblock.clone()).encode());
    if let Some(at) = journal.map.block(0) {
        out.write(at, &block)?;
    }
    progress(MkfsProgress { stage: Stage::Journal, done: total, total });
    Ok(())
}

/// Writes descriptors and superblocks, the primary superblock last. `boot`: what is before it.
fn write_supers(
    plan: &mut Plan,
    out: &mut Output<'_>,
    table: &[u8],
    boot: &[u8],
    progress: Progress<'_>,
) -> Result<()> {
    let geo = plan.geo.clone();
    let block_len = geo.block_len();
    let per_block = geo.descs_per_block();
    let total = u64::from(geo.groups());
    if counts_writes(plan) {
        plan.sb.kbytes_written = 1 + (out.bytes >> 10);
    }
    let mut copy = plan.sb.clone();
    copy.state.remove(State::VALID);
    for group in (0..geo.groups()).map(GroupNr) {
        let descriptors = geo.group_desc_blocks(group);
        let first = geo.group_first_block(group);
        let has_super = geo.has_super(group);
        if group.0 > 0 && spoils(&plan.bad_blocks, first.0, geo.base_meta_blocks(group).into()) {
            continue;
        }
        if has_super && group.0 > 0 {
            progress(MkfsProgress { stage: Stage::Superblocks, done: u64::from(group.0), total });
            copy.block_group_nr = u16::try_from(group.0).unwrap_or(u16::MAX);
            let mut block = vec![0; block_len];
            block[..1024].copy_from_slice(&copy.encode());
            out.write(first, &block)?;
        }
        if descriptors > 0 {
            let index = group.0 / per_block;
            let from = if geo.incompat().contains(Incompat::META_BG) && index >= geo.first_meta_bg()
            {
                index
            } else {
                0
            };
            let from = from as usize * block_len;
            let bytes = &table[from..(from + descriptors as usize * block_len).min(table.len())];
            // (A boot block may be before the primary superblock.)
            let behind = first.plus(u64::from(has_super));
            let at = if group.0 == 0 { geo.desc_block(group).0 } else { behind };
            out.write(at, bytes)?;
        }
    }
    out.device.flush()?;
    // (The rest of its block is zeros.)
    let mut head = vec![0; block_len.max(2048)];
    head[..1024].copy_from_slice(boot);
    head[1024..2048].copy_from_slice(&plan.sb.encode());
    out.device.write_at(&head, 0)?;
    out.device.flush()?;
    progress(MkfsProgress { stage: Stage::Superblocks, done: total, total });
    Ok(())
}

/// Volumes with a feature of ext4's times keep count of what was written to them.
fn counts_writes(plan: &Plan) -> bool {
    let bits = RoCompat::HUGE_FILE
        | RoCompat::UNINIT_BG
        | RoCompat::DIR_NLINK
        | RoCompat::METADATA_CSUM
        | RoCompat::EXTRA_ISIZE;
    plan.geo.ro_compat.intersects(bits) || plan.geo.incompat().contains(Incompat::FLEX_BG)
}

/// Makes a journal device.
pub(crate) fn write_journal_device(
    sb: &mut extol_ondisk::Superblock,
    device: &dyn BlockDevice,
    options: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<()> {
    let block_len = u64::from(sb.block_bytes());
    let zeroed = prepare(device, sb.blocks_count * block_len, options, progress)?;
    let mut out = Output { device, block_len, bytes: 0, zeroed };
    if !zeroed {
        let total = sb.blocks_count;
        progress(MkfsProgress { stage: Stage::Journal, done: 0, total });
        out.zero(&(0..total))?;
    }
    let Some(bs) = extol_block::BlockSize::new(sb.block_bytes()) else {
        return super::refuse("bad block size");
    };
    let at = journal::superblock_of_device(bs);
    // Planned within the limits of a journal.
    let size = journal::JournalSize { log: sb.blocks_count as u32, fast_commit: 0 };
    let mut jsb = journal::new_superblock(bs, size, at + 1, sb.uuid);
    jsb.nr_users = 0;
    let mut block = vec![0; block_len as usize];
    block[..1024].copy_from_slice(&jsb.encode());
    out.write(BlockNr(u64::from(at)), &block)?;
    device.flush()?;
    let mut head = vec![0; block_len.max(2048) as usize];
    head[1024..2048].copy_from_slice(&sb.encode());
    device.write_at(&head, 0)?;
    device.flush()?;
    Ok(())
}
