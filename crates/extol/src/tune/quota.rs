//! Quota files come and go.
//!
//! A new file gets the usage that the inodes have at this moment; nothing else uses the volume, so
//! it is still right when the transaction is durable. Files for users and groups have inodes of
//! their own number, that for projects takes a free one.

use std::collections::HashMap;

use extol_jbd2::Handle;
use extol_ondisk::quota::{BLOCK_LEN, Entry, InMemory, Kind, QuotaFile, Version};
use extol_ondisk::{Compat, Inode, InodeFlags, InodeNr, RoCompat, Superblock};
use extol_vfs::FsError;

use super::changes;
use super::plan::Plan;
use super::{Change as Changed, Result, refuse};
use crate::alloc::Allocator;
use crate::error;
use crate::fast_commit::eligibility::Change;
use crate::map::{self, Discard};
use crate::mounted::MountedFs;
use crate::node::Node;
use crate::quota::{self, Ids};
use crate::quotas;

/// Credits of a new file beside those for its blocks: its inode and map.
const OTHERS: u32 = 16;
/// One for a block, and a bitmap and a descriptor for it.
const CREDITS_PER_BLOCK: u32 = 3;
/// Blocks of a short file, data and map.
const FEW: u32 = 256;
/// For a freed block: a bitmap, a descriptor, a revocation, a block of the map.
const CREDITS_PER_FREED: u32 = 4;

impl Plan {
    /// With the feature there are files for users and groups, and with projects one for them; but
    /// for those of `wishes`.
    pub fn quotas(&mut self, before: &Superblock, wishes: &[(Kind, bool)]) -> Result<()> {
        let has = |sb: &Superblock, bit| sb.feature_ro_compat.contains(bit);
        let (old, new) = (has(before, RoCompat::QUOTA), has(&self.sb, RoCompat::QUOTA));
        let projects = |sb: &Superblock| has(sb, RoCompat::PROJECT);
        let mut any = false;
        for kind in Kind::ALL {
            let is = old && quota::inode_of(before, kind).is_some();
            let project = kind == Kind::Project;
            let comes =
                if project { projects(&self.sb) && !(old && projects(before)) } else { !old };
            let stays = new && (!project || projects(&self.sb));
            let wish = wishes.iter().find(|(of, _)| *of == kind).map(|(_, on)| *on);
            let will_be = wish.unwrap_or(if is { stays } else { new && comes });
            if !is && will_be {
                self.makes_quotas.push(kind);
            } else if is && !will_be {
                self.drops_quotas.push(kind);
                quota::set_inode(&mut self.sb, kind, InodeNr(0));
            }
            any |= will_be;
        }
        // (The feature goes with the last file, that for projects with theirs.)
        let is_last = new && !any && !self.drops_quotas.is_empty();
        if !wishes.is_empty() || is_last {
            self.sb.feature_ro_compat.set(RoCompat::QUOTA, any);
            self.refuse_old_revision(any)?;
        }
        let changes = !self.makes_quotas.is_empty() || !self.drops_quotas.is_empty();
        if changes && !before.feature_compat.contains(Compat::HAS_JOURNAL) {
            return refuse(
                "quota files change together with bitmaps, and without a journal a crash in \
                 between would damage the volume: give it one (-j)",
            );
        }
        if changes && self.drops_orphan_file {
            return refuse("orphan_file and quota files change one after the other: run it twice");
        }
        Ok(())
    }

    /// Properties that have another value than before.
    pub fn changes(&self, before: &Superblock) -> Vec<Changed> {
        let mut changes = changes::changes(before, &self.sb);
        if !self.makes_quotas.is_empty() || !self.drops_quotas.is_empty() {
            let is = |kind: &Kind| {
                before.feature_ro_compat.contains(RoCompat::QUOTA)
                    && quota::inode_of(before, *kind).is_some()
            };
            let will_be = |kind: &Kind| {
                self.makes_quotas.contains(kind) || is(kind) && !self.drops_quotas.contains(kind)
            };
            let names = |are: &dyn Fn(&Kind) -> bool| {
                let kinds = Kind::ALL.into_iter().filter(are);
                kinds.map(Kind::name).collect::<Vec<_>>().join(" ")
            };
            let (before, after) = (names(&is), names(&will_be));
            changes.push(Changed { property: "quota_files", before, after });
        }
        changes
    }
}

/// Files to be made, with their contents.
#[derive(Debug)]
pub(super) struct Made(Vec<(Kind, Vec<u8>)>);

impl Made {
    /// For these kinds of owners.
    pub fn plan(fs: &MountedFs, kinds: &[Kind]) -> Result<Self> {
        let mut used: Vec<HashMap<u32, Entry>> = kinds.iter().map(|_| HashMap::new()).collect();
        quotas::count(fs, &mut |raw, inodes| {
            let ids = Ids::of_inode(raw);
            for (kind, used) in kinds.iter().zip(&mut used) {
                let id = ids.of(*kind);
                let entry = used.entry(id).or_insert(Entry::new(id));
                entry.space = entry.space.saturating_add(raw.blocks.saturating_mul(512));
                entry.inodes += inodes;
            }
        })?;
        let files = kinds.iter().zip(used).map(|(kind, used)| Ok((*kind, contents(*kind, used)?)));
        let made = Self(files.collect::<Result<_>>()?);
        let blocks: u64 = made.0.iter().map(|(_, bytes)| u64::from(blocks(fs, bytes))).sum();
        if blocks + u64::from(OTHERS) > fs.vol.alloc.counters().free {
            return refuse(format!(
                "the volume is full: quota files of {blocks} blocks do not fit"
            ));
        }
        Ok(made)
    }

