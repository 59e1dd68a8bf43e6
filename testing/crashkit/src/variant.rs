//! Kinds of volumes and of journals, small enough that the log wraps and freed blocks come back
//! within one run.
//!
//! Free blocks are full of garbage before the volume is made, so that a block which shows what it
//! held before is noticed.

use std::sync::Arc;

use extol::encryption::{MasterKey, Policy};
use extol::mkfs::{ExtendedOptions, FsType, JournalDevice, MkfsOptions, mkfs};
use extol::options::{Atime, DataMode};
use extol::vfs::Size;
use extol::vfs::{FileSystem as _, SetAttr};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice as _, MemDevice, SharedDevice};
use extol_jbd2::format::{JournalSuperblock, SUPERBLOCK_SIZE};

use crate::media::Media;
use crate::model::Rules;

/// A kind of volume, and how the load mounts it.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is special, in a few words.
    pub about: &'static str,
    /// Block size in bytes.
    pub block_size: u32,
    /// Size of the volume in MiB.
    pub mib: u32,
    fs_type: FsType,
    features: &'static str,
    /// Mount options of the load.
    options: &'static str,
    /// The journal is on a device of its own.
    pub external: bool,
    /// Checksums v2 instead of v3.
    v2: bool,
    /// Many small groups, whose inode tables mkfs leaves as they are.
    pub lazy_tables: bool,
    /// The volume has many small groups, and is smaller than its device: it grows.
    pub grows: bool,
    /// Many small groups with all that resizing changes: several blocks of descriptors, reserved
    /// ones, copies of them.
    pub small_groups: bool,
    /// Blocks of a small group, or its clusters.
    group_blocks: u32,
    /// Groups whose metadata lie together, if not the usual number.
    flex: Option<u32>,
    /// The device is a disk image: its length follows that of the volume.
    pub is_image: bool,
    /// The volume has fast commits, and so many blocks for them (one of which is never used).
    pub fast_blocks: Option<u32>,
    /// Bytes of an inode, if not the usual number.
    inode_size: Option<u32>,
    /// Bytes of a cluster, with bigalloc.
    cluster_size: Option<u32>,
}

const PLAIN: Variant = Variant {
    name: "v3-1k",
    about: "today's default: checksums v3, 64 bits",
    block_size: 1024,
    mib: 4,
    fs_type: FsType::Ext4,
    features: "",
    options: "",
    external: false,
    v2: false,
    lazy_tables: false,
    grows: false,
    small_groups: false,
    group_blocks: 512,
    flex: None,
    is_image: false,
    fast_blocks: None,
    inode_size: None,
    cluster_size: None,
};

/// The key of encrypted volumes.
pub const MASTER_KEY: [u8; 64] = {
    let mut key = [0; 64];
    let mut at = 0;
    while at < key.len() {
        // (Linux refuses one with equal halves.)
        key[at] = at as u8 * 3 + 1;
        at += 1;
    }
    key
};

/// The flag of a directory whose names have spellings.
const CASEFOLD: u32 = 0x4000_0000;

/// With fast commits.
const FAST: Variant = Variant {
    name: "fc",
    about: "fast commits",
    features: "fast_commit",
    fast_blocks: Some(64),
    ..PLAIN
};

