//! Mounting an open volume: this process serves it, and all programs reach its files by system
//! calls.
//!
//! ```no_run
//! use extol::fuse::{self, MountConfig};
//! use extol::{Ext4, MountOptions};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let fs = Ext4::open_path("disk.img", &MountOptions::default())?;
//! let mut mounted = fuse::mount(&fs, "/mnt", &MountConfig::default())?;
//! std::fs::write("/mnt/hello", "from the kernel's side")?;
//! mounted.unmount()?;
//! fs.unmount()?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/mount_in_process.rs` does that with an image of its own.
//!
//! * Needs `/dev/fuse`, and root or `fusermount3`.
//! * While it is mounted, files are changed through the mount alone: the kernel keeps names,
//!   attributes and contents, and hears nothing of what a call of [`Ext4`] changes. Calls that read
//!   see all but what the kernel has not written back yet.
//! * An unmount leaves the volume open, with all that was written: [`Ext4::unmount`] closes it.
//! * A volume that is only mounted needs no second copy of file data:
//!   [`CacheOptions::kernel_caches`](crate::options::CacheOptions::kernel_caches).
//! * The process must not be stopped, nor wait in a system call for its own mount with a lock that
//!   the serving threads need. Opening, reading and writing files of the mount is fine.

use std::path::Path;
use std::sync::Arc;

pub use extol_fuse::{
    BlockMount, Claim, Mount, MountConfig, MountError, MountFlags, Requests, Shown, Stopper,
    Transport,
};
use extol_vfs::Mountable;

use crate::ext4::Ext4;

/// A volume that is mounted. Dropping it unmounts; if files are open then, the mount is taken out
/// of sight, and is served until the last of them is closed.
#[derive(Debug)]
pub struct Mounted {
    stopper: Stopper,
    /// None once it has ended.
    mount: Option<Mount>,
}

/// Mounts an open volume on a directory. When this returns, it is there. One that is read-only is
/// mounted read-only.
///
/// # Errors
/// Those of [`Mount::new`]; then nothing stays mounted.
pub fn mount(
    fs: &Arc<Ext4>,
    dir: impl AsRef<Path>,
    config: &MountConfig,
) -> Result<Mounted, MountError> {
    let read_only = config.read_only || fs.is_read_only();
    let config = MountConfig { read_only, ..config.clone() };
    let fs: Arc<dyn Mountable> = Arc::<Ext4>::clone(fs);
    let mount = Mount::new(fs, dir.as_ref(), &config)?;
    Ok(Mounted { stopper: mount.stopper(), mount: Some(mount) })
}

impl Mounted {
    /// Where it is mounted, without symbolic links.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.stopper.dir()
    }

    /// A handle that ends the mount from another thread.
    #[must_use]
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Unmounts, and waits until every request is answered. Does nothing if the mount has ended.
    ///
    /// # Errors
    /// [`MountError::Busy`] if files are open, and half a second later, too. It stays mounted then.
    pub fn unmount(&mut self) -> Result<(), MountError> {
        self.stopper.unmount()?;
        self.mount.take().map_or(Ok(()), Mount::run)
    }

    /// Waits until the mount is ended from elsewhere: by umount(8), or by a [`Stopper`].
    ///
    /// # Errors
    /// If reading requests failed.
    pub fn wait(mut self) -> Result<(), MountError> {
        self.mount.take().map_or(Ok(()), Mount::run)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.unmount().is_err() {
            let _ = self.stopper.detach();
        }
    }
}
