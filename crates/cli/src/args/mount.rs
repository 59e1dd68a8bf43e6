//! Arguments of the commands for mounts: mount, umount.

use std::path::PathBuf;

use clap::{ArgAction, Args};

/// `extol mount`.
#[derive(Args, Debug)]
#[command(
    after_long_help = manual!(
        "extol mount disk.img /mnt",
        "extol mount -o ro,noload /dev/sdb1 /mnt",
        "extol mount -f -v -o commit=30,errors=remount-ro disk.img /mnt",
        "extol mount --metrics 127.0.0.1:9184 disk.img /mnt && curl http://127.0.0.1:9184/metrics",
        "mount -t fuse.extol /dev/sdb1 /mnt",
        "/dev/sdb1  /mnt  fuse.extol  defaults,noatime  0  2        (in /etc/fstab)",
    ),
    long_about = "Mount a volume on a directory.\n\n\
        SOURCE is a disk image or a block device with an ext2, ext3 or ext4 file system. The command returns when \
        the mount answers; a process in the background serves it until it is unmounted (extol umount, umount, \
        fusermount3 -u) or gets SIGTERM or SIGINT.\n\n\
        Root's mounts are open to all users, and permissions are checked by the kernel. Ordinary users mount \
        through fusermount3, for themselves unless allow_other is given.\n\n\
        fsync(2) makes a file durable. sync(1) and syncfs(2) do not reach FUSE file systems: what they leave is durable \
        after the commit interval (commit=, 5 seconds), or at once after `extol sync` or an fsync of the root directory."
)]
pub struct MountArgs {
    /// Mount options, separated by commas: those of mount(8) (ro, nosuid, noatime ...), of FUSE (allow_other,
    /// noallow_other, max_threads=N, nowriteback_cache, io_uring), and of ext4 (data=, commit=, errors=, barrier,
    /// norecovery, journal_path= ...).
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append)]
    pub options: Vec<String>,
    /// Stay in the foreground.
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Mount read-only; the same as -o ro.
    #[arg(short = 'r', long, conflicts_with = "read_write")]
    pub read_only: bool,
    /// Mount read-write (the default).
    #[arg(short = 'w', long)]
    pub read_write: bool,
    /// Say what happens.
    #[arg(short, long)]
    pub verbose: bool,
    /// Serve counters for Prometheus at http://ADDR/metrics while it is mounted (HOST:PORT, or :PORT for this machine
    /// alone; port 0 is any free one, which is printed). The same as -o x-extol.metrics=ADDR.
    #[arg(long, value_name = "ADDR")]
    pub metrics: Option<String>,
    /// Announce on standard output that the mount answers, then leave the terminal.
    #[arg(long, hide = true)]
    pub announce: bool,
    /// Disk image or block device.
    pub source: PathBuf,
    /// Directory to mount on.
    pub dir: PathBuf,
}

/// `extol umount`.
#[derive(Args, Debug)]
#[command(
    visible_alias = "unmount",
    after_long_help = manual!("extol umount /mnt", "extol umount /mnt && e2fsck -fn disk.img"),
    long_about = "Unmount, and wait until everything is written.\n\n\
        umount(8) and fusermount3 -u return before the daemon has closed the volume. This command returns when the \
        daemon has ended, so that the volume may be checked, copied or mounted elsewhere at once."
)]
pub struct UmountArgs {
    /// Take the mount out of sight now; it ends when the last file on it is closed. Does not wait.
    #[arg(short, long)]
    pub lazy: bool,
    /// The daemon itself asks: do not wait for it, and tell it by the exit code if the mount is in use.
    #[arg(long, hide = true)]
    pub serving: bool,
    /// Where it is mounted.
    #[arg(required = true)]
    pub dirs: Vec<PathBuf>,
}
