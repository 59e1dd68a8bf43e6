//! `extol remount`, and what mount(8) makes of `mount -o remount`.
//!
//! Two sides have to agree: the kernel (read-only or not, `nosuid`, `noatime` …) and the daemon
//! (everything that ext4 has). The kernel goes first: it alone knows whether a file is open for
//! writing, and before it goes read-only it writes back what it holds. If the daemon then refuses,
//! the kernel's flags are put back, so a refusal changes nothing. (While they differ, the daemon
//! answers EROFS.)

use std::ffi::{OsStr, OsString};
use std::path::Path;

use extol_cli_common::{Failure, Result, warn};
use extol_fuse::{MountConfig, MountFlags, control};
use extol_proc::{Mount, Process, Shown as _};

use crate::args::RemountArgs;
use crate::as_typed::as_typed;
use crate::mount_table::{is_top, mount_entry};
use crate::mounted::{MountedVolume, owner_alone};
use crate::volume::VolumeOptions;
use crate::{options, umount};

/// `extol remount`.
pub fn run(args: &RemountArgs) -> Result<()> {
    if let Some(id) = args.serving {
        return make_read_only(&args.dir, id);
    }
    if args.options.is_empty() {
        return Err(Failure::usage("no options: give them with -o (see extol remount --help)"));
    }
    remount(&args.dir, &args.options, &How { verbose: args.verbose, ..How::default() })
}

/// How options are changed.
#[derive(Clone, Copy, Default, Debug)]
pub struct How {
    /// Unknown options are passed over.
    pub sloppy: bool,
    /// Only say whether it could be done.
    pub fake: bool,
    /// Say what is in force afterwards.
    pub verbose: bool,
    /// The list has what the volume was mounted with, as mount(8) takes it from fstab: options that
    /// cannot change stay.
    pub as_mounted: bool,
}

/// What belongs to a mount for its whole life. (Beside what depends on the mount: [`is_fixed`].)
const FIXED: [&str; 22] = [
    "key",
    "untrusted",
    "max_threads",
    "writeback_cache",
    "nowriteback_cache",
    "io_uring",
    "noio_uring",
    "allow_idmap",
    "noallow_idmap",
    "allow_root",
    "uid",
    "gid",
    "umask",
    "fakeroot",
    "kernel",
    "offset",
    "sizelimit",
    "expand",
    "backing",
    "metrics",
    "cache_size",
    "journal_path",
];

/// Words that the kernel shows for a FUSE mount, or that other programs want: mount(8) passes them
/// on.
const SHOWN: [&str; 10] = [
    "fd",
    "rootmode",
    "user_id",
    "group_id",
    "default_permissions",
    "blksize",
    "max_read",
    "fsname",
    "loop",
    "subtype",
];

/// The changes that option lists ask for.
#[derive(Debug)]
struct Changes {
    config: MountConfig,
    /// Options for the daemon.
    words: Vec<String>,
}

/// Changes the options of the mount on `dir`.
pub fn remount(dir: &Path, lists: &[OsString], how: &How) -> Result<()> {
    let mounted = MountedVolume::of(dir, "remount -o ...")?;
    remount_found(&mounted, dir, lists, how)
        .map_err(|failure| Failure { line: as_typed(&failure.line, &mounted.root, dir), ..failure })
}

fn remount_found(mounted: &MountedVolume, dir: &Path, lists: &[OsString], how: &How) -> Result<()> {
    let entry = mount_entry(&mounted.root)
        .filter(Mount::is_fuse)
        .ok_or_else(|| Failure::new(format_args!("{} is not a mount of extol", dir.shown())))?;
    let before = config_of(entry.options.iter().chain(&entry.volume_options));
    let changes = changes(&before, &entry.source, lists, how)?;
    if how.fake {
        return Ok(());
    }
    // Before anything changes: is it extol's, and does it answer?
    let stats = mounted.stats()?;
    if stats.stopped && !stats.needs_new_mount && changes.ends_with_word("rw") {
        // The daemon looks as well, as far as its sandbox lets it.
        let daemon = mounted.daemon().map(Process);
        extol::device::check_loop_devices(Path::new(&entry.source), daemon).map_err(|error| {
            let why = format_args!("cannot remount read-write: {}", error.source);
            Failure::about(mounted.root.shown(), why)
        })?;
    }
    let to_read_only = changes.to_read_only();
    change(mounted, &entry, &before, &changes).map_err(|failure| match to_read_only {
        // It is read-only; but not because everything was written.
        true => mounted.stopped().unwrap_or(failure),
        false => failure,
    })?;
    if how.verbose {
        let options = mounted.stats()?.mount_options;
        warn(format_args!("{} has the options {options}", dir.shown()));
    }
    Ok(())
}

