//! Arguments of what serves a mount for other programs.

use std::path::PathBuf;

use clap::Args;
use extol_cli_common::manual;

/// Serve an emulated medium (disk, array, network disk) as a file, for a loop device (needs FUSE).
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol-bench medium --profile cloud --size 4G /run/medium &",
        "losetup --find --show --direct-io=on /run/medium/disk       (prints /dev/loop0)",
        "mkfs.ext4 /dev/loop0 && mount /dev/loop0 /mnt",
        "cat /run/medium/stats",
        "extol-bench medium --profile sata:cache=0 /run/medium",
        "extol-bench medium --profile \
            custom:latency=200us,bandwidth=100M,depth=16,flush=1ms,seek=8ms /run/medium",
    ),
    long_about = "Serve an emulated medium as a file, for a loop device.\n\n\
        On DIR appear two files: disk, the medium, and stats, what it was asked so far (JSON). \
        Every read, write and fsync of disk takes as long as it would on the medium. A loop device \
        on it, with direct I/O, passes the requests of a file system on as they are: flushes \
        become flushes, discards discards. So Linux's ext4 can be measured on the medium on which \
        Extol is measured.\n\n\
        Stays in the foreground and prints one line when the medium is there. Ends when DIR is \
        unmounted, or with SIGTERM or SIGINT; if the medium is in use then, it ends when the last \
        user has closed it, or with a second signal at once. What was in memory is gone then.\n\n\
        Profiles: sata (7200 rpm disk with a write cache), raid (array with a battery), cloud \
        (network disk), nvme, ramdisk (no time added), custom (as ramdisk). After a colon, numbers \
        can be changed: latency=, flush= (80us, 1.5ms), bandwidth= (bytes per second: 100M), \
        depth=, iops=, burst=, fua=native|flush, discard=on|off, zero=fast|write, and for moving \
        parts seek=, rpm=, media= (bytes per second), spindles=, cache= (bytes), protected=on|off. \
        docs/emulated-media.md says what each means."
)]
pub struct MediumArgs {
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

/// Serve a file system that does nothing.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!("extol-bench noop /mnt \
        &", "time sh -c 'cd /mnt && mkdir d && touch \
        d/file && rm -r d'"),
    long_about = "Serve a file system that does nothing: names and inodes in memory, sizes without \
        data.\n\n\
        It is mounted as Extol's mounts are, and says what FUSE allows. What is written reads as \
        zeros, and all is gone after the unmount. Stays in the foreground; ends when DIR is \
        unmounted, or with SIGTERM or SIGINT."
)]
pub struct NoopArgs {
    /// Mount options of FUSE (io_uring, max_threads=N, nowriteback_cache ...), separated by commas.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Option<String>,
    /// End when standard input ends.
    #[arg(long)]
    pub until_eof: bool,
    /// Where to mount; made, and removed in the end, if it does not exist.
    pub dir: PathBuf,
}

/// The part of a server's end that a child does.
#[derive(Args, Debug)]
pub struct UnmountArgs {
    /// Out of sight at once; it ends when its last file is closed.
    #[arg(long)]
    pub lazy: bool,
    /// Where it is mounted.
    pub dir: PathBuf,
}
