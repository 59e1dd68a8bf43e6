//! The superblock: 1024 bytes at byte 1024 of the device, copied to the start of some groups.
//!
//! [`Superblock`] has every field that has a name; numbers that are stored in two halves are one
//! number here. The bytes it was decoded from are kept in `raw`, so that whatever has no name
//! survives [`Superblock::encode`]. Decoding checks the magic number, the checksum and that the
//! fields by which everything else is found can be used at all;
//! [`Geometry::new`](crate::Geometry::new) checks the rest, against each other and the device.

use crate::bytes::{get8, get16, get32, get64, hi32, join64, lo32, put, put8, put16, put32, put64};
use crate::checksum::{FsSeed, crc32c};
use crate::error::{OnDiskError, Result, ensure, ensure_csum};
use crate::features::{Compat, Incompat, RoCompat};
use bitflags::bitflags;

/// Length of the superblock.
pub const SUPERBLOCK_LEN: usize = 1024;
/// Byte offset of the primary superblock on the device.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Magic number.
pub const MAGIC: u16 = 0xEF53;

const CHECKSUM_AT: usize = 0x3FC;
/// The area that survives a journal replay: what went wrong must not be forgotten.
pub const ERROR_AREA: std::ops::Range<usize> = 0x194..0x200;

bitflags! {
    /// `state`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct State: u16 {
        /// Cleanly unmounted (or journaled: errors aside always set).
        const VALID = 1;
        /// Errors were found.
        const ERROR = 2;
        /// Orphans are being processed.
        const ORPHANS = 4;
        /// A fast-commit replay is under way.
        const FC_REPLAY = 0x20;
    }

    /// `flags`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct SuperFlags: u32 {
        /// Directory hashes treat characters as signed.
        const SIGNED_HASH = 1;
        /// Directory hashes treat characters as unsigned.
        const UNSIGNED_HASH = 2;
        /// For testing development code.
        const TEST_FILESYS = 4;
    }

    /// `default_mount_opts`.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct DefaultMountOpts: u32 {
        /// debug
        const DEBUG = 1;
        /// bsdgroups
        const BSDGROUPS = 2;
        /// user_xattr
        const USER_XATTR = 4;
        /// acl
        const ACL = 8;
        /// 16-bit user ids
        const UID16 = 0x10;
        /// data=journal (alone)
        const JOURNAL_DATA = 0x20;
        /// data=ordered (alone); with JOURNAL_DATA: data=writeback
        const JOURNAL_ORDERED = 0x40;
        /// nobarrier
        const NOBARRIER = 0x100;
        /// block_validity
        const BLOCK_VALIDITY = 0x200;
        /// discard
        const DISCARD = 0x400;
        /// nodelalloc
        const NODELALLOC = 0x800;
    }
}

/// A number, word or byte string at a fixed place.
trait Field: Sized {
    fn read(b: &[u8], at: usize) -> Self;
    fn write(&self, b: &mut [u8], at: usize);
}

macro_rules! number_field {
    ($ty:ty, $get:ident, $put:ident) => {
        impl Field for $ty {
            fn read(b: &[u8], at: usize) -> Self {
                $get(b, at)
            }
            fn write(&self, b: &mut [u8], at: usize) {
                $put(b, at, *self);
            }
        }
    };
}
number_field!(u8, get8, put8);
number_field!(u16, get16, put16);
number_field!(u32, get32, put32);
number_field!(u64, get64, put64);

macro_rules! flags_field {
    ($ty:ty, $get:ident, $put:ident) => {
        impl Field for $ty {
            fn read(b: &[u8], at: usize) -> Self {
                Self::from_bits_retain($get(b, at))
            }
            fn write(&self, b: &mut [u8], at: usize) {
                $put(b, at, self.bits());
            }
        }
    };
}
flags_field!(State, get16, put16);
flags_field!(SuperFlags, get32, put32);
flags_field!(DefaultMountOpts, get32, put32);
flags_field!(Compat, get32, put32);
flags_field!(Incompat, get32, put32);
flags_field!(RoCompat, get32, put32);

impl<const N: usize> Field for [u8; N] {
    fn read(b: &[u8], at: usize) -> Self {
        crate::bytes::array(b, at)
    }
    fn write(&self, b: &mut [u8], at: usize) {
        put(b, at, self);
    }
}

impl<const N: usize> Field for [u32; N] {
    fn read(b: &[u8], at: usize) -> Self {
        std::array::from_fn(|i| get32(b, at + 4 * i))
    }
    fn write(&self, b: &mut [u8], at: usize) {
        for (i, word) in self.iter().enumerate() {
            put32(b, at + 4 * i, *word);
        }
    }
}

