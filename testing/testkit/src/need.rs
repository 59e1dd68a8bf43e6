//! What a test needs from the machine.

use crate::command::find_tool;
use rustix::fs::{Mode, OFlags};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// One thing that a machine may lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The effective user is root.
    Root,
    /// Loop devices can be attached.
    Loop,
    /// `/dev/fuse` can be opened.
    Fuse,
    /// The kernel has this file system (`/proc/filesystems`, or a module of that name).
    Kernel(&'static str),
    /// This program is installed.
    Tool(&'static str),
    /// A user of this name exists.
    User(&'static str),
    /// Users other than root can mount: with `fusermount3`, and `/dev/fuse` open to all.
    UserMounts,
    /// Mounts get their requests over io_uring.
    IoUring,
    /// Files for a while can be read past the page cache.
    DirectIo,
    /// The Linux guest in QEMU can run.
    Guest,
    /// A newer e2fsck than the system's is there.
    NewE2fsck,
}

impl Need {
    fn is_met(self) -> bool {
        match self {
            Self::Root => rustix::process::geteuid().is_root(),
            Self::Loop => Path::new("/dev/loop-control").exists() && find_tool("losetup").is_some(),
            Self::UserMounts => {
                let mode = std::fs::metadata("/dev/fuse").map_or(0, |meta| meta.mode());
                mode & 0o6 == 0o6 && find_tool("fusermount3").is_some()
            }
            Self::IoUring => crate::offers_io_uring(),
            Self::Fuse => {
                std::fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok()
            }
            Self::Kernel(name) => {
                let known = || {
                    std::fs::read_to_string("/proc/filesystems")
                        .is_ok_and(|t| t.lines().any(|l| l.split_whitespace().last() == Some(name)))
                };
                known() || {
                    // mount(8) would load the module; asking first gives a clear skip instead of a
                    // failed mount.
                    let _ = crate::tool("modprobe").arg(name).output();
                    known()
                }
            }
            Self::Tool(name) => find_tool(name).is_some(),
            Self::User(name) => std::fs::read_to_string("/etc/passwd")
                .is_ok_and(|t| t.lines().any(|l| l.split(':').next() == Some(name))),
            Self::DirectIo => {
                let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::DIRECT;
                rustix::fs::open(std::env::temp_dir(), flags, Mode::RUSR | Mode::WUSR).is_ok()
            }
            Self::Guest => {
                // Programs of the host run in the guest, so both are of one kind.
                cfg!(target_arch = "x86_64")
                    && ["qemu-system-x86_64", "busybox", "setpriv", "e2fsck"]
                        .iter()
                        .all(|name| find_tool(name).is_some())
                    && guest_kernel().join("vmlinux").exists()
            }
            Self::NewE2fsck => new_e2fsck_path().is_file(),
        }
    }
}

impl std::fmt::Display for Need {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Root => write!(f, "root"),
            Self::Loop => write!(f, "loop devices"),
            Self::UserMounts => write!(f, "fusermount3, and /dev/fuse with mode 0666"),
            Self::IoUring => write!(f, "FUSE over io_uring (enable_uring of the module fuse)"),
            Self::Fuse => write!(f, "/dev/fuse"),
            Self::Kernel(name) => write!(f, "the kernel's {name}"),
            Self::Tool(name) => write!(f, "the program {name}"),
            Self::User(name) => write!(f, "the user {name}"),
            Self::DirectIo => write!(f, "direct I/O in {}", std::env::temp_dir().display()),
            Self::Guest => write!(f, "the guest (scripts/install-deps.sh, scripts/guest.sh)"),
            Self::NewE2fsck => {
                write!(f, "a newer e2fsck (scripts/newest-e2fsprogs.sh, or EXTOL_E2FSCK=PROGRAM)")
            }
        }
    }
}

/// Where the guest's kernel lies, which `scripts/guest.sh` fetches: below cargo's target directory,
/// where the program that asks lies, too.
///
/// # Panics
/// If the system does not say where that is.
#[must_use]
pub fn guest_kernel() -> PathBuf {
    target_directory().join("guest/linux")
}

/// The newer e2fsck: that of `EXTOL_E2FSCK`, or the one that `scripts/newest-e2fsprogs.sh` fetches.
pub(crate) fn new_e2fsck_path() -> PathBuf {
    let given = std::env::var_os("EXTOL_E2FSCK").map(PathBuf::from);
    given.unwrap_or_else(|| target_directory().join("e2fsprogs/e2fsck"))
}

/// Cargo's target directory, by the place of this program.
fn target_directory() -> PathBuf {
    let program = std::env::current_exe().expect("path of the program");
    let deps = Path::new("deps");
    let above = if program.parent().is_some_and(|dir| dir.ends_with(deps)) { 3 } else { 2 };
    program.ancestors().nth(above).unwrap_or(Path::new("/")).to_owned()
}

/// True if the machine has everything that a test needs. If not, prints one line that names what is
/// missing; with `EXTOL_NO_SKIP=1` in the environment the test fails instead.
///
/// # Panics
/// If something is missing and `EXTOL_NO_SKIP=1`.
#[must_use]
pub fn require(needs: &[Need]) -> bool {
    let missing: Vec<String> = needs.iter().filter(|n| !n.is_met()).map(Need::to_string).collect();
    if missing.is_empty() {
        return true;
    }
    let thread = std::thread::current();
    let line = format!("SKIP {}: needs {}", thread.name().unwrap_or("test"), missing.join(", "));
    assert!(std::env::var("EXTOL_NO_SKIP").as_deref() != Ok("1"), "{line}");
    // Written to the terminal itself, because the test harness hides what passing tests print.
    let _ = std::fs::write("/dev/stderr", format!("{line}\n"));
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_unknown_needs_are_told_apart() {
        assert!(Need::Tool("sh").is_met());
        assert!(!Need::Tool("no-such-program-anywhere").is_met());
        assert!(Need::User("root").is_met());
        assert!(!Need::User("nobody-has-this-name").is_met());
        assert!(!Need::Kernel("no-such-filesystem").is_met());
        assert_eq!(Need::Kernel("ext4").to_string(), "the kernel's ext4");
    }
}
