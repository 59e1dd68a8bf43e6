//! Mounts by the `extol` binary under test.
//!
//! The daemon runs in the foreground as a child of the test, with its messages in a file. A watcher
//! kills it when it lives longer than its limit: a call that is blocked on the mount then fails
//! with ENOTCONN, so a deadlock in the daemon is a failed test and not a hanging run.

use crate::{mounted_type, tool, transport_option, unmount};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// A mount that did not come up.
#[derive(Debug, Clone)]
pub struct MountFailed {
    /// Exit code of `extol mount`.
    pub code: Option<i32>,
    /// What it printed.
    pub output: String,
}

/// A live `extol mount -f`.
#[derive(Debug)]
pub struct ExtolMount {
    dir: PathBuf,
    log: PathBuf,
    child: Option<Child>,
    watch: Arc<Watch>,
}

#[derive(Debug, Default)]
struct Watch {
    ended: Mutex<bool>,
    wake: Condvar,
}

impl Watch {
    fn end(&self) {
        *self.ended.lock().expect("watch lock") = true;
        self.wake.notify_all();
    }
}

impl ExtolMount {
    /// How long one mount may live before the watcher kills it.
    fn limit() -> Duration {
        Duration::from_secs(if std::env::var_os("EXTOL_LONG").is_some() { 6 * 3600 } else { 300 })
    }

    /// Mounts and waits until the mount is there.
    ///
    /// # Panics
    /// If it does not come up.
    #[must_use]
    pub fn start(source: &Path, dir: &Path, options: &[&str]) -> Self {
        match Self::try_start(source, dir, options) {
            Ok(mount) => mount,
            Err(e) => {
                panic!("extol mount {} failed with {:?}: {}", source.display(), e.code, e.output)
            }
        }
    }

    /// Mounts and waits until the mount is there or `extol` has given up.
    pub fn try_start(source: &Path, dir: &Path, options: &[&str]) -> Result<Self, MountFailed> {
        let mut command = crate::extol();
        command.args(["mount", "-f"]);
        if let Some(option) = transport_option() {
            command.args(["-o", option]);
        }
        if !options.is_empty() {
            command.arg("-o").arg(options.join(","));
        }
        command.arg(source).arg(dir);
        Self::spawn(command, dir)
    }

