//! Arguments of mount and umount.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{ArgAction, Args, ValueHint};
use extol_cli_common::manual;
use extol_vfs::{NumberError, number};

use super::offer;
use super::refused::{Refusal, refused};

/// What `-o` takes, for the manual. (A test asks the parser for each.)
macro_rules! mount_options {
    () => {
        "OPTIONS OF -o:
  ro, rw, noexec, noatime, relatime, strictatime, nodiratime, lazytime, sync, dirsync
        as in mount(8)
  suid, nosuid, dev, nodev, allow_suid, allow_dev
        set-user-id programs, and device files, work or do not; the last word counts [nosuid,
        nodev]. mount(8) and fstab pass suid and dev on as allow_suid and allow_dev only
  user, users, owner, group
        nosuid and nodev, and noexec with the first two, unless a later word takes that off
  allow_other, noallow_other
        for all users (the default for root), or for the mounting user alone
  allow_root
        for the mounting user and root
  uid=ID, gid=ID, umask=MASK
        show this owner and group for all files, and all permissions but these (octal); the volume
        keeps its own, new files belong to the user that makes them, and access lists do not count
  fakeroot
        no permissions are checked: the mounting user has the rights of root on the volume, and of
        others none but root is let in; for an image whose files belong to root
  allow_idmap
        bind mounts of this one may map owners (X-mount.idmap, Linux 6.12); the owner of a file
        then decides about the use of reserved blocks
  max_threads=N
        most threads that serve requests of /dev/fuse [64]
  io_uring, noio_uring
        requests come over io_uring instead of /dev/fuse, or do not [where the kernel offers it:
        Linux 6.14, switched on by \"echo Y > /sys/module/fuse/parameters/enable_uring\"]
  key=FILE
        a key of encrypted files: FILE has its raw bytes, 16 to 64, and nothing else; may be
        repeated
  untrusted
        ro, nosuid, nodev and noexec, whatever other options say; the volume is checked first,
        and the mount fails without a sandbox
  writeback_cache, nowriteback_cache
        the kernel gathers small writes before it sends them, or does not [off]: faster for
        programs that write a few bytes at a time, but a full volume shows only at close(2) or
        fsync(2), and blocks and times of a file that is being written are old
  loop
        mount an image through a loop device, so that syncfs(2) reaches the daemon and umount(8)
        waits for it
  offset=BYTES, sizelimit=BYTES
        mount a part of an image or of a device; with loop, the loop device shows that part. Of a
        partition its number or name is enough: disk.img:2
  expand=BYTES
        most bytes of a compressed image (gzip, xz, zstd) when it is expanded [64g]
  backing=auto|none|FILE
        which backing files of a qcow2 image are opened: those beside it that have its owner, none,
        or this one [auto; with untrusted none]
  norecovery, noload
        leave the journal as it is; means ro
  nommp
        open a volume with multi-mount protection at once, without a claim: only if no other host
        can reach it
  data=ordered|writeback|journal, commit=SECONDS, barrier, nobarrier, journal_async_commit,
  journal_checksum, journal_path=FILE, errors=continue|remount-ro|panic, discard, delalloc,
  nodelalloc, acl, noacl, user_xattr, nouser_xattr, grpid, nogrpid, minixdf, bsddf, resuid=ID,
  resgid=ID, usrquota, grpquota, prjquota, noquota, sb=N
        as in ext4(5)
  cache_mb=N
        MiB of metadata in memory [192]
  dirty_mb=N
        MiB of file data that is not yet written [64]
  data_cache_mb=N
        MiB of clean file data that Extol caches [0: the kernel caches it; 64 without a mount]
  inode_cache=N
        inodes in memory [16384]
  readahead_kb=N
        most KiB to read ahead without a mount, 0 for off [4096]
  direct, nodirect
        with O_DIRECT, or without [with, where it can]
  fast_commit, nofast_commit
        fsync by a few records in place of a whole commit [on if the volume has the feature]
  min_batch_time=MICROSECONDS, max_batch_time=MICROSECONDS
        how long an fsync waits for others to share its commit, at least and at most [0, 15000]
  fua=auto|never|always
        fast commits by FUA in place of a flush: where the device has FUA, never, wherever they
        can [auto]
  async_checkpoint, async_checkpoint=PERCENT, noasync_checkpoint
        checkpoint in the background as soon as less of the log is free [off; 50]
  checkpoint=merge|nomerge, checkpoint_merge, nocheckpoint_merge, ckpt_thread_ioprio=CLASS:LEVEL,
  journal_ioprio=LEVEL
        whether sync and checkpoint requests share one operation, and I/O priorities [merge,
        be:3, 3]
  init_itable, init_itable=N, noinit_itable
        zero inode tables that mkfs has left, waiting N times as long as one group takes [10]
  kernel, cache_size=SIZE
        as in fuse2fs: allow_other, suid and dev; cache_mb in bytes
  metrics=ADDR, x-extol.metrics=ADDR
        as --metrics

Options of libfuse and fuse2fs (kernel_cache, auto_cache, big_writes, fsname= ...) are taken as
well, so that scripts need no change; most have no effect.

"
    };
}

/// Mount a volume on a directory.
#[derive(Args, Debug)]
#[command(
    after_long_help = concat!(mount_options!(), manual!(
        "extol mount disk.img /mnt",
        "extol mount -o ro,noload /dev/sdb1 /mnt",
        "extol mount -f -v -o commit=30,errors=remount-ro disk.img /mnt",
        "extol mount --metrics 127.0.0.1:9184 disk.img /mnt",
        "curl http://127.0.0.1:9184/metrics",
        "mount -t fuse.extol /dev/sdb1 /mnt",
        "/dev/sdb1 /mnt fuse.extol defaults,noatime 0 2      (in /etc/fstab)",
    )),
    long_about = "Mount a volume on a directory.\n\n\
        SOURCE is a disk image or a block device with an ext2, ext3 or ext4 file system. The \
        command returns when the mount answers; a process in the background serves it until it is \
        unmounted (extol umount, umount, fusermount3 -u) or gets SIGTERM or SIGINT.\n\n\
        Root's mounts are open to all users, and permissions are checked by the kernel. Ordinary \
        users mount through fusermount3, for themselves unless allow_other is given.\n\n\
        fsync(2) makes a file durable. sync(1) and syncfs(2) reach a mount of a block device that \
        root has made, and of an image with -o loop. Linux does not pass them on to other mounts: \
        there all is durable after `extol sync`, or within about ten seconds (commit=)."
)]
pub struct MountArgs {
    /// Mount options, separated by commas: those of mount(8), of FUSE, of ext4, and some of Extol's
    /// own. The list is below.
    #[arg(short = 'o', value_name = "OPTIONS", action = ArgAction::Append,
        value_parser = offer::bytes(offer::MOUNT), hide_possible_values = true)]
    pub options: Vec<OsString>,
    /// Stay in the foreground.
    #[arg(short = 'f', long)]
    pub foreground: bool,
    /// Mount read-only; the same as -o ro.
    #[arg(short = 'r', long, conflicts_with = "read_write")]
    pub read_only: bool,
    /// Mount read-write or not at all. (By default a source that is write-protected is mounted
    /// read-only, with a warning.)
    #[arg(short = 'w', long)]
    pub read_write: bool,
    /// Print each step.
    #[arg(short, long)]
    pub verbose: bool,
    /// Serve counters for Prometheus at http://ADDR/metrics while it is mounted (HOST:PORT, or
    /// :PORT for this machine alone; port 0 is any free one, which is printed). The same as -o
    /// metrics=ADDR.
    #[arg(long, value_name = "ADDR", value_hint = ValueHint::Other)]
    pub metrics: Option<String>,
    /// One thread serves requests, of /dev/fuse; the same as -o max_threads=1,noio_uring.
    #[arg(short = 's', long)]
    pub single_thread: bool,
    /// As with libfuse: stay in the foreground, and print each step.
    #[arg(short = 'd', long)]
    pub debug: bool,
    /// Type of the volume: ext2, ext3, ext4, extol or auto. It is found out anyway.
    #[arg(short = 't', long = "types", value_name = "TYPE",
        value_parser = offer::text(offer::TYPES), hide_possible_values = true)]
    pub kind: Option<String>,
    /// Mount the volume with this label; the same as LABEL= in place of SOURCE.
    #[arg(short = 'L', long, value_name = "LABEL", conflicts_with = "uuid", value_hint = ValueHint::Other)]
    pub label: Option<OsString>,
    /// Mount the volume with this UUID; the same as UUID= in place of SOURCE.
    #[arg(short = 'U', long, value_name = "UUID", value_hint = ValueHint::Other)]
    pub uuid: Option<OsString>,
    /// Serve the mount that another process has made of this descriptor of /dev/fuse, with
    /// mount(2), wherever that is. This daemon will not unmount it.
    #[arg(long, value_name = "N", value_parser = super::descriptor,
        allow_negative_numbers = true)]
    pub fd: Option<u32>,
    /// Leave the daemon all rights of its caller, for a debugger.
    #[arg(long)]
    pub no_sandbox: bool,
    /// The environment is clean.
    #[arg(long, hide = true)]
    pub clean: bool,
    /// Announce on standard output that the mount answers, then leave the terminal.
    #[arg(long, hide = true)]
    pub announce: bool,
    /// The source as it was typed, for messages.
    #[arg(long, hide = true, value_name = "NAME")]
    pub named: Option<String>,
    /// The directory as it was typed, for messages.
    #[arg(long, hide = true, value_name = "NAME")]
    pub named_dir: Option<OsString>,
    #[command(flatten)]
    pub refused: MountRefused,
    /// Disk image, block device, or LABEL=, UUID=, PARTLABEL=, PARTUUID= of one.
    pub source: PathBuf,
    /// Directory to mount on. /dev/fd/N is the same as --fd N, which needs no directory.
    #[arg(required_unless_present_any = ["fd", "label", "uuid"])]
    pub dir: Option<PathBuf>,
}

