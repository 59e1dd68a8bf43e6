//! The properties of a mount that the kernel sees, and the mount options that choose them.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;

use extol_vfs::{NumberError, number};
pub use rustix::mount::MountFlags;

/// How requests come from the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// With `read` and `write` on `/dev/fuse`.
    Device,
    /// Over io_uring.
    IoUring,
}

impl Transport {
    /// `"device"` or `"io_uring"`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::IoUring => "io_uring",
        }
    }
}

/// An exclusive claim on a block device, which cannot be held by the daemon and by the kernel at
/// the same time.
pub trait Claim: Send + Sync + std::fmt::Debug {
    /// Gives the claim up.
    fn release(&self);
    /// Takes it again.
    ///
    /// # Errors
    /// If another program or the kernel holds the device by now.
    fn take(&self) -> std::io::Result<()>;
}

/// The block device below a mount of type `fuseblk`. The kernel claims the device for the mount,
/// passes syncfs(2) and FIBMAP on, and lets an unmount wait for the daemon.
#[derive(Clone, Debug)]
pub struct BlockMount {
    /// The device.
    pub device: PathBuf,
    /// Block size of the file system, in bytes.
    pub block_size: u32,
    /// The daemon's own claim.
    pub claim: Arc<dyn Claim>,
}

/// How to mount.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// What `/proc/mounts` shows as the source.
    pub source: OsString,
    /// The mount's type is `fuse.` and this.
    pub subtype: String,
    /// Mount as `fuseblk`, where the kernel and the process's rights allow it.
    pub block: Option<BlockMount>,
    /// Refuse changes in the kernel already.
    pub read_only: bool,
    /// Let other users in than the mounting one. Permissions are checked all the same.
    pub allow_other: bool,
    /// Of the other users let root alone in (with `allow_other`).
    pub allow_root: bool,
    /// The kernel checks permissions (owner, mode, ACLs). Without it a user that is let in may do
    /// everything.
    pub default_permissions: bool,
    /// What is shown instead of owners and modes.
    pub shown: Shown,
    /// Bind mounts of this mount may map owners (Linux 6.12). The kernel then tells user and
    /// group of the caller only where something is created.
    pub allow_idmap: bool,
    /// POSIX ACLs are kept and obeyed.
    pub posix_acl: bool,
    /// Files bypass the kernel's page cache: every read and write reaches the file system as it was
    /// made, and writes of one file may run side by side. For file systems whose files are devices.
    pub direct_io: bool,
    /// The kernel keeps what is written and hands it over later (write-back), instead of with each
    /// write (write-through). With write-back, a full volume, the number of blocks and the times of
    /// a file show only after the kernel has handed its pages over.
    pub writeback_cache: bool,
    /// Requests come over io_uring; `None`: where the kernel offers it. Where it was asked for and
    /// is not to be had, [`Mount::note`](crate::Mount::note) says so.
    pub io_uring: Option<bool>,
    /// Most threads that serve requests of `/dev/fuse`. (Over io_uring their number is fixed.)
    pub max_threads: usize,
    /// Flags of mount(2). `nosuid` and `nodev` unless they are taken off: the owner of an image
    /// decides what lies on it, and must not become another user by that where root mounts it.
    pub flags: MountFlags,
    /// A device that another process has mounted; it is served, and neither mounted nor unmounted.
    pub device: Option<Arc<OwnedFd>>,
    /// How the process gives its rights away.
    pub confinement: Option<Arc<dyn Confinement>>,
}

/// The way in which a process gives its rights away when the mount is made, before the first
/// request; and what it needs from then on.
pub trait Confinement: fmt::Debug + Send + Sync {
    /// Confines the calling thread, and those that it starts. Gives what is to be shown as
    /// `sandbox` in the counters.
    ///
    /// # Errors
    /// If that fails; then there is no mount.
    fn confine(&self) -> io::Result<String>;

    /// Takes the mount out of sight.
    fn take_off(&self);

    /// Device and inode number of the user namespace of a process or thread, which a confined
    /// process cannot see. `None`: not known.
    fn user_namespace(&self, process: u32) -> Option<(u64, u64)>;
}

impl Default for MountConfig {
    fn default() -> Self {
        Self {
            source: "extol".into(),
            subtype: "extol".into(),
            block: None,
            read_only: false,
            allow_other: false,
            allow_root: false,
            shown: Shown::default(),
            default_permissions: true,
            allow_idmap: false,
            posix_acl: true,
            direct_io: false,
            writeback_cache: false,
            io_uring: None,
            max_threads: 64,
            flags: SAFE,
            device: None,
            confinement: None,
        }
    }
}

