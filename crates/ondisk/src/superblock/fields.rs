//! The fields of the superblock: name, type and offset of each, once.

use super::{DefaultMountOpts, SUPERBLOCK_LEN, State, SuperFlags};
use crate::bytes::{get8, get16, get32, get64, hi32, join64, lo32, put, put8, put16, put32, put64};
use crate::features::{Compat, Incompat, RoCompat};

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

            pub(super) fn from_raw(raw: Box<[u8; SUPERBLOCK_LEN]>) -> Self {
                let b: &[u8] = &*raw;
                let wide = Incompat::read(b, 0x60).contains(Incompat::BIT64);
                Self {
                    $( $p: <$pt>::read(b, $po), )+
                    $( $c: join64(get32(b, $clo), if wide { get32(b, $chi) } else { 0 }), )+
                    $( $t: join64(get32(b, $tlo), u32::from(get8(b, $thi))), )+
                    raw,
                }
            }

            pub(super) fn fill(&self, b: &mut [u8]) {
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