/// Options of mount(8) that are not for Extol, or have no effect.
#[derive(Args, Debug)]
pub struct MountRefused {
    /// Nothing is written to /etc/mtab.
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    #[arg(short = 'a', hide = true)]
    all: bool,
    #[arg(short = 'B', long = "bind", hide = true)]
    bind: bool,
    #[arg(short = 'R', long = "rbind", hide = true)]
    rbind: bool,
    #[arg(short = 'M', long = "move", hide = true)]
    moved: bool,
    #[arg(short = 'N', long = "namespace", hide = true)]
    namespace: Option<OsString>,
    #[arg(short = 'O', hide = true)]
    only: Option<OsString>,
    #[arg(short = 'T', long = "fstab", hide = true)]
    fstab: Option<OsString>,
    #[arg(short = 'F', hide = true)]
    fork: bool,
    #[arg(short = 'c', hide = true)]
    as_it_is: bool,
    #[arg(short = 'i', hide = true)]
    without_helper: bool,
    #[arg(short = 'l', hide = true)]
    list: bool,
    #[arg(short = 'm', long = "mkdir", hide = true)]
    mkdir: bool,
}

impl MountRefused {
    /// The line for the first of them that was given.
    pub fn check(&self) -> extol_cli_common::Result<()> {
        let by_mount = "that is for mount(8), which calls Extol for lines of type fuse.extol";
        let not_a_volume = "it is about a mount that is there: use mount(8)";
        refused(&[
            Refusal(self.all, "-a", by_mount),
            Refusal(self.only.is_some(), "-O", by_mount),
            Refusal(self.fstab.is_some(), "-T", by_mount),
            Refusal(self.fork, "-F", by_mount),
            Refusal(self.without_helper, "-i", "Extol is the helper"),
            Refusal(self.bind, "-B", not_a_volume),
            Refusal(self.rbind, "-R", not_a_volume),
            Refusal(self.moved, "-M", not_a_volume),
            Refusal(self.namespace.is_some(), "-N", "use nsenter --mount=FILE extol mount ..."),
            Refusal(self.as_it_is, "-c", "paths are always resolved"),
            Refusal(self.list, "-l", "use findmnt -t fuse.extol,fuseblk.extol"),
            Refusal(self.mkdir, "-m", "make the directory first: mkdir -p DIR"),
        ])
    }
}

