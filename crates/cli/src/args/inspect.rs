//! Arguments of the commands that inspect or recover a volume: info, log, replay, check.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{ArgAction, Args};
use extol_cli_common::manual;
use extol_proc::Shown as _;
use extol_vfs::{NumberError, number};

use crate::inspect::MOST_BLOCK;

use super::descriptor;
use super::offer;
use super::refused::{Refusal, refused};

/// Show what a volume is: size, features, state.
#[derive(Args, Debug)]
#[command(
    disable_help_flag = true,
    after_long_help = manual!(
        "extol info disk.img",
        "extol info -h disk.img | grep 'Block count'",
        "extol info -h -o superblock=32768 disk.img",
    ),
    long_about = "Show what a volume is: size, features, state.\n\n\
        -h and -g print what dumpe2fs prints with these options, in the same lines, but with times \
        in UTC. (So -h is not help here: that is --help.) Of dumpe2fs's options -b, -i, -m and -x \
        are refused."
)]
pub struct InfoArgs {
    /// The superblock, in the lines of dumpe2fs -h.
    #[arg(short = 'h', long, conflicts_with = "json")]
    pub header: bool,
    /// The groups, in the lines of dumpe2fs -g.
    #[arg(short = 'g', long, conflicts_with = "json")]
    pub groups: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Which superblock to read: superblock=BLOCK and blocksize=BYTES, or sb=KIB; and where an
    /// external journal is: journal_path=FILE; and which part of an image is the volume:
    /// offset=BYTES and sizelimit=BYTES; expand=BYTES bounds a compressed one; backing=FILE is
    /// below a qcow2 one.
    #[arg(short = 'o', value_name = "OPTIONS", value_parser = offer::text(offer::INFO),
        hide_possible_values = true)]
    pub options: Vec<String>,
    #[command(flatten)]
    pub refused: InfoRefused,
    /// Disk image or block device.
    pub source: PathBuf,
    /// Print help.
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
}

/// Options of dumpe2fs that are not for Extol, or have no effect.
#[derive(Args, Debug)]
pub struct InfoRefused {
    #[arg(short = 'b', hide = true)]
    bad_blocks: bool,
    /// Unknown features are no reason not to show what can be shown.
    #[arg(short = 'f', hide = true)]
    force: bool,
    #[arg(short = 'i', hide = true)]
    image: bool,
    #[arg(short = 'm', hide = true)]
    mmp: bool,
    #[arg(short = 'x', hide = true)]
    hexadecimal: bool,
}

impl InfoRefused {
    /// The line for the first of them that was given.
    pub fn check(&self) -> extol_cli_common::Result<()> {
        refused(&[
            Refusal(self.bad_blocks, "-b", "Extol keeps no list of bad blocks: use dumpe2fs -b"),
            Refusal(self.image, "-i", "Extol reads no files of e2image: use dumpe2fs -i"),
            Refusal(self.mmp, "-m", "-h shows the block of the multiple-mount protection"),
            Refusal(self.hexadecimal, "-x", "use dumpe2fs -x, or -g for numbers in decimal"),
        ])
    }
}

/// `extol log`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol log disk.img", "extol log --json /dev/sdb1"))]
pub struct InspectArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Options for opening the volume (journal_path=, sb=, offset=, sizelimit=).
    #[arg(short = 'o', value_name = "OPTIONS", value_parser = offer::text(offer::OPENING),
        hide_possible_values = true)]
    pub options: Vec<String>,
    /// Disk image or block device.
    pub source: PathBuf,
}

