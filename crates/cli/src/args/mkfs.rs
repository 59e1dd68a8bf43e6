//! Arguments of mkfs.

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{ArgAction, Args, ValueHint};
use extol_cli_common::manual;
use extol_vfs::{NumberError, number};

use super::count;
use super::offer;
use super::refused::{Refusal, refused};
use crate::volume::Size;

/// Make a volume.
#[derive(Args, Clone, Debug)]
#[command(
    after_long_help = manual!(
        "extol mkfs disk.img 1G",
        "extol mkfs -b 1024 -O ^64bit,inline_data -J size=16 disk.img 200M",
        "extol mkfs -t ext3 -E stride=16 /dev/sdb1",
        "extol mkfs -d rootfs root.img",
        "extol mkfs -d rootfs --owner 0:0 --free 64M root.img",
        "zcat rootfs.tar.gz | extol mkfs -d - root.img",
        "extol mkfs -O journal_dev log.img 64M",
    ),
    long_about = "Make a volume.\n\n\
        The options are those of mke2fs, and so are the defaults; /etc/mke2fs.conf is not read. A \
        file that does not exist is made, one that is too short is extended.\n\n\
        SIZE, and every size of this command, is a number with a unit: K, M, G, T, P or E (or KiB, \
        MiB ...) are powers of 1024, so 1G is 2^30 bytes as for mke2fs; KB, MB, GB ... are powers \
        of 1000; s is 512 bytes. A SIZE without a unit counts blocks if -b says how large they \
        are, and KiB if not. Without SIZE the whole device or file is used.\n\n\
        With -d and a new file SIZE can be left out: the files are read twice then, once to see \
        how large the volume must be. It gets the smallest size that holds them and leaves what \
        --free says; its blocks have 4096 bytes, its log 4096 blocks at most, and nothing is \
        reserved for root, if other options do not say otherwise. The same files and options give \
        the same bytes: the UUID and the hash seed come from the files, the time of the making \
        from SOURCE_DATE_EPOCH, or from the newest file. The root directory is root's and has \
        mode 755, as with mke2fs, if an archive does not say otherwise (-E root_owner, root_perms, \
        --root-owner).\n\n\
        -E lazy_itable_init=1 (the default where descriptors have checksums) leaves inode tables \
        to be zeroed by the first mount; 0 zeroes them now. -E lazy_journal_init=1 leaves the log \
        as it is: it gets a UUID and a first transaction number of its own, so that nothing old \
        can be replayed. Without metadata_csum, and on journal devices, the log is zeroed all the \
        same. Where a discard leaves zeros, as in a file, nothing needs zeroing.\n\n\
        Blocks that -c finds or -l lists are left out of the volume. -S is the last resort for a \
        volume whose superblocks and descriptors are all lost: it writes these, and nothing else, \
        and e2fsck -fy must follow. They are right only if all options are those with which the \
        volume was made, with its UUID (-U); try it on a copy.\n\n\
        -E android_sparse writes a new file in that format, which fastboot and simg2img take. \
        -E root_selinux= labels the root directory. -o hurd leaves out what the Hurd does not \
        know; Extol only reads such volumes.\n\n\
        Of mke2fs's options -z (undo file) is refused. Volumes with bigalloc have no resize \
         inode. \
         -O quota makes quota files for users and groups, with project also one for projects; \
         -E quotatype=usrquota:grpquota:prjquota says which (any of them). With -d they have the \
         usage of the files."
)]
pub struct MkfsArgs {
    /// ext2, ext3 or ext4 [default: what -T names, or ext4].
    #[arg(short = 't', value_name = "TYPE",
        value_parser = offer::text(offer::MKFS_TYPES), hide_possible_values = true)]
    pub kind: Option<String>,
    /// What it will be used for, one or a list: floppy, small, default, big, huge, news,
    /// largefile, largefile4, or a type. It decides about the number of inodes and the size of
    /// blocks [default: by size].
    #[arg(short = 'T', value_name = "USAGE")]
    pub usage: Option<String>,
    /// Block size; with a - before it, at least so much.
    #[arg(short = 'b', value_name = "SIZE", allow_hyphen_values = true)]
    pub block_size: Option<BlockSize>,
    /// Cluster size, with the feature bigalloc [default: 16 blocks].
    #[arg(short = 'C', value_name = "SIZE", value_parser = bytes,
        allow_negative_numbers = true)]
    pub cluster_size: Option<u32>,
    /// Bytes for which there is one inode.
    #[arg(short = 'i', value_name = "SIZE", value_parser = bytes,
        allow_negative_numbers = true)]
    pub bytes_per_inode: Option<u32>,
    /// Inode size.
    #[arg(short = 'I', value_name = "SIZE", value_parser = bytes,
        allow_negative_numbers = true)]
    pub inode_size: Option<u32>,
    /// Number of inodes.
    #[arg(short = 'N', value_name = "COUNT", value_parser = count,
        allow_negative_numbers = true)]
    pub inodes: Option<u32>,
    /// Blocks per group; with bigalloc clusters.
    #[arg(short = 'g', value_name = "BLOCKS", value_parser = count,
        allow_negative_numbers = true)]
    pub blocks_per_group: Option<u32>,
    /// Groups whose bitmaps and inode tables lie together (flex_bg).
    #[arg(short = 'G', value_name = "GROUPS", value_parser = count,
        allow_negative_numbers = true)]
    pub flex_groups: Option<u32>,
    /// Percentage of blocks kept for root.
    #[arg(short = 'm', value_name = "PERCENT", value_parser = percent,
        allow_negative_numbers = true)]
    pub reserved: Option<f64>,
    /// Features to add, or to leave out with a ^ before the name.
    #[arg(short = 'O', value_name = "FEATURES", action = ArgAction::Append,
        value_parser = offer::text(offer::FEATURES), hide_possible_values = true)]
    pub features: Vec<String>,
    /// Extended options: stride=, stripe_width=, resize=, lazy_itable_init=, lazy_journal_init=,
    /// root_owner=UID:GID, root_perms=MODE, root_selinux=LABEL, hash_seed=UUID, nodiscard,
    /// packed_meta_blocks, num_backup_sb=, mmp_update_interval=, orphan_file_size=, desc_size=,
    /// encoding=utf8, encoding_flags=strict, quotatype=, offset=, android_sparse, no_copy_xattrs,
    /// assume_storage_prezeroed, test_fs.
    #[arg(short = 'E', short_alias = 'R', value_name = "OPTIONS", action = ArgAction::Append)]
    pub extended: Vec<String>,
    /// Journal options: size= (MiB), fast_commit_size= (KiB), location=BLOCK, device=PATH.
    #[arg(short = 'J', value_name = "OPTIONS", action = ArgAction::Append)]
    pub journal: Vec<OsString>,
    /// With a journal (ext3); ext4 has one anyway.
    #[arg(short = 'j')]
    pub with_journal: bool,
    /// Label, 16 bytes at most; a longer one is cut with a warning.
    #[arg(short = 'L', value_name = "LABEL", value_hint = ValueHint::Other)]
    pub label: Option<OsString>,
    /// Directory where it was last mounted, 64 bytes at most.
    #[arg(short = 'M', value_name = "DIR")]
    pub last_mounted: Option<OsString>,
    /// UUID, or random, time (made of the time of day), clear (all zero).
    #[arg(short = 'U', value_name = "UUID", value_hint = ValueHint::Other)]
    pub uuid: Option<String>,
    /// Behaviour on errors: continue, remount-ro or panic.
    #[arg(short = 'e', value_name = "BEHAVIOUR",
        value_parser = offer::text(offer::ERRORS), hide_possible_values = true)]
    pub errors: Option<String>,
    /// Revision, 0 or 1.
    #[arg(short = 'r', value_name = "REVISION", value_parser = revision,
        allow_negative_numbers = true)]
    pub revision: Option<u32>,
    /// Build the volume with the files of a directory, a tar archive (plain, gz, xz or zst) or a
    /// container image (an OCI layout or archive, or what docker or podman save); - is an archive
    /// on standard input.
    #[arg(short = 'd', value_name = "SOURCE", action = ArgAction::Append)]
    pub contents: Vec<PathBuf>,
    #[command(flatten)]
    pub fill: FillArgs,
    /// Which part of the target is used: offset= and sizelimit=, in bytes; or the operating system
    /// that it is for: linux, hurd, freebsd, lites, or a number.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Test all blocks by reading them, and leave bad ones out; twice: write patterns to them
    /// before, which destroys what they hold.
    #[arg(short = 'c', action = ArgAction::Count)]
    pub test_blocks: u8,
    /// Leave out the blocks whose numbers a file lists, as badblocks(8) writes it.
    #[arg(short = 'l', value_name = "FILE")]
    pub bad_blocks: Option<PathBuf>,
    /// Only write superblocks and descriptors, for e2fsck to find what a volume held whose own are
    /// lost. All options must be those with which it was made.
    #[arg(short = 'S', conflicts_with_all = ["contents", "test_blocks", "bad_blocks"])]
    pub only_superblocks: bool,
    /// With O_DIRECT; without this option, where it can.
    #[arg(short = 'D')]
    pub direct: bool,
    /// Overwrite a file system that is there; allow odd parameters. (What is mounted or in use is
    /// never overwritten, also with -F -F.)
    #[arg(short = 'F')]
    pub force: bool,
    /// Do not say what was made, and show no progress. (Warnings, and notes on what was changed or
    /// left out, are printed all the same.)
    #[arg(short = 'q')]
    pub quiet: bool,
    /// Also say how it is laid out.
    #[arg(short = 'v')]
    pub verbose: bool,
    /// Only print what would be made.
    #[arg(short = 'n')]
    pub dry_run: bool,
    /// Print what was made as JSON (see the json page of the guide).
    #[arg(long, conflicts_with_all = ["quiet", "verbose"])]
    pub json: bool,
    #[command(flatten)]
    pub refused: MkfsRefused,
    /// Disk image or block device.
    pub target: PathBuf,
    /// Size of the file system.
    #[arg(allow_hyphen_values = true)]
    pub size: Option<Size>,
}

