//! Arguments of the benchmarks with a published table.

use std::path::PathBuf;

use clap::{ArgAction, Args};
use extol_cli_common::manual;

use super::loads::OutputArgs;

/// Where and how often.
#[derive(Args, Debug)]
pub struct PublishedArgs {
    /// Rounds; the median counts.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: u32,
    /// Where images and mount points are made.
    #[arg(long, default_value = "/var/tmp")]
    pub dir: PathBuf,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `extol-bench fsync-batching`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench fsync-batching",
        "extol-bench fsync-batching --profile ramdisk,nvme --threads 1,2,4,8 --seconds 5 --rounds \
            5 --html batching.html",
        "sudo extol-bench fsync-batching --profile image --policies adaptive --peer kernel",
    ),
    long_about = "Files per second of fs_mark -s 4096 -D 64 by number of threads, with each policy \
        of group commit, on each medium; beside the table of the patch that brought adaptive \
        batching (2009).\n\n\
        The policies take turns within a round, each run on a fresh volume. The library runs in \
        this process: no mount option chooses a policy. A ! marks what misses the goal: adaptive \
        never slower with more threads, and on the ramdisk with 4 threads at least 4.4 times as \
        fast as static."
)]
pub struct FsyncBatchingArgs {
    /// Media: emulated sata, raid, ramdisk, cloud, nvme; memory, image, or a block device (it is
    /// overwritten).
    #[arg(
        long = "profile",
        value_name = "MEDIUM",
        value_delimiter = ',',
        default_value = "sata,raid,ramdisk,cloud,nvme"
    )]
    pub profiles: Vec<String>,
    /// Numbers of threads.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64", value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: Vec<u32>,
    /// Policies.
    #[arg(long, value_delimiter = ',', default_value = "none,static,adaptive", value_parser = ["none", "static", "adaptive"])]
    pub policies: Vec<String>,
    /// Others that take part: kernel, fuse2fs, library (each with :OPTIONS), or a directory.
    #[arg(long = "peer", value_name = "TARGET", action = ArgAction::Append)]
    pub peers: Vec<String>,
    /// Seconds per run.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Size of a volume.
    #[arg(long = "volume", value_name = "SIZE", default_value = "4G")]
    pub volume: String,
    #[command(flatten)]
    pub published: PublishedArgs,
}

/// `extol-bench async-checkpoint`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench async-checkpoint",
        "extol-bench async-checkpoint --modes 1,3,5 --log 16 --seconds 10 --medium nvme --html \
            checkpoint.html",
    ),
    long_about = "Files per second, waits for log space and time to start a handle, without and \
        with async_checkpoint, for a load that outruns a small log (fs_mark -t 32 -s 4096 -D 16 -N \
        256 -k, sync modes 0 to 6); beside the table of the patch (2019).\n\n\
        A ! marks what misses the goal: no wait for log space, p99.9 of handle start at most a \
        tenth, files per second not lower (mode 3: 14.4 % higher), not more transactions per file."
)]
pub struct AsyncCheckpointArgs {
    /// Sync modes of fs_mark.
    #[arg(long, value_delimiter = ',', default_value = "0,1,2,3,4,5,6", value_parser = clap::value_parser!(u8).range(0..=6))]
    pub modes: Vec<u8>,
    /// Threads.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    pub threads: u32,
    /// Files per thread and loop.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub files: u64,
    /// async_checkpoint=PERCENT [default: that of the option].
    #[arg(long, value_name = "PERCENT")]
    pub threshold: Option<u32>,
    /// Size of the log in MiB.
    #[arg(long, value_name = "MIB", default_value_t = 16)]
    pub log: u32,
    /// Extol as a library in this process, or mounted.
    #[arg(long, default_value = "library", value_parser = ["library", "mount"])]
    pub target: String,
    /// Emulated nvme, sata, raid, cloud or ramdisk; memory, image, or a block device (it is
    /// overwritten).
    #[arg(long, default_value = "nvme")]
    pub medium: String,
    /// Seconds per run.
    #[arg(long, default_value_t = 3.0)]
    pub seconds: f64,
    /// Size of a volume.
    #[arg(long = "volume", value_name = "SIZE", default_value = "8G")]
    pub volume: String,
    #[command(flatten)]
    pub published: PublishedArgs,
}

/// `extol-bench checkpoint-merge`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench checkpoint-merge --throttle model --medium nvme",
        "sudo extol-bench checkpoint-merge --throttle cgroup --medium image --weights \
            100,50,20,10,1",
        "sudo extol-bench checkpoint-merge --medium /dev/vdb --html merge.html",
    ),
    long_about = "Time of 1000 syncs of a whole volume beside a thread that syncs with throttled \
        device requests and one that writes without pause, with checkpoint=nomerge and \
        checkpoint=merge in turn; beside the figures of the patch (2021). Then how many \
        checkpoints 100 requests at the same moment cost.\n\n\
        --throttle cgroup: BFQ and two groups of the blkio controller (cgroup v1, root); ionice: \
        BFQ and I/O priorities of threads (root); model: the thread's requests take 100/weight \
        times as long, anywhere; auto: cgroup where it can be had, else model. cgroup and ionice \
        need a medium that is a block device or an image.\n\n\
        A ! marks what misses the goal: at most 0.70 of the time without merging, the same time \
        whatever the weight, at most 3 checkpoints for 100 requests."
)]
pub struct CheckpointMergeArgs {
    /// Syncs of the foreground thread.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub syncs: u64,
    /// Weights of the throttled thread; other threads have 100.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "100,20,5",
        value_parser = clap::value_parser!(u32).range(1..=1000)
    )]
    pub weights: Vec<u32>,
    /// How it is throttled.
    #[arg(long, default_value = "auto", value_parser = ["auto", "cgroup", "ionice", "model"])]
    pub throttle: String,
    /// Threads that ask at the same moment.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrent: u32,
    /// image, memory, a block device (it is overwritten), or an emulated nvme, sata, raid, cloud or
    /// ramdisk (model only).
    #[arg(long, default_value = "image")]
    pub medium: String,
    /// End a run of the foreground thread after so many seconds; its time is scaled to 1000 syncs.
    #[arg(long, default_value_t = 60.0)]
    pub seconds: f64,
    /// Size of a volume.
    #[arg(long = "volume", value_name = "SIZE", default_value = "1G")]
    pub volume: String,
    #[command(flatten)]
    pub published: PublishedArgs,
}

