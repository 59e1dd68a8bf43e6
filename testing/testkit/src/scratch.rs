//! Scratch directories that are gone afterwards, whatever happens.
//!
//! A directory is named `extol-test-<pid>-<start time of the process>-<random>`. The first use in a
//! process sweeps directories whose process no longer lives: unmounts what is mounted below them,
//! detaches loop devices over files in them, and removes them. Pid and start time together name a
//! process for good, so a sweep never touches a run that is still going on.

use crate::loopdev::{backing_path, detach_if};
use crate::{mount, run_ok, tool};
use extol_proc::Process;
use std::path::{Path, PathBuf};
use std::sync::Once;

const PREFIX: &str = "extol-test-";
static SWEEP: Once = Once::new();
static SWEEP_MEMORY: Once = Once::new();

/// Gives a disk of [`Scratch::small_disk`] so many bytes (`200m`).
///
/// # Panics
/// If more lies on it.
pub fn resize_small_disk(dir: &Path, size: &str) {
    run_ok(tool("mount").args(["-o", &format!("remount,size={size}")]).arg(dir));
}

/// A directory for one test, removed on drop together with everything mounted or attached below it.
#[derive(Debug)]
pub struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// Makes an empty directory, world-searchable, below `$EXTOL_TEST_DIR` or the system's
    /// temporary directory.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        Self::below(&base(), &SWEEP)
    }

    /// The same in memory (`/dev/shm`), for many small images that are written and read once.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn in_memory() -> Self {
        let memory = Path::new("/dev/shm");
        if memory.is_dir() { Self::below(memory, &SWEEP_MEMORY) } else { Self::new() }
    }

    /// A directory of this name with a file system in memory of so many bytes (`24m`), as a disk
    /// that is soon full. Every user may write there.
    ///
    /// # Panics
    /// If it cannot be mounted ([`Need::Kernel`](crate::Need) `tmpfs`).
    #[must_use]
    pub fn small_disk(&self, name: &str, size: &str) -> PathBuf {
        let dir = self.dir(name);
        let options = format!("size={size},mode=777");
        run_ok(tool("mount").args(["-t", "tmpfs", "-o", &options, "none"]).arg(&dir));
        dir
    }

    fn below(base: &Path, swept: &Once) -> Self {
        std::fs::create_dir_all(base).expect("scratch base directory");
        swept.call_once(|| sweep(base));
        let me = std::process::id();
        let start = Process(me).start_time().unwrap_or(0);
        let path = tempfile::Builder::new()
            .prefix(&format!("{PREFIX}{me}-{start}-"))
            .tempdir_in(base)
            .expect("scratch directory")
            .keep();
        rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(0o755)).expect("chmod scratch");
        Self { path }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A path below the directory; nothing is created.
    #[must_use]
    pub fn join(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Creates an empty directory below.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn dir(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).expect("directory in scratch");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        clear(&self.path);
    }
}

fn base() -> PathBuf {
    std::env::var_os("EXTOL_TEST_DIR").map_or_else(std::env::temp_dir, PathBuf::from)
}

fn sweep(base: &Path) {
    let Ok(entries) = std::fs::read_dir(base) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some((pid, start)) = name.to_str().and_then(parse_name) else { continue };
        if Process(pid).start_time() != Some(start) {
            clear(&entry.path());
        }
    }
}

fn parse_name(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Unmounts, detaches and removes everything below a directory, and the directory.
fn clear(path: &Path) {
    for mounted in mount::mounts_below(path).into_iter().rev() {
        let _ = tool("umount").arg("-l").arg(&mounted).output();
    }
    for device in extol_proc::loops_below(path) {
        // The number may belong to another test by now.
        let node = &device.node;
        detach_if(node, || backing_path(node).is_some_and(|file| file.starts_with(path)));
    }
    let _ = std::fs::remove_dir_all(path);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_process_is_swept_and_a_living_one_is_not() {
        let base = Scratch::new();
        let me = std::process::id();
        let alive = base.dir(&format!("{PREFIX}{me}-{}-x", Process(me).start_time().unwrap()));
        let reused = base.dir(&format!("{PREFIX}{me}-1-x"));
        let dead = base.dir(&format!("{PREFIX}4194999-77-x"));
        let other = base.dir("something-else");
        std::fs::write(dead.join("file"), b"x").unwrap();
        sweep(base.path());
        assert!(alive.exists() && other.exists());
        assert!(!dead.exists() && !reused.exists());
    }

    #[test]
    fn drop_removes_the_directory() {
        let scratch = Scratch::new();
        let path = scratch.path().to_owned();
        std::fs::write(scratch.join("file"), b"x").unwrap();
        drop(scratch);
        assert!(!path.exists());
    }
}
