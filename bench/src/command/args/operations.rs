//! Arguments of the loads that measure one thing at a time: names, bytes, a tree.

use clap::Args;
use extol_cli_common::manual;

use super::loads::{TARGETS, TargetArgs};

/// `extol-bench metadata`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench metadata --threads 8",
        "sudo extol-bench metadata --target mount --target noop --target kernel --target fuse2fs \
            --html metadata.html",
        "extol-bench metadata --threads 2 --files 20000 --shared --medium memory",
    ),
    long_about = format!("Storms of single calls on names and inodes, phase by phase, without a \
        sync: create, create with 4 KiB, stat, readdir, chmod, rename, link, symlink, mkdir, \
        rmdir, unlink, rm -rf.\n\n\
        Each phase is shown with its rate, latency and processor time, and the ratio of the first \
        target to every other. What a kernel answers from its cache is measured like all else. \
        Phases of a few milliseconds say little: without --seconds all is done again until create, \
        stat and unlink have lasted 0.3 seconds each.\n\n\
        {TARGETS}")
)]
pub struct MetadataArgs {
    /// Threads.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// Files of each kind per thread.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// All threads in one directory, not each in its own.
    #[arg(long)]
    pub shared: bool,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench seq`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench seq --size 1G --target library",
        "sudo extol-bench seq --target mount --target kernel --target fuse2fs --target raw",
        "sudo extol-bench seq --bs 64k --numjobs 4 --direct --target node --target raw --medium \
            /dev/vdb",
    ),
    long_about = format!("Bulk data: write a file from its beginning to its end, make it durable, \
        mount the volume again, and read it with empty caches. Options are named as fio's. MB are \
        millions of bytes. A run goes to its end, whatever --seconds says.\n\n\
        {TARGETS}")
)]
pub struct SeqArgs {
    /// Bytes per job.
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub size: String,
    /// Bytes per call.
    #[arg(long, value_name = "SIZE", default_value = "1M")]
    pub bs: String,
    /// Threads, each with a file of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub numjobs: u32,
    /// Past the page cache of the kernel (O_DIRECT).
    #[arg(long)]
    pub direct: bool,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench rand`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "sudo extol-bench rand --rw randread --direct --iodepth 16 --target mount --target kernel \
            --target raw",
        "sudo extol-bench rand --rw randwrite --numjobs 32 --direct --fdatasync 1 --size 16M \
            --seconds 5 --target raw",
        "extol-bench rand --rw randrw --size 64M --seconds 2 --medium memory",
    ),
    long_about = format!("Small reads and writes at random places of a file, which is laid out \
        beforehand; caches are empty when it begins. Options are named as fio's.\n\n\
        {TARGETS}")
)]
pub struct RandArgs {
    /// What is done.
    #[arg(long, default_value = "randread", value_parser = ["randread", "randwrite", "randrw"])]
    pub rw: String,
    /// Bytes of each file.
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub size: String,
    /// Bytes per call.
    #[arg(long, value_name = "SIZE", default_value = "4k")]
    pub bs: String,
    /// Files.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub numjobs: u32,
    /// Threads per file.
    #[arg(long, alias = "depth", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub iodepth: u32,
    /// Past the page cache of the kernel (O_DIRECT).
    #[arg(long)]
    pub direct: bool,
    /// fsync after so many writes of a thread; 0: never.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "fdatasync")]
    pub fsync: u64,
    /// fdatasync after so many writes of a thread; 0: never.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub fdatasync: u64,
    /// Calls of each thread, without --seconds.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub number_ios: u64,
    /// Seed of the random places.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench untar`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench untar --files 20000",
        "sudo extol-bench untar --target mount --target noop --target kernel --target fuse2fs",
        "sudo extol-bench untar --sync --keep --target mount --target kernel",
    ),
    long_about = format!("Write a tree of source code as a tar extractor does (mkdir, create, \
        write, chmod, utimes), then remove it. The tree is made of numbers, the same for the same \
        seed: half of the files are below 6 KiB, the mean is about 30 KiB. A run goes to its end, \
        whatever --seconds says; without it and without --keep the tree is written and removed \
        again until both have lasted 0.3 seconds.\n\n\
        {TARGETS}")
)]
pub struct UntarArgs {
    /// Files of a tree.
    #[arg(long, default_value_t = 5000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// Trees, each written by a thread of its own.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// fsync of each file before it is closed.
    #[arg(long)]
    pub fsync: bool,
    /// Sync the file system in the end; that counts.
    #[arg(long)]
    pub sync: bool,
    /// Do not remove the tree.
    #[arg(long)]
    pub keep: bool,
    /// Seed of the tree.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    #[command(flatten)]
    pub targets: TargetArgs,
}