/// Owner, group and permissions that a mount shows for all files (`uid=`, `gid=`, `umask=`). The
/// volume keeps its own, and new files belong to the user that makes them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Shown {
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// All permissions but these.
    pub umask: Option<u32>,
}

impl Shown {
    /// Something is shown otherwise than it is.
    #[must_use]
    pub fn is_any(self) -> bool {
        self != Self::default()
    }

    /// The permission bits to show.
    pub(crate) fn perm(self, perm: u16) -> u32 {
        self.umask.map_or(u32::from(perm & 0o7777), |umask| 0o777 & !umask)
    }

    /// Takes `uid=`, `gid=` or `umask=`. `None`: it is another option.
    fn accept(&mut self, name: &str, value: &str) -> Option<Result<(), NumberError>> {
        // (The largest number stands for no user.)
        let id = || number::count(value, 0..=u32::MAX - 1);
        let (field, number) = match name {
            "uid" => (&mut self.uid, id()),
            "gid" => (&mut self.gid, id()),
            "umask" => (&mut self.umask, number::octal(value, 0o777)),
            _ => return None,
        };
        Some(number.map(|number| *field = Some(number)))
    }

    /// As words of an option list.
    #[must_use]
    pub fn words(self) -> Vec<String> {
        let id = |name, id: Option<u32>| id.map(|id| format!("{name}={id}"));
        let umask = self.umask.map(|umask| format!("umask={umask:03o}"));
        [id("uid", self.uid), id("gid", self.gid), umask].into_iter().flatten().collect()
    }
}

impl MountConfig {
    /// The words that [`accept`](Self::accept) takes, but for those of the flags; those with a
    /// value end in `=`.
    pub const WORDS: [&str; 46] = [
        "ro",
        "rw",
        "allow_other",
        "noallow_other",
        "allow_root",
        "allow_idmap",
        "noallow_idmap",
        "default_permissions",
        "writeback_cache",
        "nowriteback_cache",
        "io_uring",
        "noio_uring",
        "acl",
        "noacl",
        "user",
        "users",
        "owner",
        "group",
        "defaults",
        "auto",
        "noauto",
        "nouser",
        "nousers",
        "noowner",
        "nogroup",
        "_netdev",
        "nofail",
        "silent",
        "loud",
        "mand",
        "nomand",
        "suid",
        "allow_suid",
        "dev",
        "allow_dev",
        "exec",
        "atime",
        "diratime",
        "async",
        "fsname=",
        "subtype=",
        "max_threads=",
        "uid=",
        "gid=",
        "umask=",
        "user=",
    ];