/// Every kind.
pub const VARIANTS: &[Variant] = &[
    PLAIN,
    Variant { name: "v3-4k", about: "blocks of 4 KiB", block_size: 4096, mib: 16, ..PLAIN },
    Variant {
        name: "none",
        about: "no checksums at all",
        features: "^metadata_csum,^64bit",
        ..PLAIN
    },
    Variant {
        name: "none-64bit",
        about: "no checksums, 64 bits",
        features: "^metadata_csum,64bit",
        ..PLAIN
    },
    Variant {
        name: "v1",
        about: "checksums v1",
        features: "^metadata_csum,^64bit",
        options: "journal_checksum",
        ..PLAIN
    },
    Variant { name: "v2", about: "checksums v2", v2: true, ..PLAIN },
    Variant { name: "v3-32bit", about: "checksums v3, 32 bits", features: "^64bit", ..PLAIN },
    Variant {
        name: "async",
        about: "commit record sent with the rest, data=writeback",
        options: "journal_async_commit,data=writeback",
        ..PLAIN
    },
    Variant {
        name: "external",
        about: "journal on its own device",
        external: true,
        mib: 3,
        ..PLAIN
    },
    Variant {
        name: "external-async",
        about: "both",
        external: true,
        mib: 3,
        options: "journal_async_commit,data=writeback",
        ..PLAIN
    },
    Variant {
        name: "checkpoint",
        about: "asynchronous checkpoint: blocks go home between the commits",
        options: "async_checkpoint=90",
        ..PLAIN
    },
    Variant {
        name: "external-checkpoint",
        about: "the same with the journal on its own device",
        external: true,
        mib: 3,
        options: "async_checkpoint=90",
        ..PLAIN
    },
    Variant { name: "data-journal", about: "data=journal", options: "data=journal", ..PLAIN },
    Variant { name: "data-writeback", about: "data=writeback", options: "data=writeback", ..PLAIN },
    Variant { name: "discard", about: "freed blocks are discarded", options: "discard", ..PLAIN },
    Variant {
        name: "ext3",
        about: "block maps instead of extents, no checksums",
        fs_type: FsType::Ext3,
        features: "dir_index",
        ..PLAIN
    },
    Variant {
        name: "inline",
        about: "inline_data, orphan_file",
        features: "inline_data,orphan_file",
        ..PLAIN
    },
    Variant { name: "values", about: "ea_inode", features: "ea_inode", ..PLAIN },
    Variant {
        name: "values-none",
        about: "ea_inode without checksums, orphans in a file",
        features: "ea_inode,^metadata_csum,uninit_bg,orphan_file",
        ..PLAIN
    },
    Variant {
        name: "bigalloc",
        about: "clusters of 4 blocks",
        features: "bigalloc",
        cluster_size: Some(4096),
        mib: 8,
        ..PLAIN
    },
    Variant {
        name: "quota",
        about: "quota files for users, groups and projects",
        features: "quota,project",
        ..PLAIN
    },
    Variant {
        name: "quota-journal",
        about: "quota files, data=journal, no checksums, orphans in a file",
        features: "quota,project,^metadata_csum,uninit_bg,orphan_file",
        options: "data=journal",
        ..PLAIN
    },
    Variant {
        name: "quota-bigalloc",
        about: "quota files, clusters of 4 blocks, ea_inode",
        features: "quota,project,bigalloc,ea_inode",
        cluster_size: Some(4096),
        mib: 8,
        ..PLAIN
    },
    Variant {
        name: "lazy",
        about: "inode tables full of old contents",
        lazy_tables: true,
        ..PLAIN
    },
    Variant {
        name: "lazy-none",
        about: "the same without checksums of the log",
        features: "^metadata_csum,uninit_bg",
        lazy_tables: true,
        ..PLAIN
    },
    Variant {
        name: "lazy-external",
        about: "the same with the journal on its own device",
        external: true,
        mib: 3,
        lazy_tables: true,
        ..PLAIN
    },
    Variant {
        name: "lazy-async",
        about: "the same, commit record sent with the rest",
        options: "journal_async_commit,data=writeback",
        lazy_tables: true,
        ..PLAIN
    },
    Variant {
        name: "shrink",
        about: "small groups, descriptor blocks reserved",
        small_groups: true,
        mib: 10,
        ..PLAIN
    },
    Variant {
        name: "shrink-meta-bg",
        about: "small groups, descriptors by meta_bg",
        features: "meta_bg,^resize_inode",
        small_groups: true,
        mib: 10,
        ..PLAIN
    },
    Variant {
        name: "shrink-none",
        about: "small groups, no checksums, descriptors neither reserved nor in groups",
        features: "^metadata_csum,^64bit,^resize_inode,^flex_bg",
        small_groups: true,
        mib: 18,
        ..PLAIN
    },
    Variant {
        name: "shrink-fc",
        about: "small groups, fast commits, orphan_file, two copies of the superblock",
        features: "fast_commit,orphan_file,sparse_super2",
        small_groups: true,
        mib: 10,
        ..FAST
    },
    Variant {
        name: "shrink-image",
        about: "small groups, and the image is cut and lengthened with the volume",
        small_groups: true,
        is_image: true,
        mib: 10,
        ..PLAIN
    },
    Variant {
        name: "shrink-pieces",
        about: "groups so small that the log lies in more pieces than its inode holds",
        features: "^resize_inode,^flex_bg",
        small_groups: true,
        group_blocks: 256,
        mib: 10,
        ..PLAIN
    },
    Variant {
        name: "shrink-clusters",
        about: "small groups of clusters of 4 blocks, neighbouring metadata shares them",
        features: "bigalloc,^resize_inode",
        cluster_size: Some(4096),
        small_groups: true,
        mib: 20,
        ..PLAIN
    },
    Variant {
        name: "shrink-quota",
        about: "small groups, quota files",
        features: "quota,project",
        small_groups: true,
        mib: 10,
        ..PLAIN
    },
    Variant {
        name: "shrink-quota-clusters",
        about: "small groups of clusters of 4 blocks, quota files",
        features: "quota,project,bigalloc,^resize_inode",
        cluster_size: Some(4096),
        small_groups: true,
        mib: 20,
        ..PLAIN
    },
    Variant {
        name: "shrink-ext3",
        about: "small groups, block maps: that of the log has map blocks",
        fs_type: FsType::Ext3,
        features: "dir_index",
        small_groups: true,
        mib: 10,
        ..PLAIN
    },
    Variant {
        name: "shrink-tables",
        about: "small groups whose metadata lie so far from them that they move",
        features: "^resize_inode",
        small_groups: true,
        flex: Some(32),
        mib: 32,
        ..PLAIN
    },
    FAST,
    Variant {
        name: "fc-4k",
        about: "fast commits, blocks of 4 KiB",
        block_size: 4096,
        mib: 16,
        fast_blocks: Some(16),
        ..FAST
    },
    Variant {
        name: "fc-fua",
        about: "fast commits without a flush, blocks of 4 KiB",
        block_size: 4096,
        mib: 16,
        fast_blocks: Some(16),
        options: "fua=always",
        ..FAST
    },
    Variant {
        name: "fc-tiny",
        about: "fast commits, in so few blocks that they are often full",
        fast_blocks: Some(5),
        ..FAST
    },
    Variant {
        name: "fc-external",
        about: "fast commits, journal on its own device",
        external: true,
        mib: 3,
        fast_blocks: Some(24),
        ..FAST
    },
    Variant {
        name: "fc-orphan",
        about: "fast commits, orphan_file",
        features: "fast_commit,orphan_file",
        ..FAST
    },
    Variant {
        name: "fc-values",
        about: "fast commits, ea_inode",
        features: "fast_commit,ea_inode",
        ..FAST
    },
    Variant {
        name: "fc-inline",
        about: "fast commits, inline_data, orphan_file",
        features: "fast_commit,inline_data,orphan_file",
        ..FAST
    },
    Variant {
        name: "fc-none",
        about: "fast commits, no checksums but theirs",
        features: "fast_commit,^metadata_csum,^64bit",
        fast_blocks: Some(12),
        ..FAST
    },
    Variant {
        name: "fc-128",
        about: "fast commits, inodes of 128 bytes",
        inode_size: Some(128),
        fast_blocks: Some(12),
        ..FAST
    },
    Variant {
        name: "fc-alone",
        about: "fast commits, an fsync does not wait for others",
        options: "max_batch_time=0",
        ..FAST
    },
    Variant {
        name: "fc-writeback",
        about: "fast commits, data=writeback",
        options: "data=writeback",
        fast_blocks: Some(12),
        ..FAST
    },
    Variant {
        name: "fc-checkpoint",
        about: "fast commits, asynchronous checkpoint",
        options: "async_checkpoint=90",
        fast_blocks: Some(12),
        ..FAST
    },
    Variant {
        name: "fc-quota",
        about: "fast commits, quota files",
        features: "fast_commit,quota,project",
        ..FAST
    },
    Variant { name: "casefold", about: "names in any spelling", features: "casefold", ..PLAIN },
    Variant {
        name: "fc-casefold",
        about: "fast commits, names in any spelling",
        features: "fast_commit,casefold",
        ..FAST
    },
    Variant { name: "encrypt", about: "everything encrypted", features: "encrypt", ..PLAIN },
    Variant {
        name: "encrypt-casefold",
        about: "everything encrypted, names in any spelling",
        features: "encrypt,casefold",
        ..PLAIN
    },
    Variant {
        name: "fc-encrypt",
        about: "fast commits, everything encrypted",
        features: "fast_commit,encrypt",
        ..FAST
    },
    Variant { name: "verity", about: "files of fs-verity", features: "verity", ..PLAIN },
    Variant {
        name: "verity-bigalloc",
        about: "files of fs-verity, clusters of 4 blocks, inline data",
        features: "verity,bigalloc,inline_data,orphan_file",
        cluster_size: Some(4096),
        mib: 8,
        ..PLAIN
    },
    Variant {
        name: "fc-verity",
        about: "fast commits, files of fs-verity",
        features: "fast_commit,verity",
        ..FAST
    },
    Variant { name: "grow", about: "grows, with reserved descriptor blocks", ..GROWS },
    Variant {
        name: "grow-clusters",
        about: "grows, clusters of 2 blocks, descriptors placed by meta_bg",
        features: "bigalloc,^resize_inode",
        cluster_size: Some(2048),
        group_blocks: 256,
        ..GROWS
    },
    Variant {
        name: "grow-meta-bg",
        about: "grows, descriptors placed by meta_bg",
        features: "meta_bg,^resize_inode",
        ..GROWS
    },
    Variant {
        name: "grow-external",
        about: "grows, journal on its own device",
        external: true,
        ..GROWS
    },
    Variant {
        name: "grow-fc",
        about: "grows, fast commits",
        features: "fast_commit",
        fast_blocks: Some(64),
        ..GROWS
    },
    Variant {
        name: "fc-groups",
        about: "fast commits, many groups, contents in inodes",
        features: "fast_commit,inline_data",
        lazy_tables: true,
        fast_blocks: Some(12),
        ..FAST
    },
];

