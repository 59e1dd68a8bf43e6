//! Arguments of mkfs.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use extol_cli_common::manual;

/// Make a volume.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol mkfs disk.img 1G",
        "extol mkfs -b 1024 -O ^64bit,inline_data -J size=16 -L data disk.img 200M",
        "extol mkfs -t ext3 -E stride=16 /dev/sdb1",
        "extol mkfs -O journal_dev log.img 64M",
    ),
    long_about = "Make a volume.\n\n\
        The options are those of mke2fs, and so are the defaults. SIZE is in KiB, or in blocks if \
        -b is given, or has a suffix s (512 bytes), K, M, G or T; without it the whole device or \
        file is used. A file that does not exist is made, one that is too short is extended.\n\n\
        -E lazy_itable_init=1 (the default where descriptors have checksums) leaves inode tables \
        to be zeroed by the first mount; 0 zeroes them now. -E lazy_journal_init=1 leaves the log \
        as it is: it gets a UUID and a first transaction number of its own, so that nothing old \
        can be replayed. Without metadata_csum, and on journal devices, the log is zeroed all the \
        same. Where a discard leaves zeros, as in a file, nothing needs zeroing."
)]
pub struct MkfsArgs {
    /// ext2, ext3 or ext4.
    #[arg(short = 't', value_name = "TYPE", default_value = "ext4")]
    pub kind: String,
    /// What it will be used for (small, news, largefile ...), which decides about the number of
    /// inodes.
    #[arg(short = 'T', value_name = "USAGE")]
    pub usage: Option<String>,
    /// Block size in bytes.
    #[arg(short = 'b', value_name = "BYTES")]
    pub block_size: Option<u32>,
    /// Bytes for which there is one inode.
    #[arg(short = 'i', value_name = "BYTES")]
    pub bytes_per_inode: Option<u32>,
    /// Inode size in bytes.
    #[arg(short = 'I', value_name = "BYTES")]
    pub inode_size: Option<u32>,
    /// Number of inodes.
    #[arg(short = 'N', value_name = "COUNT")]
    pub inodes: Option<u64>,
    /// Blocks per group.
    #[arg(short = 'g', value_name = "BLOCKS")]
    pub blocks_per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together (flex_bg).
    #[arg(short = 'G', value_name = "GROUPS")]
    pub flex_groups: Option<u32>,
    /// Percentage of blocks kept for root.
    #[arg(short = 'm', value_name = "PERCENT")]
    pub reserved: Option<f64>,
    /// Features to add, or to leave out with a ^ before the name.
    #[arg(short = 'O', value_name = "FEATURES", action = ArgAction::Append)]
    pub features: Vec<String>,
    /// Extended options (stride=, stripe_width=, lazy_itable_init=, root_owner=, hash_seed= ...).
    #[arg(short = 'E', value_name = "OPTIONS", action = ArgAction::Append)]
    pub extended: Vec<String>,
    /// Journal options (size=, device=).
    #[arg(short = 'J', value_name = "OPTIONS", action = ArgAction::Append)]
    pub journal: Vec<String>,
    /// With a journal (ext3); ext4 has one anyway.
    #[arg(short = 'j')]
    pub with_journal: bool,
    /// Label.
    #[arg(short = 'L', value_name = "LABEL")]
    pub label: Option<String>,
    /// Directory where it was last mounted.
    #[arg(short = 'M', value_name = "DIR")]
    pub last_mounted: Option<String>,
    /// UUID, or random, time, clear.
    #[arg(short = 'U', value_name = "UUID")]
    pub uuid: Option<String>,
    /// Behaviour on errors: continue, remount-ro or panic.
    #[arg(short = 'e', value_name = "BEHAVIOUR")]
    pub errors: Option<String>,
    /// Revision, 0 or 1.
    #[arg(short = 'r', value_name = "REVISION")]
    pub revision: Option<u32>,
    /// Overwrite a file system that is there; allow odd parameters.
    #[arg(short = 'F')]
    pub force: bool,
    /// Say nothing.
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Only print what would be made.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Disk image or block device.
    pub target: PathBuf,
    /// Size of the file system.
    pub size: Option<String>,
}
