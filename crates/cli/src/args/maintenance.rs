//! Arguments of the maintenance commands for a mounted volume: sync, checkpoint, freeze, thaw.

use std::path::PathBuf;

use clap::Args;
use extol_cli_common::manual;

/// Make everything on a mounted volume durable.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!("extol sync /mnt", "cp -r photos /mnt && extol sync /mnt"),
    long_about = "Make everything on a mounted volume durable.\n\n\
        This command has the kernel write its dirty pages back to the daemon, waits for them, and \
        then has the daemon commit. When it returns, everything written before it was started is \
        on the device. On a mount of a block device that root has made, and of an image with \
        -o loop, \
        sync(1) and syncfs(2) do the same. On other mounts they send the daemon no request.\n\n\
        Requests of many callers at the same time are answered together by one thread (mount \
        options checkpoint=merge, the default, and checkpoint=nomerge; ckpt_thread_ioprio= sets \
        its I/O priority)."
)]
pub struct SyncArgs {
    /// Directories on mounted volumes.
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
}

/// Write all metadata of a mounted volume to its place, and empty its journal.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol checkpoint /mnt",
        "extol checkpoint --zeroout /mnt     # erases old names from the log",
        "extol checkpoint --discard --dry-run /mnt    # can the device discard?",
    ),
    long_about = "Write all metadata to its place and empty the journal's log.\n\n\
        Makes everything durable as `extol sync` does, writes all that is in the log to its \
        place, and marks the log empty. With --discard or --zeroout the blocks of the log are \
        erased, so that nothing can be read from them any more.\n\n\
        For root (with CAP_SYS_ADMIN) and the user of the mount. Programs can use the ioctl \
        EXT4_IOC_CHECKPOINT, as on a kernel mount."
)]
pub struct CheckpointArgs {
    /// Tell the device that the log's blocks hold nothing.
    #[arg(long, conflicts_with = "zeroout")]
    pub discard: bool,
    /// Write zeros over the log's blocks.
    #[arg(long)]
    pub zeroout: bool,
    /// Only check whether it can be done.
    #[arg(long)]
    pub dry_run: bool,
    /// A directory on a mounted volume.
    pub dir: PathBuf,
}

/// Stop all changes to a mounted volume.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol freeze /mnt && cp disk.img copy.img; extol thaw /mnt",
        "extol freeze /mnt && lvcreate -s -L 1G /dev/vg/data; extol thaw /mnt",
    ),
    long_about = "Stop all changes to a mounted volume until `extol thaw`.\n\n\
        Everything is written, the log is emptied and the volume marked clean; from then on \
        nothing is written to the device, so a copy or snapshot of it needs no recovery. Reading \
        works; programs that write wait. An unmount ends the freeze.\n\n\
        For root (with CAP_SYS_ADMIN) and the user of the mount. fsfreeze(8) cannot do this: the \
        kernel does not send it to FUSE."
)]
pub struct FreezeArgs {
    /// A directory on a mounted volume.
    pub dir: PathBuf,
}

/// End a freeze.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!("extol thaw /mnt"),
    long_about = "End a freeze: programs that wait go on.\n\n\
        For root (with CAP_SYS_ADMIN) and the user of the mount."
)]
pub struct ThawArgs {
    /// A directory on the frozen volume.
    pub dir: PathBuf,
}