/// `extol-bench fast-commit`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench fast-commit",
        "extol-bench fast-commit --part table --profile cloud,sata --seconds 5 --rounds 5 --html \
            fast-commit.html",
        "sudo extol-bench fast-commit --part peers,isolation --seconds 5 --rounds 3",
        "extol-bench fast-commit --quick",
    ),
    long_about = "What fast commits are worth; beside the table of the patch (2020).\n\n\
        table: fs_mark with 8 threads, a dbench-like load with 2 and 10 clients and varmail with \
        16 threads, with nofast_commit and with fast_commit, and what an fsync cost. log: bytes of \
        log for each single fsync, by kind of change. peers (root): fs_mark with 8 and 32 threads \
        and varmail beside Linux with fast_commit on the same loop device. isolation (root): how \
        long a small fsync takes alone and beside a heavy writer of another file, beside Linux \
        with and without fast_commit.\n\n\
        Contenders take turns, each run on a fresh volume; a run takes --seconds and one or two \
        more. With the defaults table has 72 runs, log takes seconds, peers has 135 runs and \
        isolation 36.\n\n\
        A ! marks what misses the goal: gains of 192, 112, 22 and 78 %; more than 80 % of fsyncs \
        of a small new file with at most 4 KiB of log, a quarter of the log's bytes; as fast as \
        Linux (through FUSE where a flush takes 0.5 ms or more); p99 beside a writer half of \
        Linux's."
)]
pub struct FastCommitArgs {
    /// What to measure.
    #[arg(
        long = "part",
        value_delimiter = ',',
        default_value = "table,log",
        value_parser = ["table", "log", "peers", "isolation"]
    )]
    pub parts: Vec<String>,
    /// Media: emulated cloud, sata, raid, nvme, ramdisk; memory, image, or a block device (it is
    /// overwritten) [default: for table \ cloud,sata,image; for peers image,memory,cloud,sata,nvme;
    /// for isolation image,memory,cloud].
    #[arg(long = "profile", value_name = "MEDIUM", value_delimiter = ',')]
    pub profiles: Vec<String>,
    /// Extol in the table: as a library in this process, or mounted (root).
    #[arg(long, default_value = "library", value_parser = ["library", "mount"])]
    pub target: String,
    /// Also compare with a volume without the feature in the table.
    #[arg(long)]
    pub plain: bool,
    /// Changes of each kind for log.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    pub syncs: u64,
    /// Milliseconds between small fsyncs for isolation.
    #[arg(long, default_value_t = 3)]
    pub pause: u64,
    /// Seconds per run.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// One round of one second: shows that it runs, measures little.
    #[arg(long, conflicts_with_all = ["seconds", "rounds"])]
    pub quick: bool,
    /// Size of a volume.
    #[arg(long = "volume", value_name = "SIZE", default_value = "4G")]
    pub volume: String,
    #[command(flatten)]
    pub published: PublishedArgs,
}

/// `extol-bench lazy-init`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench lazy-init --scale 0.1",
        "extol-bench lazy-init --scale 1 --rounds 5 --medium sata --volume 256G --html lazy.html",
    ),
    long_about = "Cost of zeroing inode tables in the background while PostMark runs, for \
        init_itable=10, 5 and 2 against noinit_itable; beside the table of the patch (2010). Also \
        the time of mkfs for 1 TiB.\n\n\
        Except for a block device, the medium reads as old bytes where nothing was written, so \
        that zeroing is work. A ! marks what misses the goal: at most 1.85 % of the total time \
        with N = 10, mkfs in less than a second."
)]
pub struct LazyInitArgs {
    /// Values of init_itable=.
    #[arg(long = "wait", value_name = "N", value_delimiter = ',', default_value = "10,5,2")]
    pub multipliers: Vec<u32>,
    /// Part of the published 50000 files and 50000 transactions.
    #[arg(long, default_value_t = 0.1)]
    pub scale: f64,
    /// Leave mkfs of 1 TiB out.
    #[arg(long)]
    pub no_mkfs: bool,
    /// Emulated sata, raid, nvme, cloud or ramdisk; memory, image, or a block device (it is
    /// overwritten).
    #[arg(long, default_value = "sata")]
    pub medium: String,
    /// Size of a volume.
    #[arg(long = "volume", value_name = "SIZE", default_value = "64G")]
    pub volume: String,
    #[command(flatten)]
    pub published: PublishedArgs,
}
