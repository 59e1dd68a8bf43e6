//! Makes new volumes: ext2, ext3, ext4 and journal devices.
//!
//! The options are mke2fs's and so are the defaults, the sizes of everything and the places where
//! it lies: a volume made here has the same numbers as one made there. The work has two halves. The
//! *plan* is pure: options and size in, every block's meaning out; whatever can be refused is
//! refused there. Then the plan is *written*.
//!
//! ```text
//!  MkfsOptions ─► config ─► layout ─► tables ─► inodes ─► Plan ─► write ─► Summary
//!   (options)    features,  groups,   bitmaps   root, lost+found,     old superblock wiped first,
//!                sizes      inodes    and       resize inode,         new one written last
//!                           per group tables    journal, orphans
//! ```
//!
//! With clusters (bigalloc) metadata shares clusters, and each file has its own.

mod bad_blocks;
pub(crate) mod config;
pub(crate) mod features;
mod filemap;
pub(crate) mod inodes;
mod journal;
mod layout;
mod options;
pub(crate) mod plan;
pub(crate) mod quota;
mod space;
mod summary;
mod system;
mod tables;
mod uuid;
pub(crate) mod write;

#[cfg(test)]
pub(crate) mod tests;

pub use bad_blocks::BlockTest;
pub use options::{
    Encoding, ExtendedOptions, FsType, JournalDevice, JournalOptions, MkfsOptions, OnError,
};
pub use summary::{Notes, Summary};
pub use system::CreatorOs;
pub use uuid::volume_uuid;

pub(crate) use bad_blocks::tested;
use config::Config;
use extol_block::{BlockDevice, DeviceError};
use extol_ondisk::Incompat;
use extol_vfs::{bytes_text, plain};
use plan::{Contents, Plan};
pub(crate) use space::Space;

/// Why a volume could not be made.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MkfsError {
    /// The options, or the device, do not allow it. One line that says what to change.
    #[error("{0}")]
    Refused(String),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

impl From<MkfsError> for std::io::Error {
    fn from(error: MkfsError) -> Self {
        match error {
            MkfsError::Refused(line) => Self::new(std::io::ErrorKind::InvalidInput, line),
            MkfsError::Device(error) => error.into(),
        }
    }
}

/// Result of making a volume.
pub type Result<T> = std::result::Result<T, MkfsError>;

fn refuse<T>(why: impl Into<String>) -> Result<T> {
    Err(MkfsError::Refused(why.into()))
}

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// Testing for bad blocks (in blocks, all passes together).
    BadBlocks,
    /// Discarding the old contents (in bytes).
    Discard,
    /// Zeroing inode tables (in groups).
    InodeTables,
    /// Writing bitmaps (in groups).
    Groups,
    /// Zeroing the journal (in blocks).
    Journal,
    /// Writing superblocks and descriptors (in groups).
    Superblocks,
}

impl std::fmt::Display for Stage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::BadBlocks => "testing blocks",
            Self::Discard => "discarding old contents",
            Self::InodeTables => "zeroing inode tables",
            Self::Groups => "writing bitmaps",
            Self::Journal => "making the journal",
            Self::Superblocks => "writing superblocks",
        })
    }
}

/// How far a stage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MkfsProgress {
    /// What is being done.
    pub stage: Stage,
    /// How much of it is done.
    pub done: u64,
    /// How much there is to do.
    pub total: u64,
}

/// Makes a volume on `device` and says what it looks like. All its contents are lost.
///
/// # Errors
/// Options that make no sense, a device that is too small, a failing device.
pub fn mkfs(
    device: &dyn BlockDevice,
    options: &MkfsOptions,
    progress: &mut dyn FnMut(MkfsProgress),
) -> Result<Summary> {
    let options = &bad_blocks::tested(device, options, progress)?;
    let mut config = Config::new(options, device.size())?;
    if config.features.incompat.contains(Incompat::JOURNAL_DEV) {
        if options.only_superblocks || !options.bad_blocks.is_empty() {
            return refuse(
                "a journal device has no descriptors and no list of bad blocks: leave out -S, -c \
                 and -l",
            );
        }
        let mut sb = plan::new_superblock(options, &mut config)?;
        if !(u64::from(journal::MIN_BLOCKS)..=u64::from(u32::MAX)).contains(&config.blocks) {
            return refuse(format!(
                "a journal device must have at least {} blocks, and fewer than 2^32; this one has \
                 {}",
                journal::MIN_BLOCKS,
                config.blocks
            ));
        }
        sb.blocks_count = config.blocks;
        sb.first_data_block = u32::from(config.block_size == 1024);
        sb.blocks_per_group = config.block_size * 8;
        sb.clusters_per_group = sb.blocks_per_group;
        if !options.dry_run {
            write::write_journal_device(&mut sb, device, options, progress)?;
        }
        return Ok(Summary::of_journal_device(&sb, config.notes));
    }
    let mut plan = Plan::new(options, config, Contents::Empty)?;
    if options.only_superblocks {
        plan.keep_contents();
        if !options.dry_run {
            write::write_superblocks(&mut plan, device, progress)?;
        }
    } else if !options.dry_run {
        write::write(&mut plan, device, options, progress)?;
    }
    Ok(Summary::of_plan(&plan))
}

/// What a device holds, if it is something that mkfs would destroy and that can be told: `"an ext4
/// file system labelled 'data'"`. `None` if nothing is recognised.
pub fn existing_contents(device: &dyn BlockDevice) -> Option<String> {
    let sb = journal::read_superblock(device).ok()?;
    if sb.feature_incompat.contains(Incompat::JOURNAL_DEV) {
        return Some("an ext4 journal".into());
    }
    let kind = summary::kind(&sb);
    let label = bytes_text(sb.label());
    Some(if label.is_empty() {
        format!("an {kind} file system")
    } else {
        format!("an {kind} file system labelled '{}'", plain(&label))
    })
}