    /// Takes one word of a mount option list (`nosuid`, `allow_other`, `ro` …). False if this
    /// crate has no such option.
    ///
    /// # Errors
    /// One line about a bad value.
    pub fn accept(&mut self, option: &str) -> Result<bool, String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let number = match (name, option.contains('=')) {
            ("max_threads", true) => number::count(value, 1..=MOST_THREADS)
                .map(|threads| self.max_threads = threads as usize)
                .map(Some),
            (_, true) => self.shown.accept(name, value).transpose(),
            _ => Ok(None),
        };
        match number.map_err(|error| format!("mount option \"{name}\": {error}"))? {
            Some(()) => Ok(true),
            None => Ok(self.accept_word(option)),
        }
    }

    fn accept_word(&mut self, option: &str) -> bool {
        match option {
            "ro" => self.read_only = true,
            "rw" => self.read_only = false,
            "allow_other" => (self.allow_other, self.allow_root) = (true, false),
            "noallow_other" => (self.allow_other, self.allow_root) = (false, false),
            "allow_root" => (self.allow_other, self.allow_root) = (true, true),
            "allow_idmap" => self.allow_idmap = true,
            "noallow_idmap" => self.allow_idmap = false,
            "default_permissions" => self.default_permissions = true,
            "writeback_cache" => self.writeback_cache = true,
            "nowriteback_cache" => self.writeback_cache = false,
            "io_uring" => self.io_uring = Some(true),
            "noio_uring" => self.io_uring = Some(false),
            "acl" => self.posix_acl = true,
            "noacl" => self.posix_acl = false,
            // As mount(8) has it; what follows in the list may take it off again.
            "user" | "users" => self.flags |= SAFE | MountFlags::NOEXEC,
            "owner" | "group" => self.flags |= SAFE,
            "defaults" | "auto" | "noauto" | "nouser" | "nousers" | "noowner" | "nogroup"
            | "_netdev" | "nofail" | "silent" | "loud" | "mand" | "nomand" => {}
            _ => {
                if let Some(source) = option.strip_prefix("fsname=") {
                    self.source = source.into();
                } else if option.starts_with("subtype=") {
                    // The type says which program serves the mount, and stays true.
                } else if option.starts_with("user=") {
                    self.flags |= SAFE | MountFlags::NOEXEC;
                } else if option.starts_with("x-") || option.starts_with("comment=") {
                    // For other programs that read the option list.
                } else {
                    return self.accept_flag(option);
                }
            }
        }
        true
    }

    fn accept_flag(&mut self, option: &str) -> bool {
        let (flag, on) = match option {
            // mount(8) keeps `suid` and `dev` from its helpers, because Linux's own mounts have
            // them anyway.
            "suid" | "allow_suid" => (MountFlags::NOSUID, false),
            "dev" | "allow_dev" => (MountFlags::NODEV, false),
            "exec" => (MountFlags::NOEXEC, false),
            "atime" => (MountFlags::NOATIME, false),
            "diratime" => (MountFlags::NODIRATIME, false),
            "norelatime" => (MountFlags::RELATIME, false),
            "nostrictatime" => (MountFlags::STRICTATIME, false),
            "async" => (MountFlags::SYNCHRONOUS, false),
            "nodirsync" => (MountFlags::DIRSYNC, false),
            "symfollow" => (MountFlags::NOSYMFOLLOW, false),
            "nolazytime" => (MountFlags::LAZYTIME, false),
            _ => match FLAGS.iter().find(|(name, _)| *name == option) {
                Some((_, flag)) => (*flag, true),
                None => return false,
            },
        };
        self.flags.set(flag, on);
        true
    }

    /// The options that change what is seen of the file system, or which users are let in: `uid=`,
    /// `gid=`, `umask=`, `fakeroot` (no permissions are checked), `allow_root`, `allow_idmap`.
    #[must_use]
    pub fn view_options(&self) -> String {
        let flags = [
            (!self.default_permissions, "fakeroot"),
            (self.allow_root, "allow_root"),
            (self.allow_idmap, "allow_idmap"),
        ];
        let flags = flags.iter().filter(|(on, _)| *on).map(|(_, name)| (*name).to_owned());
        self.shown.words().into_iter().chain(flags).collect::<Vec<_>>().join(",")
    }

    /// The flags that are set and that fusermount3 can set. Those of access times are the file
    /// system's own business on a FUSE mount.
    pub(crate) fn helper_flags(&self) -> impl Iterator<Item = &'static str> {
        let known = ["nosuid", "nodev", "noexec", "noatime", "sync", "dirsync"];
        self.flag_options().filter(move |name| known.contains(name))
    }

    /// The flags that the kernel acts on, that were asked for, and that fusermount3 cannot set:
    /// its mounts are always `nosuid` and `nodev`.
    pub fn flags_without_helper(&self) -> impl Iterator<Item = &'static str> {
        let asked = [
            ("suid", !self.flags.contains(MountFlags::NOSUID)),
            ("dev", !self.flags.contains(MountFlags::NODEV)),
            ("nosymfollow", self.flags.contains(MountFlags::NOSYMFOLLOW)),
        ];
        asked.into_iter().filter(|(_, given)| *given).map(|(name, _)| name)
    }

    /// The options of the flags that are set.
    pub(crate) fn flag_options(&self) -> impl Iterator<Item = &'static str> {
        FLAGS.iter().filter(|(_, flag)| self.flags.contains(*flag)).map(|(name, _)| *name)
    }

    /// The flags of mount(2).
    pub(crate) fn kernel_flags(&self) -> MountFlags {
        let read_only = if self.read_only { MountFlags::RDONLY } else { MountFlags::empty() };
        self.flags | read_only
    }
}

/// Largest `max_threads=`.
const MOST_THREADS: u32 = 100_000;

/// What mounts have that were not asked to do without.
const SAFE: MountFlags = MountFlags::NOSUID.union(MountFlags::NODEV);

