//! A mounted volume: where its root is, and its counters.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use extol::Stats;
use extol_cli_common::{Failure, Result};
use extol_fuse::STATS_XATTR;

/// A mounted volume.
#[derive(Debug)]
pub struct MountedVolume {
    /// The root of the mount.
    pub root: PathBuf,
    /// The directory that was asked for.
    dir: PathBuf,
}

impl MountedVolume {
    /// The mount that holds `dir`.
    pub fn of(dir: &Path) -> Result<Self> {
        Ok(Self { root: root_of(dir)?, dir: dir.to_path_buf() })
    }

    /// Its counters as JSON.
    pub fn json(&self) -> Result<String> {
        let mut buffer = vec![0; 65536];
        let len = rustix::fs::getxattr(&self.root, STATS_XATTR, &mut buffer[..])
            .map_err(|error| self.access_error(error))?;
        buffer.truncate(len);
        Ok(String::from_utf8_lossy(&buffer).into_owned())
    }

    /// Its counters. The options are those of the volume, and those of the mount that change what
    /// is seen.
    pub fn stats(&self) -> Result<Stats> {
        let text = self.json()?;
        let mut stats: Stats = serde_json::from_str(&text).map_err(|error| Failure {
            line: format!("the mount's counters: {error} (is the mount of another version?)"),
            code: Failure::INTERNAL,
        })?;
        let counters: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        if let Some(view) = counters["fuse"]["options"].as_str() {
            stats.mount_options = format!("{},{view}", stats.mount_options);
        }
        Ok(stats)
    }

    /// How the kernel's requests come to it, in words.
    pub fn transport(&self) -> Result<&'static str> {
        let counters: serde_json::Value = serde_json::from_str(&self.json()?).unwrap_or_default();
        Ok(match counters["fuse"]["transport"].as_str() {
            Some("io_uring") => "io_uring",
            _ => "/dev/fuse",
        })
    }

    /// What its daemon is confined to, in words.
    pub fn sandbox(&self) -> Result<String> {
        let counters: serde_json::Value = serde_json::from_str(&self.json()?).unwrap_or_default();
        Ok(counters["fuse"]["sandbox"].as_str().unwrap_or("off").to_owned())
    }

    /// The failure for a mount that does not answer.
    pub fn access_error(&self, error: rustix::io::Errno) -> Failure {
        match error {
            rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP => foreign(&self.dir),
            error if extol_fuse::is_dead(error) => dead_daemon(&self.root),
            error => Failure::about(self.root.display(), error),
        }
    }
}

/// The failure for a directory on another file system.
pub fn foreign(dir: &Path) -> Failure {
    Failure::new(format_args!("{} is not on a volume that extol has mounted", dir.display()))
}

fn dead_daemon(dir: &Path) -> Failure {
    Failure::new(format_args!(
        "{}: the daemon has died; unmount (extol umount {0}) and mount again",
        dir.display()
    ))
}

/// The root of the mount that holds `dir`.
pub fn root_of(dir: &Path) -> Result<PathBuf> {
    let fail = |error: std::io::Error| match rustix::io::Errno::from_io_error(&error) {
        Some(errno) if extol_fuse::is_dead(errno) => dead_daemon(dir),
        _ => Failure::about(dir.display(), error),
    };
    let mut root = dir.canonicalize().map_err(fail)?;
    let device = root.metadata().map_err(fail)?.dev();
    while let Some(parent) = root.parent() {
        if parent.metadata().map_err(fail)?.dev() != device {
            break;
        }
        root = parent.to_path_buf();
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is no mount is named itself, and not the root of the mount that holds it.
    #[test]
    fn failures_name_what_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let failure = MountedVolume::of(dir.path()).unwrap().json().unwrap_err();
        let named = format!("{} is not on a volume", dir.path().display());
        assert!(failure.line.starts_with(&named), "{}", failure.line);
    }
}