/// `extol-bench speed`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "sudo extol-bench speed",
        "sudo extol-bench speed --part fsync-mount --medium image,cloud,sata --seconds 3 --rounds \
            3 --html speed.html",
        "sudo extol-bench speed --part data-mount,data-library --medium /dev/vdb --size 2G",
        "sudo extol-bench speed --part fsync-mount,loads-mount -o nowriteback_cache",
    ),
    long_about = "Extol's targets, each measured beside its peers on one device in one run, and \
        whether they are met.\n\n\
        fsync-mount: fs_mark with 1 to 32 threads through the mount, beside Linux with fast_commit \
        and fuse2fs. metadata-mount: create, stat, unlink, untar, rm -rf, beside a FUSE file \
        system that does nothing (noop) and fuse2fs. loads-mount: dbench with 2 and 10 clients, \
        varmail, postmark, beside fuse2fs; dbench plays /usr/share/dbench/client.txt if it is \
        there. data-mount: sequential write, cold read, direct random reads beside Linux. \
        fsync-library: fs_mark in this process beside Linux with fast_commit through system calls, \
        and beside the raw device. metadata-library: beside Linux. data-library: beside the raw \
        device. isolation: p99 of a small fsync beside a heavy writer of another file, to its p99 \
        alone, and what the writer got done; Linux takes part twice, because its writer stays in \
        memory for as long as a short run takes: once as it is, once with 32 MiB for dirty \
        pages.\n\n\
        noop takes part in all contests of mounts but the last, and a missed target says what it \
        reaches: that is what FUSE allows here.\n\n\
        Contenders take turns, each run on a fresh volume. Needs root, FUSE and a loop device; \
        fuse2fs where it takes part."
)]
pub struct SpeedArgs {
    /// What to measure [default: all].
    #[arg(
        long = "part",
        value_delimiter = ',',
        value_parser = [
            "fsync-mount", "metadata-mount", "loads-mount", "data-mount", "fsync-library", "metadata-library", "data-library",
            "isolation",
        ]
    )]
    pub parts: Vec<String>,
    /// Media: image, memory, an emulated cloud, sata, raid, nvme or ramdisk, or a block device (it
    /// is overwritten) [default: image,memory; for fsync-mount cloud and sata, too]
    #[arg(long = "medium", value_name = "MEDIUM", value_delimiter = ',')]
    pub media: Vec<String>,
    /// Seconds of a run that has no end of its own.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Further options of Extol's mount, and of noop, as `extol mount -o` knows them.
    #[arg(long, short = 'o', value_name = "OPTIONS", value_delimiter = ',')]
    pub options: Vec<String>,
    /// Bytes of bulk data.
    #[arg(long, value_name = "SIZE", default_value = "256M")]
    pub size: String,
    /// Files per thread of the metadata parts; files of the tree of untar.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// Size of a volume.
    #[arg(long = "volume", value_name = "SIZE", default_value = "4G")]
    pub volume: String,
    /// Where images and mount points are made.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: std::path::PathBuf,
    #[command(flatten)]
    pub output: super::loads::OutputArgs,
}
