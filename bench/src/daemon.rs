//! A process of ours that serves a mount for as long as a value lives.
//!
//! It is `extol-bench` with a subcommand for that, told to end with its standard input, so that it
//! never outlives the process that started it, and to print one line when the mount is there.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::subject::is_mounted;
use crate::{BenchError, Result};

/// How long the server may take to end once its mount is no longer in use.
const PATIENCE: Duration = Duration::from_secs(20);

/// The process, and the directory that it mounts on.
#[derive(Debug)]
pub(crate) struct Daemon {
    child: Child,
    dir: tempfile::TempDir,
}

impl Daemon {
    /// Runs `extol-bench WORDS DIRECTORY`, which serves `what`, and waits for a line that begins
    /// with `ready`.
    pub fn start(bench: &Path, what: &str, words: &[OsString], ready: &str) -> Result<Self> {
        let name = words.first().map_or("server".into(), |word| word.to_string_lossy());
        let dir = tempfile::Builder::new()
            .prefix(&format!("extol-{name}-"))
            .tempdir()
            .map_err(|e| BenchError(format!("cannot make a directory for the {what}: {e}")))?;
        let child = Command::new(bench)
            .args(words)
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|e| BenchError(format!("cannot run {}: {e}", bench.display())))?;
        let mut server = Self { child, dir };
        let mut line = String::new();
        if let Some(out) = &mut server.child.stdout {
            // Ends at the latest when the child does.
            let _ = BufReader::new(out).read_line(&mut line);
        }
        if line.starts_with(ready) {
            return Ok(server);
        }
        drop(server.child.stdin.take());
        let mut said = String::new();
        if let Some(err) = &mut server.child.stderr {
            let _ = err.read_to_string(&mut said);
        }
        let said = said.lines().next().unwrap_or("it said nothing").to_owned();
        Err(BenchError(format!("the {what} did not come up: {said}")))
    }

    /// Where it is mounted.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // The end of its input is the end of the server.
        drop(self.child.stdin.take());
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && !matches!(self.child.try_wait(), Ok(Some(_))) {
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        // A server that was killed has left its mount.
        if is_mounted(self.dir.path()) {
            let _ = extol_fuse::unmount(self.dir.path(), true);
        }
    }
}
