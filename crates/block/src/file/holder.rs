//! Which process has a volume, and where it is mounted.
//!
//! A lock alone does not show whether its holder is a mount or a process that is ending and
//! releases it late (`busy.rs`). Two tables of the kernel together do: `/proc/locks` names the
//! process that holds the lock of a file, and mountinfo the directory on which the file is mounted.
//! A living process with the volume mounted keeps its lock, so the open fails at once and the
//! message names the directory. For all that these tables do not show (a process in another
//! container, a file system whose device number is another in the lock table) the open waits.
//!
//! A mount that was taken off lazily is in no table; its daemon goes on while something uses it.
//! The daemon's connection leads to that (`left_behind`).

use std::fs::Metadata;
use std::path::{Path, PathBuf};

use extol_proc::{DeviceNumber, Holder, MountTable, Process, Shown as _};

/// Where a volume is mounted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MountedAt {
    /// The directory.
    dir: PathBuf,
    /// By Extol, or by the kernel.
    by_extol: bool,
    /// A process in whose mount namespace that is; `None`: in that of this process.
    elsewhere: Option<Process>,
}

impl MountedAt {
    /// As the end of a sentence that begins with the volume: where it is, and what to do.
    pub(super) fn sentence(&self) -> String {
        let dir = self.dir.shown();
        let program = if self.by_extol { "extol umount" } else { "umount" };
        match self.elsewhere {
            None => format!("is mounted at {dir}: unmount it first ({program} {dir})"),
            Some(process) => format!(
                "is mounted at {dir} in the mount namespace of {process}: unmount it there first \
                 (nsenter -m -t {} {program} {dir})",
                process.0
            ),
        }
    }
}

/// Where a living process that holds the lock on this file has it mounted.
pub(super) fn mounted_by_living(file: &Metadata) -> Option<MountedAt> {
    let holders = living_holders(file);
    if holders.is_empty() {
        return None;
    }
    mount_of(file).or_else(|| mount_elsewhere(file, &holders))
}

/// Where a part of this file is mounted: the one of these names, else any if it is the only one, or
/// if no names are given.
pub(super) fn mounted_part(
    file: &Metadata,
    names: Option<super::busy::Names<'_>>,
) -> Option<MountedAt> {
    let table = MountTable::own().ok()?;
    let mut mounts = table.of_volume(file, Path::new("/"));
    let known = names.filter(|_| !mounts.is_empty()).map(|names| names()).unwrap_or_default();
    let named = mounts.iter().rfind(|mount| known.contains(&mount.source));
    let any = names.is_none() || mounts.len() == 1;
    let mount = named.copied().or_else(|| mounts.pop().filter(|_| any))?;
    Some(MountedAt { dir: mount.dir.clone(), by_extol: true, elsewhere: None })
}

/// The living processes that hold the lock on this file.
pub(super) fn living_holders(file: &Metadata) -> Vec<Process> {
    let holders = extol_proc::lock_holders(file).into_iter();
    holders.filter(|process| *process != Process::own() && process.is_alive()).collect()
}

/// True if this process holds the lock on this file, and no other one does.
pub(super) fn is_own(file: &Metadata) -> bool {
    let holders = extol_proc::lock_holders(file);
    !holders.is_empty() && holders.iter().all(|process| *process == Process::own())
}

/// Where an Extol has this file or block device mounted.
pub(super) fn mount_of(volume: &Metadata) -> Option<MountedAt> {
    find(&MountTable::own().ok()?, volume, Path::new("/")).map(|dir| MountedAt {
        dir,
        by_extol: true,
        elsewhere: None,
    })
}

/// The same in the mount namespaces of some processes.
pub(super) fn mount_elsewhere(volume: &Metadata, processes: &[Process]) -> Option<MountedAt> {
    let own = Process::own().mount_namespace();
    processes.iter().filter(|process| process.mount_namespace() != own).find_map(|process| {
        // Its paths are those that it sees.
        let root = process.file("root");
        let dir = find(&MountTable::of(process.0).ok()?, volume, &root)?;
        Some(MountedAt { dir, by_extol: true, elsewhere: Some(*process) })
    })
}