/// How the files of `-d` are taken.
#[derive(Args, Clone, Debug)]
pub struct FillArgs {
    /// Make the volume as large as its files need, and leave so much of it free: a size (in
    /// bytes without a unit), or a percentage of what the files need [default where SIZE is left
    /// out: 10%].
    #[arg(
        long,
        value_name = "SIZE|PERCENT%",
        requires = "contents",
        conflicts_with = "size",
        allow_hyphen_values = true
    )]
    pub free: Option<FreeSpace>,
    /// Leave out names that match, with all that is below: `*.o`, `/var/cache/*`, `tmp/`.
    #[arg(long, value_name = "PATTERN", requires = "contents", action = ArgAction::Append)]
    pub exclude: Vec<OsString>,
    /// Make regular files that match, and all below directories that do, files of fs-verity: their
    /// contents can never change. It switches the feature verity on.
    #[arg(long, value_name = "PATTERN", requires = "contents", action = ArgAction::Append)]
    pub verity: Vec<OsString>,
    /// Hash algorithm of their trees, sha256 or sha512 [default: sha256].
    #[arg(long, value_name = "ALGORITHM", requires = "verity",
        value_parser = offer::text(offer::HASHES), hide_possible_values = true)]
    pub verity_hash_alg: Option<String>,
    /// Bytes of a block of their trees [default: 4096, or the block size of the volume].
    #[arg(long, value_name = "BYTES", value_parser = super::verity_block, requires = "verity",
        allow_negative_numbers = true)]
    pub verity_block_size: Option<u32>,
    /// Up to 32 bytes before each block that is hashed, as hexadecimal digits.
    #[arg(long, value_name = "HEX", requires = "verity")]
    pub verity_salt: Option<String>,
    /// Map owners: SOURCE:IMAGE:COUNT, as in subuid ranges.
    #[arg(long, value_name = "RANGE", requires = "contents", action = ArgAction::Append)]
    pub map_users: Vec<String>,
    /// The same for groups [default: as --map-users].
    #[arg(long, value_name = "RANGE", requires = "contents", action = ArgAction::Append)]
    pub map_groups: Vec<String>,
    /// Owner of all files: UID, UID:GID or :GID.
    #[arg(long, value_name = "OWNER", requires = "contents")]
    pub owner: Option<String>,
    /// Change all modes, as chmod does: `go-w`, `a+rX`, `0644`.
    #[arg(long, value_name = "MODE", requires = "contents")]
    pub chmod: Option<String>,
    /// Owner of the root directory.
    #[arg(long, value_name = "OWNER", requires = "contents")]
    pub root_owner: Option<String>,
    /// A file with owners, modes and devices that the source does not have: mtree, a device table
    /// of genext2fs, or a list of gen_init_cpio. It is stronger than the options above.
    #[arg(long, value_name = "FILE", requires = "contents")]
    pub metadata: Option<PathBuf>,
    /// Label all files by a file of contexts, such as
    /// /etc/selinux/targeted/contexts/files/file_contexts.
    #[arg(long, value_name = "FILE", requires = "contents")]
    pub selinux_contexts: Option<PathBuf>,
    /// Set all times: @SECONDS, or a date such as 2024-02-29.
    #[arg(long, value_name = "TIME", requires = "contents")]
    pub mtime: Option<String>,
    /// Only set times that are later than --mtime (or than SOURCE_DATE_EPOCH).
    #[arg(long, requires = "contents")]
    pub clamp_mtime: bool,
    /// Of a container image for several platforms, that for OS/ARCHITECTURE[/VARIANT] [default:
    /// this machine's].
    #[arg(long, value_name = "PLATFORM", requires = "contents")]
    pub platform: Option<String>,
    /// Of several container images the one of this name, or of a name with this end.
    #[arg(long, value_name = "NAME", requires = "contents")]
    pub image: Option<String>,
    /// Directory for the contents of an archive that can be read only once [default: that of the
    /// image].
    #[arg(long, value_name = "DIR", requires = "contents")]
    pub spool: Option<PathBuf>,
    /// Keep times of last access and of the last change of the inode as well.
    #[arg(long, requires = "contents")]
    pub keep_times: bool,
    /// Allow the source more, or less: entries=, metadata= (bytes of names and attributes), depth=
    /// (directories in each other), file-size=, sparse-runs= (of a file), expand= (bytes of a
    /// compressed source), expand-ratio= (bytes for each of its own).
    #[arg(long, value_name = "NAME=NUMBER", requires = "contents", action = ArgAction::Append,
        value_parser = offer::text(offer::LIMITS), hide_possible_values = true)]
    pub limits: Vec<String>,
    /// Threads that read and write, 8 at most [default: as suits the machine].
    #[arg(long, value_name = "COUNT", value_parser = threads, requires = "contents",
        allow_negative_numbers = true)]
    pub threads: Option<u32>,
}

