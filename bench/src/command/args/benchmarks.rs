//! The benchmarks that choose their contenders, most of them beside a published table.

use clap::{Args, Subcommand};
use extol_bench::images::Images;
use extol_bench::published::{
    AsyncCheckpoint, CheckpointMerge, FastCommit, FsyncBatching, LazyInit,
};
use extol_bench::scale::Scale;
use extol_bench::speed::{Guard, Speed};
use extol_cli_common::manual;

use super::place::{OutputArgs, PlaceArgs};

/// A benchmark, whose parameters are the fields of its type, and where it runs.
#[derive(Args, Debug)]
pub struct BenchmarkArgs<B: Args> {
    #[command(flatten)]
    pub benchmark: B,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// `extol-bench scale`, which says itself where it runs.
#[derive(Args, Debug)]
pub struct ScaleArgs {
    #[command(flatten)]
    pub scale: Scale,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// `extol-bench image`, which says itself where it runs.
#[derive(Args, Debug)]
pub struct ImageArgs {
    #[command(flatten)]
    pub images: Images,
    #[command(flatten)]
    pub output: OutputArgs,
}

/// The benchmarks.
#[derive(Subcommand, Debug)]
pub enum BenchmarkCommand {
    /// All targets beside their peers on one device, and whether they are met.
    #[command(
        after_long_help = manual!(
            "sudo extol-bench speed",
            "sudo extol-bench speed --part fsync-mount --medium image,cloud,sata --seconds 3 \
            --rounds 3 --html speed.html",
            "sudo extol-bench speed --part data-mount,data-library --medium /dev/vdb --size 2G",
            "sudo extol-bench speed --part fsync-mount,loads-mount -o nowriteback_cache",
        ),
        long_about = "Extol's targets, each measured beside its peers on one device in one run, \
        and whether they are met.\n\n\
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
        fuse2fs where it takes part.",
        mut_arg("rounds", |arg| arg.default_value("1"))
    )]
    Speed(BenchmarkArgs<Speed>),
    /// The loads in which a regression shows first, beside fuse2fs and another build.
    #[command(
        after_long_help = manual!(
            "sudo extol-bench guard",
            "sudo extol-bench guard --against ../before/target/release/extol",
            "sudo extol-bench guard --medium memory --rounds 5",
        ),
        long_about = "The loads in which a regression shows first, through the mount beside \
        fuse2fs, in one run of about three minutes: fs_mark with 1 and 8 threads, dbench with 2 \
        and 10 clients, postmark, the files of a source tree, stat.\n\n\
        One table has rates and ratios. With --against another build takes part as \"before\", and \
        what reaches less than 0.8 of it is marked and named in a line at the end. `make \
        bench-guard` builds and runs it, with AGAINST=PROGRAM or AGAINST=COMMIT beside another \
        build."
    )]
    Guard(BenchmarkArgs<Guard>),
    /// fsync batching: files per second by threads, policy and medium, beside the published table.
    #[command(
        after_long_help = manual!(
            "extol-bench fsync-batching",
            "extol-bench fsync-batching --profile ramdisk,nvme --threads 1,2,4,8 --seconds 5 \
            --rounds 5 --html batching.html",
            "sudo extol-bench fsync-batching --profile image --policies adaptive --peer kernel",
        ),
        long_about = "Files per second of fs_mark -s 4096 -D 64 by number of threads, with each \
        policy of group commit, on each medium; beside the table of the patch that brought \
        adaptive batching (2009).\n\n\
        The policies take turns within a round, each run on a fresh volume. The library runs in \
        this process: no mount option chooses a policy. A ! marks what misses the goal: adaptive \
        never slower with more threads, and on the ramdisk with 4 threads at least 4.4 times as \
        fast as static."
    )]
    FsyncBatching(BenchmarkArgs<FsyncBatching>),
    /// Asynchronous checkpoint: a load that outruns the log, beside the published table.
    #[command(
        after_long_help = manual!(
            "extol-bench async-checkpoint",
            "extol-bench async-checkpoint --modes 1,3,5 --log 16 --seconds 10 --medium nvme --html \
            checkpoint.html",
        ),
        long_about = "Files per second, waits for log space and time to start a handle, without \
        and with async_checkpoint, for a load that outruns a small log (fs_mark -t 32 -s 4096 -D \
        16 -N 256 -k, sync modes 0 to 6); beside the table of the patch (2019).\n\n\
        A ! marks what misses the goal: no wait for log space, p99.9 of handle start at most a \
        tenth, files per second not lower (mode 3: 14.4 % higher), not more transactions per file.",
        mut_arg("volume", |arg| arg.default_value("8G"))
    )]
    AsyncCheckpoint(BenchmarkArgs<AsyncCheckpoint>),
    /// Merged checkpoints: syncs beside a throttled caller, beside the published figures.
    #[command(
        after_long_help = manual!(
            "extol-bench checkpoint-merge --throttle model --medium nvme",
            "sudo extol-bench checkpoint-merge --throttle cgroup --medium image --weights \
            100,50,20,10,1",
            "sudo extol-bench checkpoint-merge --medium /dev/vdb --html merge.html",
        ),
        long_about = "Time of 1000 syncs of a whole volume beside a thread that syncs with \
        throttled device requests and one that writes without pause, with checkpoint=nomerge and \
        checkpoint=merge in turn; beside the figures of the patch (2021). Then how many \
        checkpoints 100 requests at the same moment cost.\n\n\
        --throttle cgroup: BFQ and two groups of the blkio controller (cgroup v1, root); ionice: \
        BFQ and I/O priorities of threads (root); model: the thread's requests take 100/weight \
        times as long, anywhere; auto: cgroup where it can be had, else model. cgroup and ionice \
        need a medium that is a block device or an image.\n\n\
        A ! marks what misses the goal: at most 0.70 of the time without merging, the same time \
        whatever the weight, at most 3 checkpoints for 100 requests.",
        mut_arg("volume", |arg| arg.default_value("1G"))
    )]
    CheckpointMerge(BenchmarkArgs<CheckpointMerge>),
    /// Fast commits: with and without them beside the published table, and beside Linux.
    #[command(
        after_long_help = manual!(
            "extol-bench fast-commit",
            "extol-bench fast-commit --part table --profile cloud,sata --seconds 5 --rounds 5 \
            --html fast-commit.html",
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
        Linux's.",
        mut_arg("quick", |arg| arg.conflicts_with("rounds"))
    )]
    FastCommit(BenchmarkArgs<FastCommit>),
    /// Lazy inode tables: what zeroing them costs, beside the published table.
    #[command(
        after_long_help = manual!(
            "extol-bench lazy-init --scale 0.1",
            "extol-bench lazy-init --scale 1 --rounds 5 --medium sata --volume 256G --html \
                lazy.html",
        ),
        long_about = "Cost of zeroing inode tables in the background while PostMark runs, for \
        init_itable=10, 5 and 2 against noinit_itable; beside the table of the patch (2010). Also \
        the time of mkfs for 1 TiB.\n\n\
        Except for a block device, the medium reads as old bytes where nothing was written, so \
        that zeroing is work. A ! marks what misses the goal: at most 1.85 % of the total time \
        with N = 10, mkfs in less than a second.",
        mut_arg("volume", |arg| arg.default_value("64G"))
    )]
    LazyInit(BenchmarkArgs<LazyInit>),
    /// More and more files, a longer dirty log, a larger volume: what grows and what must not.
    #[command(
        after_long_help = manual!(
            "extol-bench scale --dir /var/tmp --html scale.html",
            "extol-bench scale --part files --long --layout one",
            "sudo extol-bench scale --part files --files 1000,100000 --target library --target \
            mount --target kernel",
            "sudo extol-bench scale --part recovery --log 4,16,64,256 --area 1,4,16 --target mount \
            --target kernel",
            "extol-bench scale --part large --large 16T,64T --dir /dev/shm",
        ),
        long_about = "What grows with the number of files, with the dirty log and with the \
        volume.\n\nfiles: create, lookup (warm, and cold after a mount), unlink and list with \
        more and more files on one volume, in one directory and spread over directories of 1000; \
        mount, mount after a crash, unmount; memory and its bound; with several targets, all \
        side by side (root for the kernel's ext4, which lies on a loop device as a mount of \
        Extol does then). recovery: time by size of the log that a crash left, for full and for \
        fast commits, beside the time that the device needs to read it, and beside targets that \
        mount copies of the same volume. large: sparse volumes of 16 TiB and beyond: mkfs, \
        mount, files all over the volume, what e2fsprogs say.\n\n\
        A ! marks what misses the goal: processor time of create, lookup and unlink flat but for \
        the levels of the index, memory within the bound."
    )]
    Scale(ScaleArgs),
    /// Images made of directories, beside mke2fs -d, genext2fs and tar on a loop mount.
    #[command(
        after_long_help = manual!(
            "sudo extol-bench image",
            "extol-bench image --builder extol,mke2fs --source tree --rounds 5 --dir /dev/shm",
        ),
        long_about = "Time until an image of a directory is durable, and memory: 30,000 files with \
        2 GB, 8,000 subdirectories in one directory, 100,000 empty files, one file of 2 GB.\n\n\
        The builders take turns, each writes a new sparse file of the same size; an fsync at the \
        end counts. The sources are in the page cache. --dir must have room for a source, its tar \
        and an image: 7 GB.\n\n\
        A ! marks what misses the goal: the tree 4 times as fast as mke2fs -d and 1.5 times as \
        fast as tar, the subdirectories 20 times as fast as mke2fs -d, at most 100 MiB and 200 \
        bytes for each file of memory."
    )]
    Image(ImageArgs),
}
