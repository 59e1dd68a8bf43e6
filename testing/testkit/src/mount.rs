//! Mounts by Linux and by fuse2fs, and what `/proc/self/mountinfo` says about mounts.

use crate::{Image, LoopDevice, run, tool};
use extol_proc::MountTable;
use rustix::io::Errno;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Everything mounted at or below a directory, in the order of mounting.
pub(crate) fn mounts_below(dir: &Path) -> Vec<PathBuf> {
    let table = MountTable::own().unwrap_or_default();
    table.iter().map(|mount| mount.dir.clone()).filter(|path| path.starts_with(dir)).collect()
}

/// Type of the file system mounted last on exactly this directory.
#[must_use]
pub fn mounted_type(dir: &Path) -> Option<String> {
    // The parent is resolved, never the mount point itself: asking a dead or busy daemon could
    // block.
    let dir = match (dir.parent().and_then(|p| p.canonicalize().ok()), dir.file_name()) {
        (Some(parent), Some(name)) => parent.join(name),
        _ => dir.to_owned(),
    };
    let kind = MountTable::own().ok()?.top(&dir)?.kind.clone();
    Some(kind.into_string().expect("a type that is text"))
}

/// Unmounts a directory, waiting up to ten seconds while it is busy.
///
/// # Panics
/// If it stays busy.
pub fn unmount(dir: &Path) {
    let start = Instant::now();
    loop {
        let done = run(tool("umount").arg(dir), Duration::from_secs(120));
        if done.success() {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_secs(10),
            "{} ended with {:?}: {}",
            done.command,
            done.code,
            done.output
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Makes a mounted volume durable: by syncfs(2), and where Linux does not pass that on, by the
/// request that `extol sync` makes.
///
/// # Errors
/// What the kernel or the daemon answers.
pub fn sync_volume(dir: &Path) -> std::io::Result<()> {
    rustix::fs::syncfs(std::fs::File::open(dir)?)?;
    match rustix::fs::getxattr(dir, "user.extol.sync", &mut [0; 1]) {
        // It is no mount of Extol.
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        answer => Ok(answer.map(drop)?),
    }
}

/// Makes everything below a directory durable, file by file. On a FUSE mount this is the only way:
/// Linux does not pass syncfs(2) on to a FUSE daemon.
///
/// # Panics
/// If anything cannot be synced.
pub fn sync_tree(dir: &Path) {
    let sync = |path: &Path| {
        let done = std::fs::File::open(path).and_then(|file| file.sync_all());
        done.unwrap_or_else(|e| panic!("fsync {}: {e}", path.display()));
    };
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in dir.read_dir().unwrap_or_else(|e| panic!("readdir {}: {e}", dir.display())) {
            let entry = entry.expect("readdir");
            let kind = entry.file_type().expect("file type");
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                sync(&entry.path());
            }
        }
        sync(&dir);
    }
}

/// A mount by Linux's own ext4 over a loop device.
#[derive(Debug)]
pub struct KernelMount {
    dir: PathBuf,
    mounted: bool,
    // Detached in this order, after the unmount.
    _device: Option<LoopDevice>,
    _journal: Option<LoopDevice>,
}

impl KernelMount {
    /// Mounts an image read-write.
    ///
    /// # Panics
    /// If Linux refuses.
    #[must_use]
    pub fn mount(image: &Image, dir: &Path, options: &[&str]) -> Self {
        Self::try_mount(image, dir, options).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Mounts an image; the error is what mount(8) printed.
    pub fn try_mount(image: &Image, dir: &Path, options: &[&str]) -> Result<Self, String> {
        let device = LoopDevice::attach(&image.path);
        let journal = image.journal.as_deref().map(LoopDevice::attach);
        let mut options: Vec<String> = options.iter().map(|&o| o.to_owned()).collect();
        if let Some(journal) = &journal {
            options.push(format!("journal_path={}", journal.path().display()));
        }
        mount_command("ext4", device.path(), dir, &options)?;
        Ok(Self { dir: dir.to_owned(), mounted: true, _device: Some(device), _journal: journal })
    }

    /// Mounts a block device that the caller keeps.
    ///
    /// # Panics
    /// If Linux refuses.
    #[must_use]
    pub fn mount_device(device: &Path, dir: &Path, options: &[&str]) -> Self {
        let options: Vec<String> = options.iter().map(|&o| o.to_owned()).collect();
        mount_command("ext4", device, dir, &options).unwrap_or_else(|e| panic!("{e}"));
        Self { dir: dir.to_owned(), mounted: true, _device: None, _journal: None }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The loop device below it, if it is this mount's own.
    #[must_use]
    pub fn device(&self) -> Option<&Path> {
        self._device.as_ref().map(LoopDevice::path)
    }

    /// Unmounts and detaches. On return Linux has written everything.
    ///
    /// # Panics
    /// If it stays busy, or mounted in another mount namespace.
    pub fn unmount(mut self) {
        unmount(&self.dir);
        self.mounted = false;
        if let Some(device) = &self._device {
            device.wait_until_unmounted();
        }
    }
}

impl Drop for KernelMount {
    fn drop(&mut self) {
        if self.mounted {
            let _ = tool("umount").arg("-l").arg(&self.dir).output();
        }
    }
}

fn mount_command(kind: &str, device: &Path, dir: &Path, options: &[String]) -> Result<(), String> {
    let mut command = tool("mount");
    command.args(["-t", kind]);
    if !options.is_empty() {
        command.args(["-o", &options.join(",")]);
    }
    let done = run(command.arg(device).arg(dir), Duration::from_secs(60));
    if done.success() {
        Ok(())
    } else {
        Err(format!("{}: {:?}: {}", done.command, done.code, done.output))
    }
}

/// A mount by fuse2fs, the peer from e2fsprogs.
#[derive(Debug)]
pub struct Fuse2fsMount {
    dir: PathBuf,
    child: Option<std::process::Child>,
}

impl Fuse2fsMount {
    /// Mounts an image read-write and waits until it answers.
    ///
    /// # Panics
    /// If it does not come up within 20 seconds.
    #[must_use]
    pub fn start(source: &Path, dir: &Path, options: &[&str]) -> Self {
        let mut command = tool("fuse2fs");
        command.arg("-f").arg("-o").arg([&["fakeroot"], options].concat().join(","));
        let child = command
            .arg(source)
            .arg(dir)
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .expect("start fuse2fs");
        let mut mount = Self { dir: dir.to_owned(), child: Some(child) };
        let start = Instant::now();
        while mounted_type(dir).is_none() {
            let ended = mount.child.as_mut().and_then(|c| c.try_wait().ok().flatten());
            assert!(ended.is_none(), "fuse2fs ended with {ended:?}");
            assert!(start.elapsed() < Duration::from_secs(20), "fuse2fs does not come up");
            std::thread::sleep(Duration::from_millis(5));
        }
        mount
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Unmounts and waits for the daemon.
    ///
    /// # Panics
    /// If the mount stays busy or the daemon does not end.
    pub fn unmount(mut self) {
        unmount(&self.dir);
        let mut child = self.child.take().expect("a mounted daemon");
        let status = child.wait().expect("wait for fuse2fs");
        assert!(status.success(), "fuse2fs ended with {status}");
    }
}

impl Drop for Fuse2fsMount {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
            let _ = tool("umount").arg("-l").arg(&self.dir).output();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_mounted_and_a_fresh_directory_is_not() {
        assert!(mounted_type(Path::new("/proc")).is_some_and(|t| t == "proc"));
        let scratch = crate::Scratch::new();
        assert_eq!(mounted_type(scratch.path()), None);
    }
}
