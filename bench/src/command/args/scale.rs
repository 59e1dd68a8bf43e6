//! Arguments of `bench scale`.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use extol_cli_common::manual;

use super::loads::OutputArgs;

/// `extol-bench scale`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench scale --dir /var/tmp --html scale.html",
        "extol-bench scale --part files --long --layout one",
        "sudo extol-bench scale --part files --files 1000,100000 --target library --target mount \
            --target kernel",
        "sudo extol-bench scale --part recovery --log 4,16,64,256 --area 1,4,16 --target mount \
            --target kernel",
        "extol-bench scale --part large --large 16T,64T --dir /dev/shm",
    ),
    long_about = "What grows with the number of files, with the dirty log and with the volume.\n\n\
        files: create, lookup (warm, and cold after a mount), unlink and list with more and more \
        files on one volume, in one directory and spread over directories of 1000; mount, mount \
        after a crash, unmount; memory and its bound; with several targets, all side by side (root \
        for the kernel's ext4, which lies on a loop device as a mount of Extol does then). \
        recovery: time by size of the log that a crash left, for full and for fast commits, beside \
        the time that the device needs to read it, and beside targets that mount copies of the \
        same volume. large: sparse volumes of 16 TiB and beyond: mkfs, mount, files all over the \
        volume, what e2fsprogs say.\n\n\
        A ! marks what misses the goal: processor time of create, lookup and unlink flat but for \
        the levels of the index, memory within the bound."
)]
pub struct ScaleArgs {
    /// What to measure.
    #[arg(
        long = "part",
        value_delimiter = ',',
        default_value = "files,recovery,large",
        value_parser = ["files", "recovery", "large"]
    )]
    pub parts: Vec<String>,
    /// Numbers of files, ascending.
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1000,100000,1000000", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub files: Vec<u64>,
    /// Ten million files as well.
    #[arg(long)]
    pub long: bool,
    /// Where the files are: in one directory, or spread.
    #[arg(long = "layout", value_delimiter = ',', default_value = "one,spread", value_parser = ["one", "spread"])]
    pub layouts: Vec<String>,
    /// How the volume is used for files, and what recovers it beside the library: library, mount,
    /// before, kernel, fuse2fs (each with :OPTIONS) [default: library].
    #[arg(long = "target", value_name = "TARGET", action = ArgAction::Append)]
    pub targets: Vec<String>,
    /// Operations per sample.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub batch: u64,
    /// Samples at most; the median counts.
    #[arg(long, value_name = "N", default_value_t = 21, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub samples: u64,
    /// Sizes of the log for recovery, in MiB.
    #[arg(long = "log", value_name = "MIB", value_delimiter = ',', default_value = "4,16,64,256", value_parser = clap::value_parser!(u32).range(4..=1024))]
    pub logs: Vec<u32>,
    /// Sizes of the fast-commit area for recovery, in MiB.
    #[arg(long = "area", value_name = "MIB", value_delimiter = ',', default_value = "1,4,16", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub areas: Vec<u32>,
    /// Sizes of large volumes.
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "16T,64T")]
    pub large: Vec<String>,
    /// Directories made across a large volume.
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub dirs: u32,
    /// Seconds that each checker may take for a large volume; 0: none is run.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub fsck: u64,
    /// Where images and mount points are made.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}
