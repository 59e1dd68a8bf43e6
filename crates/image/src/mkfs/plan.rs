//! The whole volume, decided before the first write.
//!
//! Planning is pure: it needs the options and the device's size, and ends in a [`Plan`] that says
//! what goes where. Whatever can be refused is refused here.

use super::bad_blocks;
use super::config::{Config, in_bytes, orphan_file_blocks};
use super::filemap::{BlockImage, FileMap};
use super::inodes::{self, Builder};
use super::journal::{self, JournalSize};
use super::layout::lay_out;
use super::options::MkfsOptions;
use super::quota::{self, QuotaFiles, Usage};
use super::space::Space;
use super::summary::Notes;
use super::tables::{self, Place};
use super::uuid::{random_uuid, volume_uuid};
use super::{Result, refuse};
use extol_block::BlockNr;
use extol_jbd2::format::JournalSuperblock;
use extol_ondisk::mmp::Mmp;
use extol_ondisk::superblock::{DefaultMountOpts, State, SuperFlags};
use extol_ondisk::{
    Compat, Geometry, GroupDesc, GroupFlags, GroupNr, Incompat, Inode, InodeNr, RoCompat,
    Superblock, Time, mmp,
};
use extol_proc::bytes_of;
use extol_vfs::{Size, bytes_text};

/// An internal journal.
#[derive(Debug)]
pub(crate) struct JournalPlan {
    pub(crate) size: JournalSize,
    pub(crate) map: FileMap,
    pub(crate) superblock: JournalSuperblock,
}

/// What a volume holds when it is made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Contents<'a> {
    /// A root directory with lost+found.
    Empty,
    /// Files: the caller makes all directories, these two as well. The journal begins at the first
    /// place that holds it, so that files lie behind it and the volume can be cut behind them.
    /// Quota files have room for what is named here.
    Files(&'a Usage),
}

/// A volume to be written.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) sb: Superblock,
    pub(crate) geo: Geometry,
    pub(crate) places: Vec<Place>,
    pub(crate) space: Space,
    /// Taken blocks are only the group's own fixed metadata if there are this many beyond
    /// superblock and descriptors.
    own_blocks: u64,
    pub(crate) inodes: Vec<(InodeNr, Inode)>,
    /// The last inode in use; all before it are in use as well.
    pub(crate) last_inode: u32,
    /// Directories of each group, as far as groups have any.
    pub(crate) directories: Vec<u32>,
    /// Contents of directories, map blocks and the like.
    pub(crate) blocks: Vec<BlockImage>,
    pub(crate) journal: Option<JournalPlan>,
    pub(crate) quotas: QuotaFiles,
    /// Blocks that nothing is written to.
    pub(crate) bad_blocks: Vec<u64>,
    pub(crate) notes: Notes,
}

/// The superblock with everything that does not depend on the layout.
pub(crate) fn new_superblock(options: &MkfsOptions, config: &mut Config) -> Result<Superblock> {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let now = options.now.unwrap_or(since.as_secs());
    let mut sb = Superblock::new_empty();
    sb.feature_compat = config.features.compat;
    sb.feature_incompat = config.features.incompat;
    sb.feature_ro_compat = config.features.ro_compat;
    sb.rev_level = config.revision;
    sb.state = State::VALID;
    sb.errors = options.on_error.code();
    sb.creator_os = options.creator_os.0;
    sb.max_mnt_count = u16::MAX;
    (sb.mkfs_time, sb.lastcheck, sb.wtime) = (now, now, now);
    sb.log_block_size = config.block_size.trailing_zeros() - 10;
    sb.log_cluster_size = config.cluster_size.trailing_zeros() - 10;
    sb.first_ino = 11;
    sb.inode_size = config.inode_size;
    if config.revision > 0 {
        sb.default_mount_opts = DefaultMountOpts::USER_XATTR | DefaultMountOpts::ACL;
        if config.inode_size > 128 {
            (sb.min_extra_isize, sb.want_extra_isize) = (32, 32);
        }
    }
    sb.raid_stride = options.extended.stride;
    sb.raid_stripe_width = options.extended.stripe_width;
    sb.uuid = volume_uuid(options.uuid.as_deref(), since)?;
    let seed = options.extended.hash_seed.unwrap_or_else(random_uuid);
    for (word, bytes) in sb.hash_seed.iter_mut().zip(seed.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    sb.def_hash_version = 1;
    // By default as the C compiler of this machine treats characters, and with it other programs
    // that hash names.
    let signed = options.signed_hash.unwrap_or(i32::from(std::ffi::c_char::MIN) < 0);
    let journal_dev = config.features.incompat.contains(Incompat::JOURNAL_DEV);
    if !journal_dev {
        sb.flags = if signed { SuperFlags::SIGNED_HASH } else { SuperFlags::UNSIGNED_HASH };
    }
    if options.extended.test_fs {
        sb.flags |= SuperFlags::TEST_FILESYS;
    }
    if config.features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        sb.checksum_type = 1;
    }
    if config.features.incompat.contains(Incompat::CASEFOLD) {
        sb.encoding = Superblock::UTF8_12_1;
        if options.extended.strict_encoding {
            sb.encoding_flags = Superblock::STRICT_ENCODING;
        }
    }
    if config.features.incompat.contains(Incompat::ENCRYPT) {
        sb.encrypt_algos = Superblock::USUAL_ENCRYPTION;
    }
    if config.features.incompat.contains(Incompat::CSUM_SEED) {
        sb.checksum_seed = extol_ondisk::FsSeed::from_uuid(&sb.uuid).0;
    }
    for (what, text, field) in [
        ("label", &options.label, &mut sb.volume_name[..]),
        ("directory of -M", &options.last_mounted, &mut sb.last_mounted[..]),
    ] {
        let Some(text) = text else { continue };
        if !fill(field, bytes_of(text)) {
            let kept = bytes_text(field);
            config.notes.warnings.push(format!(
                "the {what} is longer than {} bytes and was cut to '{}'",
                field.len(),
                kept.trim_end_matches('\0')
            ));
        }
    }
    let backups = options.extended.backup_superblocks.unwrap_or(2);
    if config.features.compat.contains(Compat::SPARSE_SUPER2) {
        if backups > 2 {
            return refuse(format!(
                "bad number of superblock copies {backups}: it must be 0, 1 or 2"
            ));
        }
        for place in sb.backup_bgs.iter_mut().take(backups.into()) {
            *place = 1;
        }
    }
    Ok(sb)
}