/// Numbers of mounts, which are for parts of this program.
fn mount_number(text: &str) -> Result<u64, NumberError> {
    number::count(text, 0..=u64::MAX)
}

/// `extol mount-monitor`, a part of a mount: see `monitor.rs`.
#[derive(Args, Debug)]
pub struct MonitorArgs {
    /// Where it is mounted.
    pub dir: PathBuf,
}

/// `extol mount-connector`, a part of a mount: see `connector.rs`.
#[derive(Args, Debug)]
pub struct ConnectorArgs {
    /// The address of the server.
    pub address: PathBuf,
}

/// Unmount, and wait until everything is written.
#[derive(Args, Debug, Default)]
#[command(
    visible_alias = "unmount",
    after_long_help = manual!(
        "extol umount /mnt",
        "extol umount --timeout 10 /mnt /data",
        "extol umount disk.img && e2fsck -fn disk.img",
    ),
    long_about = "Unmount, and wait until everything is written.\n\n\
        umount(8) and fusermount3 -u return before the daemon has closed the volume. This command \
        returns when the daemon has ended, so that the volume may be checked, copied or mounted \
        elsewhere at once, and it fails with what the daemon has to say if something could not be \
        written. A mount in use is tried for half a second, or for as long as --timeout says; then \
        the processes that use it are named, and it stays mounted. A wait of more than a second \
        says for what: a file system ends with its last mount in all mount namespaces.\n\n\
        DIR may also be the image or the device. A mount whose daemon has died is taken away."
)]
pub struct UmountArgs {
    /// Detach the mount now; it ends when the last file on it is closed. Does not wait.
    #[arg(short, long, short_alias = 'z')]
    pub lazy: bool,
    /// End the mount though it is in use or its daemon does not answer: programs that use it get
    /// errors, and what the kernel has not written back within a second is lost.
    #[arg(short, long, conflicts_with = "lazy")]
    pub force: bool,
    /// Wait at most so long, also for files to be closed [default: half a second for these, and any
    /// time for the daemon].
    #[arg(long, value_name = "SECONDS", value_parser = super::mounted::timeout,
        allow_negative_numbers = true)]
    pub timeout: Option<f64>,
    /// Say what was unmounted.
    #[arg(short, long)]
    pub verbose: bool,
    /// Be silent about what is not mounted. (The exit code stays.)
    #[arg(short, long)]
    pub quiet: bool,
    /// For the daemon of the mount with this number: do not wait for it, and give the reason as the
    /// exit code.
    #[arg(long, hide = true, value_name = "NUMBER", value_parser = mount_number)]
    pub serving: Option<u64>,
    /// Print the number of the daemon on standard error instead.
    #[arg(long, hide = true)]
    pub tell_daemon: bool,
    /// Unmount the first of two paths from the second if it has been mounted there since, unless
    /// standard input cancels that: the numbers of the mounts that were there before.
    #[arg(long, hide = true, value_name = "NUMBERS")]
    pub start_cleanup: Option<String>,
    #[command(flatten)]
    pub refused: UmountRefused,
    /// Where it is mounted, or what.
    #[arg(required = true, value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
}

