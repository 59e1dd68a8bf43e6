//! A process, from `/proc/PID`.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use crate::shown::Shown as _;
use crate::text::{number, read, words};

/// A process, by its number. It may end at any time, and another may get the number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Process(pub u32);

impl Process {
    /// This process.
    #[must_use]
    pub fn own() -> Self {
        Self(std::process::id())
    }

    /// A file of its directory in `/proc`.
    #[must_use]
    pub fn file(self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{name}", self.0))
    }

    /// The name of its program, cut at 15 bytes.
    #[must_use]
    pub fn name(self) -> Option<OsString> {
        read(self.file("comm")).map(OsString::from_vec)
    }

    /// Field `n` of `/proc/PID/stat`, counted from 1 as in proc_pid_stat(5), from the third on.
    #[must_use]
    pub fn stat_field(self, n: usize) -> Option<Vec<u8>> {
        let stat = read(self.file("stat"))?;
        // The second field is the name in brackets, and may hold anything.
        let end = stat.iter().rposition(|byte| *byte == b')')?;
        words(stat.get(end + 1..)?).nth(n.checked_sub(3)?).map(<[u8]>::to_vec)
    }

    /// False if it has ended, though its parent may not have asked for its exit status yet.
    #[must_use]
    pub fn is_alive(self) -> bool {
        self.stat_field(3).is_some_and(|state| !matches!(state[..], [b'Z' | b'X' | b'x', ..]))
    }

    /// When it started, in clock ticks since the start of the system. Together with its number it
    /// names a process for good.
    #[must_use]
    pub fn start_time(self) -> Option<u64> {
        number(&self.stat_field(22)?)
    }

    /// Which mount namespace it is in. `None`: not known.
    #[must_use]
    pub fn mount_namespace(self) -> Option<u64> {
        std::fs::metadata(self.file("ns/mnt")).ok().map(|file| file.ino())
    }
}

/// `bash (1234)`, or `process 1234` if its name is not known.
impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({})", name.shown(), self.0),
            None => write!(f, "process {}", self.0),
        }
    }
}

/// All processes that `/proc` shows, by their numbers.
#[must_use]
pub fn processes() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .filter_map(|entry| number(entry.file_name().as_encoded_bytes()).map(Process))
        .collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::process::Command;

    #[test]
    fn an_ended_process_is_not_alive() {
        assert!(Process::own().is_alive() && processes().contains(&Process::own()));
        let mut child = Command::new("true").spawn().unwrap();
        let process = Process(child.id());
        let state = || process.stat_field(3).unwrap();
        while state() != b"Z" {
            std::thread::yield_now();
        }
        assert!(!process.is_alive(), "a zombie");
        child.wait().unwrap();
        assert!(!process.is_alive());
    }

    /// A program's name is what its file is called, which need not be text.
    #[test]
    fn a_name_that_is_no_text_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join(OsStr::from_bytes(b"\xff) Z \xfe"));
        std::fs::copy("/bin/sleep", &program).unwrap();
        let mut child = Command::new(&program).arg("60").spawn().unwrap();
        let process = Process(child.id());
        let is_named = || process.name().is_some_and(|name| name.as_bytes() == b"\xff) Z \xfe");
        while !is_named() {
            std::thread::yield_now();
        }
        assert!(process.is_alive());
        assert!(process.start_time() >= Process::own().start_time());
        assert_eq!(process.mount_namespace(), Process::own().mount_namespace());
        assert!(process.to_string().ends_with(&format!("({})", child.id())));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