/// Puts a text into a field; false if it had to be cut, which is done between two characters.
fn fill(field: &mut [u8], text: &[u8]) -> bool {
    let mut end = text.len().min(field.len());
    if let Ok(text) = std::str::from_utf8(text) {
        end = text.floor_char_boundary(end);
    }
    for (to, from) in field.iter_mut().zip(&text[..end]) {
        *to = *from;
    }
    end == text.len()
}

impl Plan {
    pub(crate) fn new(
        options: &MkfsOptions,
        mut config: Config,
        contents: Contents<'_>,
    ) -> Result<Self> {
        let mut sb = new_superblock(options, &mut config)?;
        let mut notes = std::mem::take(&mut config.notes);
        let geo = lay_out(&mut sb, &config)?;
        if geo.blocks() < config.blocks {
            notes.notes.push(format!(
                "the last {} blocks stay unused: they are too few for a group",
                config.blocks - geo.blocks()
            ));
        }
        let mut space = Space::new(geo.first_data_block..geo.blocks());
        tables::take_base(&mut space, &geo);
        let before = space.count_in(0..geo.blocks());
        let bad_blocks = bad_blocks::take(&mut space, &geo, &options.bad_blocks, &mut notes)?;
        let bad = space.count_in(0..geo.blocks()) - before;
        let packed = options.extended.packed_meta_blocks;
        let places = tables::place_all(&mut space, &geo, options.extended.stride, packed)?;
        if geo.has_clusters() {
            // Metadata shares clusters; all else has its own.
            space.take_clusters(u64::from(geo.cluster_ratio));
        }
        let fixed = space.count_in(0..geo.blocks());
        let free = geo.blocks() - geo.first_data_block - fixed;

        let external = options.journal.device.as_ref();
        let mut journal_size = None;
        if let Some(journal) = external {
            journal::attach(journal, &mut sb, geo.block_size, false)?;
        } else if sb.feature_compat.contains(Compat::HAS_JOURNAL) {
            journal_size = journal::size(options, &geo, free)?;
            if journal_size.is_none() {
                let why = "the volume is too small for a journal: it has none".into();
                notes.warnings.push(why);
                sb.feature_compat
                    .remove(Compat::HAS_JOURNAL | Compat::ORPHAN_FILE | Compat::FAST_COMMIT);
            }
        }
        let geo =
            Geometry::new(&sb, None).or_else(|e| refuse(format!("impossible layout: {e}")))?;

        let now = Time { sec: i64::try_from(sb.mkfs_time).unwrap_or(i64::MAX), nsec: 0 };
        let mut build =
            Builder { geo: &geo, space: &mut space, now, inodes: Vec::new(), blocks: Vec::new() };
        let quotas = quota::kinds(options, geo.ro_compat);
        build.reserved(&quotas);
        build.bad_blocks(&bad_blocks)?;
        if matches!(contents, Contents::Empty) {
            build.directories(
                options.extended.root_owner.unwrap_or_default(),
                options.extended.root_perms,
            )?;
            if let Some(label) = &options.extended.root_selinux {
                build.label_root(label)?;
            }
        }
        build.resize_inode()?;
        let mut journal = None;
        match journal_size {
            None => build.no_journal(),
            Some(size) => {
                let goal = match options.journal.location {
                    Some(at) => journal_goal(at, &geo)?,
                    None if packed => 0,
                    None if matches!(contents, Contents::Files(_)) => {
                        let len = u64::from(size.total());
                        build.space.find(0..geo.blocks(), len).unwrap_or_default()
                    }
                    None => middle(build.space, &geo),
                };
                let map = build.journal(goal, u64::from(size.total()))?;
                let superblock = journal::new_superblock(geo.block_size, size, 1, sb.uuid);
                journal = Some(JournalPlan { size, map, superblock });
            }
        }
        if geo.incompat().contains(Incompat::MMP) {
            let block = multiple_mount_block(&mut sb, &geo, build.space, options)?;
            build.blocks.push(block);
        }
        let usage = match contents {
            Contents::Empty => build.usage(),
            Contents::Files(expected) => expected.clone(),
        };
        let quotas = build.quota_files(&mut sb, &quotas, usage)?;
        if geo.compat().contains(Compat::ORPHAN_FILE) {
            let blocks = orphan_file_blocks(options, config.block_size, geo.blocks())?;
            sb.orphan_file_inum = build.orphan_file(blocks)?.0;
        }
        let Builder { inodes, blocks, .. } = build;
        if let Some(journal) = &journal {
            back_up_journal_map(&mut sb, &inodes);
            sb.journal_inum = InodeNr::JOURNAL.0;
            let clusters = geo.clusters(u64::from(journal.size.total()));
            sb.overhead_clusters = u32::try_from(clusters).unwrap_or(u32::MAX);
        }
        let overhead = geo.clusters(fixed - bad + geo.first_data_block);
        sb.overhead_clusters =
            sb.overhead_clusters.saturating_add(u32::try_from(overhead).unwrap_or(u32::MAX));

        let flexible =
            geo.log_groups_per_flex > 0 || packed && geo.incompat().contains(Incompat::FLEX_BG);
        let own_blocks = if flexible { 0 } else { 2 + u64::from(geo.inode_table_blocks) };
        let last_inode = inodes.iter().map(|(ino, _)| ino.0).max().unwrap_or_default();
        let mut plan = Self {
            sb,
            geo,
            places,
            space,
            own_blocks,
            inodes,
            last_inode,
            directories: Vec::new(),
            blocks,
            journal,
            quotas,
            bad_blocks,
            notes,
        };
        if matches!(contents, Contents::Empty) {
            plan.add_directory(InodeNr::ROOT);
            plan.add_directory(inodes::LOST_AND_FOUND);
        }
        plan.count_free();
        Ok(plan)
    }