/// Where a table has this volume mounted last.
fn find(table: &MountTable, volume: &Metadata, root: &Path) -> Option<PathBuf> {
    table.of_volume(volume, root).pop().map(|mount| mount.dir.clone())
}

/// What keeps the mount of a volume that was taken off its directory (a lazy unmount), given the
/// processes that have the volume open. As the end of a sentence that begins with the volume.
pub(super) fn left_behind(processes: &[Process]) -> Option<String> {
    let all = processes.to_vec();
    let served = extol_proc::bounded(move || {
        let of = |process: &Process| {
            let process = *process;
            extol_proc::served_by(process).into_iter().map(move |device| (process, device))
        };
        all.iter().flat_map(of).collect::<Vec<_>>()
    });
    let holder = |(daemon, device)| Some((daemon, extol_proc::holder_of(device)?));
    let (daemon, holder) = served.into_iter().find_map(holder)?;
    Some(match holder {
        Holder::Mount(dir) => MountedAt { dir, by_extol: true, elsewhere: None }.sentence(),
        Holder::Namespace(dir, process) => {
            MountedAt { dir, by_extol: true, elsewhere: Some(process) }.sentence()
        }
        Holder::Users(_) => format!(
            "was unmounted lazily, and its daemon {daemon} goes on: the mount {holder}: end that \
             first"
        ),
    })
}

/// Where the kernel has one of these devices mounted.
pub(super) fn kernel_mount(devices: &[DeviceNumber]) -> Option<MountedAt> {
    let table = MountTable::own().ok()?;
    let mount = table.iter().find(|mount| devices.contains(&mount.device))?;
    // On a `fuseblk` mount the kernel claims the device for Extol.
    let by_extol = mount.is_extol();
    Some(MountedAt { dir: mount.dir.clone(), by_extol, elsewhere: None })
}

/// `, extol (1234)`; empty if no process is known.
pub(super) fn named(processes: &[Process]) -> String {
    processes.first().map(|process| format!(", {process}")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FlockOperation;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn this_process_and_its_lock_are_no_mount() {
        let file = tempfile::tempfile().unwrap();
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(living_holders(&meta), []);
        assert_eq!(mounted_by_living(&meta), None, "it is mounted nowhere");
    }

    /// Sources and directories are bytes.
    #[test]
    fn mounts_of_extol_are_known() {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join(OsStr::from_bytes(b"x\xff y.img"));
        std::fs::write(&image, b"").unwrap();
        let meta = image.metadata().unwrap();
        let line = |kind: &str, source: &[u8]| {
            let source = source.replace_blanks();
            [
                b"50 22 0:45 / /mnt/\xfe\\040b rw - ".as_slice(),
                kind.as_bytes(),
                b" ",
                &source,
                b" rw\n",
            ]
            .concat()
        };
        let found = |table: &[u8]| find(&MountTable::parse(table), &meta, Path::new("/"));
        let source = image.as_os_str().as_bytes();
        let expected = Some(PathBuf::from(OsStr::from_bytes(b"/mnt/\xfe b")));
        assert_eq!(found(&line("fuse.extol", source)), expected);
        assert_eq!(found(&line("fuseblk.extol", source)), expected);
        assert_eq!(found(&line("ext4", source)), None);
        assert_eq!(found(&line("fuse.extol", b"/nonexistent")), None);
    }

    trait ReplaceBlanks {
        fn replace_blanks(&self) -> Vec<u8>;
    }

    impl ReplaceBlanks for [u8] {
        fn replace_blanks(&self) -> Vec<u8> {
            self.iter()
                .flat_map(|b| if *b == b' ' { b"\\040".to_vec() } else { vec![*b] })
                .collect()
        }
    }

    #[test]
    fn a_sentence_says_what_to_do() {
        let mut at = MountedAt { dir: "/mnt".into(), by_extol: true, elsewhere: None };
        assert_eq!(at.sentence(), "is mounted at /mnt: unmount it first (extol umount /mnt)");
        at.elsewhere = Some(Process(4_000_000_000));
        let there = "is mounted at /mnt in the mount namespace of process 4000000000: unmount it \
                     there first (nsenter -m -t 4000000000 extol umount /mnt)";
        assert_eq!(at.sentence(), there);
    }
}
