//! Arguments of tune.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};
use extol::tune::{DEFAULT_OPTIONS, EXTENDED, FEATURES, JOURNAL, QUOTAS};
use extol_cli_common::manual;
use extol_vfs::{NumberError, number};

use super::offer;
use super::refused::{Refusal, refused};

/// Change label, UUID, features and other properties of a volume.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol tune -L data -m 1 disk.img",
        "extol tune -O fast_commit,orphan_file /dev/vg/data",
        "extol tune -J size=64 -O fast_commit was-ext2.img",
        "extol tune -O ^has_journal disk.img",
        "extol tune -Q usrquota,prjquota disk.img",
        "extol tune -U random -c 0 -i 0 copy.img",
        "extol tune -L data /mnt/data",
    ),
    long_about = "Change label, UUID, features and other properties of a volume.\n\n\
        The options are those of tune2fs. What was changed is printed, one line for each property. \
        All of it becomes durable together, in one transaction of the journal: after a crash all \
        old values hold, or all new ones.\n\n\
         Features that can be switched on: casefold, dir_index, dir_nlink, ea_inode, encrypt, \
         extent, extra_isize, fast_commit, filetype, flex_bg, has_journal, huge_file, large_dir, \
         large_file, metadata_csum, metadata_csum_seed, mmp, orphan_file, project, quota, \
         read-only, sparse_super, stable_inodes, uninit_bg, verity; and off, with a ^ before the \
         name: all of these but ea_inode, encrypt, extent, flex_bg, large_dir, sparse_super, \
         stable_inodes and verity, and resize_inode. One that a file or directory depends on \
         stays. For any other the answer says what to use instead, unless the volume is so \
         already: that is nothing to do.\n\n\
        metadata_csum and uninit_bg change alone, on a volume with a journal: checksums are \
        written where they mean nothing yet, and then all descriptors and the superblock change \
        in one transaction. After a crash before it the volume is as it was: repeat the command. \
        ^metadata_csum leaves uninit_bg on unless ^uninit_bg stands beside it. filetype and \
        sparse_super only change the superblock, as with tune2fs: run e2fsck -f behind them.\n\n\
        A new journal (-j, -J or -O has_journal) comes with all else in one step. ^has_journal \
        comes last, when all else is durable, and takes fast_commit with it. A crash while the \
        journal goes leaves a volume that is not marked as clean: e2fsck -p gives its blocks \
        back.\n\n\
        Of -E, mount_opts= takes the rest of its list; an extended option behind it is refused, \
        since it would become part of the text.\n\n\
        -Q says which quota files there are, -O quota makes those for users and groups; what they \
        say of usage is right at once. The feature quota comes with the first and goes with the \
        last, and prjquota brings the feature project, which goes with it.\n\n\
        A new UUID keeps the checksums as they are: the volume gets metadata_csum_seed.\n\n\
        With -O, -Q or -U the volume is checked first, since damage could spread; -f leaves that \
        out. A volume that Extol has mounted is named by a directory on it; then -L, -e, -m, -r, \
        -u, -g, -c, -C, -i, -T, -o and, of -E, stride, stripe_width, hash_alg, mount_opts and \
        force_fsck work."
)]
pub struct TuneArgs {
    /// Label, 16 bytes at most; a longer one is cut with a warning.
    #[arg(short = 'L', value_name = "LABEL", value_hint = ValueHint::Other,
        allow_hyphen_values = true)]
    pub label: Option<OsString>,
    /// UUID, or random, time (made of the time of day), clear (all zero).
    #[arg(short = 'U', value_name = "UUID", value_hint = ValueHint::Other)]
    pub uuid: Option<String>,
    /// Percentage of blocks kept for root, 50 at most.
    #[arg(short = 'm', value_name = "PERCENT", value_parser = percent,
        allow_negative_numbers = true)]
    pub reserved_percent: Option<f64>,
    /// Number of blocks kept for root.
    #[arg(short = 'r', value_name = "BLOCKS", value_parser = blocks,
        allow_negative_numbers = true, conflicts_with = "reserved_percent")]
    pub reserved_blocks: Option<u64>,
    /// User that may take them as well.
    #[arg(short = 'u', value_name = "USER", value_hint = ValueHint::Username)]
    pub reserved_user: Option<String>,
    /// Group that may take them as well.
    #[arg(short = 'g', value_name = "GROUP")]
    pub reserved_group: Option<String>,
    /// Behaviour on errors: continue, remount-ro or panic.
    #[arg(short = 'e', value_name = "BEHAVIOUR",
        value_parser = offer::text(offer::ERRORS), hide_possible_values = true)]
    pub errors: Option<String>,
    /// Mounts after which e2fsck checks it; 0 or -1: never; random: 20 to 40.
    #[arg(short = 'c', value_name = "COUNT", allow_negative_numbers = true,
        value_parser = most_mounts)]
    pub most_mounts: Option<i16>,
    /// Mounts since the last check.
    #[arg(short = 'C', value_name = "COUNT", allow_negative_numbers = true,
        value_parser = mounts)]
    pub mounts: Option<u16>,
    /// Time between two checks: days, or with d, w, m or s behind the number; 0: never.
    #[arg(short = 'i', value_name = "TIME", allow_negative_numbers = true)]
    pub interval: Option<String>,
    /// Time of the last check: now, @SECONDS, or YYYYMMDD[HH[MM[SS]]] in UTC.
    #[arg(short = 'T', value_name = "TIME")]
    pub last_check: Option<String>,
    /// Directory where it was last mounted, cut as well behind 64 bytes.
    #[arg(short = 'M', value_name = "DIR")]
    pub last_mounted: Option<OsString>,
    /// Mount options that hold by default, or with a ^ before the name do not.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append,
        value_parser = offer::text(DEFAULT_OPTIONS), hide_possible_values = true)]
    pub default_options: Vec<String>,
    /// Features to switch on, or with a ^ before the name off.
    #[arg(short = 'O', value_name = "FEATURES", action = ArgAction::Append,
        value_parser = offer::text(FEATURES), hide_possible_values = true)]
    pub features: Vec<String>,
    /// Quota files that come, or with a ^ before the word go: usrquota, grpquota, prjquota.
    #[arg(short = 'Q', value_name = "QUOTAS", action = ArgAction::Append,
        value_parser = offer::text(QUOTAS), hide_possible_values = true)]
    pub quotas: Vec<String>,
    /// Extended options: stride=, stripe_width=, hash_alg=, mount_opts=, orphan_file_size=,
    /// mmp_update_interval=, clear_mmp (with -f), encoding=utf8, encoding_flags=strict,
    /// force_fsck, test_fs, ^test_fs.
    #[arg(short = 'E', value_name = "OPTIONS", action = ArgAction::Append,
        value_parser = offer::text(EXTENDED), hide_possible_values = true)]
    pub extended: Vec<String>,
    /// With a journal (if it has none), as -O has_journal.
    #[arg(short = 'j')]
    pub add_journal: bool,
    /// With a journal of this kind: size= (MiB), fast_commit_size= (KiB), location=BLOCK; or on a
    /// device of its own: device=PATH.
    #[arg(short = 'J', value_name = "OPTIONS", action = ArgAction::Append,
        value_parser = offer::text(JOURNAL), hide_possible_values = true)]
    pub journal: Vec<String>,
    /// Only print the superblock, as info -h does; also of what is mounted on a directory.
    #[arg(short = 'l')]
    pub list: bool,
    /// Do not check the volume first.
    #[arg(short, long)]
    pub force: bool,
    /// Print nothing but errors.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print what was changed as JSON (see the json page of the guide).
    #[arg(long, conflicts_with_all = ["quiet", "list"])]
    pub json: bool,
    /// Options for opening the volume: journal_path=, offset=, sizelimit=.
    #[arg(long, value_name = "OPTIONS", value_parser = offer::text(offer::OPENING),
        hide_possible_values = true)]
    pub opening: Vec<String>,
    #[command(flatten)]
    pub refused: TuneRefused,
    /// Disk image or block device, or a directory on a volume that Extol has mounted.
    #[arg(value_hint = ValueHint::AnyPath)]
    pub source: PathBuf,
}

