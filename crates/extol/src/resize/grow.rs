//! Does the steps of growing.

use extol_jbd2::Handle;
use extol_ondisk::{GroupNr, Superblock};
use extol_vfs::FsError;

use super::plan::groups::NewGroup;
use super::plan::{self, Planned, Share, Step};
use super::reserved::{self, Reserved};
use super::shrink::handle;
use super::{ResizeError, ResizeProgress, Resized, backups, behind, refuse, second_copy};
use crate::error;
use crate::fast_commit::{self, Delta, Reason};
use crate::mounted::MountedFs;

type Result<T> = std::result::Result<T, ResizeError>;
/// At most so many steps are prepared together, by one flush.
const BATCH: usize = 256;
/// And about so many bytes in place.
const BATCH_BYTES: u64 = 64 << 20;

/// How a volume grows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// Others use it meanwhile.
    InUse,
    /// Nothing else uses it, and it is closed or opened again behind a growth that moves the second
    /// copy of the superblock: what is in memory takes the old one for metadata.
    Alone,
}

/// The blocks that the volume will have when it is to have `wish`: a last group that is not worth
/// its metadata is left out.
pub(crate) fn aim(fs: &MountedFs, wish: u64) -> Result<u64> {
    let geo = &fs.vol.geo;
    let most = fs.sb.read(|sb| plan::most(sb, geo));
    if wish > most {
        return Err(ResizeError::TooLarge { most });
    }
    if wish < geo.blocks() {
        return refuse(format!(
            "the volume has {} blocks: while it is mounted it cannot become smaller; unmount it \
             and run extol resize on the device",
            geo.blocks()
        ));
    }
    Ok(plan::worthwhile(geo, wish).max(geo.blocks()))
}

/// Makes the volume `target` blocks long, as [`aim`] says; the device has them.
pub(crate) fn grow(
    fs: &MountedFs,
    how: Growth,
    target: u64,
    progress: &mut dyn FnMut(ResizeProgress) -> bool,
) -> Result<Resized> {
    fs.check_writable()?;
    let _one = fs.resizing.try_lock().ok_or(ResizeError::Busy)?;
    let geo = &fs.vol.geo;
    let sb = fs.sb.read(Superblock::clone);
    let mut resized = Resized {
        block_size: geo.block_size.bytes(),
        before: geo.blocks(),
        blocks: geo.blocks(),
        target,
        wished: target,
        device: fs.vol.dev.size(),
        went_to_meta_bg: false,
    };
    if target <= geo.blocks() {
        return Ok(resized);
    }
    let mut grow = Grow { fs, how, share: Share::of(&sb), reserved: Reserved::read(&fs.vol)? };
    let (groups, first_desc) = (geo.groups(), (geo.groups() - 1) / geo.descs_per_block());
    let done = grow.run(target, progress, &mut resized);
    fs.lazy_init.grown(groups..geo.groups(), behind::zeroes_tables(&fs.vol, geo));
    done?;
    // A growth that a crash has ended left old ones; those follow with the last piece of this one.
    let changed = if resized.blocks >= target { 0 } else { first_desc };
    backups::update(fs, changed)?;
    // So that programs that read the device see the new size.
    fs.vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
    fs.vol.journal.set_home_last(None);
    Ok(resized)
}

/// A growth under way.
struct Grow<'a> {
    fs: &'a MountedFs,
    how: Growth,
    share: Share,
    reserved: Option<Reserved>,
}

