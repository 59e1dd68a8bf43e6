//! Contenders: file systems on a medium, made afresh for every run.
//!
//! | on the command line | what it is |
//! |---|---|
//! | `library[:OPTIONS]` | Extol in this process, opened with these mount options |
//! | `node[:OPTIONS]` | the same on the block device that mounts get: a loop device, or the medium that is served to the kernel |
//! | `nfs[:OPTIONS]` | a client of NFS in this process, on an export of such a volume; `delay_us=` among the options is the network |
//! | `server:ADDRESS` | the same client on a server that is there already ([`Address`]) |
//! | `mount[:OPTIONS]` | Extol mounted on a directory of its own |
//! | `before[:OPTIONS]` | another build of Extol, mounted the same way ([`Programs`](crate::Programs)) |
//! | `kernel[:OPTIONS]` | the running kernel's ext4; `dirty_mb=` among the options bounds what it may keep dirty for the device |
//! | `fuse2fs[:OPTIONS]` | e2fsprogs' FUSE driver |
//! | `noop` | a FUSE file system that does nothing: what FUSE allows |
//! | `raw` | the bare block device that mounts get: what the medium allows |
//! | a path | a directory of whatever is mounted there; each run gets a fresh directory in it |
//!
//! All but `noop` and a path lie on the same [`Medium`] with the same [`VolumeSpec`], made by
//! Extol's mkfs (`raw` without a file system). A [`Session`] is one volume from mkfs to unmount.

mod dirty;
mod host;
mod medium;
mod reading;
mod room;
mod session;
mod stale;

use std::path::PathBuf;
use std::time::Duration;

pub(crate) use host::check_dir;
pub use medium::{Medium, Place};
pub use reading::{Cost, DeviceReading, KernelFast, Reading};
pub use session::Session;

use crate::nfs::{self, Address};
use crate::subject::SubjectKind;
use crate::{BenchError, Result};

/// A participant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Contender {
    /// Extol in this process, with mount options.
    Library(String),
    /// The same, on the block device that mounts get.
    Node(String),
    /// A client of NFS on an export of a volume in this process, with mount options, and the delay
    /// of each call.
    Exported(String, Duration),
    /// A client of another NFS server.
    Server(Address),
    /// A mount that we make, with mount options.
    Mounted(SubjectKind, String),
    /// A FUSE file system that does nothing, with mount options.
    Noop(String),
    /// The bare block device.
    Raw,
    /// A directory.
    Dir(PathBuf),
}

impl Contender {
    /// Understands the text of the command line.
    ///
    /// # Errors
    /// One line that says what is possible.
    pub fn parse(text: &str) -> Result<Self> {
        let (kind, options) = text.split_once(':').unwrap_or((text, ""));
        Ok(match kind {
            "library" => Self::Library(options.into()),
            "node" => Self::Node(options.into()),
            "nfs" => {
                let (delay, options) = nfs::split_delay(options)?;
                Self::Exported(options, delay)
            }
            "server" => Self::Server(Address::parse(options)?),
            "mount" => Self::Mounted(SubjectKind::Extol, options.into()),
            "before" => Self::Mounted(SubjectKind::Before, options.into()),
            "kernel" => Self::Mounted(SubjectKind::Kernel, options.into()),
            "fuse2fs" => Self::Mounted(SubjectKind::Fuse2fs, options.into()),
            "raw" if !options.is_empty() => {
                return Err(BenchError(format!("target \"{text}\": {kind} has no options")));
            }
            "noop" => Self::Noop(options.into()),
            "raw" => Self::Raw,
            _ if text.contains('/') || text == "." => Self::Dir(text.into()),
            _ => {
                return Err(BenchError(format!(
                    "unknown target \"{text}\": library, node, nfs, mount, before, kernel, \
                     fuse2fs, noop (each may be followed by :OPTIONS), raw, server:ADDRESS:PORT, \
                     or a directory with a / in it"
                )));
            }
        })
    }

    /// Adds mount options to Extol's mount, or to what does nothing; others keep theirs.
    pub(crate) fn add_options(&mut self, more: &str) {
        if let Self::Mounted(SubjectKind::Extol, options) | Self::Noop(options) = self
            && !more.is_empty()
        {
            let comma = if options.is_empty() { "" } else { "," };
            *options += &format!("{comma}{more}");
        }
    }

    /// It is Extol that is measured, and not a peer.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(
            self,
            Self::Library(_)
                | Self::Node(_)
                | Self::Exported(..)
                | Self::Mounted(SubjectKind::Extol, _)
        )
    }

    /// How it is called in tables.
    #[must_use]
    pub fn name(&self) -> String {
        let (kind, options) = match self {
            Self::Library(options) => ("library", options.as_str()),
            Self::Node(options) => ("node", options.as_str()),
            Self::Exported(options, delay) => {
                let delay = format!("delay_us={}", delay.as_micros());
                let comma = if options.is_empty() { "" } else { "," };
                return format!("nfs:{options}{comma}{delay}");
            }
            Self::Server(address) => return format!("server:{}", address.socket),
            Self::Mounted(kind, options) => (kind.name(), options.as_str()),
            Self::Noop(options) => ("noop", options.as_str()),
            Self::Raw => ("raw", ""),
            Self::Dir(path) => return path.display().to_string(),
        };
        if options.is_empty() { kind.to_owned() } else { format!("{kind}:{options}") }
    }
}

/// The volume that each contender gets.
#[derive(Clone, Debug)]
pub struct VolumeSpec {
    /// Bytes.
    pub size: u64,
    /// Size of the log in MiB; `None`: mkfs decides.
    pub journal_mib: Option<u32>,
    /// Features on top of mkfs's default (`-O`).
    pub features: Vec<String>,
    /// Leave inode tables to be zeroed later.
    pub lazy: bool,
    /// The device was used before: what was never written does not read as zeros. (Below a mount
    /// only the inode tables.)
    pub stale: bool,
}

impl Default for VolumeSpec {
    fn default() -> Self {
        Self { size: 1 << 30, journal_mib: None, features: Vec::new(), lazy: false, stale: false }
    }
}

#[cfg(test)]
mod tests;
