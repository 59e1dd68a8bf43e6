//! Arguments of `extol bench`'s loads, under the names of the tools they come from.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use extol_cli_common::manual;

pub const TARGETS: &str = "Each --target takes its turn in every round, on a fresh volume; the \
ratio is to the first one:\n  \
library[:OPTIONS]  Extol in this process\n  \
node[:OPTIONS]     the same on the block device that mounts get (root, loop device)\n  \
mount[:OPTIONS]    Extol, mounted (root, FUSE)\n  \
kernel[:OPTIONS]   the kernel's ext4 (root, loop device); with dirty_mb=N it may keep that much \
dirty for the device, as on a machine whose memory is full\n  \
fuse2fs[:OPTIONS]  e2fsprogs' FUSE driver (root, loop device)\n  \
noop               a FUSE file system that does nothing: what FUSE allows (FUSE)\n  \
raw                the bare block device that mounts get: what the medium allows (root, loop \
device)\n  \
DIR                a directory of whatever is mounted there; a name with a / in it\n\n\
OPTIONS are mount options. The result is the median of the rounds, with latencies (p50, p99, \
p99.9, max), and what one operation cost: processor time, bytes and flushes sent to the device, \
transactions.";

/// What the output looks like.
#[derive(Args, Debug)]
pub struct OutputArgs {
    /// As JSON.
    #[arg(long)]
    pub json: bool,
    /// Also write a page with tables and pictures to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write each picture to a file of its own (SVG) in this directory, which is made if need
    /// be.
    #[arg(long, value_name = "DIR")]
    pub svg: Option<PathBuf>,
}

