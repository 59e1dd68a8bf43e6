//! A file without a name that holds the contents of files of a stream: what cannot be read twice.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_proc::bytes_of;

use crate::error::{BuildError, Result};
use crate::sys;

/// A spool. It takes its space from the directory that it is in, and gives it back when it is
/// closed, in whatever way the process ends.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    file: Option<Arc<File>>,
    /// Bytes in it.
    len: u64,
}

impl Spool {
    /// A spool in that directory, which is made when something is put into it.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), file: None, len: 0 }
    }

    /// Bytes in it.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Its file.
    pub fn file(&mut self) -> Result<Arc<File>> {
        if let Some(file) = &self.file {
            return Ok(Arc::clone(file));
        }
        let file = Arc::new(sys::unnamed(&self.dir).map_err(|error| self.failed(&error))?);
        self.file = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Puts bytes at its end. Zeros are left out: what was never written reads as zeros.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let file = self.file()?;
        if bytes.iter().any(|&byte| byte != 0) {
            sys::write_all_at(&file, bytes, self.len).map_err(|error| self.failed(&error))?;
        }
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Ends it: zeros at its end were left out as well.
    pub fn finish(&mut self) -> Result<()> {
        let Some(file) = &self.file else { return Ok(()) };
        file.set_len(self.len).map_err(|error| self.failed(&error))
    }

    fn failed(&self, error: &io::Error) -> BuildError {
        let why = format!(
            "the contents of a source that cannot be read twice are kept there meanwhile: {error}; \
             give another directory with --spool DIR"
        );
        BuildError::entry(bytes_of(&self.dir), why)
    }
}