/// Options of tune2fs that are not supported.
#[derive(Args, Debug)]
pub struct TuneRefused {
    #[arg(short = 'I', hide = true)]
    inode_size: Option<OsString>,
    #[arg(short = 'z', hide = true)]
    undo_file: Option<OsString>,
}

impl TuneRefused {
    /// The line for the first of them that was given.
    pub fn check(&self) -> extol_cli_common::Result<()> {
        let size = "all inodes would move: make a new volume, and copy the files";
        refused(&[
            Refusal(self.inode_size.is_some(), "-I", size),
            Refusal(self.undo_file.is_some(), "-z", "copy the volume before"),
        ])
    }
}

fn percent(text: &str) -> Result<f64, NumberError> {
    number::percent(text, 0.0..=50.0)
}

fn blocks(text: &str) -> Result<u64, NumberError> {
    number::count(text, 0..=u64::MAX)
}

/// A count, -1 for never, or a random one.
fn most_mounts(text: &str) -> Result<i16, NumberError> {
    match text {
        "-1" => return Ok(-1),
        "random" => {
            let random = RandomState::new().build_hasher().finish() % 21;
            return Ok(20 + random as i16);
        }
        _ => {}
    }
    number::count(text, 0..=i16::MAX.unsigned_abs()).map(u16::cast_signed)
}

fn mounts(text: &str) -> Result<u16, NumberError> {
    number::count(text, 0..=u16::MAX)
}