/// Recover a volume that was not unmounted, as its next mount would.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol replay disk.img",
        "extol replay --dry-run --json disk.img",
        "extol replay -o journal_path=log.img disk.img"
    ),
    long_about = "Recover a volume that was not unmounted, as its next mount would.\n\n\
        The transactions of the log are written to their place, and the records of fast commits \
        behind them (Linux's or Extol's) become one more transaction. Then files without a name \
        are deleted, and truncates that were under way are finished, as by a mount; only the \
        count and the time of mounts stay as they are. Afterwards the journal is empty and the \
        volume marked as clean. Damaged records are refused and stay in the log. On a volume that \
        Extol can only read the log is replayed, and files without a name are left for Linux or \
        e2fsck."
)]
pub struct ReplayArgs {
    /// Recover in memory only, and print what would be done.
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Options for opening the volume (journal_path=, offset=, sizelimit=).
    #[arg(short = 'o', value_name = "OPTIONS", value_parser = offer::text(offer::REPLAY),
        hide_possible_values = true)]
    pub options: Vec<String>,
    /// Disk image or block device.
    pub source: PathBuf,
}

/// Check a volume for damage, without changing it.
#[derive(Args, Debug)]
#[command(
    after_long_help = "EXAMPLES:\n  \
        extol check disk.img\n  \
        extol check --json /dev/sdb1 | jq '.findings[].what'\n  \
        extol check -p /dev/sdb1 && extol mount /dev/sdb1 /mnt\n\n\
        EXIT STATUS:\n  \
        0    no damage (with -p, the journal may have been replayed)\n  \
        4    the volume is damaged\n  \
        8    the check could not be made: the device cannot be read, holds no\n       \
        ext2, ext3 or ext4 file system, is mounted read-write, or uses\n       \
        unknown features\n  \
        16   wrong arguments\n  \
        129  ended by SIGHUP\n  \
        130  interrupted (Ctrl-C, SIGINT)\n  \
        131  ended by SIGQUIT\n  \
        141  standard output is a pipe whose reader has ended (SIGPIPE)\n  \
        143  ended by SIGTERM\n\
        (0 to 16 are the codes of fsck(8).)",
    long_about = "Check a volume for damage, without changing it.\n\n\
        Inodes, block maps, attributes, directories, link counts, bitmaps, counts, checksums and \
        the journal are compared with each other; what is wrong is printed, one line each, with \
        inode, block and path. The exit code is that of `e2fsck -fn`, but for the few errors \
        that e2fsck passes over and Linux does not: they are damage here, and the report says \
        so.\n\n\
        A volume that was not unmounted is checked as it will be after recovery: its journal is \
        replayed in memory, or with -p on the volume. Repairs are for e2fsck: -y is refused.\n\n\
        The options are those of e2fsck where Extol has the same; -c, -k, -l, -L, -D and -z are \
        refused."
)]
pub struct CheckArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Also print what was checked.
    #[arg(short, long)]
    pub verbose: bool,
    /// Also print how long it took.
    #[arg(short = 't', action = ArgAction::Count)]
    pub time: u8,
    /// Replay the journal on the volume first, as a mount would. Damage is not repaired.
    #[arg(short = 'p', short_alias = 'a', long, conflicts_with_all = ["no_changes", "as_is"])]
    pub preen: bool,
    /// Change nothing, as without -p.
    #[arg(short = 'n')]
    pub no_changes: bool,
    /// Check also a volume that is marked clean, as always.
    #[arg(short = 'f')]
    pub full: bool,
    /// Check the volume as it is, without replaying its journal.
    #[arg(long)]
    pub as_is: bool,
    /// Check it even if it is mounted read-write; what changes meanwhile looks like damage.
    #[arg(long, conflicts_with = "preen")]
    pub mounted: bool,
    /// Which part of an image is the volume: offset=BYTES, sizelimit=BYTES; and the most bytes of a
    /// compressed one: expand=BYTES; and the file below a qcow2 one: backing=FILE.
    #[arg(short = 'o', value_name = "OPTIONS", value_parser = offer::text(offer::WINDOW),
        hide_possible_values = true)]
    pub options: Vec<String>,
    /// Use the copy of the superblock in this block, with the first descriptors of groups. (For a
    /// damaged first superblock the copy in the second group is used without this.)
    #[arg(short = 'b', value_name = "BLOCK", value_parser = block, conflicts_with = "preen",
        allow_negative_numbers = true)]
    pub superblock: Option<u64>,
    /// Bytes of a block, for -b; without it all sizes are tried.
    #[arg(short = 'B', value_name = "SIZE", value_parser = block_size, requires = "superblock",
        allow_negative_numbers = true)]
    pub block_size: Option<u64>,
    /// The external journal of the volume, if it has one.
    #[arg(short = 'j', long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Write the progress to this descriptor, in lines of pass, step, steps and device; 0: a bar
    /// on the terminal, as without this option.
    #[arg(short = 'C', value_name = "FD", value_parser = descriptor,
        allow_negative_numbers = true)]
    pub progress: Option<u32>,
    /// Print at most so many findings.
    #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = limit,
        allow_negative_numbers = true)]
    pub limit: u64,
    #[command(flatten)]
    pub refused: CheckRefused,
    /// Disk image or block device. Without -p it is only read.
    pub source: PathBuf,
}

