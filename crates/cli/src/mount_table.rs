//! What this process sees mounted.

use std::path::Path;

use extol_proc::{Mount, MountTable};

/// What is mounted on top of exactly `dir`.
pub fn mount_entry(dir: &Path) -> Option<Mount> {
    mounts_on(dir).pop()
}

/// All that is mounted on exactly `dir`, the topmost last.
pub fn mounts_on(dir: &Path) -> Vec<Mount> {
    let table = MountTable::own().unwrap_or_default();
    table.on(dir).into_iter().cloned().collect()
}

/// True if the mount with this number is on top of `dir`, and of FUSE: Linux gives the number of a
/// mount that is gone to the next. (Where the table of mounts cannot be read, any mount there
/// counts.)
pub fn is_top(dir: &Path, id: u64) -> bool {
    let Ok(table) = MountTable::own() else { return true };
    table.top(dir).is_some_and(|top| top.id == id && top.is_fuse())
}