impl Grow<'_> {
    /// Does steps until the target is reached, or `progress` says that it is enough.
    fn run(
        &mut self,
        target: u64,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
        resized: &mut Resized,
    ) -> Result<()> {
        loop {
            let batch = self.plan(target)?;
            if batch.is_empty() {
                return Ok(());
            }
            behind::write(self.fs, &batch)?;
            for planned in &batch {
                self.step(planned)?;
                resized.went_to_meta_bg |= planned.step == Step::ToMetaBg;
                resized.blocks = self.fs.vol.geo.blocks();
                if !progress(ResizeProgress { done: resized.blocks, all: target }) {
                    return Ok(());
                }
            }
        }
    }

    /// The next steps: the one that makes the last group longer, or some that add groups.
    fn plan(&self, target: u64) -> Result<Vec<Planned>> {
        let mut sb = self.fs.sb.read(Superblock::clone);
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while batch.len() < BATCH && bytes < BATCH_BYTES {
            // (What the second copy leaves may share a cluster with bitmaps and tables.)
            let moves_copy = self.how == Growth::Alone && !self.fs.vol.geo.has_clusters();
            let planned = match plan::next(&sb, self.share, moves_copy, target) {
                Ok(Some(planned)) => planned,
                Ok(None) => break,
                // What is before it is done first.
                Err(_) if !batch.is_empty() => break,
                Err(e) => return Err(e),
            };
            sb = planned.sb.clone();
            bytes += behind::bytes(&self.fs.vol, &planned);
            let alone = matches!(planned.step, Step::LastGroup(_));
            batch.push(planned);
            if alone {
                break;
            }
        }
        Ok(batch)
    }

    fn step(&mut self, planned: &Planned) -> Result<()> {
        if let Step::LastGroup(_) = planned.step {
            return self.last_group(planned);
        }
        let superblock = self.fs.vol.geo.super_block().0;
        self.fs.vol.journal.set_home_last(Some(superblock));
        match &planned.step {
            Step::LastGroup(_) => Ok(()),
            Step::ToMetaBg => self.go_to_meta_bg(planned),
            Step::Groups { groups, takes_reserved } => self.add(planned, groups, *takes_reserved),
        }
    }

    /// A handle whose transaction no fast commit can stand for.
    fn transact(
        &self,
        credits: u32,
        work: impl FnOnce(&mut Handle) -> std::result::Result<(), FsError>,
    ) -> Result<()> {
        let most = self.fs.vol.journal.max_credits();
        if self.how == Growth::InUse && credits > most {
            return refuse(format!(
                "the journal is too small: growing in use takes a transaction of {credits} \
                 blocks, and this one holds {most}; unmount it and run extol resize on the device"
            ));
        }
        let mut h = handle(self.fs, credits, "growing")?;
        fast_commit::note(&mut h, Delta::AllIneligible { reason: Reason::Resize });
        work(&mut h)?;
        Ok(h.stop().map_err(error::journal)?)
    }

    /// Changes the superblock: the layout, and the free counts with what comes later.
    fn superblock(
        &self,
        h: &mut Handle,
        planned: &Planned,
        (blocks, inodes): (u64, u32),
    ) -> std::result::Result<(), FsError> {
        let now = self.fs.vol.alloc.block_counters();
        self.fs.sb.update(h, |sb| {
            plan::apply(sb, &planned.sb);
            sb.free_blocks_count = now.free_on_disk.saturating_add(blocks);
            let free = now.free_inodes.saturating_add(inodes.into());
            sb.free_inodes_count = u32::try_from(free).unwrap_or(u32::MAX);
        })?;
        self.fs.vol.alloc.keep_for_root(planned.sb.r_blocks_count);
        Ok(())
    }

    /// The last group becomes longer. Its descriptor goes home last: it may count more free blocks
    /// than the group has by the old superblock.
    fn last_group(&self, planned: &Planned) -> Result<()> {
        let vol = &self.fs.vol;
        let (desc, _) = vol.geo.desc_block(GroupNr(vol.geo.groups() - 1));
        vol.journal.set_home_last(Some(desc));
        self.transact(3, |h| {
            vol.journal.extend_to(planned.geo.blocks());
            vol.alloc.extend_last(h, &planned.geo)?;
            self.superblock(h, planned, (0, 0))
        })?;
        vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
        Ok(())
    }

    fn go_to_meta_bg(&mut self, planned: &Planned) -> Result<()> {
        let reserved = self.reserved.take();
        self.transact(4, |h| {
            self.superblock(h, planned, (0, 0))?;
            if let Some(reserved) = reserved {
                reserved.remove(self.fs, h)?;
            }
            self.fs.vol.geo.grow_to(&planned.geo);
            Ok(())
        })
    }

    /// The transaction that makes the groups part of the volume.
    fn add(&self, planned: &Planned, groups: &[NewGroup], takes_reserved: bool) -> Result<()> {
        let (vol, geo) = (&self.fs.vol, &planned.geo);
        let Some(first) = groups.first() else { return Ok(()) };
        let (desc_block, _) = geo.desc_block(first.nr);
        let in_place = desc_block.0 >= vol.geo.blocks();
        let copies: Vec<_> = match self.reserved {
            Some(_) if geo.reserved_gdt() > 0 => {
                groups.iter().map(|g| g.nr).filter(|nr| geo.has_super(*nr)).collect()
            }
            _ => Vec::new(),
        };
        if !copies.is_empty() && !reserved::has_room(geo, &copies) {
            return refuse(
                "the resize inode has no room for more groups: run extol tune -O ^resize_inode",
            );
        }
        let lists = if copies.is_empty() { 0 } else { geo.reserved_gdt() };
        let left = second_copy::left(&vol.geo, geo);
        self.transact(2 + reserved::CREDITS + lists + 2 * left.iter().count() as u32, |h| {
            let free: u64 = groups.iter().map(|g| u64::from(g.free_clusters(geo))).sum();
            let inodes = geo.inodes() - vol.geo.inodes();
            if let Some(reserved) = self.reserved.filter(|_| takes_reserved) {
                reserved.take(vol, h, &vol.geo)?;
            }
            if let Some(reserved) = self.reserved.filter(|_| !copies.is_empty()) {
                let before = vol.geo.backup_groups().filter(|nr| geo.has_super(*nr)).count();
                reserved.add_copies(vol, h, geo, (before, &copies))?;
                left.map_or(Ok(()), |_| reserved.lose_copy(geo, vol, h))?;
            }
            if !in_place {
                let buf = if takes_reserved {
                    h.create(desc_block)
                } else {
                    vol.journal.read(desc_block)
                };
                let buf = buf.map_err(error::journal)?;
                let zeroed = behind::zeroes_tables(vol, geo);
                h.modify(&buf, |bytes| behind::put_descs(geo, groups, zeroed, bytes))
                    .map_err(error::journal)?;
            }
            if geo.desc_blocks() > vol.geo.desc_blocks() {
                vol.journal.add_patched_block(desc_block);
            }
            if let Some((group, _)) = left {
                vol.alloc.write_bitmap(h, group)?;
            }
            self.superblock(h, planned, (geo.cluster_blocks(free), inodes))?;
            vol.journal.extend_to(geo.blocks());
            vol.alloc.add_groups(geo, (free, inodes.into()))?;
            if let Some((_, run)) = left {
                vol.alloc.unprotect(run);
                vol.alloc.free(h, run)?;
                vol.alloc.flush_super(h, &self.fs.sb)?;
            }
            Ok(())
        })
    }
}
