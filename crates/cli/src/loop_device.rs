//! `-o loop`: an image is mounted through a loop device, so that the kernel sees a block device
//! (`fuseblk`): syncfs(2) reaches the daemon, umount(8) waits for it, and the volume shows in
//! lsblk(8).
//!
//! losetup(8) attaches the image. Detaching a device that is open only marks it, and the kernel
//! detaches it on its last close, as it does for mount(8): nothing is left behind, however the
//! daemon ends.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use extol_block::open::Window;
use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;

/// A loop device that lives as long as it is open.
#[derive(Debug)]
pub struct LoopDevice {
    path: PathBuf,
    _open: File,
}

impl LoopDevice {
    /// Attaches an image, or a part of it. `None` if all of a block device is wanted, which needs
    /// no other.
    pub fn attach(image: &Path, part: Window, read_only: bool) -> Result<Option<Self>> {
        let fail = |error| Failure::system_call(image.shown(), error);
        let is_file = std::fs::metadata(image).map_err(fail)?.is_file();
        if !is_file && part.is_all() {
            return Ok(None);
        }
        let mut losetup = losetup();
        losetup.args(["--find", "--show", "--nooverlap"]).args(read_only.then_some("--read-only"));
        losetup.arg("--offset").arg(part.offset.to_string());
        if let Some(limit) = part.limit {
            losetup.arg("--sizelimit").arg(limit.to_string());
        }
        let said = run(losetup.arg("--").arg(image), image)?;
        let path = PathBuf::from(OsStr::from_bytes(said.stdout.trim_ascii()));
        let open = File::open(&path);
        // Also where it cannot be opened: then the kernel detaches it at once.
        run(self::losetup().arg("--detach").arg(&path), &path)?;
        let open = open.map_err(|error| Failure::about(path.shown(), error))?;
        Ok(Some(Self { path, _open: open }))
    }

    /// The device.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn losetup() -> Command {
    let mut command = Command::new("losetup");
    // sbin is not in every user's search path.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).stdin(Stdio::null());
    command
}

fn run(command: &mut Command, what: &Path) -> Result<Output> {
    let output = command.output().map_err(|error| {
        Failure::system(format_args!("-o loop needs losetup, of the package mount: {error}"))
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.trim().lines().next().unwrap_or("losetup failed").to_owned();
    Err(Failure::about(what.shown(), why))
}
