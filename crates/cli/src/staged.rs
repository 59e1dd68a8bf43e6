//! A file that is built beside another one and takes its place when it is whole: `mkfs -d` over an
//! image.
//!
//! ```text
//!   begin ─► claimed (the image cannot be mounted) ─► built, filled ─► finish: rename
//!                                                 ╰─► dropped: removed, the image is as it was
//! ```
//!
//! Without a neighbour, in place: a block device has none, a file with several names would lose the
//! others, a disk image (qcow2) would become a raw one, and a directory may not be writable. A
//! process that is killed leaves the neighbour.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_block::FileDevice;
use extol_cli_common::{Failure, Result};
use extol_proc::Shown as _;

use crate::volume::{self, MkfsOptions, Source};

/// A file in the making.
#[derive(Debug)]
pub struct Staged {
    path: PathBuf,
    /// What it takes the place of, without links.
    target: PathBuf,
    typed: PathBuf,
    /// Keeps others away from the image.
    _claim: Arc<FileDevice>,
}

impl Staged {
    /// Begins a file with the owner and mode of `target`. `None`: there can be none, for a device,
    /// a partition, a disk image, or a file with several names.
    ///
    /// # Errors
    /// If the image is in use, or `confirm` refuses to overwrite it.
    pub fn begin(
        target: Source<'_>,
        options: &MkfsOptions,
        confirm: impl FnOnce(&str) -> Result<()>,
    ) -> Result<Option<Self>> {
        if !volume::is_own_file(target) {
            return Ok(None);
        }
        let target = target.path;
        let fail = |error| Failure::system_call(target.shown(), error);
        let metadata = fs::metadata(target).map_err(fail)?;
        if !metadata.is_file() || metadata.nlink() > 1 {
            return Ok(None);
        }
        let place = fs::canonicalize(target).map_err(fail)?;
        let mut name = std::ffi::OsString::from(".");
        name.push(place.file_name().unwrap_or_default());
        name.push(format!(".extol-{}", std::process::id()));
        let path = place.with_file_name(name);
        let claim = volume::claim_for_mkfs(target, options.force, confirm)?;
        let made = File::options().write(true).create_new(true).mode(0o600).open(&path);
        let Ok(file) = made else { return Ok(None) };
        let staged = Self { path, target: place, typed: target.to_owned(), _claim: claim };
        // (An ordinary user cannot give a file away; it is the owner then.)
        let _ = std::os::unix::fs::fchown(&file, Some(metadata.uid()), Some(metadata.gid()));
        file.set_permissions(metadata.permissions()).map_err(fail)?;
        // As large as the image, unless asked otherwise.
        let size = options.size.map_or(metadata.len(), |size| size.max(metadata.len()));
        file.set_len(size).map_err(fail)?;
        Ok(Some(staged))
    }

    /// Where it is built.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A failure, with the image in place of this file.
    pub fn as_typed(&self, mut failure: Failure) -> Failure {
        let own = self.path.shown().to_string();
        failure.line = failure.line.replace(&own, &self.typed.shown().to_string());
        failure
    }

    /// Takes the image's place.
    pub fn finish(self) -> Result<()> {
        let renamed = fs::rename(&self.path, &self.target);
        renamed.map_err(|error| Failure::system_call(self.typed.shown(), error))?;
        // So that it also has the place after a power cut. (Not every file system can.)
        if let Some(dir) = self.target.parent() {
            let _ = File::open(dir).and_then(|dir| dir.sync_all());
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // (After the rename nothing has that name.)
        let _ = fs::remove_file(&self.path);
    }
}