/// The mount options that set a flag of mount(2).
const FLAGS: [(&str, MountFlags); 11] = [
    ("nosuid", MountFlags::NOSUID),
    ("nodev", MountFlags::NODEV),
    ("noexec", MountFlags::NOEXEC),
    ("noatime", MountFlags::NOATIME),
    ("nodiratime", MountFlags::NODIRATIME),
    ("relatime", MountFlags::RELATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("sync", MountFlags::SYNCHRONOUS),
    ("dirsync", MountFlags::DIRSYNC),
    ("nosymfollow", MountFlags::NOSYMFOLLOW),
    ("lazytime", MountFlags::LAZYTIME),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_become_flags() {
        let mut config = MountConfig::default();
        for option in [
            "ro",
            "nosuid",
            "nodev",
            "noexec",
            "exec",
            "allow_other",
            "fsname=a,b",
            "x-systemd.automount",
            "io_uring",
        ] {
            assert_eq!(config.accept(option), Ok(true), "{option}");
        }
        assert_eq!(config.accept("commit=5"), Ok(false));
        assert!(config.read_only && config.allow_other);
        assert_eq!(config.flags, SAFE);
        assert_eq!(
            config.kernel_flags(),
            MountFlags::RDONLY | MountFlags::NOSUID | MountFlags::NODEV
        );
        assert_eq!((config.source.to_owned(), config.io_uring), ("a,b".into(), Some(true)));
        assert_eq!(config.accept("noio_uring"), Ok(true));
        assert_eq!(config.io_uring, Some(false));
    }

    #[test]
    fn all_words_are_taken() {
        for word in MountConfig::WORDS {
            let word = if word.ends_with('=') { format!("{word}17") } else { word.to_owned() };
            assert_eq!(MountConfig::default().accept(&word), Ok(true), "{word}");
        }
        for (word, why) in [
            ("uid=", "empty"),
            ("uid=x", "whole number"),
            ("uid=-1", "must not be negative"),
            ("uid=4294967295", "larger than 4294967294"),
            ("umask=8", "octal"),
            ("umask=1000", "larger than 777"),
            ("umask=-1", "must not be negative"),
            ("gid=", "empty"),
            ("max_threads=many", "whole number"),
            ("max_threads=0", "less than 1"),
            ("max_threads=-1", "must not be negative"),
            ("max_threads=99999999999999999999", "larger than 100000"),
        ] {
            let line = MountConfig::default().accept(word).unwrap_err();
            let name = word.split('=').next().unwrap();
            assert!(line.contains(why) && line.contains(name), "{word}: {line}");
        }
    }

    #[test]
    fn owners_and_modes_may_be_shown_otherwise() {
        let mut config = MountConfig::default();
        assert!(!config.shown.is_any() && config.shown.perm(0o4711) == 0o4711);
        for word in ["uid=1000", "umask=022"] {
            assert_eq!(config.accept(word), Ok(true));
        }
        assert_eq!(config.view_options(), "uid=1000,umask=022");
        assert_eq!((config.shown.uid, config.shown.gid), (Some(1000), None));
        assert_eq!(config.shown.perm(0o4700), 0o755);
        assert_eq!(config.accept("allow_root"), Ok(true));
        assert!(config.allow_other && config.allow_root);
        assert_eq!(config.accept("allow_other"), Ok(true));
        assert!(config.allow_other && !config.allow_root);
    }

    #[test]
    fn what_the_helper_cannot_do_is_told() {
        let told = |list: &str| {
            let mut config = MountConfig::default();
            for word in list.split(',').filter(|word| !word.is_empty()) {
                assert_eq!(config.accept(word), Ok(true), "{word}");
            }
            config.flags_without_helper().collect::<Vec<_>>()
        };
        assert!(told("").is_empty() && told("suid,nosuid").is_empty());
        assert_eq!(told("suid,dev,nosymfollow"), ["suid", "dev", "nosymfollow"]);
        assert_eq!(told("allow_dev"), ["dev"]);
    }

    /// Set-id programs and devices work only where they were asked for, and the last word counts.
    #[test]
    fn set_id_bits_and_devices_are_asked_for() {
        for (list, expected) in [
            ("", "nosuid nodev"),
            ("defaults,rw", "nosuid nodev"),
            ("suid", "nodev"),
            ("suid,dev", ""),
            ("allow_suid,allow_dev", ""),
            ("suid,nosuid,dev", "nosuid"),
            ("suid,dev,user", "nosuid nodev noexec"),
            ("users,exec", "nosuid nodev"),
            ("user,suid,dev,exec", ""),
            ("suid,dev,owner", "nosuid nodev"),
            ("group,dev", "nosuid"),
        ] {
            let mut config = MountConfig::default();
            for word in list.split(',').filter(|word| !word.is_empty()) {
                assert_eq!(config.accept(word), Ok(true), "{word}");
            }
            assert_eq!(config.flag_options().collect::<Vec<_>>().join(" "), expected, "{list}");
        }
    }
}