    /// The superblock of a volume whose contents stay: e2fsck finds out what there is.
    pub(crate) fn keep_contents(&mut self) {
        self.sb.state |= State::ERROR;
        (self.sb.jnl_backup_type, self.sb.jnl_blocks) = (0, [0; 17]);
    }

    /// The first inode that the volume does not take for itself.
    pub(crate) fn first_file(&self) -> u32 {
        let own = self.inodes.iter().map(|(ino, _)| ino.0).max().unwrap_or_default();
        own.max(inodes::LOST_AND_FOUND.0) + 1
    }

    /// Counts a directory.
    pub(crate) fn add_directory(&mut self, ino: InodeNr) {
        let group = self.geo.group_of_inode(ino).0.0 as usize;
        if self.directories.len() <= group {
            self.directories.resize(group + 1, 0);
        }
        self.directories[group] += 1;
    }

    /// Counts what is free, in the superblock.
    pub(crate) fn count_free(&mut self) {
        self.sb.free_inodes_count = self.geo.inodes() - self.last_inode;
        let blocks = self.geo.blocks() - self.geo.first_data_block;
        self.sb.free_blocks_count = blocks - self.space.count_in(0..self.geo.blocks());
        self.sb.r_blocks_count = self.sb.r_blocks_count.min(self.geo.blocks() / 2);
    }

    /// How many inodes of a group are in use, from its first one on.
    pub(crate) fn used_inodes(&self, group: GroupNr) -> u32 {
        let per_group = u64::from(self.geo.inodes_per_group);
        let before = u64::from(group.0) * per_group;
        u64::from(self.last_inode).saturating_sub(before).min(per_group) as u32
    }

    /// The blocks of a group.
    pub(crate) fn group_blocks(&self, group: GroupNr) -> std::ops::Range<u64> {
        let first = self.geo.group_first_block(group).0;
        first..first + u64::from(self.geo.group_blocks(group))
    }

