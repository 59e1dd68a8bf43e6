//! What the superblock says about the volume as a whole, changed while it is in use: the label.
//!
//! *Purpose.* `FS_IOC_SETFSLABEL`, as `tune2fs -L` and `e2label` send it for a mounted volume.
//!
//! *How.* In the superblock in memory and, by a transaction, in its block; then that transaction is committed, so the change is
//! durable when this returns. (The caller has the log emptied, so that programs that read the device see it.) The copies of the superblock in other groups keep the old label until e2fsck or tune2fs writes them.
//!
//! *Locking.* The superblock's lock, under a handle.

use extol_vfs::{FsError, Identity, Result, Tune};

use crate::error;
use crate::fs::Fs;

/// Label and UUID.
pub(crate) fn identity(fs: &Fs) -> Identity {
    let (name, uuid) = fs.sb.read(|sb| (sb.volume_name, sb.uuid));
    let label = name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec();
    Identity { label, uuid }
}

/// Changes what `change` names.
pub(crate) fn tune(fs: &Fs, change: &Tune) -> Result<()> {
    fs.check_writable()?;
    let Some(label) = &change.label else { return Ok(()) };
    let mut field = [0; 16];
    field.get_mut(..label.len()).ok_or(FsError::Invalid("a label has at most 16 bytes"))?.copy_from_slice(label);
    let mut h = fs.start(1)?;
    fs.sb.update(&mut h, |sb| sb.volume_name = field)?;
    h.stop().map_err(error::journal)?;
    fs.vol.journal.make_all_durable().map_err(error::journal)
}