fn threads(text: &str) -> Result<u32, NumberError> {
    number::count(text, 1..=8)
}

/// What `--free` says.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum FreeSpace {
    /// So much more than the files need, in percent.
    Percent(f64),
    /// So many bytes.
    Bytes(u64),
}

impl FromStr for FreeSpace {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        match text.strip_suffix('%') {
            Some(percent) => number::percent(percent, 0.0..=1000.0).map(Self::Percent),
            None => number::size(text, 1, 0..=1 << 60).map(Self::Bytes),
        }
    }
}

/// Options of mke2fs that are not for Extol, or have no effect.
#[derive(Args, Clone, Debug)]
pub struct MkfsRefused {
    #[arg(short = 'z', hide = true)]
    undo_file: Option<OsString>,
    /// The same as -E nodiscard, as of old.
    #[arg(short = 'K', hide = true)]
    pub no_discard: bool,
}

impl MkfsRefused {
    /// The line for the first of them that was given.
    pub fn check(&self) -> extol_cli_common::Result<()> {
        let undo = "copy what is there before mkfs";
        refused(&[Refusal(self.undo_file.is_some(), "-z", undo)])
    }
}

/// A size of a few bytes.
fn bytes(text: &str) -> Result<u32, NumberError> {
    number::size(text, 1, 0..=u32::MAX.into()).map(|bytes| bytes as u32)
}

/// What root keeps.
fn percent(text: &str) -> Result<f64, NumberError> {
    number::percent(text, 0.0..=50.0)
}

fn revision(text: &str) -> Result<u32, NumberError> {
    number::count(text, 0..=1)
}

/// What `-b` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockSize {
    /// So many bytes.
    Exactly(u32),
    /// So many bytes or more.
    AtLeast(u32),
}

impl FromStr for BlockSize {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        let (least, size) = match text.strip_prefix('-') {
            Some(size) => (true, size),
            None => (false, text),
        };
        let bytes = number::size(size, 1, 0..=65_536)? as u32;
        Ok(if least { Self::AtLeast(bytes) } else { Self::Exactly(bytes) })
    }
}