    /// The descriptor of a group, without bitmap checksums. `zeroed`: unused parts of the inode
    /// tables read as zeros.
    pub(crate) fn descriptor(&self, group: GroupNr, zeroed: bool) -> GroupDesc {
        let geo = &self.geo;
        let place = self.places[group.0 as usize];
        let taken = self.space.count_in(self.group_blocks(group));
        let used = self.used_inodes(group);
        let dirs = self.directories.get(group.0 as usize).copied().unwrap_or_default();
        let mut flags = GroupFlags::empty();
        let mut itable_unused = 0;
        if geo.has_gdt_csum() {
            itable_unused = geo.inodes_per_group - used;
            flags.set(GroupFlags::INODE_UNINIT, used == 0);
            flags.set(GroupFlags::INODE_ZEROED, zeroed);
            let base = u64::from(geo.base_meta_blocks(group));
            // The last group's bitmap is padded, so it is always written.
            let last = group.0 == geo.groups() - 1;
            let own = !geo.has_clusters() && taken == base + self.own_blocks;
            flags.set(GroupFlags::BLOCK_UNINIT, !last && own);
        }
        GroupDesc {
            block_bitmap: place.block_bitmap,
            inode_bitmap: place.inode_bitmap,
            inode_table: place.inode_table,
            free_blocks: geo.group_clusters(group) - geo.clusters(taken) as u32,
            free_inodes: geo.inodes_per_group - used,
            used_dirs: dirs,
            itable_unused,
            flags,
            ..GroupDesc::default()
        }
    }
}

/// Where a journal is best placed: near the middle of the volume, at the start of a group with much
/// room.
fn middle(space: &Space, geo: &Geometry) -> u64 {
    let free = |g: u32| {
        let first = geo.group_first_block(GroupNr(g)).0;
        let len = u64::from(geo.group_blocks(GroupNr(g)));
        len - space.count_in(first..first + len)
    };
    let mut group = geo.group_of_block(BlockNr((geo.blocks() - geo.first_data_block) / 2)).0;
    let flex = geo.groups_per_flex();
    let start = if geo.log_groups_per_flex > 0 && group > flex {
        group &= !(flex - 1);
        group = (group..geo.groups()).find(|g| free(*g) > 0).unwrap_or(0);
        group
    } else {
        group.saturating_sub(1)
    };
    let end = (group + 1).min(geo.groups() - 1);
    // The first of those with the most room.
    let best = (start..=end).rev().max_by_key(|g| free(*g)).unwrap_or(start);
    geo.group_first_block(GroupNr(best)).0
}

/// The block that `location=` names.
fn journal_goal(at: Size, geo: &Geometry) -> Result<u64> {
    let block = in_bytes(at, geo.block_size.bytes())? / u64::from(geo.block_size.bytes());
    if block >= geo.blocks() {
        return refuse(format!(
            "the journal cannot begin at block {block}: the volume has {} blocks",
            geo.blocks()
        ));
    }
    Ok(block)
}

/// Keeps a copy of the journal inode's map and size in the superblock, for the checker.
fn back_up_journal_map(sb: &mut Superblock, inodes: &[(InodeNr, Inode)]) {
    let Some((_, inode)) = inodes.iter().find(|(ino, _)| *ino == InodeNr::JOURNAL) else { return };
    for (word, bytes) in sb.jnl_blocks.iter_mut().zip(inode.i_block.as_chunks::<4>().0) {
        *word = u32::from_le_bytes(*bytes);
    }
    sb.jnl_blocks[15] = (inode.size >> 32) as u32;
    sb.jnl_blocks[16] = inode.size as u32;
    sb.jnl_backup_type = 1;
}

fn multiple_mount_block(
    sb: &mut Superblock,
    geo: &Geometry,
    space: &mut Space,
    options: &MkfsOptions,
) -> Result<BlockImage> {
    const INTERVAL: u16 = 5;
    const MAX_INTERVAL: u16 = 300;
    let asked = options.extended.mmp_update_interval;
    if asked > MAX_INTERVAL {
        return refuse(format!("bad mmp_update_interval {asked}: at most {MAX_INTERVAL} seconds"));
    }
    let Some(at) = space.take_one(0) else {
        return refuse("the volume is too small for the multiple-mount protection");
    };
    sb.mmp_update_interval = if asked == 0 { INTERVAL } else { asked };
    sb.mmp_block = at;
    let contents = Mmp {
        seq: mmp::SEQ_CLEAN,
        time: sb.mkfs_time,
        nodename: [0; 64],
        bdevname: [0; 32],
        check_interval: sb.mmp_update_interval.max(INTERVAL),
    };
    let mut bytes = vec![0; geo.block_len()];
    contents.encode_into(&mut bytes, geo);
    Ok((BlockNr(at), bytes))
}
