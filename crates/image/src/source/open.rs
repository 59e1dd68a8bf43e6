//! What a name stands for: a directory, an archive, or a container image.

use std::fs::File;
use std::path::{Path, PathBuf};

use super::expand::Compression;
use super::{DirSource, OciOptions, OciSource, Source, TarSource, tar};
use crate::edits::Patterns;
use crate::error::Result;

/// How a directory is listed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DirOptions {
    /// With extended attributes.
    pub xattrs: bool,
    /// With the times of last access and of the last change of the inode.
    pub keep_times: bool,
    /// Names that are left out. They are not even looked at.
    pub exclude: Patterns,
    /// Files that are left out, by device and inode number: the image itself.
    pub skip: Vec<(u64, u64)>,
}

impl Default for DirOptions {
    fn default() -> Self {
        Self { xattrs: true, keep_times: false, exclude: Patterns::default(), skip: Vec::new() }
    }
}

/// How a source is read, whatever it is.
#[derive(Clone, Debug, Default)]
pub struct SourceOptions {
    /// If it is a directory.
    pub dir: DirOptions,
    /// If it is a container image, or several.
    pub image: OciOptions,
    /// Where contents are kept that cannot be read twice: the present directory if it is empty.
    pub spool: PathBuf,
}

impl SourceOptions {
    fn spool(&self) -> &Path {
        if self.spool.as_os_str().is_empty() { Path::new(".") } else { &self.spool }
    }
}

/// True if a file that begins with these bytes may be an archive, plain or compressed: what is none
/// can be named before it is read.
#[must_use]
pub fn may_be_archive(first: &[u8]) -> bool {
    Compression::of(first) != Compression::None || tar::may_begin_with(first)
}

/// Opens a source: what it is, is told from what it holds.
///
/// # Errors
/// If it is not there, or may not be read.
pub fn open(path: &Path, options: &SourceOptions) -> Result<Box<dyn Source>> {
    if OciSource::is_layout(path) {
        let image = options.image.clone();
        return Ok(Box::new(OciSource::open(path, options.spool(), image)?));
    }
    if path.is_dir() {
        return Ok(Box::new(DirSource::open(path, options.dir.clone())?));
    }
    let archive = TarSource::open(path, options.spool())?;
    Ok(Box::new(archive.with_image(options.image.clone())))
}

/// Opens an archive that is open already: standard input. `name` is for messages.
///
/// # Errors
/// If it cannot be read.
pub fn open_stream(file: File, name: &str, options: &SourceOptions) -> Result<Box<dyn Source>> {
    let archive = TarSource::from_file(file, name.as_bytes(), options.spool())?;
    Ok(Box::new(archive.with_image(options.image.clone())))
}
