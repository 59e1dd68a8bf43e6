//! `--pid-file`: the number of the process that serves, for scripts and service managers.
//!
//! The file is locked as long as the process lives, so that two exports cannot share one. A process
//! in the sandbox cannot remove a file: at its end the file is empty.

use std::fs::{File, OpenOptions};
use std::io::{Seek as _, Write as _};
use std::path::{Path, PathBuf};

use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;
use rustix::fs::{FlockOperation, flock};

/// An open file of this process.
#[derive(Debug)]
pub struct PidFile {
    file: File,
    path: PathBuf,
}

impl PidFile {
    /// Takes a file, which is empty until the export answers.
    pub fn take(path: &Path) -> Result<Self> {
        let fail = |error: std::io::Error| Failure::system_call(path.shown(), error);
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(path).map_err(fail)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            Failure::about(path.shown(), "another process has it as its pid file; name another one")
        })?;
        file.set_len(0).map_err(fail)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Writes the number of this process.
    pub fn write(&mut self) -> Result<()> {
        let line = format!("{}\n", std::process::id());
        let written = self.file.rewind().and_then(|()| self.file.write_all(line.as_bytes()));
        written.map_err(|error| Failure::system_call(self.path.shown(), error))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = self.file.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_belongs_to_one_process() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join("pid");
        std::fs::write(&path, "stale, and longer than a number\n").unwrap();
        let read = || std::fs::read_to_string(&path).unwrap();
        let mut file = PidFile::take(&path).unwrap();
        assert_eq!(read(), "");
        file.write().unwrap();
        assert_eq!(read(), format!("{}\n", std::process::id()));
        let line = PidFile::take(&path).unwrap_err().line;
        assert!(line.contains("another process has it"), "{line}");
        assert_eq!(read(), format!("{}\n", std::process::id()));
        drop(file);
        assert_eq!(read(), "");
        assert!(PidFile::take(&path).is_ok());
    }
}
