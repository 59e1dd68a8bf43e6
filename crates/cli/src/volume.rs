//! The only module that opens volumes: everything that the command needs of the library, with
//! errors as lines.
//!
//! ```text
//! volume.rs     names, opening for files and for a mount, the lines of failures
//!   told.rs     opening a device, and telling what that waits for
//!   others.rs   what else may change a volume: the kernel, another server
//!   read.rs     superblocks, partitions, the journal and its replay
//!   change.rs   resize, tune
//!   make.rs     mkfs
//! ```

mod change;
mod make;
mod others;
mod read;
mod told;

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol_block::open::{self, Layer, OpenFailed, OpenName, Opened, Window};
use extol_block::{Direct, FileDevice, OpenOptions};
use extol_cli_common::{Failure, Result};
use extol_fuse::{BlockMount, Claim};
use extol_proc::Shown as _;

use crate::connector;
use crate::expanded::Room;
use crate::options::Part;
use crate::sandbox;
use change::require_clean;
use told::claim_told;

pub use change::{minimum, open_to_resize, tune};
pub use make::{
    NoSource, claim_for_mkfs, holds_something, is_own_file, is_whole_file, journal_device,
    make_volume, mkfs, no_source, refuse_read_only_image,
};
pub use others::{is_write_protected, written_by_others};
pub use read::{
    Known, external_journal, find_superblock, header, info, is_marked_read_only, journal,
    partitions, replay,
};
pub use told::open_told;

pub use extol::mkfs::{BlockTest, CreatorOs, FsType, MkfsOptions, OnError, Summary};
pub use extol::options::Keys;
pub use extol::resize::{Minimum, ResizeError, ResizeProgress, Resized, Target};
pub use extol::tune::{Request, ReservedBlocks, TuneError};
pub use extol_vfs::Size;

pub use extol::{Ext4 as Volume, Info, MountOptions as VolumeOptions, Replayed};

/// A volume as the command line names it.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The word.
    pub path: &'a Path,
    /// Which part of it is the volume.
    pub part: Part,
}

impl<'a> From<&'a Path> for Source<'a> {
    fn from(path: &'a Path) -> Self {
        Self { path, part: Part::default() }
    }
}

impl<'a> From<&'a PathBuf> for Source<'a> {
    fn from(path: &'a PathBuf) -> Self {
        path.as_path().into()
    }
}

/// What a word of the command line names.
pub fn name(source: Source<'_>) -> Result<OpenName> {
    let mut name = OpenName::parse(source.path, source.part.window)
        .map_err(|error| cannot_open(source.path, &error))?;
    name.expand = source.part.expand;
    name.backing = source.part.backing.cloned().unwrap_or_default();
    Ok(name)
}

/// The device that a tag names (`LABEL=`); another word as it is.
pub fn untagged(word: &Path) -> Result<PathBuf> {
    open::resolve(word).map_err(|error| cannot_open(word, &error))
}

/// Where the partition of a name is.
pub fn place(name: &OpenName) -> Result<Window> {
    let opened = open::open(name, &OpenOptions::read_only().exclusive(false));
    let opened = opened.map_err(|error| cannot_open(&name.typed, &error))?;
    Ok(match opened.layers.last() {
        Some(Layer::Partition(part)) => Window { offset: part.start, limit: Some(part.len) },
        _ => name.window,
    })
}

/// Opens a volume; recovers it first if it must and may.
pub fn open(source: Source<'_>, options: &VolumeOptions) -> Result<Arc<Volume>> {
    let named = name(source)?;
    let opened = open_told(&named, &open_options(options).direct(options.direct()))
        .map_err(|error| cannot_open(source.path, &error))?;
    if !options.access.read_only {
        refuse_member(&named, &opened)?;
    }
    let mut options = with_wait_messages(options);
    let how = open_options(&options);
    open_journal_part(&mut options, &how)?;
    options = options.for_opened(&opened);
    Volume::open(opened.device.clone(), &options)
        .map_err(|error| refused(&named, &opened, &options, not_mounted(&error)))
}

/// The words of a failure for a command that mounts nothing.
fn not_mounted(error: &impl std::fmt::Display) -> String {
    let line = error.to_string().replace("cannot mount read-write: ", "cannot be changed: ");
    line.trim_end_matches("; mount with -o ro").to_owned()
}

