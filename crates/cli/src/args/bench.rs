//! Arguments of bench.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::loads::{DbenchArgs, FsMarkArgs, FsyncLatencyArgs, LogsArgs, PostMarkArgs, VarMailArgs};
use super::scale::ScaleArgs;
use super::seeds::{
    AsyncCheckpointArgs, CheckpointMergeArgs, FastCommitArgs, FsyncBatchingArgs, LazyInitArgs,
};
use super::storms::{MetadataArgs, RandArgs, SeqArgs, SpeedArgs, UntarArgs};

/// `extol bench`.
#[derive(Subcommand, Debug)]
pub enum BenchCommand {
    /// Storms of single calls on names and inodes.
    Metadata(MetadataArgs),
    /// Bulk data: written, made durable, read with empty caches.
    Seq(SeqArgs),
    /// Small reads and writes at random places.
    Rand(RandArgs),
    /// A tree of source code, written as a tar extractor does.
    Untar(UntarArgs),
    /// The targets: everything beside its peers on one device, and whether it is met.
    Speed(SpeedArgs),
    /// Serve an emulated medium (disk, array, network disk) as a file, for a loop device (needs
    /// FUSE).
    Medium(BenchMediumArgs),
    /// Serve a file system that does nothing.
    #[command(hide = true)]
    Noop(BenchNoopArgs),
    /// Files of one size, as fs_mark makes them.
    Fsmark(FsMarkArgs),
    /// Clients of a file server, as dbench plays them.
    Dbench(DbenchArgs),
    /// Many small files, as PostMark makes them.
    Postmark(PostMarkArgs),
    /// A mail server that syncs, as filebench's varmail.
    Varmail(VarMailArgs),
    /// Logs that grow side by side by small synced pieces.
    Logs(LogsArgs),
    /// How long a small durable write takes, alone and beside a heavy writer.
    FsyncLatency(FsyncLatencyArgs),
    /// fsync batching: files per second by threads, policy and medium, beside the published table.
    FsyncBatching(FsyncBatchingArgs),
    /// Asynchronous checkpoint: a load that outruns the log, beside the published table.
    AsyncCheckpoint(AsyncCheckpointArgs),
    /// Merged checkpoints: syncs beside a throttled caller, beside the published figures.
    CheckpointMerge(CheckpointMergeArgs),
    /// Fast commits: with and without them beside the published table, and beside Linux.
    FastCommit(FastCommitArgs),
    /// Lazy inode tables: what zeroing them costs, beside the published table.
    LazyInit(LazyInitArgs),
    /// More and more files, a longer dirty log, a larger volume: what grows and what must not.
    Scale(ScaleArgs),
}

/// `extol bench medium`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol bench medium --profile cloud --size 4G /run/medium &",
        "losetup --find --show --direct-io=on /run/medium/disk       (prints /dev/loop0)",
        "mkfs.ext4 /dev/loop0 && mount /dev/loop0 /mnt",
        "cat /run/medium/stats",
        "extol bench medium --profile sata:cache=0 /run/medium",
        "extol bench medium --profile custom:latency=200us,bandwidth=100M,depth=16,flush=1ms,seek=8ms /run/medium",
    ),
    long_about = "Serve an emulated medium as a file, for a loop device.\n\n\
        On DIR appear two files: disk, the medium, and stats, what it was asked so far (JSON). Every read, write and \
        fsync of disk takes as long as it would on the medium. A loop device on it, with direct I/O, passes the requests \
        of a file system on as they are: flushes become flushes, discards discards. So Linux's ext4 can be measured on the \
        medium on which Extol is measured.\n\n\
        Stays in the foreground and prints one line when the medium is there. Ends when DIR is unmounted, or with \
        SIGTERM or SIGINT; if the medium is in use then, it ends when the last user has closed it, or with a second \
        signal at once. What was in memory is gone then.\n\n\
        Profiles: sata (7200 rpm disk with a write cache), raid (array with a battery), cloud (network disk), nvme, \
        ramdisk (no time added), custom (as ramdisk). After a colon, numbers can be changed: latency=, flush= (80us, \
        1.5ms), bandwidth= (bytes per second: 100M), depth=, iops=, burst=, fua=native|flush, discard=on|off, \
        zero=fast|write, and for moving parts seek=, rpm=, media= (bytes per second), spindles=, cache= (bytes), \
        protected=on|off. docs/emulated-media.md says what each means."
)]
pub struct BenchMediumArgs {
    /// What the medium is like: a name, and changes after a colon.
    #[arg(long, value_name = "PROFILE")]
    pub profile: String,
    /// Size: 512M, 4G [default: that of the backing file, or 4G].
    #[arg(long, value_name = "SIZE")]
    pub size: Option<String>,
    /// Keep the contents in this file or block device, not in memory. A file that does not exist is
    /// made, and stays.
    #[arg(long, value_name = "FILE")]
    pub backing: Option<PathBuf>,
    /// End when standard input ends.
    #[arg(long, hide = true)]
    pub until_eof: bool,
    /// Where to mount; made, and removed in the end, if it does not exist.
    pub dir: PathBuf,
}

/// `extol bench noop`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!("extol bench noop /mnt &", "time sh -c 'cd /mnt && mkdir d && touch d/file && rm -r d'"),
    long_about = "Serve a file system that does nothing: names and inodes in memory, sizes without data.\n\n\
        It is mounted as Extol's mounts are, and says what FUSE allows. What is written reads as zeros, and all is gone after \
        the unmount. Stays in the foreground; ends when DIR is unmounted, or with SIGTERM or SIGINT."
)]
pub struct BenchNoopArgs {
    /// Mount options of FUSE (io_uring, max_threads=N, nowriteback_cache ...), separated by commas.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Option<String>,
    /// End when standard input ends.
    #[arg(long)]
    pub until_eof: bool,
    /// Where to mount; made, and removed in the end, if it does not exist.
    pub dir: PathBuf,
}