    pub fn credits(&self, fs: &MountedFs) -> u32 {
        let of_file = |(_, bytes): &(Kind, Vec<u8>)| {
            let blocks = blocks(fs, bytes).saturating_mul(CREDITS_PER_BLOCK);
            (Allocator::ALLOC_INODE_CREDITS + OTHERS).saturating_add(blocks)
        };
        self.0.iter().map(of_file).fold(0, u32::saturating_add)
    }

    /// Makes them, and names them in the superblock.
    pub fn make(
        &self,
        fs: &MountedFs,
        h: &mut Handle,
        sb: &mut Superblock,
    ) -> std::result::Result<(), FsError> {
        for (kind, bytes) in &self.0 {
            let ino = match kind {
                Kind::User => InodeNr::USER_QUOTA,
                Kind::Group => InodeNr::GROUP_QUOTA,
                Kind::Project => {
                    let ino = fs.vol.alloc.alloc_inode(h, InodeNr::ROOT, false, false)?;
                    if let Some(quotas) = fs.quotas.get() {
                        quotas.exempt(ino);
                    }
                    ino
                }
            };
            write(fs, h, ino, bytes)?;
            quota::set_inode(sb, *kind, ino);
        }
        Ok(())
    }
}

/// Files that go.
#[derive(Debug)]
pub(super) struct Dropped(Vec<(Kind, Node)>);

impl Dropped {
    pub fn plan(fs: &MountedFs, before: &Superblock, kinds: &[Kind]) -> Result<Self> {
        let read = |kind: &Kind| {
            let ino = quota::inode_of(before, *kind);
            Ok((*kind, Node { ino, raw: fs.vol.read_inode(ino)? }))
        };
        let dropped = Self(kinds.iter().map(read).collect::<Result<_>>()?);
        let large = |(_, node): &(Kind, Node)| all_credits(fs, node).is_none();
        if dropped.0.iter().any(large) {
            return refuse("the quota files lie in many pieces: use tune2fs -O ^quota");
        }
        Ok(dropped)
    }

    pub fn credits(&self, fs: &MountedFs) -> u32 {
        let of_file = |(_, node): &(Kind, Node)| {
            all_credits(fs, node).unwrap_or(u32::MAX) + Allocator::FREE_INODE_CREDITS + 1
        };
        self.0.iter().map(of_file).fold(0, u32::saturating_add)
    }

    /// Frees their blocks and inodes.
    pub fn free(&self, fs: &MountedFs, h: &mut Handle) -> std::result::Result<(), FsError> {
        for (_, node) in &self.0 {
            let mut node = node.clone();
            let how = Discard::FreeJournalled;
            if !matches!(map::remove(&fs.vol, h, &mut node, 0, u32::MAX, how)?, map::Progress::Done)
            {
                let what = "quota file has more blocks than it says";
                return Err(FsError::corrupt(what).in_inode(node.ino.0.into()));
            }
            fs.vol.clear_inode(h, node.ino)?;
            if node.ino >= fs.vol.geo.first_ino {
                fs.vol.alloc.free_inode(h, node.ino, false)?;
            }
        }
        Ok(())
    }
}

/// Credits for freeing the whole file, if it is short or in few pieces.
fn all_credits(fs: &MountedFs, node: &Node) -> Option<u32> {
    let few = u32::try_from(
        node.raw.blocks.saturating_mul(512) / u64::from(fs.vol.geo.block_size.bytes()),
    );
    let short = few.ok().filter(|blocks| *blocks <= FEW);
    let one_by_one = || Some(map::credits_for_remove_step(node) + CREDITS_PER_FREED * short?);
    map::credits_for_remove_all(node, fs.vol.geo.block_size.bytes()).or_else(one_by_one)
}

fn contents(kind: Kind, used: HashMap<u32, Entry>) -> std::result::Result<Vec<u8>, FsError> {
    let mut entries: Vec<Entry> = used.into_values().collect();
    entries.sort_unstable_by_key(|entry| entry.id);
    let made = || {
        let mut file = QuotaFile::create(InMemory::default(), kind, Version::V1)?;
        entries.iter().try_for_each(|entry| file.set(entry).map(drop))?;
        Ok(file.into_blocks().0)
    };
    made().map_err(error::ondisk)
}

fn blocks(fs: &MountedFs, bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len().div_ceil(fs.vol.geo.block_len())).unwrap_or(u32::MAX)
}

/// Writes a new file that nothing changes but the volume itself.
fn write(
    fs: &MountedFs,
    h: &mut Handle,
    ino: InodeNr,
    bytes: &[u8],
) -> std::result::Result<(), FsError> {
    debug_assert!(bytes.len().is_multiple_of(BLOCK_LEN));
    let vol = &fs.vol;
    let mut raw = Inode::new_empty(&vol.geo);
    raw.mode = 0o100_600;
    raw.links = 1;
    raw.size = bytes.len() as u64;
    raw.flags |= InodeFlags::IMMUTABLE;
    let now = fs.now();
    (raw.atime, raw.ctime, raw.mtime, raw.crtime) = (now, now, now, now);
    map::init(&vol.geo, &mut raw);
    let mut node = Node { ino, raw };
    let mut goal = vol.alloc.meta_goal(ino);
    for (lblk, part) in (0..).zip(bytes.chunks(vol.geo.block_len())) {
        let nr = map::insert_meta(vol, h, &mut node, lblk, goal)?;
        goal = nr.plus(1);
        let buf = h.create(nr).map_err(error::journal)?;
        let put = |block: &mut [u8]| {
            block.iter_mut().zip(part).for_each(|(to, from)| *to = *from);
        };
        h.modify(&buf, put).map_err(error::journal)?;
    }
    let change = Change { data: true, born: true, ..Change::default() };
    vol.write_inode(h, ino, &node.raw, change)
}