/// A block of a volume.
fn block(text: &str) -> Result<u64, NumberError> {
    number::count(text, 0..=MOST_BLOCK)
}

/// Bytes of a block.
fn block_size(text: &str) -> Result<u64, NumberError> {
    number::size(text, 1, 1024..=65_536)
}

/// Most findings to print.
fn limit(text: &str) -> Result<u64, NumberError> {
    number::count(text, 0..=u64::MAX)
}

/// Options of e2fsck that are not for Extol, or have no effect.
#[derive(Args, Debug)]
pub struct CheckRefused {
    #[arg(short = 'y', hide = true)]
    repair: bool,
    #[arg(short = 'c', hide = true, action = ArgAction::Count)]
    bad_blocks: u8,
    #[arg(short = 'k', hide = true)]
    keep_bad_blocks: bool,
    #[arg(short = 'l', hide = true)]
    add_bad_blocks: Option<OsString>,
    #[arg(short = 'L', hide = true)]
    set_bad_blocks: Option<OsString>,
    #[arg(short = 'D', hide = true)]
    optimize: bool,
    #[arg(short = 'E', hide = true)]
    extended: Vec<String>,
    #[arg(short = 'z', hide = true)]
    undo_file: Option<OsString>,
    #[arg(short = 'd', hide = true)]
    debug: bool,
    #[arg(short = 'F', hide = true)]
    flush: bool,
    #[arg(short = 'r', hide = true)]
    interactive: bool,
}

/// Extended options of e2fsck that change nothing about a check.
const NO_EFFECT: [&str; 9] = [
    "nodiscard",
    "no_optimize_extents",
    "fixes_only",
    "inode_count_fullmap",
    "no_inode_count_fullmap",
    "readahead_kb",
    "check_encoding",
    "ea_ver",
    "fragcheck",
];

impl CheckRefused {
    /// The line for the first of them that was given.
    pub fn check(&self, source: &Path) -> extol_cli_common::Result<()> {
        let e2fsck = |options: &str| format!("use e2fsck {options} {}", source.shown());
        let repair = format!("Extol repairs nothing: {}", e2fsck("-fy"));
        let bad = format!("Extol keeps no list of bad blocks: {}", e2fsck("-c"));
        let extended = self.extended.iter().flat_map(|list| list.split(',')).find(|option| {
            let name = option.split('=').next().unwrap_or_default();
            !NO_EFFECT.contains(&name)
        });
        let extended_name = format!("-E {}", extended.unwrap_or_default());
        let extended_why = match extended {
            Some("journal_only") => {
                format!("use extol replay {}", source.shown())
            }
            _ => e2fsck("-E ..."),
        };
        refused(&[
            Refusal(self.repair, "-y", &repair),
            Refusal(self.bad_blocks > 0, "-c", &bad),
            Refusal(self.keep_bad_blocks, "-k", &bad),
            Refusal(self.add_bad_blocks.is_some(), "-l", &bad),
            Refusal(self.set_bad_blocks.is_some(), "-L", &bad),
            Refusal(self.optimize, "-D", &e2fsck("-fD")),
            Refusal(self.undo_file.is_some(), "-z", "a check changes nothing"),
            Refusal(extended.is_some(), &extended_name, &extended_why),
        ])
    }
}
