//! fsync as a mount asks for it.

use std::sync::mpsc;

use extol_vfs::{FsError, Job, Mountable, OpenNr, Result};

/// An fsync by [`Mountable::fsync_then`], which any thread may answer, and a wait for the answer.
///
/// # Errors
/// The answer's; [`FsError::Io`] if there never was one.
pub fn fsync_told(fs: &impl Mountable, ino: u32, data_only: bool) -> Result<()> {
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |result| {
        let _ = tell.send(result);
    });
    fs.fsync_then((ino, OpenNr::default()), data_only, done, &mut |job: Job| job());
    told.recv().unwrap_or_else(|_| Err(FsError::Io("an fsync was never answered".into())))
}
