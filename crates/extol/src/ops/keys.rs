//! Taking keys away from a volume that is in use.

use std::sync::Arc;

use extol_fscrypt::KeySpec;
use extol_vfs::{FsError, Result};

use crate::data::flush;
use crate::encrypted;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;

/// Takes away a key that is called this, under all its names: names that it encrypts are shown as
/// without it, and files that are not open cannot be opened. What they have in memory is written
/// before. Gives how many open files keep what their contents are encrypted with. The next time, of
/// those that are closed nothing is left.
///
/// # Errors
/// `NoKey` if there is no such key.
pub(crate) fn remove(fs: &MountedFs, spec: &KeySpec) -> Result<usize> {
    let specs = fs.vol.keys.remove(spec);
    if specs.is_empty() {
        return Err(FsError::NoKey);
    }
    fs.vol.name_keys.purge();
    fs.options.lock().keys.remove(spec);
    for cell in fs.table.cells() {
        // (One that is deleted meanwhile has nothing left.)
        let Ok(mut st) = cell.write() else { continue };
        let Some(key) = st.key.get().map(Arc::clone) else { continue };
        // (What cannot be read has no key that is needed.)
        let policy = encrypted::policy(&fs.vol, &st.node).ok().flatten();
        if policy.is_some_and(|policy| !specs.contains(&policy.key)) {
            continue;
        }
        if fs.table.is_open(st.node.ino.0) || !is_written(fs, &mut st) {
            fs.vol.keys.lend(st.node.ino.0, &specs, key);
        } else {
            st.key.take();
        }
    }
    let mut left = fs.vol.keys.borrowers(&specs);
    left.retain(|ino| fs.table.is_open(*ino) || has_pages(fs, *ino));
    fs.vol.keys.end_loans(&specs, &left);
    Ok(left.len())
}

/// Writes what is dirty; false if that fails: then it is not lost, and needs the key.
fn is_written(fs: &MountedFs, st: &mut InodeState) -> bool {
    st.pages.is_empty() || (flush::flush(fs, st).is_ok() && st.pages.is_empty())
}

fn has_pages(fs: &MountedFs, ino: u32) -> bool {
    fs.cell(ino).and_then(|cell| Ok(!cell.read()?.pages.is_empty())).unwrap_or(false)
}
