//! Exports over NFS by the `extol` binary under test.

use crate::extol;
use rustix::process::{Pid, Signal};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take to answer, and to end.
const LIMIT: Duration = Duration::from_secs(60);

/// What a file of messages has by now.
fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

/// A live `extol export -f`, killed on drop.
#[derive(Debug)]
pub struct ExtolExport {
    child: Child,
    log: PathBuf,
    /// Where it answers.
    pub address: SocketAddr,
}

impl ExtolExport {
    /// Exports an image at a port of this machine (0: any), and waits until it answers.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn start(source: &Path, port: u16, args: &[&str]) -> Self {
        let (said, log) = (source.with_extension("said"), source.with_extension("log"));
        let create = |path: &Path| File::create(path).expect("a file for messages");
        let mut command = extol();
        command.args(["export", "-f", "-v", &format!("--listen=127.0.0.1:{port}")]).args(args);
        // What an export keeps is kept beside the image.
        command.arg("--state-dir").arg(source.with_extension("state"));
        command.arg(source).stdin(Stdio::null()).stdout(create(&said)).stderr(create(&log));
        let mut child = command.spawn().expect("start extol export");
        let end = Instant::now() + LIMIT;
        loop {
            let line = text_of(&said);
            if let Some(line) = line.strip_suffix('\n') {
                let address = line.rsplit(' ').next().and_then(|word| word.parse().ok());
                return Self { child, log, address: address.expect("an address") };
            }
            let ended = child.try_wait().expect("wait for a child");
            let is_late = Instant::now() > end;
            if ended.is_some() || is_late {
                let _ = child.kill();
                let _ = child.wait();
                let log = text_of(&log);
                panic!("extol export {} ended with {ended:?}: {log}", source.display());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The address of a directory or a file for the tools of libnfs.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        let port = self.address.port();
        format!("nfs://127.0.0.1{path}?nfsport={port}&mountport={port}")
    }

    /// What it has said.
    #[must_use]
    pub fn log(&self) -> String {
        text_of(&self.log)
    }

    /// Ends it at once, as a crash does.
    pub fn kill9(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Ends it with SIGTERM.
    ///
    /// # Panics
    /// If it does not end.
    #[must_use]
    pub fn end(mut self) -> ExitStatus {
        let pid = Pid::from_child(&self.child);
        rustix::process::kill_process(pid, Signal::TERM).expect("send a signal");
        let end = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().expect("wait for a child") {
                return status;
            }
            assert!(Instant::now() < end, "the server does not end: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for ExtolExport {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