/// As [`open`], for a mount; with what a mount of a block device needs. All of it is read in the
/// sandbox, if there is one. A volume that is not trusted is opened only if it has no damage.
pub fn open_for_mount(
    source: Source<'_>,
    options: &VolumeOptions,
    untrusted: bool,
) -> Result<(Arc<Volume>, Option<BlockMount>)> {
    let named = name(source)?;
    let claimed = claim_told(&named, &open_options(options).direct(direct(options)))
        .map_err(|error| cannot_open(source.path, &error))?;
    connector::for_claimed(&claimed)?;
    let mut options = with_wait_messages(options);
    let how = open_options(&options);
    open_journal(&mut options, &how)?;
    let room = Room::of(&claimed, &named)?;
    let (volume, opened) = sandbox::inside(|| {
        let claimed = match room {
            None => claimed,
            Some(room) => room.fill(claimed, &named)?,
        };
        let opened = claimed.decode().map_err(|error| cannot_open(source.path, &error))?;
        if !options.access.read_only {
            refuse_member(&named, &opened)?;
        }
        let device = opened.device.clone();
        let refused = |error: &dyn std::fmt::Display| refused(&named, &opened, &options, error);
        if untrusted {
            let journal = options.journal.device.as_ref();
            require_clean(source.path, &device, journal, "mounted with -o untrusted", &refused)?;
        }
        let options = options.clone().for_base(&opened.base);
        let volume = Volume::open(device, &options).map_err(|error| refused(&error))?;
        Ok((volume, opened))
    })?;
    // A part of a device is none of the kernel's.
    let device = opened.base.block_device().filter(|_| opened.layers.is_empty());
    let block = device.map(|device| BlockMount {
        device: source.path.to_owned(),
        block_size: volume.block_size(),
        claim: Arc::new(DeviceClaim(device.clone())),
    });
    Ok((volume, block))
}

/// Refuses to write to what belongs to a RAID or the like, though it may look like a volume: the
/// others would not know of the change.
fn refuse_member(name: &OpenName, opened: &Opened) -> Result<()> {
    let Some(known) = open::member(&*opened.device) else { return Ok(()) };
    let why = open::explain(name, opened)
        .unwrap_or_else(|| format!("is {}: {}; -o ro reads it as it is", known.what, known.advice));
    Err(Failure::about(name.typed.shown(), why))
}

/// The failure of opening: what is there in place of a volume, or what is wrong with it.
pub fn refused(
    name: &OpenName,
    opened: &Opened,
    options: &VolumeOptions,
    error: impl std::fmt::Display,
) -> Failure {
    let place = options.access.superblock.filter(|kib| *kib != 1);
    match open::explain(name, opened).filter(|_| place.is_none()) {
        Some(why) => Failure::about(name.typed.shown(), why),
        None => about(&name.typed, error),
    }
}

/// Opens an external journal that is a part of something or on another host, of which the library
/// does not know.
fn open_journal_part(options: &mut VolumeOptions, how: &OpenOptions) -> Result<()> {
    let is_part = |path: &PathBuf| open::is_address(path) || extol_proc::split_part(path).is_some();
    if options.journal.path.as_ref().is_some_and(is_part) {
        open_journal(options, how)
    } else {
        Ok(())
    }
}

/// Opens an external journal that the options name.
fn open_journal(options: &mut VolumeOptions, how: &OpenOptions) -> Result<()> {
    if options.journal.device.is_none()
        && let Some(path) = &options.journal.path
    {
        let opened = open_part(path, how)?;
        connector::for_opened(&opened)?;
        options.journal.device = Some(opened.device);
    }
    Ok(())
}

fn open_part(path: &Path, how: &OpenOptions) -> Result<Opened> {
    open_told(&name(path.into())?, how).map_err(|error| cannot_open(path, &error))
}

/// Options with which an opening prints what it waits for.
fn with_wait_messages(options: &VolumeOptions) -> VolumeOptions {
    let mut options = options.clone();
    options.access.waiting.get_or_insert_with(crate::signals::waiting);
    options
}

/// The claim of an open block device.
#[derive(Debug)]
struct DeviceClaim(Arc<FileDevice>);

impl Claim for DeviceClaim {
    fn release(&self) {
        self.0.release_claim();
    }

    fn take(&self) -> std::io::Result<()> {
        self.0.claim_again().map_err(std::io::Error::other)
    }
}

fn open_options(options: &VolumeOptions) -> OpenOptions {
    if options.access.read_only { OpenOptions::read_only() } else { OpenOptions::read_write() }
}

fn direct(options: &VolumeOptions) -> Direct {
    match options.access.direct {
        None => Direct::Auto,
        Some(true) => Direct::On,
        Some(false) => Direct::Off,
    }
}

/// Writes everything and closes a volume. The error is what may be lost.
pub fn close(volume: &Volume) -> std::result::Result<(), String> {
    volume.unmount().map_err(|error| error.to_string())
}

/// The failure for something that cannot be opened: wrong, not allowed, or another reason.
fn cannot_open(path: &Path, error: &OpenFailed) -> Failure {
    let code = match error {
        OpenFailed::Name { kind: ErrorKind::InvalidInput | ErrorKind::Unsupported, .. } => {
            Failure::USAGE
        }
        _ => Failure::code_of(error.kind()),
    };
    Failure { code, ..about(path, error) }
}

/// True if a line has this path in it, and not only as a part of a word.
fn names(line: &str, path: &str) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let parts: Vec<&str> = if path.is_empty() { vec![line] } else { line.split(path).collect() };
    parts.windows(2).any(|around| match around {
        [before, after] => !before.ends_with(is_word) && !after.starts_with(is_word),
        _ => false,
    })
}

/// The line for an error about a volume, which names it once.
pub fn about(source: &Path, error: impl std::fmt::Display) -> Failure {
    let (source, error) = (source.shown().to_string(), error.to_string());
    if names(&error, &source) { Failure::new(error) } else { Failure::about(source, error) }
}
