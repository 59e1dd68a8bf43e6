//! What is measured: a way to mount an ext4 volume.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::{BenchError, Result};

/// A way to mount.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SubjectKind {
    /// The `extol` command.
    Extol,
    /// Another build of it.
    Before,
    /// e2fsprogs' FUSE driver.
    Fuse2fs,
    /// The running kernel's ext4.
    Kernel,
}

impl SubjectKind {
    /// A mount of Extol, of whatever build.
    #[must_use]
    pub fn is_extol(self) -> bool {
        matches!(self, Self::Extol | Self::Before)
    }

    /// Its name on the command line and in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Extol => "mount",
            Self::Before => "before",
            Self::Fuse2fs => "fuse2fs",
            Self::Kernel => "kernel",
        }
    }
}

pub(crate) fn run(program: impl AsRef<OsStr>, args: &[impl AsRef<OsStr>]) -> Result<String> {
    let program = program.as_ref();
    let out = Command::new(program).args(args).stdin(Stdio::null()).output().map_err(|e| {
        BenchError(format!(
            "cannot run {}: {e}; scripts/install-deps.sh installs what benchmarks need",
            program.display()
        ))
    })?;
    if !out.status.success() {
        let text = String::from_utf8_lossy(&out.stderr);
        let words: Vec<&OsStr> = args.iter().map(AsRef::as_ref).collect();
        let (program, words) = (program.display(), words.join(OsStr::new(" ")));
        return Err(BenchError(format!("{program} {} failed: {}", words.display(), text.trim())));
    }
    Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

/// Puts a free loop device over a file, with these options of losetup; gives its name.
pub(crate) fn attach_loop(file: &Path, options: &[&str]) -> Result<String> {
    let mut words: Vec<OsString> = ["--find", "--show"].map(OsString::from).into();
    words.extend(options.iter().map(OsString::from));
    words.push(file.into());
    // Two processes may be given the same free device, and one of them then fails: once more.
    let mut tries = 0;
    loop {
        match run("losetup", &words) {
            Err(_) if tries < 20 => tries += 1,
            outcome => return outcome,
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A loop device over a file; detached when dropped.
pub(crate) struct Loop {
    pub device: String,
}

impl Loop {
    pub fn attach(file: &Path) -> Result<Self> {
        attach_loop(file, &[]).map(|device| Self { device })
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["-d", &self.device]);
    }
}

/// A mounted subject; unmounted when dropped.
pub(crate) struct Mounted {
    kind: SubjectKind,
    dir: PathBuf,
    done: bool,
}

impl Mounted {
    pub fn mount(
        kind: SubjectKind,
        device: &str,
        dir: &Path,
        extol: &Path,
        options: &str,
    ) -> Result<Self> {
        let mut words: Vec<&OsStr> = match kind {
            SubjectKind::Kernel => vec!["-t".as_ref(), "ext4".as_ref()],
            SubjectKind::Fuse2fs => vec![],
            SubjectKind::Extol | SubjectKind::Before => vec!["mount".as_ref()],
        };
        if !options.is_empty() {
            words.extend([OsStr::new("-o"), options.as_ref()]);
        }
        words.extend([device.as_ref(), dir.as_os_str()]);
        match kind {
            SubjectKind::Kernel => run("mount", &words)?,
            SubjectKind::Fuse2fs => run("fuse2fs", &words)?,
            SubjectKind::Extol | SubjectKind::Before => run(extol, &words)?,
        };
        let mounted = Self { kind, dir: dir.to_owned(), done: false };
        mounted.wait_until_there()?;
        Ok(mounted)
    }

    fn wait_until_there(&self) -> Result<()> {
        let end = Instant::now() + Duration::from_secs(10);
        while !is_mounted(&self.dir) {
            if Instant::now() > end {
                return Err(BenchError(format!("{} did not mount", self.kind.name())));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    pub fn kind(&self) -> SubjectKind {
        self.kind
    }

    /// The process that serves it; the kernel's mounts have none.
    pub fn daemon(&self) -> Option<u32> {
        match self.kind {
            SubjectKind::Kernel => None,
            SubjectKind::Extol | SubjectKind::Before => {
                self.xattr("user.extol.daemon")?.parse().ok()
            }
            SubjectKind::Fuse2fs => serving("fuse2fs", &self.dir),
        }
    }

    /// Extol's state and counters.
    pub fn stats(&self) -> Option<serde_json::Value> {
        if !self.kind.is_extol() {
            return None;
        }
        serde_json::from_str(&self.xattr("user.extol.stats")?).ok()
    }

    fn xattr(&self, name: &str) -> Option<String> {
        let mut text = vec![0; 65536];
        let len = rustix::fs::getxattr(&self.dir, name, &mut text[..]).ok()?;
        text.truncate(len);
        String::from_utf8(text).ok()
    }

    /// Unmounts and waits until everything is on the device.
    pub fn unmount(mut self, extol: &Path, device: &str) -> Result<()> {
        self.done = true;
        let dir = self.dir.as_os_str();
        match self.kind {
            SubjectKind::Extol | SubjectKind::Before => run(extol, &["umount".as_ref(), dir])?,
            _ => run("umount", &[dir])?,
        };
        // fuse2fs goes on writing after the unmount returned: the device is free when it can be
        // opened exclusively.
        let end = Instant::now() + Duration::from_secs(120);
        while run("fuser", &["-s", device]).is_ok() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if !self.done {
            let _ = run("umount", &["-l".as_ref(), self.dir.as_os_str()]);
        }
    }
}

/// The process of this program that has `dir` among its arguments.
fn serving(program: &str, dir: &Path) -> Option<u32> {
    let dir = dir.as_os_str().as_encoded_bytes();
    extol_proc::processes().into_iter().find_map(|process| {
        let line = std::fs::read(process.file("cmdline")).ok()?;
        let mut words = line.split(|b| *b == 0);
        let is_it = words.next()?.ends_with(program.as_bytes()) && words.any(|w| w == dir);
        is_it.then_some(process.0)
    })
}

/// Something is mounted on the directory.
pub(crate) fn is_mounted(dir: &Path) -> bool {
    extol_proc::MountTable::own().is_ok_and(|table| table.top(dir).is_some())
}
