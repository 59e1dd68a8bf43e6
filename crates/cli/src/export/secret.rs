//! The secret that seals the handles of an export, kept where it survives a restart.
//!
//! ```text
//!   --state-dir, /var/lib/extol (root), $XDG_STATE_HOME/extol, ~/.local/state/extol
//!      handles.key     32 random bytes, 0600, of the user that exports
//! ```
//!
//! One secret is enough for all volumes of a user: the key of a seal is made of it, the volume's
//! UUID and the root of the export. The file is written whole under another name first, and takes
//! its own name only if there is none, so two servers that start at once have one secret.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use extol_cli_common::{Failure, Result};
use extol_nfs::Secret;
use extol_proc::Shown as _;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};

const NAME: &str = "handles.key";
/// The state directory of a machine.
const OF_ROOT: &str = "/var/lib/extol";

/// The state directory of this user, if there is a place for one.
pub fn usual_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(OF_ROOT.into());
    }
    dir_of_user(std::env::var_os("XDG_STATE_HOME").as_deref(), std::env::home_dir())
}

/// As the XDG base directory specification has it: a relative path counts as none.
fn dir_of_user(state: Option<&OsStr>, home: Option<PathBuf>) -> Option<PathBuf> {
    let given = state.map(PathBuf::from).filter(|path| path.is_absolute());
    let usual = || Some(home.filter(|path| path.is_absolute())?.join(".local/state"));
    given.or_else(usual).map(|dir| dir.join("extol"))
}

/// The secret in a state directory; a new one if there is none yet.
///
/// # Errors
/// If it cannot be read or made, or if others may know it.
pub fn of(dir: &Path) -> Result<Secret> {
    let path = dir.join(NAME);
    if let Some(secret) = read(&path)? {
        return Ok(secret);
    }
    let fail = |error: std::io::Error| Failure::system_call(path.shown(), error);
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(fail)?;
    make(dir, &path).map_err(fail)?;
    read(&path)?.ok_or_else(|| fail(ErrorKind::NotFound.into()))
}

/// The secret in a file; `None`: there is no file.
fn read(path: &Path) -> Result<Option<Secret>> {
    let fail = |error: std::io::Error| Failure::system_call(path.shown(), error);
    // A pipe must not stop the start.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail(error)),
    };
    let meta = file.metadata().map_err(fail)?;
    let is_own = meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0;
    let mut bytes = [0; Secret::LEN];
    if !meta.is_file() || !is_own || meta.len() != Secret::LEN as u64 {
        return Err(Failure::about(
            path.shown(),
            "is no secret of this user alone: remove it, and a new one is made (clients mount \
             again then)",
        ));
    }
    file.read_exact(&mut bytes).map_err(fail)?;
    Ok(Some(Secret::of(bytes)))
}

/// Makes the file, unless another process does at the same time.
fn make(dir: &Path, path: &Path) -> std::io::Result<()> {
    let new = dir.join(format!(".{NAME}.{:016x}", extol_proc::random_number()));
    let written = write(&new).and_then(|()| {
        match renameat_with(CWD, &new, CWD, path, RenameFlags::NOREPLACE) {
            Err(rustix::io::Errno::EXIST) => std::fs::remove_file(&new),
            done => Ok(done?),
        }
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&new);
    }
    written?;
    File::open(dir)?.sync_all()
}

fn write(path: &Path) -> std::io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(Secret::random()?.bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_secret_is_made_once_and_stays() {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("new/extol");
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let dir = dir.clone();
                std::thread::spawn(move || of(&dir).unwrap())
            })
            .collect();
        let first = of(&dir).unwrap();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap() == first));
        let names: Vec<_> =
            dir.read_dir().unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, [NAME]);
        assert_eq!(dir.join(NAME).metadata().unwrap().mode() & 0o7777, 0o600);
        assert_eq!(dir.metadata().unwrap().mode() & 0o7777, 0o700);
        assert_ne!(of(&scratch.path().join("other")).unwrap(), first);
    }

    #[test]
    fn a_file_that_others_may_know_is_no_secret() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path().join(NAME);
        of(scratch.path()).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let line = of(scratch.path()).unwrap_err().line;
        assert!(line.contains("remove it") && line.contains(NAME), "{line}");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, b"short").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        assert!(of(scratch.path()).is_err());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("elsewhere", &path).unwrap();
        assert!(of(scratch.path()).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(of(scratch.path()).is_ok());
    }

    #[test]
    fn the_directory_of_a_user() {
        let dir = |state: Option<&str>, home: Option<&str>| {
            let found = dir_of_user(state.map(OsStr::new), home.map(PathBuf::from));
            found.map(|dir| dir.to_str().unwrap().to_owned())
        };
        let home = Some("/home/me");
        assert_eq!(dir(Some("/state"), home).as_deref(), Some("/state/extol"));
        for state in [None, Some(""), Some("relative")] {
            assert_eq!(dir(state, home).as_deref(), Some("/home/me/.local/state/extol"));
        }
        assert_eq!(dir(None, None), None);
    }
}
