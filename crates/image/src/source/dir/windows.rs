//! A directory of Windows as a source: there is none. Its files have no owners and permissions of
//! ext4's kind, and an image that made them up would surprise.

use std::path::Path;

use extol_proc::bytes_of;

use super::{DirOptions, FileData, Source};
use crate::error::{BuildError, Result};
use crate::tree::{DataRef, TreeBuilder};

const WHY: &str = "a directory of this system has no owners and permissions for an image: give a \
                   tar archive";

/// A directory of the host, which cannot be opened.
#[derive(Debug)]
pub struct DirSource(());

impl DirSource {
    /// Fails.
    ///
    /// # Errors
    /// Always.
    pub fn open(path: &Path, _options: DirOptions) -> Result<Self> {
        Err(BuildError::entry(bytes_of(path), WHY))
    }
}

impl Source for DirSource {
    fn scan(&mut self, _into: &mut TreeBuilder) -> Result<()> {
        Err(BuildError::Refused(WHY.into()))
    }

    fn reader(&self, _data: DataRef) -> Result<Box<dyn FileData + '_>> {
        Err(BuildError::Refused(WHY.into()))
    }
}