/// Defines [`Superblock`]: plain fields by offset, block counts by their two halves, times by low
/// word and high byte.
macro_rules! superblock {
    (
        plain { $( $(#[$pm:meta])* $p:ident: $pt:ty = $po:literal, )+ }
        counts { $( $(#[$cm:meta])* $c:ident = $clo:literal, $chi:literal; )+ }
        times { $( $(#[$tm:meta])* $t:ident = $tlo:literal, $thi:literal; )+ }
    ) => {
        /// The superblock. Fields are named as in ext4's documentation, without `s_`.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub struct Superblock {
            $( $(#[$pm])* pub $p: $pt, )+
            $( $(#[$cm])* pub $c: u64, )+
            $( $(#[$tm])* pub $t: u64, )+
            /// The bytes this was decoded from: what has no field here is taken from them when
            /// encoding.
            pub raw: Box<[u8; SUPERBLOCK_LEN]>,
        }

        impl Superblock {
            /// Where each field is, and how long it is. (The halves of a number in two are fields
            /// of their own.)
            pub const FIELDS: &'static [(usize, usize)] = &[
                $( ($po, size_of::<$pt>()), )+
                $( ($clo, 4), ($chi, 4), )+
                $( ($tlo, 4), ($thi, 1), )+
            ];

            fn from_raw(raw: Box<[u8; SUPERBLOCK_LEN]>) -> Self {
                let b: &[u8] = &*raw;
                let wide = Incompat::read(b, 0x60).contains(Incompat::BIT64);
                Self {
                    $( $p: <$pt>::read(b, $po), )+
                    $( $c: join64(get32(b, $clo), if wide { get32(b, $chi) } else { 0 }), )+
                    $( $t: join64(get32(b, $tlo), u32::from(get8(b, $thi))), )+
                    raw,
                }
            }

            fn fill(&self, b: &mut [u8]) {
                let wide = self.feature_incompat.contains(Incompat::BIT64);
                $( self.$p.write(b, $po); )+
                $( put32(b, $clo, lo32(self.$c)); if wide { put32(b, $chi, hi32(self.$c)); } )+
                $( put32(b, $tlo, lo32(self.$t)); put8(b, $thi, hi32(self.$t) as u8); )+
            }
        }
    };
}

superblock! {
    plain {
        /// Inodes on the volume.
        inodes_count: u32 = 0x00,
        /// Free inodes.
        free_inodes_count: u32 = 0x10,
        /// Block that the first group begins with: 1 for blocks of 1 KiB, else 0.
        first_data_block: u32 = 0x14,
        /// Block size is `1024 << log_block_size`.
        log_block_size: u32 = 0x18,
        /// Cluster size is `1024 << log_cluster_size`.
        log_cluster_size: u32 = 0x1C,
        /// Blocks per group.
        blocks_per_group: u32 = 0x20,
        /// Clusters per group.
        clusters_per_group: u32 = 0x24,
        /// Inodes per group.
        inodes_per_group: u32 = 0x28,
        /// Mounts since the last check.
        mnt_count: u16 = 0x34,
        /// Mounts after which to check (signed; -1: never).
        max_mnt_count: u16 = 0x36,
        /// 0xEF53.
        magic: u16 = 0x38,
        /// Clean, errors, orphans.
        state: State = 0x3A,
        /// What to do about errors: 1 continue, 2 remount read-only, 3 panic.
        errors: u16 = 0x3C,
        /// Minor revision.
        minor_rev_level: u16 = 0x3E,
        /// Seconds between checks.
        checkinterval: u32 = 0x44,
        /// Operating system that made the volume (0 Linux).
        creator_os: u32 = 0x48,
        /// Revision: 0 has fixed inode size and first inode.
        rev_level: u32 = 0x4C,
        /// User that may use reserved blocks.
        def_resuid: u16 = 0x50,
        /// Group that may use reserved blocks.
        def_resgid: u16 = 0x52,
        /// First inode for ordinary files (revision 1).
        first_ino: u32 = 0x54,
        /// Inode size (revision 1).
        inode_size: u16 = 0x58,
        /// Group that this copy lies in.
        block_group_nr: u16 = 0x5A,
        /// Compatible features.
        feature_compat: Compat = 0x5C,
        /// Incompatible features.
        feature_incompat: Incompat = 0x60,
        /// Read-only compatible features.
        feature_ro_compat: RoCompat = 0x64,
        /// UUID.
        uuid: [u8; 16] = 0x68,
        /// Label.
        volume_name: [u8; 16] = 0x78,
        /// Where it was last mounted.
        last_mounted: [u8; 64] = 0x88,
        /// Compression algorithms (never used).
        algorithm_usage_bitmap: u32 = 0xC8,
        /// Blocks to preallocate for files (never used).
        prealloc_blocks: u8 = 0xCC,
        /// Blocks to preallocate for directories (never used).
        prealloc_dir_blocks: u8 = 0xCD,
        /// Descriptor blocks per group reserved for growing.
        reserved_gdt_blocks: u16 = 0xCE,
        /// UUID of the external journal.
        journal_uuid: [u8; 16] = 0xD0,
        /// Inode of the journal.
        journal_inum: u32 = 0xE0,
        /// Device number of the external journal.
        journal_dev: u32 = 0xE4,
        /// Head of the orphan list.
        last_orphan: u32 = 0xE8,
        /// Seed of directory hashes.
        hash_seed: [u32; 4] = 0xEC,
        /// Hash of new directories.
        def_hash_version: u8 = 0xFC,
        /// 1: `jnl_blocks` is a copy of the journal inode's map and size.
        jnl_backup_type: u8 = 0xFD,
        /// Descriptor size (64bit only).
        desc_size: u16 = 0xFE,
        /// Mount options that hold by default.
        default_mount_opts: DefaultMountOpts = 0x100,
        /// First descriptor block of meta groups.
        first_meta_bg: u32 = 0x104,
        /// Copy of the journal inode's `i_block`, size high and size low.
        jnl_blocks: [u32; 17] = 0x10C,
        /// Extra bytes that every inode has.
        min_extra_isize: u16 = 0x15C,
        /// Extra bytes that new inodes should have.
        want_extra_isize: u16 = 0x15E,
        /// Miscellaneous flags.
        flags: SuperFlags = 0x160,
        /// RAID stride in blocks.
        raid_stride: u16 = 0x164,
        /// Seconds between multiple-mount-protection updates.
        mmp_update_interval: u16 = 0x166,
        /// Block of the multiple-mount protection.
        mmp_block: u64 = 0x168,
        /// RAID stripe width in blocks.
        raid_stripe_width: u32 = 0x170,
        /// log2 of the groups per flexible group.
        log_groups_per_flex: u8 = 0x174,
        /// Checksum algorithm: 1 is crc32c.
        checksum_type: u8 = 0x175,
        /// Version of encryption.
        encryption_level: u8 = 0x176,
        /// Padding.
        reserved_pad: u8 = 0x177,
        /// KiB written over the volume's life.
        kbytes_written: u64 = 0x178,
        /// Inode of the active snapshot (never merged).
        snapshot_inum: u32 = 0x180,
        /// Id of the active snapshot (never merged).
        snapshot_id: u32 = 0x184,
        /// Blocks reserved for the active snapshot (never merged).
        snapshot_r_blocks_count: u64 = 0x188,
        /// Head of the snapshot list (never merged).
        snapshot_list: u32 = 0x190,
        /// Errors seen.
        error_count: u32 = 0x194,
        /// Inode of the first error.
        first_error_ino: u32 = 0x19C,
        /// Block of the first error.
        first_error_block: u64 = 0x1A0,
        /// Function that saw the first error.
        first_error_func: [u8; 32] = 0x1A8,
        /// Line that saw the first error.
        first_error_line: u32 = 0x1C8,
        /// Inode of the last error.
        last_error_ino: u32 = 0x1D0,
        /// Line that saw the last error.
        last_error_line: u32 = 0x1D4,
        /// Block of the last error.
        last_error_block: u64 = 0x1D8,
        /// Function that saw the last error.
        last_error_func: [u8; 32] = 0x1E0,
        /// Mount options as text.
        mount_opts: [u8; 64] = 0x200,
        /// User quota inode.
        usr_quota_inum: u32 = 0x240,
        /// Group quota inode.
        grp_quota_inum: u32 = 0x244,
        /// Clusters of overhead, if not zero.
        overhead_clusters: u32 = 0x248,
        /// Groups with superblock copies (sparse_super2).
        backup_bgs: [u32; 2] = 0x24C,
        /// Encryption algorithms in use.
        encrypt_algos: [u8; 4] = 0x254,
        /// Salt of encryption passwords.
        encrypt_pw_salt: [u8; 16] = 0x258,
        /// Inode of lost+found.
        lpf_ino: u32 = 0x268,
        /// Project quota inode.
        prj_quota_inum: u32 = 0x26C,
        /// Checksum seed (csum_seed).
        checksum_seed: u32 = 0x270,
        /// Errno of the first error.
        first_error_errcode: u8 = 0x27A,
        /// Errno of the last error.
        last_error_errcode: u8 = 0x27B,
        /// Encoding of names (casefold).
        encoding: u16 = 0x27C,
        /// Flags of the encoding.
        encoding_flags: u16 = 0x27E,
        /// Inode of the orphan file.
        orphan_file_inum: u32 = 0x280,
        /// Checksum as it was decoded; [`Superblock::encode`] computes it anew.
        checksum: u32 = 0x3FC,
    }
    counts {
        /// Blocks on the volume.
        blocks_count = 0x04, 0x150;
        /// Blocks that only the reserved user may take.
        r_blocks_count = 0x08, 0x154;
        /// Free blocks.
        free_blocks_count = 0x0C, 0x158;
    }
    times {
        /// Last mount, seconds.
        mtime = 0x2C, 0x275;
        /// Last write of the superblock, seconds.
        wtime = 0x30, 0x274;
        /// Last check, seconds.
        lastcheck = 0x40, 0x277;
        /// When it was made, seconds.
        mkfs_time = 0x108, 0x276;
        /// First error, seconds.
        first_error_time = 0x198, 0x278;
        /// Last error, seconds.
        last_error_time = 0x1CC, 0x279;
    }
}

impl Superblock {
    /// Checks magic and checksum and that the fields by which the rest is found make sense. Accepts
    /// the superblock of an external journal too ([`Incompat::JOURNAL_DEV`]).
    ///
    /// # Errors
    /// Not a superblock, a wrong checksum, or numbers that cannot be used.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let raw: &[u8; SUPERBLOCK_LEN] = bytes
            .get(..SUPERBLOCK_LEN)
            .and_then(|b| b.try_into().ok())
            .ok_or(OnDiskError::bad("superblock is cut short"))?;
        ensure(get16(raw, 0x38) == MAGIC, "no ext4 superblock (bad magic number)")?;
        let sb = Self::from_raw(Box::new(*raw));
        if sb.feature_ro_compat.contains(RoCompat::METADATA_CSUM) {
            ensure(sb.checksum_type == 1, "unknown checksum algorithm")?;
            ensure_csum("superblock", sb.checksum, crc32c(!0, &raw[..CHECKSUM_AT]))?;
        }
        ensure(sb.log_block_size <= 6, "block size is out of range")?;
        ensure(sb.blocks_count > 0, "volume without blocks")?;
        Ok(sb)
    }

    /// An all-zero superblock with only the magic number and revision 1, for mkfs to fill.
    #[must_use]
    pub fn new_empty() -> Self {
        let mut sb = Self::from_raw(Box::new([0; SUPERBLOCK_LEN]));
        sb.magic = MAGIC;
        sb.rev_level = 1;
        sb
    }

    /// Takes over the error record of another superblock (the area that recovery must not lose).
    pub fn copy_error_record(&mut self, from: &Self) {
        let (source, mut raw) = (from.encode(), self.encode());
        // The times' high bytes and the error codes lie outside of the area.
        for range in [ERROR_AREA, 0x278..0x27C] {
            raw[range.clone()].copy_from_slice(&source[range]);
        }
        *self = Self::from_raw(Box::new(raw));
    }

    /// The bytes, with the checksum brought up to date.
    #[must_use]
    pub fn encode(&self) -> [u8; SUPERBLOCK_LEN] {
        let mut out = *self.raw;
        self.fill(&mut out);
        if self.feature_ro_compat.contains(RoCompat::METADATA_CSUM) {
            let sum = crc32c(!0, &out[..CHECKSUM_AT]);
            put32(&mut out, CHECKSUM_AT, sum);
        }
        out
    }

    /// Bytes per block. Only meaningful after [`decode`](Self::decode), which bounds it.
    #[must_use]
    pub fn block_bytes(&self) -> u32 {
        1024 << self.log_block_size.min(6)
    }

    /// Seed of the volume's metadata checksums.
    #[must_use]
    pub fn fs_seed(&self) -> FsSeed {
        if self.feature_incompat.contains(Incompat::CSUM_SEED) {
            FsSeed(self.checksum_seed)
        } else {
            FsSeed::from_uuid(&self.uuid)
        }
    }

    /// Label as text, up to its NUL.
    #[must_use]
    pub fn label(&self) -> String {
        let end = self.volume_name.iter().position(|&b| b == 0).unwrap_or(self.volume_name.len());
        String::from_utf8_lossy(&self.volume_name[..end]).into_owned()
    }
}