/// Changes both sides of a mount, or none.
fn change(
    mounted: &MountedVolume,
    entry: &Mount,
    before: &MountConfig,
    changes: &Changes,
) -> Result<()> {
    let root = &mounted.root;
    let about = |error: &dyn std::fmt::Display| Failure::about(root.shown(), error);
    let flags_change =
        changes.config.read_only != before.read_only || changes.config.flags != before.flags;
    if flags_change {
        control::set_flags(root, &changes.config).map_err(|error| match error.kind() {
            // The kernel knows the device of a `fuseblk` mount.
            std::io::ErrorKind::PermissionDenied if rustix::process::geteuid().is_root() => {
                about(&"cannot remount read-write: the device is write-protected")
            }
            std::io::ErrorKind::PermissionDenied => only_root(root, entry),
            _ => about(&error),
        })?;
    }
    let outcome = match control::remount(root, &changes.words.join(",")) {
        Ok(Ok(warnings)) => {
            warnings.iter().for_each(warn);
            Ok(())
        }
        Ok(Err(refusal)) => Err(Failure { code: refusal_code(changes), ..about(&refusal) }),
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::PERM.raw_os_error()) => {
            Err(Failure::usage(format_args!(
                "{}: only root (with CAP_SYS_ADMIN) and the user that mounted it can remount",
                root.shown()
            )))
        }
        Err(error) => Err(about(&error)),
    };
    if outcome.is_ok() && !changes.config.read_only {
        // The daemon may have made the kernel's side read-only again meanwhile, for the error that
        // this has mended.
        let now = mount_entry(root)
            .map(|entry| config_of(entry.options.iter().chain(&entry.volume_options)));
        if now.is_some_and(|now| now.read_only) {
            control::set_flags(root, &changes.config).map_err(|error| about(&error))?;
        }
    }
    // (Of a volume that an error has stopped the kernel's side stays read-only.)
    let is_true = || changes.to_read_only() && mounted.stopped().is_some();
    if outcome.is_err() && flags_change && !is_true() {
        // Restores the flags; if that fails, the daemon still refuses writes to a read-only volume.
        let _ = control::set_flags(root, before);
    }
    outcome
}

/// The code of the daemon's refusal: wrong arguments if they name what a mount has for its whole
/// life, as for options that this command refuses itself.
fn refusal_code(changes: &Changes) -> u8 {
    let is_fixed = |word: &String| extol::options::is_fixed(options::parts(word).0);
    if changes.words.iter().any(is_fixed) { Failure::USAGE } else { Failure::FAILED }
}

/// The failure of an ordinary user's request to change what the kernel keeps.
fn only_root(root: &Path, entry: &Mount) -> Failure {
    let dir = root.shown();
    let line = "only root can change flags of a mount (ro, rw, nosuid, noatime ...)";
    match owner_alone(entry) {
        None => Failure::usage(format_args!("{dir}: {line}")),
        Some(_) => Failure::usage(format_args!(
            "{dir}: {line}, and root is not let into this one: unmount it and mount it with these \
             options, or with allow_root"
        )),
    }
}

impl Changes {
    /// Read-only is asked for.
    fn to_read_only(&self) -> bool {
        self.ends_with_word("ro")
    }

    /// This is the last of `ro` and `rw`.
    fn ends_with_word(&self, wanted: &str) -> bool {
        let last = self.words.iter().rfind(|word| matches!(word.as_str(), "ro" | "rw"));
        last.is_some_and(|word| word == wanted)
    }
}

