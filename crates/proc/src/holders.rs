//! Which processes have a volume; and what keeps a file system mounted after it was taken off a
//! directory: other mounts of it, in this mount namespace or in another, and processes that have
//! files of it open.

use std::fmt;
use std::fs::Metadata;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use crate::locks::lock_holders;
use crate::mounts::{DeviceNumber, Mount, MountTable};
use crate::process::{Process, processes};
use crate::shown::Shown as _;
use crate::users::{Target, Users, device_users, users_of};

/// How long the processes of the system may be looked at.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// What keeps a file system.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A mount that this process sees.
    Mount(PathBuf),
    /// A mount in another mount namespace, and a process of that.
    Namespace(PathBuf, Process),
    /// Processes.
    Users(Users),
}

/// As the end of a sentence that begins with the file system.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount(dir) => write!(f, "is mounted on {} as well", dir.shown()),
            Self::Namespace(dir, process) => {
                write!(f, "is mounted on {} in the mount namespace of {process}", dir.shown())
            }
            Self::Users(users) => write!(f, "is in use by {users}"),
        }
    }
}

/// What keeps the FUSE file system with this number. `None`: nothing that this process may see.
#[must_use]
pub fn holder_of(device: DeviceNumber) -> Option<Holder> {
    let here = MountTable::own().ok().and_then(|table| mounted(&table, device));
    here.map(Holder::Mount).or_else(|| {
        bounded(move || {
            mounted_elsewhere(device).or_else(|| {
                let users = users_of(Target::FileSystem(device));
                (!users.users.is_empty()).then_some(Holder::Users(users))
            })
        })
    })
}

/// Where a table has a FUSE file system mounted. (A number that is free again may be given to a
/// file system of another kind.)
fn mounted(table: &MountTable, device: DeviceNumber) -> Option<PathBuf> {
    let is_it = |mount: &&Mount| mount.device == device && mount.is_fuse();
    table.iter().find(is_it).map(|mount| mount.dir.clone())
}

/// Where another mount namespace has a file system mounted.
fn mounted_elsewhere(device: DeviceNumber) -> Option<Holder> {
    let mut seen = vec![Process::own().mount_namespace()];
    processes().into_iter().find_map(|process| {
        let namespace = process.mount_namespace();
        if namespace.is_none() || seen.contains(&namespace) {
            return None;
        }
        seen.push(namespace);
        let dir = mounted(&MountTable::of(process.0).ok()?, device)?;
        Some(Holder::Namespace(dir, process))
    })
}

/// The processes that have a volume: the lock of an image, or a block device open.
#[must_use]
pub fn volume_holders(volume: &Metadata) -> Vec<Process> {
    if !volume.file_type().is_block_device() {
        return lock_holders(volume);
    }
    let device = DeviceNumber::of(volume.rdev());
    let users = bounded(move || device_users(device)).users;
    users.into_iter().map(|user| user.process).collect()
}

/// Looks at processes, for a bounded time: one that executes a program while the daemon of that
/// does not answer cannot be looked at.
pub fn bounded<T: Default + Send + 'static>(look: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, seen) = mpsc::channel();
    let started = std::thread::Builder::new().spawn(move || send.send(look()));
    match started {
        Ok(_) => seen.recv_timeout(LOOK_TIMEOUT).unwrap_or_default(),
        Err(_) => T::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::{Usage, User};
    use std::path::Path;

    #[test]
    fn only_a_mount_of_fuse_counts() {
        let table = MountTable::parse(
            b"30 22 0:50 / /mnt/a rw - tmpfs none rw\n31 22 0:51 / /mnt/b rw - fuse.extol x rw\n",
        );
        let number = |minor| DeviceNumber { major: 0, minor };
        assert_eq!(mounted(&table, number(50)), None);
        assert_eq!(mounted(&table, number(51)).as_deref(), Some(Path::new("/mnt/b")));
        assert_eq!(holder_of(DeviceNumber { major: 4095, minor: 1_048_575 }), None);
    }

    #[test]
    fn a_sentence_names_it() {
        let process = Process(4_000_000_000);
        let user = User { process, usage: Usage::CurrentDirectory };
        let users = Users { users: vec![user], hidden: 0 };
        for (holder, text) in [
            (Holder::Mount("/a".into()), "is mounted on /a as well"),
            (
                Holder::Namespace("/a".into(), process),
                "is mounted on /a in the mount namespace of process 4000000000",
            ),
            (Holder::Users(users), "is in use by process 4000000000: current directory"),
        ] {
            assert_eq!(holder.to_string(), text);
        }
    }

    #[test]
    fn a_look_that_hangs_ends() {
        assert_eq!(bounded(|| 7), 7);
        let began = std::time::Instant::now();
        let slow = bounded(|| {
            std::thread::sleep(LOOK_TIMEOUT * 2);
            7
        });
        assert!(slow == 0 && began.elapsed() < LOOK_TIMEOUT * 2);
    }
}
