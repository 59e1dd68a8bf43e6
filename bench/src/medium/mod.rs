//! An emulated medium for other programs: a file under a mount, and a loop device on that.
//!
//! ```text
//!   kernel's ext4, mke2fs, Extol …
//!        │  block requests
//!   loop device (direct I/O)
//!        │  reads, writes, fsync, holes
//!   FUSE ── fs.rs: DIR/disk ── EmulatedMedia ── memory, or a backing file  (another process)
//! ```
//!
//! # Why a process of its own
//!
//! A process that serves a block device must never wait for that device. One that drives the
//! kernel's ext4 on it does, all the time: it takes memory; the kernel, short of it, makes it write
//! dirty pages of that ext4 back, through the loop device, to the server, which is the same process
//! and perhaps the same lock of its address space. So the medium is served by a child, `extol-bench
//! medium` ([`Served`]), which does nothing else and tells the kernel that its threads are part of
//! the way to a device ([`become_device_server`]): their allocations do not start write-back.
//!
//! # The end
//!
//! [`Served`] is undone in the opposite order: loop device, server, directory. If this process
//! dies, the server sees the end of its standard input, detaches the loop device and ends itself;
//! what still uses the device then gets I/O errors.

mod fs;
mod served;

pub use fs::MediumFs;
pub use served::{Served, detach_loops};

use std::path::Path;
use std::sync::Arc;

use extol_block::{BlockDevice as _, FileDevice, MemDevice, OpenOptions, SharedDevice};
use extol_devices::{EmulatedMedia, Profile};
use extol_fuse::MountConfig;
use serde::{Deserialize, Serialize};

use crate::{BenchError, Result};

/// Line that `extol-bench medium` prints, on a line of its own, when the medium is there: this and
/// the path of the file.
pub const READY: &str = "medium is ready: ";

/// What the file `stats` says.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Stats {
    /// The profile's complete text form.
    pub profile: String,
    /// Bytes.
    pub size: u64,
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Writes that had to be durable on return.
    pub fua_writes: u64,
    /// Flushes asked for.
    pub flushes_asked: u64,
    /// Flushes made: those asked for, and those that stand for durable writes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Zeroed ranges.
    pub zeros: u64,
    /// Seconds that the model gave all operations, added up.
    pub modelled_seconds: f64,
    /// Seconds by which operations ended later than the model said, added up. Much beside
    /// `modelled_seconds`: this machine was too slow for the medium.
    pub late_seconds: f64,
}

impl Stats {
    /// The numbers of a medium now.
    pub fn of(medium: &EmulatedMedia<SharedDevice>) -> Self {
        let stats = medium.medium_stats();
        let asked = stats.asked;
        Self {
            profile: format!("{}:{}", medium.profile().name(), medium.profile().numbers()),
            size: medium.size(),
            reads: asked.reads,
            read_bytes: asked.read_bytes,
            writes: asked.writes,
            write_bytes: asked.write_bytes,
            fua_writes: asked.fua_writes,
            flushes_asked: asked.flushes,
            flushes: stats.flushes,
            discards: asked.discards,
            zeros: asked.zeros,
            modelled_seconds: stats.modelled.as_secs_f64(),
            late_seconds: stats.late.as_secs_f64(),
        }
    }
}

/// A medium in memory or, if `backing` is given, in that file or device. The file is made if it
/// does not exist. Without `size` (bytes) the medium is as large as the file.
///
/// # Errors
/// If the backing cannot be opened or there is no size.
pub fn open(
    profile: Profile,
    size: Option<u64>,
    backing: Option<&Path>,
) -> Result<Arc<EmulatedMedia<SharedDevice>>> {
    let inner: SharedDevice = match (backing, size) {
        (None, Some(size)) => Arc::new(MemDevice::new(size)),
        (None, None) => return Err(BenchError("a medium in memory needs a size (--size)".into())),
        (Some(path), size) => {
            let mut options = OpenOptions::read_write();
            options.create_size = size;
            let device = FileDevice::open(path, &options).map_err(|e| BenchError(e.to_string()))?;
            Arc::new(device)
        }
    };
    if inner.size() < 4096 {
        return Err(BenchError(format!(
            "a medium of {} bytes is too small: 4096 at least",
            inner.size()
        )));
    }
    Ok(Arc::new(EmulatedMedia::new(inner, profile)))
}

/// How a [`MediumFs`] is to be mounted: without a page cache, with as many threads as the medium
/// takes requests.
#[must_use]
pub fn mount_config(medium: &EmulatedMedia<SharedDevice>) -> MountConfig {
    /// Threads that wait for a flush or look at `stats`.
    const OTHERS: usize = 8;
    /// A deeper queue than any kernel fills.
    const MOST: usize = 256;
    MountConfig {
        source: format!("extol-medium-{}", medium.profile().name()).into(),
        subtype: "extol-medium".into(),
        read_only: medium.is_read_only(),
        direct_io: true,
        posix_acl: false,
        max_threads: (medium.profile().depth() as usize).min(MOST) + OTHERS,
        ..MountConfig::default()
    }
}

/// Tells the kernel that this thread and those that it starts from now on serve a block device, so
/// that it never makes them write dirty data back to get memory: that could be data on their own
/// medium. Without the permission (ordinary users) nothing happens; then the medium must not be
/// used when memory is short.
pub fn become_device_server() {
    let _ = rustix::process::configure_io_flusher_behavior(true);
}
