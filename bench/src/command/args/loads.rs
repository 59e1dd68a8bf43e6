//! The loads, under the names of the tools that they come from, and what takes part in them.

use std::time::Duration;

use clap::{Args, Subcommand};
use extol_bench::contender::{Contender, Medium};
use extol_bench::workload::{
    Dbench, FsMark, FsyncLatency, Logs, Metadata, PostMark, Rand, Seq, Untar, VarMail, Workload,
    seconds,
};
use extol_cli_common::{Failure, Result, manual};

use super::place::PlaceArgs;

const TARGETS: &str = "Each --target takes its turn in every round, on a fresh volume; the \
ratio is to the first one:\n  \
library[:OPTIONS]  Extol in this process\n  \
node[:OPTIONS]     the same on the block device that mounts get (root, loop device)\n  \
nfs[:OPTIONS]      a client of NFS on an export of such a volume; with delay_us=N each call takes \
that long in the network\n  \
server:ADDRESS     the same on a server that is there: HOST:PORT[,delay_us=N]; clear its directory \
yourself\n  \
mount[:OPTIONS]    Extol, mounted (root, FUSE)\n  \
before[:OPTIONS]   the build of --extol-before, mounted (root, FUSE)\n  \
kernel[:OPTIONS]   the kernel's ext4 (root, loop device); with dirty_mb=N it may keep that much \
dirty for the device, as on a machine whose memory is full\n  \
fuse2fs[:OPTIONS]  e2fsprogs' FUSE driver (root, loop device)\n  \
noop[:OPTIONS]     a FUSE file system that does nothing: what FUSE allows (FUSE)\n  \
raw                the bare block device that mounts get: what the medium allows (root, loop \
device)\n  \
DIR                a directory of whatever is mounted there; a name with a / in it\n\n\
OPTIONS are mount options. The result is the median of the rounds, with latencies (p50, p99, \
p99.9, max), and what one operation cost: processor time, bytes and flushes sent to the device, \
transactions.";

/// What takes part in a load, where, and how often.
#[derive(Args, Debug)]
pub struct TargetArgs {
    /// What takes part: library, node, nfs, mount, before, kernel, fuse2fs, noop (each with
    /// :OPTIONS), raw, server:ADDRESS, or a directory.
    #[arg(
        long = "target",
        value_name = "TARGET",
        default_value = "library",
        value_parser = Contender::parse
    )]
    pub targets: Vec<Contender>,
    /// What volumes lie on: image, memory, a block device or the address of one (nbd://; it is
    /// overwritten), or an emulated sata, raid, cloud, nvme or ramdisk.
    #[arg(long, default_value = "image", value_parser = Medium::parse)]
    pub medium: Medium,
    /// Size of the log in MiB [default: as mkfs decides].
    #[arg(long, value_name = "MIB")]
    pub log: Option<u32>,
    /// Features of the volume, as for mkfs: fast_commit, ^metadata_csum ...
    #[arg(short = 'O', value_name = "FEATURES")]
    pub features: Vec<String>,
    /// End each run after so many seconds.
    #[arg(long, value_parser = seconds)]
    pub seconds: Option<Duration>,
    #[command(flatten)]
    pub place: PlaceArgs,
}

/// A load, whose parameters are the fields of its type, and its targets.
#[derive(Args, Debug)]
pub struct LoadArgs<L: Args> {
    #[command(flatten)]
    load: L,
    #[command(flatten)]
    targets: TargetArgs,
}

