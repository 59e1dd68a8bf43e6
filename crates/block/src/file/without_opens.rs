//! Opens by other processes on systems without inotify(7): none is told.

use std::fs::File;

#[derive(Debug, Default)]
pub(super) struct Opens;

impl Opens {
    pub(super) fn of(_file: &File) -> Self {
        Self
    }

    pub(super) fn any(&self) -> bool {
        false
    }
}
