//! Where a living Extol has a locked volume mounted.
//!
//! A lock alone does not show whether its holder is a mount or a process that is ending and
//! releases it late (`busy.rs`). Two tables of the kernel together do: `/proc/locks` names the
//! process that holds the lock of a file, and mountinfo the directory on which the file is mounted.
//! A living process with the volume mounted keeps its lock, so the open fails at once and the
//! message names the directory. For all that these tables do not show (a process in another
//! container, a file system whose device number is another in the lock table) the open waits.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where a living process that holds the lock on this file has it mounted.
pub(super) fn mounted_by_living(file: &File) -> Option<String> {
    let meta = file.metadata().ok()?;
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    if !holders(&locks, &meta).any(is_alive) {
        return None;
    }
    mount_of(&meta)
}

/// Where an Extol has this file or block device mounted.
pub(super) fn mount_of(volume: &Metadata) -> Option<String> {
    let table = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let mut mounts = table.lines().filter_map(parse);
    let same = |path: &str| {
        std::fs::metadata(Path::new(path)).is_ok_and(|meta| match volume.rdev() {
            0 => meta.dev() == volume.dev() && meta.ino() == volume.ino(),
            rdev => meta.rdev() == rdev,
        })
    };
    mounts.find(|(_, source)| source.starts_with('/') && same(source)).map(|(dir, _)| dir)
}

/// Directory and source of a line of mountinfo, if it is a mount by Extol.
fn parse(line: &str) -> Option<(String, String)> {
    let (mount, volume) = line.split_once(" - ")?;
    let mut volume = volume.split(' ');
    volume.next().filter(|kind| kind.starts_with("fuse") && kind.ends_with(".extol"))?;
    Some((unescape(mount.split(' ').nth(4)?), unescape(volume.next()?)))
}

/// The processes that hold a flock on this file.
fn holders<'a>(locks: &'a str, file: &Metadata) -> impl Iterator<Item = u32> + 'a {
    let (dev, ino) = (file.dev(), file.ino());
    let place = format!("{:02x}:{:02x}:{ino}", rustix::fs::major(dev), rustix::fs::minor(dev));
    locks.lines().filter_map(move |line| {
        let mut words = line.split_whitespace().skip(1);
        // A process that waits for a lock has an arrow before it.
        words.next().filter(|kind| *kind == "FLOCK")?;
        let pid = words.nth(2)?.parse().ok()?;
        words.next().filter(|at| *at == place).map(|_| pid)
    })
}

fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(") ").and_then(|(_, fields)| fields.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X' | 'x'))
}

/// Undoes the table's octal escapes (`\040` is a space).
pub(super) fn unescape(field: &str) -> String {
    let mut out = Vec::new();
    let mut rest = field.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let code = if *first == b'\\' {
            tail.get(..3)
                .and_then(|d| std::str::from_utf8(d).ok())
                .and_then(|d| u8::from_str_radix(d, 8).ok())
        } else {
            None
        };
        match code {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FlockOperation;

    #[test]
    fn a_holder_is_found_by_its_lock() {
        let file = tempfile::tempfile().unwrap();
        let meta = file.metadata().unwrap();
        let locks = || std::fs::read_to_string("/proc/locks").unwrap();
        assert_eq!(holders(&locks(), &meta).next(), None);
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
        if holders(&locks(), &meta).next().is_none() {
            println!("SKIP: this file system's device number is another in /proc/locks");
            return;
        }
        assert!(holders(&locks(), &meta).any(|pid| pid == std::process::id() && is_alive(pid)));
        assert_eq!(mounted_by_living(&file), None, "it is mounted nowhere");
    }

    #[test]
    fn an_ended_process_holds_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert!(!is_alive(child.id()), "a zombie");
        child.wait().unwrap();
        assert!(!is_alive(child.id()));
    }

    #[test]
    fn mount_table_escapes() {
        assert_eq!(unescape(r"/mnt/a\040b\134c"), "/mnt/a b\\c");
        assert_eq!(unescape(r"/mnt/\9\04"), r"/mnt/\9\04");
    }

    #[test]
    fn mounts_of_extol_are_known() {
        let line =
            r"50 22 0:45 / /mnt/a\040b rw,nosuid - fuse.extol /images/x\040y.img rw,user_id=0";
        assert_eq!(parse(line), Some(("/mnt/a b".into(), "/images/x y.img".into())));
        assert_eq!(parse("50 22 7:0 / /mnt rw - ext4 /dev/loop0 rw"), None);
        assert!(parse("50 22 7:0 / /mnt rw - fuseblk.extol /dev/loop0 rw").is_some());
    }
}