/// The loads.
#[derive(Subcommand, Debug)]
pub enum LoadCommand {
    /// Single calls on names and inodes, phase by phase.
    #[command(
        after_long_help = manual!(
            "extol-bench metadata --threads 8",
            "sudo extol-bench metadata --target mount --target noop --target kernel --target \
            fuse2fs --html metadata.html",
            "extol-bench metadata --threads 2 --files 20000 --shared --medium memory",
        ),
        long_about = format!("Storms of single calls on names and inodes, phase by phase, \
        without a sync: create, create with 4 KiB, stat, readdir, chmod, rename, link, symlink, \
        mkdir, rmdir, unlink, rm -rf.\n\n\
        Each phase is shown with its rate, latency and processor time, and the ratio of the first \
        target to every other. What a kernel answers from its cache is measured like all else. \
        Phases of a few milliseconds say little: without --seconds all is done again until create, \
        stat and unlink have lasted 0.3 seconds each.\n\n\
        {TARGETS}")
    )]
    Metadata(LoadArgs<Metadata>),
    /// Bulk data: written, made durable, read with empty caches.
    #[command(
        after_long_help = manual!(
            "extol-bench seq --size 1G --target library",
            "sudo extol-bench seq --target mount --target kernel --target fuse2fs --target raw",
            "sudo extol-bench seq --bs 64k --numjobs 4 --direct --target node --target raw \
            --medium /dev/vdb",
        ),
        long_about = format!("Bulk data: write a file from its beginning to its end, make it \
        durable, mount the volume again, and read it with empty caches. Options are named as \
        fio's. MB are millions of bytes. A run goes to its end, whatever --seconds says.\n\n\
        {TARGETS}")
    )]
    Seq(LoadArgs<Seq>),
    /// Small reads and writes at random places.
    #[command(
        after_long_help = manual!(
            "sudo extol-bench rand --rw randread --direct --iodepth 16 --target mount --target \
            kernel --target raw",
            "sudo extol-bench rand --rw randwrite --numjobs 32 --direct --fdatasync 1 --size 16M \
            --seconds 5 --target raw",
            "extol-bench rand --rw randrw --size 64M --seconds 2 --medium memory",
        ),
        long_about = format!("Small reads and writes at random places of a file, which is laid out \
        beforehand; caches are empty when it begins. Options are named as fio's.\n\n\
        {TARGETS}")
    )]
    Rand(LoadArgs<Rand>),
    /// A tree of source code, written as a tar extractor does.
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
    Untar(LoadArgs<Untar>),
    /// Files of one size, as fs_mark makes them.
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
    Fsmark(LoadArgs<FsMark>),
    /// Clients of a file server, as dbench plays them.
    #[command(
        after_long_help = manual!(
            "extol-bench dbench --clients 10 --seconds 10",
            "sudo extol-bench dbench --clients 2 --seconds 10 -O fast_commit --target mount \
            --target kernel",
            "sudo extol-bench dbench --loadfile /usr/share/dbench/client.txt --clients 10 \
            --seconds 30 --target mount --target fuse2fs",
        ),
        long_about = format!("Clients of a file server, with the steps of dbench's client.txt in \
        its proportions: of 100 opens 20 make a file and 27 find nothing; with them go 50 \
        writes, 158 reads, 91 stats, 35 listings, 20 removals, 7 fsyncs, 4 renames. With \
        --loadfile the lines of that file are what clients do. The rate is bytes read and \
        written, in thousands per second.\n\n\
        {TARGETS}")
    )]
    Dbench(LoadArgs<Dbench>),
    /// Many small files, as PostMark makes them.
    #[command(
        after_long_help = manual!(
            "extol-bench postmark --number 5000 --transactions 5000",
            "sudo extol-bench postmark --size 1000,200000 --read 4096 --write 4096 --target mount \
            --target kernel",
        ),
        long_about = format!("Make, read, append to and remove small files, as PostMark does.\n\n\
        {TARGETS}")
    )]
    Postmark(LoadArgs<PostMark>),
    /// A mail server that syncs, as filebench's varmail.
    #[command(
        after_long_help = manual!(
            "extol-bench varmail --seconds 10",
            "sudo extol-bench varmail --threads 4 --seconds 10 --target mount --target kernel \
            --target fuse2fs",
        ),
        long_about = format!("A mail server that syncs, as filebench's personality of that name: \
        16 threads remove, make, append, fsync and read files of 16 KiB on average.\n\n\
        {TARGETS}")
    )]
    Varmail(LoadArgs<VarMail>),
    /// Logs that grow side by side by small synced pieces.
    #[command(
        after_long_help = manual!(
            "extol-bench logs -n 4 -O fast_commit",
            "extol-bench logs -t 4 -n 8 -s 2000 --close --seconds 5 -O fast_commit --medium cloud",
            "sudo extol-bench logs -t 2 -n 1 --seconds 5 -O fast_commit --target mount --target \
                kernel",
        ),
        long_about = format!("Logs that grow side by side: each thread goes round its logs, \
        appends a piece to each and syncs it, as databases do with their logs, and with --close \
        as mail servers do with mailboxes.\n\n\
        {TARGETS}")
    )]
    Logs(LoadArgs<Logs>),
    /// How long a small durable write takes, alone and beside a heavy writer.
    #[command(
        after_long_help = manual!(
            "extol-bench fsync-latency --seconds 10",
            "sudo extol-bench fsync-latency --medium /dev/vdb --target mount --target kernel \
            --html latency.html",
        ),
        long_about = format!("How long a write of 4 KiB and an fsync take, alone and beside a \
        heavy writer that never syncs.\n\n\
        {TARGETS}")
    )]
    FsyncLatency(LoadArgs<FsyncLatency>),
}

impl LoadCommand {
    /// The load and its targets.
    pub fn parts(&self) -> (&dyn Workload, &TargetArgs) {
        match self {
            Self::Metadata(args) => (&args.load, &args.targets),
            Self::Seq(args) => (&args.load, &args.targets),
            Self::Rand(args) => (&args.load, &args.targets),
            Self::Untar(args) => (&args.load, &args.targets),
            Self::Fsmark(args) => (&args.load, &args.targets),
            Self::Dbench(args) => (&args.load, &args.targets),
            Self::Postmark(args) => (&args.load, &args.targets),
            Self::Varmail(args) => (&args.load, &args.targets),
            Self::Logs(args) => (&args.load, &args.targets),
            Self::FsyncLatency(args) => (&args.load, &args.targets),
        }
    }

    /// Says what does not fit together.
    ///
    /// # Errors
    /// One line.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Seq(LoadArgs { load, .. }) => check_sizes(load.size, load.block, load.direct),
            Self::Rand(LoadArgs { load, .. }) => check_sizes(load.size, load.block, load.direct),
            _ => Ok(()),
        }
    }
}

/// Sizes of direct I/O are whole sectors of every medium.
fn check_sizes(bytes: u64, block: usize, direct: bool) -> Result<()> {
    const PAGE: u64 = 4096;
    if block as u64 > bytes {
        return Err(Failure::usage("--bs must be at most --size"));
    }
    if direct && !(bytes.is_multiple_of(PAGE) && (block as u64).is_multiple_of(PAGE)) {
        return Err(Failure::usage("with --direct, --size and --bs must be multiples of 4k"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_fit_together() {
        assert!(check_sizes(1 << 20, 4096, true).is_ok());
        assert!(check_sizes((1 << 20) + 1, 64 << 10, false).is_ok());
        assert!(check_sizes(4096, 8192, false).is_err());
        assert!(check_sizes(1 << 20, 1000, true).is_err());
    }
}
