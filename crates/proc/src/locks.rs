//! `/proc/locks`: which processes hold the lock of a file.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

use crate::mounts::DeviceNumber;
use crate::process::Process;
use crate::text::{number, words};

/// The processes that hold a flock(2) on this file. Empty where the table does not show them: the
/// file system's device number may be another there, and a process of another pid namespace has no
/// number.
#[must_use]
pub fn lock_holders(file: &Metadata) -> Vec<Process> {
    std::fs::read("/proc/locks").map(|table| holders(&table, file)).unwrap_or_default()
}

fn holders(table: &[u8], file: &Metadata) -> Vec<Process> {
    let DeviceNumber { major, minor } = DeviceNumber::of(file.dev());
    let place = format!("{major:02x}:{minor:02x}:{}", file.ino());
    let held = |line: &[u8]| {
        let mut words = words(line).skip(1);
        // A process that waits for a lock has an arrow before it.
        words.next().filter(|kind| *kind == b"FLOCK")?;
        let pid = number(words.nth(2)?).filter(|pid| *pid != 0)?;
        words.next().filter(|at| *at == place.as_bytes()).map(|_| Process(pid))
    };
    table.split(|byte| *byte == b'\n').filter_map(held).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::FlockOperation;

    #[test]
    fn a_holder_is_found_by_its_lock() {
        let file = tempfile::tempfile().unwrap();
        let meta = file.metadata().unwrap();
        assert_eq!(lock_holders(&meta), []);
        rustix::fs::flock(&file, FlockOperation::LockExclusive).unwrap();
        if lock_holders(&meta).is_empty() {
            println!("SKIP: this file system's device number is another in /proc/locks");
            return;
        }
        assert_eq!(lock_holders(&meta), [Process::own()]);
    }

    #[test]
    fn waiters_and_other_locks_hold_nothing() {
        let meta = std::fs::metadata("/").unwrap();
        let (dev, ino) = (meta.dev(), meta.ino());
        let place = format!("{:02x}:{:02x}:{ino}", rustix::fs::major(dev), rustix::fs::minor(dev));
        let table = format!(
            "1: POSIX  ADVISORY  WRITE 11 {place} 0 EOF\n\
             2: FLOCK  ADVISORY  WRITE 12 {place} 0 EOF\n\
             2: -> FLOCK  ADVISORY  WRITE 13 {place} 0 EOF\n\
             3: FLOCK  ADVISORY  WRITE 14 fe:00:1{ino} 0 EOF\n\
             4: FLOCK  ADVISORY  WRITE 0 {place} 0 EOF\n"
        );
        assert_eq!(holders(table.as_bytes(), &meta), [Process(12)]);
    }
}