/// What takes part in a load, where, and how often.
#[derive(Args, Debug)]
pub struct TargetArgs {
    /// What takes part: library, node, mount, before, kernel, fuse2fs, noop (each with :OPTIONS),
    /// raw, or a directory [default: library].
    #[arg(long = "target", value_name = "TARGET", action = ArgAction::Append)]
    pub targets: Vec<String>,
    /// What volumes lie on: image, memory, a block device (it is overwritten), or an emulated sata,
    /// raid, cloud, nvme or ramdisk.
    #[arg(long, default_value = "image")]
    pub medium: String,
    /// Size of a volume.
    #[arg(long = "volume", value_name = "SIZE", default_value = "4G")]
    pub volume: String,
    /// Size of its log in MiB [default: as mkfs decides].
    #[arg(long, value_name = "MIB")]
    pub log: Option<u32>,
    /// Features of the volume, as for mkfs: fast_commit, ^metadata_csum ...
    #[arg(short = 'O', value_name = "FEATURES", action = ArgAction::Append)]
    pub features: Vec<String>,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// End each run after so many seconds.
    #[arg(long)]
    pub seconds: Option<f64>,
    /// Where images and mount points are made.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `extol-bench fsmark`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench fsmark -t 4 -s 4096 -n 2000 -D 64",
        "extol-bench fsmark -t 8 --seconds 5 --medium nvme --target library --target \
            library:fsync_batching=none",
        "sudo extol-bench fsmark -t 16 -S 3 --target mount --target kernel --html report.html",
        "extol-bench fsmark --target /mnt/xfs --target /mnt/ext4",
    ),
    long_about = format!("Make files of one size, with the parameters of fs_mark.\n\n\
        -S 0 syncs nothing; 1: fsync before each close; 2: after the loop sync, then fsync of the \
        thread's first file; 3: after the loop fsync of each file, the last first; 4: sync, then \
        as 3; 5: after the loop fsync of each file, in order; 6: sync, then as 5.\n\n\
        {TARGETS}")
)]
pub struct FsMarkArgs {
    /// Threads.
    #[arg(short = 't', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// Bytes per file.
    #[arg(short = 's', default_value_t = 51200)]
    pub size: u64,
    /// Files per thread and loop.
    #[arg(short = 'n', default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// Subdirectories; 0: none.
    #[arg(short = 'D', default_value_t = 0)]
    pub dirs: u32,
    /// Files that a thread puts into one subdirectory before it goes to the next; 0: it goes on
    /// every 180 seconds.
    #[arg(short = 'N', default_value_t = 0)]
    pub per_dir: u64,
    /// Sync mode, 0 to 6.
    #[arg(short = 'S', default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=6))]
    pub sync: u8,
    /// Bytes per write.
    #[arg(short = 'w', default_value_t = 16384, value_parser = clap::value_parser!(u32).range(1..))]
    pub write: u32,
    /// Loops of -n files. With --seconds there are as many as fit.
    #[arg(short = 'L', default_value_t = 1)]
    pub loops: u32,
    /// Keep the files until the volume goes.
    #[arg(short = 'k')]
    pub keep: bool,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench dbench`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench dbench --clients 10 --seconds 10",
        "sudo extol-bench dbench --clients 2 --seconds 10 -O fast_commit --target mount --target \
            kernel",
        "sudo extol-bench dbench --loadfile /usr/share/dbench/client.txt --clients 10 --seconds 30 \
            --target mount --target fuse2fs",
    ),
    long_about = format!("Clients of a file server, with the steps of dbench's client.txt in its \
        proportions: of 100 opens 20 make a file and 27 find nothing; with them go 50 writes, 158 \
        reads, 91 stats, 35 listings, 20 removals, 7 fsyncs, 4 renames. With --loadfile the lines \
        of that file are what clients do. The rate is bytes read and written, in thousands per \
        second.\n\n\
        {TARGETS}")
)]
pub struct DbenchArgs {
    /// Clients: threads, each in a directory of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub clients: u32,
    /// A load file of dbench (the package dbench has /usr/share/dbench/client.txt).
    #[arg(long, value_name = "FILE")]
    pub loadfile: Option<PathBuf>,
    /// Rounds of 100 opens per client, without --seconds; with a load file, how often it is played
    /// (then 1 is enough).
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub decks: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench postmark`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench postmark --number 5000 --transactions 5000",
        "sudo extol-bench postmark --size 1000,200000 --read 4096 --write 4096 --target mount \
            --target kernel",
    ),
    long_about = format!("Make, read, append to and remove small files, as PostMark does.\n\n\
        {TARGETS}")
)]
pub struct PostMarkArgs {
    /// Files at the start.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub number: u64,
    /// Transactions.
    #[arg(long, default_value_t = 500)]
    pub transactions: u64,
    /// Smallest and largest file in bytes.
    #[arg(
        long,
        value_name = "LOW,HIGH",
        value_delimiter = ',',
        num_args = 1,
        default_value = "500,9770"
    )]
    pub size: Vec<u64>,
    /// Bytes per read.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub read: u32,
    /// Bytes per write.
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    pub write: u32,
    /// Of 10 transactions, how many read and do not append; -1: none does either.
    #[arg(
        long,
        default_value_t = 5,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=10)
    )]
    pub bias_read: i32,
    /// Of 10 transactions, how many make a file and do not remove one; -1: none does either.
    #[arg(
        long,
        default_value_t = 5,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..=10)
    )]
    pub bias_create: i32,
    /// Subdirectories; 0: none.
    #[arg(long, default_value_t = 0)]
    pub subdirectories: u64,
    /// Seed of the random numbers.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench varmail`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench varmail --seconds 10",
        "sudo extol-bench varmail --threads 4 --seconds 10 --target mount --target kernel --target \
            fuse2fs",
    ),
    long_about = format!("A mail server that syncs, as filebench's personality of that name: 16 \
        threads remove, make, append, fsync and read files of 16 KiB on average.\n\n\
        {TARGETS}")
)]
pub struct VarMailArgs {
    /// Threads.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// Files.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(2..))]
    pub files: u64,
    /// Mean size of a file in bytes.
    #[arg(long, default_value_t = 16384)]
    pub mean_size: u64,
    /// Largest append in bytes.
    #[arg(long, default_value_t = 16384)]
    pub append_size: u64,
    /// Rounds of the loop per thread, without --seconds.
    #[arg(long, default_value_t = 500)]
    pub loops: u64,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench logs`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench logs -n 4 -O fast_commit",
        "extol-bench logs -t 4 -n 8 -s 2000 --close --seconds 5 -O fast_commit --medium cloud",
        "sudo extol-bench logs -t 2 -n 1 --seconds 5 -O fast_commit --target mount --target kernel",
    ),
    long_about = format!("Logs that grow side by side: each thread goes round its logs, appends a \
        piece to each and syncs it, as databases do with their logs, and with --close as mail \
        servers do with mailboxes.\n\n\
        {TARGETS}")
)]
pub struct LogsArgs {
    /// Threads.
    #[arg(short = 't', default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// Logs of each thread.
    #[arg(short = 'n', default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    pub files: u32,
    /// Bytes per append.
    #[arg(short = 's', default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub size: u32,
    /// Appends to each log, without --seconds.
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u64).range(1..))]
    pub appends: u64,
    /// Open and close the log for each append.
    #[arg(long)]
    pub close: bool,
    /// fdatasync instead of fsync.
    #[arg(long)]
    pub fdatasync: bool,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench fsync-latency`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench fsync-latency --seconds 10",
        "sudo extol-bench fsync-latency --medium /dev/vdb --target mount --target kernel --html \
            latency.html",
    ),
    long_about = format!("How long a write of 4 KiB and an fsync take, alone and beside a heavy \
        writer that never syncs.\n\n\
        {TARGETS}")
)]
pub struct FsyncLatencyArgs {
    /// Bytes per write.
    #[arg(long, default_value_t = 4096, value_parser = clap::value_parser!(u32).range(1..))]
    pub block: u32,
    /// Writes and fsyncs in each part, without --seconds.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub calls: u64,
    /// fdatasync instead of fsync.
    #[arg(long)]
    pub fdatasync: bool,
    /// Milliseconds between one call and the next write.
    #[arg(long, default_value_t = 0)]
    pub pause: u64,
    /// The heavy writer begins a new file when one is full, so that it always needs new blocks.
    #[arg(long)]
    pub fresh: bool,
    /// Only one part: alone, or beside (a heavy writer).
    #[arg(long, value_name = "PART", value_parser = ["alone", "beside"])]
    pub only: Option<String>,
    #[command(flatten)]
    pub targets: TargetArgs,
}
