//! What is tested: Extol, or a peer under the same test.

use crate::{ExtolMount, Fuse2fsMount, Image, KernelMount, Shutdown, shutdown};
use std::path::Path;

/// A file system implementation that can mount an image.
#[derive(Clone, Debug)]
pub enum Subject {
    /// Linux's ext4 over a loop device.
    Kernel,
    /// The `extol` command that was built with the test.
    Extol,
    /// fuse2fs from e2fsprogs.
    Fuse2fs,
}

impl Subject {
    /// The subject of this run: Extol, unless `EXTOL_TEST_SUBJECT` is `kernel` or
    /// `fuse2fs`.
    ///
    /// # Panics
    /// If `EXTOL_TEST_SUBJECT` names nothing known.
    #[must_use]
    pub fn under_test() -> Self {
        match std::env::var("EXTOL_TEST_SUBJECT").as_deref() {
            Ok("kernel") => Self::Kernel,
            Ok("fuse2fs") => Self::Fuse2fs,
            Ok("extol") | Err(_) => Self::Extol,
            Ok(other) => panic!("EXTOL_TEST_SUBJECT={other} is not kernel, fuse2fs or extol"),
        }
    }

    /// True if it is Extol.
    #[must_use]
    pub fn is_extol(&self) -> bool {
        matches!(self, Self::Extol)
    }

    /// Mounts an image with access for every user; permissions are checked by the kernel in all
    /// cases.
    ///
    /// # Panics
    /// If the mount fails.
    #[must_use]
    #[track_caller]
    pub fn mount(&self, image: &Image, dir: &Path, options: &[&str]) -> Mounted {
        match self.try_mount(image, dir, options) {
            Ok(mounted) => mounted,
            Err(e) => panic!("{self:?} does not mount {}: {e}", image.path.display()),
        }
    }

    /// Mounts an image; the error is the peer's message.
    pub fn try_mount(
        &self,
        image: &Image,
        dir: &Path,
        options: &[&str],
    ) -> Result<Mounted, String> {
        match self {
            Self::Kernel => {
                let options = [&["noinit_itable"], options].concat();
                KernelMount::try_mount(image, dir, &options).map(Mounted::Kernel)
            }
            Self::Fuse2fs => {
                // As Linux mounts, if it is not told otherwise.
                let options =
                    [&["allow_other", "default_permissions", "suid", "dev"], options].concat();
                Ok(Mounted::Fuse2fs(Fuse2fsMount::start(&image.path, dir, &options)))
            }
            Self::Extol => {
                let journal =
                    image.journal.as_deref().map(|j| format!("journal_path={}", j.display()));
                let mut all = vec!["allow_other", "default_permissions", "suid", "dev"];
                all.extend(journal.as_deref());
                all.extend(options);
                ExtolMount::try_start(&image.path, dir, &all)
                    .map(Mounted::Extol)
                    .map_err(|e| format!("exit code {:?}: {}", e.code, e.output))
            }
        }
    }
}

/// A mount by one of the subjects.
#[derive(Debug)]
pub enum Mounted {
    /// By Linux.
    Kernel(KernelMount),
    /// By Extol.
    Extol(ExtolMount),
    /// By fuse2fs.
    Fuse2fs(Fuse2fsMount),
}

impl Mounted {
    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            Self::Kernel(m) => m.path(),
            Self::Extol(m) => m.path(),
            Self::Fuse2fs(m) => m.path(),
        }
    }

    /// Unmounts cleanly.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn unmount(self) {
        match self {
            Self::Kernel(m) => m.unmount(),
            Self::Extol(m) => m.unmount(),
            Self::Fuse2fs(m) => m.unmount(),
        }
    }

    /// Lets the file system end as in a power cut: SIGKILL for daemons, the shutdown ioctl for
    /// Linux. Nothing that it holds in memory reaches the image.
    ///
    /// # Panics
    /// If Extol had panicked before, or the dead mount cannot be taken away.
    #[track_caller]
    pub fn crash(self) {
        self.crash_with_open(());
    }

    /// Like [`crash`](Self::crash) while files are open; they are dropped when the file system is
    /// dead.
    ///
    /// # Panics
    /// If Extol had panicked before, or the dead mount cannot be taken away.
    #[track_caller]
    pub fn crash_with_open<T>(self, open: T) {
        match self {
            Self::Kernel(m) => {
                shutdown(m.path(), Shutdown::Now);
                drop(open);
                m.unmount();
            }
            Self::Extol(mut m) => m.kill9(),
            Self::Fuse2fs(m) => drop(m),
        }
    }

    /// The Extol mount, if it is one.
    #[must_use]
    pub fn as_extol(&self) -> Option<&ExtolMount> {
        match self {
            Self::Extol(m) => Some(m),
            _ => None,
        }
    }
}