/// With room to grow: behind the end are garbage and more groups than one descriptor block holds.
const GROWS: Variant = Variant { name: "grow", mib: 14, grows: true, ..PLAIN };

/// Blocks that a volume has which is to grow.
const SMALL_VOLUME: u64 = 4200;

/// The least log that the format allows.
const LOG_BLOCKS: u64 = 1024;

impl Variant {
    /// The variant of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        VARIANTS.iter().copied().find(|v| v.name == name)
    }

    /// The metadata of a flexible group lie so far from it that a new end can lie between.
    #[must_use]
    pub fn has_far_tables(&self) -> bool {
        self.flex.is_some()
    }

    /// Makes an empty volume, the same every time.
    ///
    /// # Errors
    /// If mkfs refuses.
    pub fn make(&self) -> Result<Media, String> {
        let volume = garbage(u64::from(self.mib) << 20);
        let mut options = MkfsOptions {
            fs_type: self.fs_type,
            block_size: Some(self.block_size),
            features: vec![self.features.to_owned()],
            reserved_percent: Some(0.0),
            inodes: Some(256),
            inode_size: self.inode_size,
            cluster_size: self.cluster_size,
            uuid: Some("3b241101-e2bb-4255-8caf-4136c566a962".to_owned()),
            now: Some(1_700_000_000),
            ..MkfsOptions::default()
        };
        options.extended.lazy_itable_init = Some(self.lazy_tables);
        let small = self.lazy_tables || self.small_groups || self.grows;
        options.blocks_per_group = small.then_some(self.group_blocks);
        options.groups_per_flex = self.flex;
        options.size = self.grows.then_some(SMALL_VOLUME * u64::from(self.block_size));
        // Few blocks are reserved for descriptors: a transaction that changes all has to fit.
        let largest = u64::from(self.mib) << 20;
        let reserves = self.grows && !self.features.contains("^resize_inode");
        options.extended.resize = reserves.then(|| Size::of_bytes(largest));
        if self.small_groups && !self.features.contains("^resize_inode") {
            options.extended.resize = "128M".parse().ok();
        }
        options.extended.discard = Some(false);
        options.extended.hash_seed = Some([0x42; 16]);
        let mut devices = Vec::new();
        if self.external {
            let fast = u64::from(self.fast_blocks.unwrap_or(0));
            let log = Arc::new(garbage((LOG_BLOCKS + 8 + fast) * u64::from(self.block_size)));
            let journal = MkfsOptions {
                size: None,
                extended: ExtendedOptions { resize: None, ..options.extended.clone() },
                features: vec!["journal_dev".into()],
                uuid: Some("c1b9d5a2-f162-11cf-9ece-0020afc76f16".to_owned()),
                ..options.clone()
            };
            mkfs(&*log, &journal, &mut |_| {}).map_err(|e| format!("{}: {e}", self.name))?;
            if let Some(blocks) = self.fast_blocks {
                set_fast_blocks(&log, self.block_size, blocks)?;
            }
            options.journal.device_path = Some("the journal".into());
            options.journal.device =
                Some(JournalDevice { device: Arc::clone(&log) as SharedDevice, rdev: 0 });
            devices.push(log);
        } else {
            options.journal.size_mib = Some((self.block_size * LOG_BLOCKS as u32) >> 20);
            options.journal.fast_commit_kib = self.fast_blocks.map(|n| (n * self.block_size) >> 10);
        }
        mkfs(&volume, &options, &mut |_| {}).map_err(|e| format!("{}: {e}", self.name))?;
        drop(options);
        let mut all = vec![volume];
        all.extend(devices.iter().map(|d| d.snapshot()));
        Ok(Media::new(all))
    }

    /// How the load mounts it. `threads`: with the background services.
    ///
    /// # Errors
    /// If the variant's own options are wrong.
    pub fn load_options(
        &self,
        journal: Option<SharedDevice>,
        threads: bool,
    ) -> Result<MountOptions, String> {
        let mut options = MountOptions::parse(self.options)?;
        options.background.threads = threads;
        options.background.init_itable_delay = Some(std::time::Duration::ZERO);
        options.inodes.atime = Atime::Never;
        options.journal.device = journal;
        options.journal.checksum_v2 = self.v2;
        // So little that file data is written back within the run.
        options.data.dirty_bytes = 96 << 10;
        self.add_key(&mut options)?;
        Ok(options)
    }

    /// How a recovery mounts it: as a user does.
    #[must_use]
    pub fn recovery_options(&self, journal: Option<SharedDevice>) -> MountOptions {
        let mut options = MountOptions::default().without_threads().with_journal(journal);
        options.inodes.atime = Atime::Never;
        // (The key is a good one.)
        let _ = self.add_key(&mut options);
        options
    }

    fn add_key(&self, options: &mut MountOptions) -> Result<(), String> {
        if self.is_encrypted() {
            options.keys.add(&MASTER_KEY).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// True if all that loads do is below an encrypted directory.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.has_feature("encrypt")
    }

    /// True if all that loads do is below a directory whose names have spellings.
    #[must_use]
    pub fn has_spellings(&self) -> bool {
        self.has_feature("casefold")
    }

    /// Makes an empty directory one that a load of this variant can have, with all below it.
    ///
    /// # Errors
    /// If the file system refuses.
    pub fn prepare(&self, fs: &Arc<Ext4>, dir: &str) -> Result<(), String> {
        let text = |e: extol::FsError| format!("{dir}: {e}");
        let attr = fs.metadata(dir).map_err(text)?;
        if self.is_encrypted() {
            let key = MasterKey::new(&MASTER_KEY).map_err(|e| e.to_string())?;
            let policy = [&[2, 1, 4, 3, 0, 0, 0, 0][..], &key.identifier()].concat();
            let policy = Policy::from_argument(&policy).ok_or("a policy that is none")?;
            fs.set_encryption(attr.id.ino, &policy).map_err(text)?;
        }
        if self.has_spellings() {
            let flags = fs.getattr(attr.id.ino).map_err(text)?.flags | CASEFOLD;
            let to = SetAttr { flags: Some(flags), ..SetAttr::default() };
            fs.setattr(attr.id.ino, &to).map_err(text)?;
        }
        Ok(())
    }

    /// True if e2fsck and Linux can be asked about states in which a transaction reached the log in
    /// part. With asynchronous commits they cannot: neither of them looks at the copies' checksums
    /// before it begins to replay, so Linux refuses the volume and e2fsck leaves it damaged where
    /// Extol lets the incomplete transaction go.
    #[must_use]
    pub fn outside_understands_parts(&self) -> bool {
        !MountOptions::parse(self.options).unwrap_or_default().journal.async_commit
    }

    /// True if it has fast commits and its group descriptors have no checksums.
    #[must_use]
    pub fn without_group_checksums(&self) -> bool {
        let has = |name: &str| self.features.split(',').any(|f| f == name);
        self.fast_blocks.is_some() && has("^metadata_csum") && !has("uninit_bg")
    }

    /// True if every Linux of a machine can be asked: not each is built with the formats of quota
    /// files, and then it mounts such a volume only to read; nor with Unicode or fs-verity.
    #[must_use]
    pub fn linux_mounts_it(&self) -> bool {
        !["quota", "casefold", "verity"].iter().any(|name| self.has_feature(name))
    }

    /// True if the volume has been given this feature by name.
    #[must_use]
    pub fn has_feature(&self, name: &str) -> bool {
        self.features.split(',').any(|feature| feature == name)
    }

    /// What it promises.
    #[must_use]
    pub fn rules(&self) -> Rules {
        let parsed = MountOptions::parse(self.options).unwrap_or_default();
        let stale =
            parsed.journal.async_commit && parsed.journal.data_mode == Some(DataMode::Writeback);
        let fast_commits = self.fast_blocks.is_some();
        Rules {
            stale_unsynced: stale,
            missing_data: false,
            fast_commits,
            block: self.block_size as usize,
        }
    }
}

/// mke2fs has no option for the area of a journal device, whose superblock lies behind that of the
/// device itself.
fn set_fast_blocks(log: &MemDevice, block_size: u32, blocks: u32) -> Result<(), String> {
    let at = u64::from(block_size.max(2048));
    let mut bytes = [0; SUPERBLOCK_SIZE];
    log.read_at(&mut bytes, at).map_err(|e| e.to_string())?;
    let mut sb = JournalSuperblock::decode(&bytes).map_err(|e| e.to_string())?;
    sb.num_fc_blocks = blocks;
    log.write_at(&sb.encode()[..], at).map_err(|e| e.to_string())
}

fn garbage(size: u64) -> MemDevice {
    let device = MemDevice::new(size);
    let piece = vec![0xDB; 64 << 10];
    for at in (0..size).step_by(piece.len()) {
        let n = piece.len().min((size - at) as usize);
        let written = device.write_at(&piece[..n], at);
        debug_assert!(written.is_ok());
    }
    device
}