/// Makes the kernel's side of a mount read-only, because an error has stopped the volume; so
/// `findmnt` says it, and programs get EROFS before the daemon is asked. For a daemon, in its child
/// or its monitor: a remount waits for the daemon's answers. Ordinary users may not (`fusermount3`
/// cannot remount).
///
/// # Errors
/// [`BUSY`](umount::BUSY) while files are open for writing, [`GONE`](umount::GONE) if it is no
/// longer mounted there.
pub fn make_read_only(dir: &Path, id: u64) -> Result<()> {
    if !is_top(dir, id) {
        return Err(Failure::silent(umount::GONE));
    }
    let entry = mount_entry(dir).ok_or_else(|| Failure::silent(umount::GONE))?;
    let mut config = config_of(entry.options.iter().chain(&entry.volume_options));
    if std::mem::replace(&mut config.read_only, true) {
        return Ok(());
    }
    control::set_flags(dir, &config).map_err(|error| match error.kind() {
        std::io::ErrorKind::ResourceBusy => Failure::silent(umount::BUSY),
        _ => Failure::about(dir.shown(), error),
    })
}

/// The kernel's side of a mount, from the words of mountinfo.
fn config_of<'a>(words: impl Iterator<Item = &'a OsString>) -> MountConfig {
    // (Extol's mounts have no other words.)
    let words: Vec<_> = words.filter_map(|word| options::text_of(word)).collect();
    let mut config = MountConfig { flags: MountFlags::empty(), ..MountConfig::default() };
    // What the kernel shows of a mount with strictatime is no word about access times. A remount
    // that names another flag of them makes it relatime unless it names this one, too.
    if !words.iter().any(|word| matches!(*word, "relatime" | "noatime")) {
        config.flags |= MountFlags::STRICTATIME;
    }
    for word in words {
        if word == "ro" {
            config.read_only = true;
        } else if word != "rw" {
            // (What the kernel shows has good values.)
            let _ = config.accept(word);
        }
    }
    config
}

/// True for an option that a live mount cannot change.
fn is_fixed(name: &str, before: &MountConfig, source: &OsStr) -> bool {
    match name {
        "loop" => !source.as_encoded_bytes().starts_with(b"/dev/loop"),
        "allow_other" => !before.allow_other,
        "noallow_other" => before.allow_other,
        _ => FIXED.contains(&name),
    }
}

