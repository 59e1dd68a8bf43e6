//! A mounted volume: where its root is, and its counters; what is wrong with a mount that does not
//! answer, or that an error has stopped.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use extol::Stats;
use extol_cli_common::{Failure, Result};
use extol_fuse::{DAEMON_XATTR, STATS_XATTR};
use extol_proc::{Mount, MountTable, Shown as _};
use nix::unistd::User;
use rustix::io::Errno;

use crate::stat;

/// A mounted volume.
#[derive(Debug)]
pub struct MountedVolume {
    /// The root of the mount.
    pub root: PathBuf,
    /// What was asked for.
    asked: Asked,
}

/// What the command line asks for: a command, about a directory.
#[derive(Clone, Debug)]
struct Asked {
    command: &'static str,
    dir: PathBuf,
}

impl MountedVolume {
    /// The mount that holds `dir`, for this command.
    pub fn of(dir: &Path, command: &'static str) -> Result<Self> {
        let asked = Asked { command, dir: dir.to_owned() };
        Ok(Self { root: asked.root()?, asked })
    }

    /// The failure of a request that an error has made impossible: why the volume is read-only, and
    /// what to do, as `extol stat` says it. `None`: no error has stopped the volume.
    pub fn stopped(&self) -> Option<Failure> {
        let stats = self.stats().ok()?;
        let dir = self.root.shown().to_string();
        let state = stat::state_line(&dir, &stats);
        match stat::advice(&dir, &stats) {
            Some(advice) => Some(Failure::new(format_args!("{state}; {advice}"))),
            None => stats.stopped.then(|| Failure::new(state)),
        }
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

    /// The process that serves it.
    pub fn daemon(&self) -> Option<u32> {
        let mut text = [0; 32];
        let len = rustix::fs::getxattr(&self.root, DAEMON_XATTR, &mut text[..]).ok()?;
        std::str::from_utf8(text.get(..len)?).ok()?.trim().parse().ok()
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
    pub fn access_error(&self, error: Errno) -> Failure {
        match error {
            Errno::NODATA | Errno::OPNOTSUPP => self.asked.foreign(),
            error => self.asked.failed(error),
        }
    }
}

impl Asked {
    /// The root of the mount that holds the directory.
    fn root(&self) -> Result<PathBuf> {
        let fail = |error: std::io::Error| {
            let error = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            self.failed(error)
        };
        let mut root = self.dir.canonicalize().map_err(fail)?;
        let device = root.metadata().map_err(fail)?.dev();
        while let Some(parent) = root.parent() {
            if parent.metadata().map_err(fail)?.dev() != device {
                break;
            }
            root = parent.to_path_buf();
        }
        Ok(root)
    }

    /// The failure for a directory that cannot be looked at.
    fn failed(&self, error: Errno) -> Failure {
        let dir = self.dir.shown();
        if extol_fuse::is_dead(error) {
            return Failure::new(format_args!(
                "{dir}: the daemon has died; unmount (extol umount {dir}) and mount again"
            ));
        }
        let owner = (error == Errno::ACCESS).then(|| self.owner()).flatten();
        owner.map_or_else(|| Failure::system_call(dir, error), |uid| self.of_another_user(uid))
    }

    /// The failure for a directory on another file system.
    fn foreign(&self) -> Failure {
        Failure::new(format_args!("{} is not on a volume that extol has mounted", self.dir.shown()))
    }

    /// The user of the mount, if FUSE lets in that user alone, and this process is another's.
    fn owner(&self) -> Option<u32> {
        let path = std::path::absolute(&self.dir).ok()?;
        // What lies inside cannot be resolved.
        let path = path.ancestors().find_map(|above| {
            Some(above.canonicalize().ok()?.join(path.strip_prefix(above).ok()?))
        })?;
        let table = MountTable::own().ok()?;
        let mount = table.holding(&path)?;
        owner_alone(mount).filter(|uid| *uid != rustix::process::geteuid().as_raw())
    }

    fn of_another_user(&self, uid: u32) -> Failure {
        let Self { command, dir } = self;
        let (named, sudo) = match user_name(uid) {
            Some(name) => (name.clone(), name),
            None => (format!("user {uid}"), format!("'#{uid}'")),
        };
        Failure::usage(format_args!(
            "{}: the mount belongs to {named}, and FUSE lets no other user in, not even root: \
             sudo -u {sudo} extol {command} {0}, or mount with -o allow_root",
            dir.shown()
        ))
    }
}

/// What an Extol has mounted on a directory, and for which user, if FUSE lets in that user alone.
/// As the end of a sentence that begins with the directory.
pub fn holder_of(dir: &Path) -> Option<String> {
    let table = MountTable::own().ok()?;
    let mount = table.top(dir)?;
    let uid = owner_alone(mount).filter(|uid| *uid != rustix::process::geteuid().as_raw())?;
    let source = Path::new(&mount.source);
    Some(format!(
        "{} is mounted there by user {}: unmount it first (extol umount {})",
        source.shown(),
        user_name(uid).unwrap_or_else(|| uid.to_string()),
        dir.shown()
    ))
}

fn user_name(uid: u32) -> Option<String> {
    User::from_uid(uid.into()).ok().flatten().map(|user| user.name)
}

/// The user of a mount, if FUSE lets in that user alone.
pub fn owner_alone(mount: &Mount) -> Option<u32> {
    mount.user_id().filter(|_| mount.is_extol() && !mount.has_option("allow_other"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that is no mount is named itself, and not the root of the mount that holds it.
    #[test]
    fn failures_name_what_was_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let failure = MountedVolume::of(dir.path(), "stat").unwrap().json().unwrap_err();
        let named = format!("{} is not on a volume", dir.path().shown());
        assert!(failure.line.starts_with(&named), "{}", failure.line);
    }
}