/// Options of umount(8) and fusermount3 that are not for Extol, or have no effect.
#[derive(Args, Debug, Default)]
pub struct UmountRefused {
    /// Nothing is written to /etc/mtab.
    #[arg(short = 'n', hide = true)]
    no_mtab: bool,
    /// Paths are resolved where they can be.
    #[arg(short = 'c', hide = true)]
    as_it_is: bool,
    /// A loop device of -o loop goes with its mount.
    #[arg(short = 'd', hide = true)]
    detach_loop: bool,
    /// No helper is called.
    #[arg(short = 'i', hide = true)]
    without_helper: bool,
    /// What fusermount3 does with it.
    #[arg(short = 'u', hide = true)]
    unmount: bool,
    #[arg(short = 'a', hide = true)]
    all: bool,
    #[arg(short = 'A', hide = true)]
    all_targets: bool,
    #[arg(short = 'R', hide = true)]
    recursive: bool,
    #[arg(short = 'r', hide = true)]
    read_only: bool,
    #[arg(short = 'N', hide = true)]
    namespace: Option<OsString>,
    #[arg(short = 'O', hide = true)]
    only: Option<OsString>,
    #[arg(short = 't', hide = true)]
    kind: Option<OsString>,
}

impl UmountRefused {
    /// The line for the first of them that was given.
    pub fn check(&self) -> extol_cli_common::Result<()> {
        let named = "name the directories";
        refused(&[
            Refusal(self.all, "-a", named),
            Refusal(self.all_targets, "-A", named),
            Refusal(self.only.is_some(), "-O", named),
            Refusal(self.kind.is_some(), "-t", named),
            Refusal(self.recursive, "-R", "unmount what is mounted below it first"),
            Refusal(self.read_only, "-r", "use extol remount -o ro DIR"),
            Refusal(self.namespace.is_some(), "-N", "use nsenter --mount=FILE extol umount ..."),
        ])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use extol::options::table;

    use crate::options::split;

    /// The manual names no option that a mount refuses, and the same options as the guide.
    #[test]
    fn options_are_those_that_exist() {
        let manual = mount_options!();
        let listed =
            manual.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let mut manual_names = BTreeSet::new();
        let mut count = 0;
        for option in listed
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|option| !option.is_empty())
        {
            let (name, values) =
                option.split_once('=').map_or((option, None), |(n, v)| (n, Some(v)));
            for value in values.map_or(vec![""], |values| values.split('|').collect()) {
                let value = match value {
                    "CLASS:LEVEL" => "idle",
                    "FILE" | "ADDR" => "/x",
                    "SIZE" => "5m",
                    upper if upper.chars().any(char::is_uppercase) => "5",
                    word => word,
                };
                let word =
                    if values.is_some() { format!("{name}={value}") } else { name.to_owned() };
                let with =
                    if name.starts_with("no") && name.ends_with(['y', 'd']) { "ro," } else { "" };
                // (Some numbers must be larger.)
                let larger = word.replace("=5", "=64");
                let is_taken = |word| split(&[format!("{with}{word}")], false).is_ok();
                assert!(is_taken(word.clone()) || is_taken(larger), "{word}");
                manual_names.insert(name);
                count += 1;
            }
        }
        assert!(count > 60, "{count}");
        let page = include_str!("../../../../docs/guide/mount-options.md");
        let chapters = page.split("## Accepted without effect").next().unwrap();
        let named: BTreeSet<_> = chapters
            .lines()
            .filter(|line| !line.starts_with("```"))
            .flat_map(|line| line.split('`').skip(1).step_by(2))
            .flat_map(|code| code.split(['|', ',']))
            .map(|code| code.split(['=', '[']).next().unwrap())
            .collect();
        assert!(named.len() > 80, "{}", named.len());
        let missing: Vec<_> = manual_names.difference(&named).collect();
        assert!(missing.is_empty(), "the page of the guide lacks {missing:?}");
        for name in named {
            let is_option = [name.to_owned(), format!("{name}=5"), format!("{name}=64")]
                .into_iter()
                .any(|word| split(&[word], false).is_ok());
            assert!(!is_option || manual.contains(name), "{name}");
        }
    }

    /// The page's rows state value, unit and default as the table of options does.
    #[test]
    fn the_page_is_the_table_of_options() {
        let page = include_str!("../../../../docs/guide/mount-options.md");
        let rows: Vec<Vec<_>> = page
            .lines()
            .filter_map(|line| line.strip_prefix("| `"))
            .map(|row| row.split(" | ").map(str::trim).collect())
            .collect();
        for spec in table() {
            let of_spec = |row: &&Vec<&str>| {
                let (first, _) = row[0].split_once('`').unwrap_or_default();
                spec.names.contains(&first)
            };
            let row = rows.iter().find(of_spec).unwrap_or_else(|| panic!("{:?}", spec.names));
            assert_eq!((row[1], row[2]), (spec.value, spec.default), "{:?}", spec.names);
        }
    }
}