/// Changes to a mount of `source` that is as `before` says.
fn changes(before: &MountConfig, source: &OsStr, lists: &[OsString], how: &How) -> Result<Changes> {
    let mut changes = Changes { config: before.clone(), words: Vec::new() };
    for word in lists.iter().flat_map(options::words) {
        let Some(word) = options::text_of(&word).map(str::to_owned) else {
            // (A journal's path cannot change.)
            return Err(options::unknown(&word));
        };
        let (name, value) = options::parts(&word);
        if is_fixed(name, before, source) {
            if how.as_mounted {
                continue;
            }
            return Err(Failure::usage(format_args!(
                "{name} cannot be changed by a remount: unmount and mount again"
            )));
        }
        if name == "remount" || SHOWN.contains(&name) || options::is_passed_over(name, value)? {
            continue;
        }
        if matches!(name, "relatime" | "strictatime" | "noatime" | "atime") {
            // One of them is in force.
            let others = MountFlags::STRICTATIME | MountFlags::NOATIME;
            changes.config.flags.remove(others | MountFlags::RELATIME);
            changes.config.flags.set(MountFlags::RELATIME, name == "atime");
        }
        let kernel = changes.config.accept(&word).map_err(Failure::usage)?;
        let volume = word == "abort"
            || name == "journal_dev"
            || VolumeOptions::default().set(name, value).map_err(Failure::usage)?;
        if volume {
            if word.contains(',') {
                return Err(Failure::usage(format_args!("bad value for mount option \"{name}\"")));
            }
            changes.words.push(word);
        } else if !kernel && !how.sloppy {
            return Err(options::unknown(word.as_ref()));
        }
    }
    Ok(changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> MountConfig {
        config_of(text.split(',').map(OsString::from).collect::<Vec<_>>().iter())
    }

    fn ask(text: &str, list: &str) -> Result<Changes> {
        changes(&shown(text), "/disk.img".as_ref(), &[list.into()], &How::default())
    }

    /// mount(8) hands on the whole line of fstab.
    #[test]
    fn what_a_volume_was_mounted_with_stays() {
        let words = "kernel_cache,use_ino,attr_timeout=1,uid=1,umask=22,fakeroot,kernel,offset=1k,\
                     metrics=127.0.0.1:9193,max_threads=8,allow_root,x-systemd.automount";
        let list = [format!("{words},commit=12").into()];
        let how = How { as_mounted: true, ..How::default() };
        let taken = changes(&shown("rw,relatime"), "/disk.img".as_ref(), &list, &how).unwrap();
        assert_eq!(taken.words, ["commit=12"]);
        assert_eq!(taken.config.flags, shown("rw,relatime").flags);
        for word in ["uid=1", "umask=22", "fakeroot", "metrics=:1", "allow_root", "max_threads=8"] {
            let refused = ask("rw,relatime", word).unwrap_err();
            assert!(refused.line.contains("cannot be changed by a remount"), "{}", refused.line);
        }
        assert!(ask("rw,relatime", "kernel_cache,big_writes").unwrap().words.is_empty());
    }

    #[test]
    fn each_side_gets_its_own() {
        let now = "rw,nosuid,relatime,rw,user_id=0,group_id=0,default_permissions,allow_other";
        let changes =
            ask(now, "ro,noatime,suid,commit=9,x-a=b,user_id=0,allow_other,remount").unwrap();
        assert!(changes.config.read_only);
        assert_eq!(changes.config.flags, MountFlags::NOATIME);
        assert_eq!(changes.words, ["ro", "noatime", "commit=9"]);
        let changes = ask("ro,noatime", "rw,relatime").unwrap();
        assert!(!changes.config.read_only);
        assert_eq!(changes.config.flags, MountFlags::RELATIME);
        // What makes a mount safe for others can be had later, and taken off by a later word.
        let changes = ask("rw,relatime", "user,exec").unwrap();
        let safe = MountFlags::NODEV | MountFlags::NOSUID;
        assert_eq!(changes.config.flags, safe | MountFlags::RELATIME);
        let changes = ask("rw,nosuid,nodev,relatime", "owner,allow_suid,allow_dev").unwrap();
        assert_eq!(changes.config.flags, MountFlags::RELATIME);
        // What mount(8) hands back changes nothing.
        let changes = ask(now, &format!("{now},remount")).unwrap();
        assert_eq!(changes.config.flags, shown(now).flags);
        assert!(!changes.config.read_only);
    }

    /// A remount keeps what the kernel's default would change: strictatime, if another flag of
    /// access times is named.
    #[test]
    fn strictatime_stays_until_another_word() {
        let strict = MountFlags::STRICTATIME;
        let changes = ask("rw,nosuid", "nodiratime").unwrap();
        let expected = strict | MountFlags::NODIRATIME | MountFlags::NOSUID;
        assert_eq!(changes.config.flags, expected);
        assert_eq!(ask("rw,nodiratime", "diratime").unwrap().config.flags, strict);
        assert_eq!(ask("rw", "commit=9").unwrap().config.flags, shown("rw").flags);
        assert_eq!(ask("rw", "noatime").unwrap().config.flags, MountFlags::NOATIME);
        assert_eq!(ask("rw", "relatime").unwrap().config.flags, MountFlags::RELATIME);
        assert_eq!(ask("rw,relatime", "strictatime").unwrap().config.flags, strict);
    }

    /// A mount over a loop device stays one, and another does not become one.
    #[test]
    fn a_loop_device_comes_with_a_mount_only() {
        let list = ["loop,commit=9".into()];
        let taken =
            changes(&shown("rw,relatime"), "/dev/loop0".as_ref(), &list, &How::default()).unwrap();
        assert_eq!(taken.words, ["commit=9"]);
        let refused = changes(&shown("rw,relatime"), "/disk.img".as_ref(), &list, &How::default())
            .unwrap_err();
        assert_eq!(refused.line, "loop cannot be changed by a remount: unmount and mount again");
    }

    #[test]
    fn mistakes_are_found_before_anything_is_done() {
        for list in
            ["frob", "max_threads=3", "nowriteback_cache", "allow_other", "commit=x", "loop"]
        {
            assert_eq!(ask("rw,relatime", list).unwrap_err().code, Failure::USAGE, "{list}");
        }
        let sloppy = How { sloppy: true, ..How::default() };
        assert!(
            changes(&shown("rw"), "/disk.img".as_ref(), &["frob,commit=3".into()], &sloppy).is_ok()
        );
    }
}