    /// Runs a prepared `extol mount -f …` command that mounts on `dir`.
    pub fn spawn(mut command: Command, dir: &Path) -> Result<Self, MountFailed> {
        let mut log = dir.as_os_str().to_owned();
        log.push(".log");
        let log = PathBuf::from(log);
        let out = File::create(&log).expect("log file of the daemon");
        let err = out.try_clone().expect("second handle on the log file");
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().unwrap_or_else(|e| panic!("cannot start {command:?}: {e}"));
        let mut mount =
            Self { dir: dir.to_owned(), log, child: Some(child), watch: Arc::default() };
        let start = Instant::now();
        // `fuse.extol`, and `fuseblk.extol` for block devices.
        while mounted_type(dir).is_none_or(|kind| !kind.ends_with(".extol")) {
            if let Some(status) = mount.exited() {
                mount.child = None;
                return Err(MountFailed { code: status.code(), output: mount.log() });
            }
            if start.elapsed() > Duration::from_secs(60) {
                mount.kill9();
                return Err(MountFailed {
                    code: None,
                    output: format!("not mounted after 60 s: {}", mount.log()),
                });
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        mount.start_watch();
        Ok(mount)
    }

    fn start_watch(&self) {
        let (watch, pid, dir) = (Arc::clone(&self.watch), self.pid(), self.dir.clone());
        std::thread::spawn(move || {
            let ended = watch.ended.lock().expect("watch lock");
            let (ended, _) =
                watch.wake.wait_timeout_while(ended, Self::limit(), |e| !*e).expect("watch lock");
            if !*ended && let Some(pid) = pid.and_then(|p| rustix::process::Pid::from_raw(p as i32))
            {
                eprintln!(
                    "extol on {} lives for {:?}: killed\n{}",
                    dir.display(),
                    Self::limit(),
                    threads_of(pid)
                );
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        });
    }

    fn exited(&mut self) -> Option<ExitStatus> {
        self.child.as_mut().and_then(|c| c.try_wait().ok().flatten())
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Process id of the daemon.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    /// What the daemon has printed so far.
    #[must_use]
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Resident memory of the daemon in KiB.
    ///
    /// # Panics
    /// If the daemon is gone.
    #[must_use]
    pub fn rss_kib(&self) -> u64 {
        let pid = self.pid().expect("a live daemon");
        let status = std::fs::read(format!("/proc/{pid}/status")).expect("status of the daemon");
        let value = extol_proc::field(&status, "VmRSS").expect("VmRSS");
        extol_proc::words(value).next().and_then(extol_proc::number).expect("a number of KiB")
    }

    /// Ends the daemon as a crash does, with SIGKILL, and takes the dead mount away.
    ///
    /// # Panics
    /// If the daemon had panicked before.
    pub fn kill9(&mut self) {
        self.kill_quietly();
        self.assert_no_panic();
    }

    fn kill_quietly(&mut self) {
        self.watch.end();
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = tool("umount").arg("-l").arg(&self.dir).output();
        }
    }

    /// Unmounts, waits for the daemon, and demands exit code 0.
    ///
    /// # Panics
    /// If the mount stays busy, or the daemon does not end well.
    #[track_caller]
    pub fn unmount(mut self) {
        unmount(&self.dir);
        let status = self.wait_for_end();
        assert!(status.success(), "extol ended with {status}: {}", self.log());
    }

    /// Unmounts a volume that may have failed, unless the daemon has done so: gives the exit code
    /// of the daemon, `None` if a signal ended it.
    ///
    /// # Panics
    /// If the mount stays busy, or the daemon panicked or does not end.
    #[track_caller]
    pub fn end(mut self) -> Option<i32> {
        if mounted_type(&self.dir).is_some() {
            unmount(&self.dir);
        }
        self.wait_for_end().code()
    }

    /// Waits for the daemon after another process has unmounted, and demands exit code 0.
    ///
    /// # Panics
    /// If the daemon does not end well.
    #[track_caller]
    pub fn ended(mut self) {
        let status = self.wait_for_end();
        assert!(status.success(), "extol ended with {status}: {}", self.log());
    }

    /// Sends a signal that asks for a clean end once the start is over, waits, and demands exit
    /// code 0.
    ///
    /// # Panics
    /// If the daemon does not end well.
    #[track_caller]
    pub fn terminate(mut self, signal: rustix::process::Signal) {
        self.wait_until_started();
        let pid = self
            .pid()
            .and_then(|p| rustix::process::Pid::from_raw(p as i32))
            .expect("a live daemon");
        rustix::process::kill_process(pid, signal).expect("send a signal");
        let status = self.wait_for_end();
        assert!(status.success(), "extol ended with {status}: {}", self.log());
        assert_eq!(mounted_type(&self.dir), None, "the mount must be gone");
    }

    /// Waits until signals end the mount: a signal before ends its start, which is a failure.
    ///
    /// # Panics
    /// If that takes a minute.
    #[track_caller]
    pub fn wait_until_started(&self) {
        let pid = self.pid().and_then(|p| rustix::process::Pid::from_raw(p as i32));
        let pid = pid.expect("a live daemon");
        let start = Instant::now();
        // (The thread that watches the volume starts behind that.)
        while !threads_of(pid).contains(": watch in ") {
            assert!(start.elapsed() < Duration::from_secs(60), "{}", threads_of(pid));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[track_caller]
    fn wait_for_end(&mut self) -> ExitStatus {
        let start = Instant::now();
        let status = loop {
            if let Some(status) = self.exited() {
                break status;
            }
            if start.elapsed() > Duration::from_secs(60) {
                let pid = self.pid().and_then(|p| rustix::process::Pid::from_raw(p as i32));
                let threads = pid.map(threads_of).unwrap_or_default();
                let log = self.log();
                self.kill_quietly();
                panic!("extol does not end after the unmount\n{threads}\n{log}");
            }
            std::thread::sleep(Duration::from_millis(2));
        };
        self.child = None;
        self.watch.end();
        self.assert_no_panic();
        status
    }

    #[track_caller]
    fn assert_no_panic(&self) {
        let log = self.log();
        assert!(!log.contains("panicked"), "extol panicked:\n{log}");
    }
}

impl Drop for ExtolMount {
    fn drop(&mut self) {
        if std::thread::panicking() && self.child.is_some() {
            eprintln!("log of extol on {}:\n{}", self.dir.display(), self.log());
        }
        self.kill_quietly();
    }
}

/// Names and wait channels of a process's threads, for messages about processes that hang.
fn threads_of(pid: rustix::process::Pid) -> String {
    let dir = format!("/proc/{}/task", pid.as_raw_nonzero());
    let Ok(tasks) = std::fs::read_dir(dir) else { return String::new() };
    let read =
        |p: PathBuf| String::from_utf8_lossy(&extol_proc::read(p).unwrap_or_default()).into_owned();
    tasks
        .flatten()
        .map(|t| {
            format!(
                "  thread {}: {} in {}\n",
                t.file_name().display(),
                read(t.path().join("comm")),
                read(t.path().join("wchan"))
            )
        })
        .collect()
}
