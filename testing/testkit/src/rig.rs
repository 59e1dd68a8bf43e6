//! A volume that the command mounts in the background, as its users do. (`ExtolMount` has the
//! daemon as a child, in the foreground.)

use crate::{Finished, Image, Scratch, extol_copy, mounted_type, run_extol, text, tool};
use rustix::process::Pid;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Number of an ordinary user and its group.
const UNPRIVILEGED: u32 = 65534;

/// The process that serves the mount on `dir`, as the mount tells it.
///
/// # Panics
/// If it is no live mount.
#[track_caller]
#[must_use]
pub fn daemon_of(dir: &Path) -> Pid {
    let mut text = [0; 32];
    let len = rustix::fs::getxattr(dir, "user.extol.daemon", &mut text[..]).expect("a live mount");
    let number = std::str::from_utf8(&text[..len]).ok().and_then(|text| text.parse().ok());
    number.and_then(Pid::from_raw).expect("the number of a process")
}

/// A program that is run as an ordinary user.
#[must_use]
pub fn as_unprivileged(program: &Path) -> Command {
    let mut command = tool("setpriv");
    command.arg(format!("--reuid={UNPRIVILEGED}")).arg(format!("--regid={UNPRIVILEGED}"));
    command.arg("--clear-groups").arg(program);
    command
}

/// A volume, and a directory that is freed in the end, however that comes.
#[derive(Debug)]
pub struct Rig {
    /// Where both are.
    pub scratch: Scratch,
    /// The volume.
    pub image: Image,
    /// The directory.
    pub dir: PathBuf,
}

impl Rig {
    /// A volume that is not mounted.
    #[must_use]
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// A volume made with more words for mke2fs(8).
    #[must_use]
    pub fn with(args: &[&str]) -> Self {
        let scratch = Scratch::new();
        let args = [&["-t", "ext4"], args].concat();
        let image = Image::mke2fs(scratch.path(), "a.img", 32 << 20, &args);
        let dir = scratch.dir("mnt");
        Self { scratch, image, dir }
    }

    /// Mounts in the background.
    ///
    /// # Panics
    /// If that fails.
    #[track_caller]
    pub fn mount(&self, args: &[&str]) {
        let done =
            run_extol(&[&["mount"], args, &[text(&self.image.path), text(&self.dir)]].concat());
        assert!(done.success(), "mount {args:?}: {}", done.output);
    }

    /// Unmounts, with these flags.
    pub fn unmount(&self, flags: &[&str]) -> Finished {
        run_extol(&[&["umount"], flags, &[text(&self.dir)]].concat())
    }

    /// The daemon's process.
    ///
    /// # Panics
    /// If there is no live mount.
    #[track_caller]
    #[must_use]
    pub fn daemon(&self) -> Pid {
        daemon_of(&self.dir)
    }

    /// Something is mounted on the directory.
    #[must_use]
    pub fn is_mounted(&self) -> bool {
        mounted_type(&self.dir).is_some()
    }

    /// Lets ordinary users reach the volume and the program, of which they get a copy.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn open_to_all(&self) -> PathBuf {
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("chmod");
        };
        let program = extol_copy(self.scratch.path());
        mode(self.scratch.path(), 0o755);
        mode(&self.image.path, 0o666);
        program
    }

    /// Gives the volume and the directory to the ordinary user, which may mount then, with the copy
    /// of the program whose path is returned.
    ///
    /// # Panics
    /// If that fails.
    #[must_use]
    pub fn give_away(&self) -> PathBuf {
        for path in [&self.image.path, &self.dir] {
            std::os::unix::fs::chown(path, Some(UNPRIVILEGED), Some(UNPRIVILEGED)).expect("chown");
        }
        self.open_to_all()
    }
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = tool("umount").arg("-l").arg(&self.dir).output();
        }
    }
}
