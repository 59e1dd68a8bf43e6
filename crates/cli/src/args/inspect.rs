//! Arguments of the commands that inspect or recover a volume: info, log, replay, check.

use std::path::PathBuf;

use clap::Args;
use extol_cli_common::manual;

/// `extol info` and `extol log`.
#[derive(Args, Debug)]
#[command(after_long_help = manual!("extol info disk.img", "extol log --json /dev/sdb1"))]
pub struct InspectArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Options for opening the volume (journal_path=, sb=).
    #[arg(short = 'o', value_name = "OPTIONS")]
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
    #[command(flatten)]
    pub inspect: InspectArgs,
}

/// Check a volume for damage, without changing it.
#[derive(Args, Debug)]
#[command(
    after_long_help = "EXAMPLES:\n  \
        extol check disk.img\n  \
        extol check --json /dev/sdb1 | jq '.findings[].what'\n  \
        extol check disk.img && extol mount disk.img /mnt\n\n\
        EXIT STATUS:\n  \
        (the codes of fsck(8))\n  \
        0   no damage\n  \
        4   the volume is damaged\n  \
        8   the check could not be made: the device cannot be read, holds no ext2, ext3 or\n      \
        ext4 file system, is mounted read-write, or uses unknown features\n  \
        16  wrong arguments",
    long_about = "Check a volume for damage, without changing it.\n\n\
        Inodes, block maps, attributes, directories, link counts, bitmaps, counts, checksums and \
        the journal are compared with each other; what is wrong is printed, one line each, with \
        inode, block and path. The result is that of `e2fsck -fn`.\n\n\
        A volume that was not unmounted is checked as it will be after recovery: its journal is \
        replayed in memory. Repairs are for e2fsck."
)]
pub struct CheckArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Also print what was checked.
    #[arg(short, long)]
    pub verbose: bool,
    /// Check the volume as it is, without replaying its journal.
    #[arg(long)]
    pub as_is: bool,
    /// Check it even if it is mounted read-write; what changes meanwhile looks like damage.
    #[arg(long)]
    pub force: bool,
    /// The external journal of the volume, if it has one.
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Print at most so many findings.
    #[arg(long, value_name = "COUNT", default_value_t = 1000)]
    pub limit: usize,
    /// Disk image or block device. It is only read.
    pub source: PathBuf,
}
