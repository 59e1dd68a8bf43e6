//! What reads a volume without a mount, even beside one: its superblocks, its journal; and the
//! replay of the journal.

use extol::{Header, Info, Replayed};
use extol_block::OpenOptions;
use extol_block::open::{self, Layer, OpenName, Opened, Table};
use extol_cli_common::{Failure, Result, warn};
use extol_jbd2::inspect::JournalReport;
use extol_ondisk::{GroupDesc, RoCompat};
use extol_proc::Shown as _;

use super::{
    Source, VolumeOptions, about, cannot_open, name, open_journal, open_told, refuse_member,
    refused,
};

/// What a volume is, and how it was read.
pub struct Known {
    pub info: Info,
    pub layers: Vec<Layer>,
    /// The block of the copy of the superblock that was read in place of a damaged one.
    pub copy: Option<u64>,
}

/// What a volume is, by the superblock and the external journal that the options name.
pub fn info(source: Source<'_>, options: &VolumeOptions) -> Result<Known> {
    let mut options = options.clone();
    // As the volume: even if it is mounted.
    if let Some(path) = options.journal.path.take() {
        options.journal.device = Some(open_shared(path.as_path().into())?.device.clone());
    }
    let opened = open_shared(source)?;
    let copy = opened.take_copy(&mut options);
    let info = extol::info_with(&opened.device, &options);
    let info = info.map_err(|error| opened.refused(&options, error))?;
    Ok(Known { info, layers: opened.layers.clone(), copy })
}

/// True if the volume has the feature that forbids to write to it.
pub fn is_marked_read_only(source: Source<'_>) -> bool {
    let header =
        open_shared(source).ok().and_then(|opened| extol::header(&opened.device, None).ok());
    header.is_some_and(|header| header.superblock.feature_ro_compat.contains(RoCompat::READONLY))
}

/// The superblocks of an external journal. `None`: it is none.
pub fn external_journal(source: Source<'_>) -> Result<Option<Header>> {
    let opened = open_shared(source)?;
    Ok(extol::header(&opened.device, None).ok().filter(|header| header.geometry.is_none()))
}

/// The partitions of a disk, its bytes, and what it is packed in. `None`: it has no table of them.
pub fn partitions(source: Source<'_>) -> Result<Option<(Table, u64, Vec<Layer>)>> {
    let opened = open_shared(source)?;
    match open::identify(&*opened.device) {
        open::Found::Table(table) => Ok(Some((table, opened.device.size(), opened.layers.clone()))),
        _ => Ok(None),
    }
}

/// The superblocks of a volume; with `groups` also the descriptors of its groups.
pub fn header(
    source: Source<'_>,
    place: Option<u64>,
    groups: bool,
) -> Result<(Header, Vec<GroupDesc>)> {
    let opened = open_shared(source)?;
    let mut options = VolumeOptions::default();
    options.access.superblock = place;
    opened.take_copy(&mut options);
    let refused = |error| opened.refused(&options, error);
    let header = extol::header(&opened.device, options.access.superblock).map_err(refused)?;
    let descriptors = match groups {
        true => extol::group_descriptors(&opened.device, &header).map_err(refused)?,
        false => Vec::new(),
    };
    Ok((header, descriptors))
}

/// Where the superblock copy in block `block` of a volume is, in KiB, if blocks of unknown size are
/// tried one after another.
pub fn find_superblock(source: Source<'_>, block: u64) -> Result<u64> {
    let device = open_shared(source)?.device.clone();
    let places = (0..7).filter_map(|size| block.checked_mul(1 << size));
    let found = places.into_iter().find(|place| {
        // The place fits what stands there.
        extol::header(&device, Some(*place)).is_ok_and(|header| {
            let size = header.superblock.block_bytes() / 1024;
            block.checked_mul(size.into()) == Some(*place)
        })
    });
    found.ok_or_else(|| about(source.path, format!("there is no superblock in block {block}")))
}

/// The contents of a volume's journal.
pub fn journal(source: Source<'_>, options: &VolumeOptions) -> Result<JournalReport> {
    let opened = open_shared(source)?;
    let mut options = options.clone();
    opened.take_copy(&mut options);
    open_journal(&mut options, &OpenOptions::read_only())?;
    extol::inspect_journal(&opened.device, &options)
        .map_err(|error| opened.refused(&options, error))
}

/// Replays a volume's journal; with `dry_run` in memory only.
pub fn replay(source: Source<'_>, options: &VolumeOptions, dry_run: bool) -> Result<Replayed> {
    let mut options = options.clone();
    if dry_run {
        let opened = open_shared(source)?;
        open_journal(&mut options, &OpenOptions::read_only())?;
        return extol::recovered(&opened.device, &options)
            .map(|(_, replayed)| replayed)
            .map_err(|error| opened.refused(&options, error));
    }
    let opened = Shared::open(source, &OpenOptions::read_write())?;
    refuse_member(&opened.name, &opened)?;
    open_journal(&mut options, &OpenOptions::read_write())?;
    extol::replay(&opened.device, &options).map_err(|error| opened.refused(&options, error))
}

/// A device for reading, even if it is mounted.
fn open_shared(source: Source<'_>) -> Result<Shared> {
    Shared::open(source, &OpenOptions::read_only().exclusive(false))
}

/// An open device, with its name for the failures of what reads it.
#[derive(Debug)]
struct Shared {
    name: OpenName,
    opened: Opened,
}

impl std::ops::Deref for Shared {
    type Target = Opened;

    fn deref(&self) -> &Opened {
        &self.opened
    }
}

impl Shared {
    fn open(source: Source<'_>, how: &OpenOptions) -> Result<Self> {
        let name = name(source)?;
        let opened = open_told(&name, how).map_err(|error| cannot_open(source.path, &error))?;
        Ok(Self { name, opened })
    }

    /// Names a copy of the superblock in the options if the first one is damaged, and says so. The
    /// block of the copy.
    fn take_copy(&self, options: &mut VolumeOptions) -> Option<u64> {
        if options.access.superblock.is_some() {
            return None;
        }
        let damaged = open::damaged_superblock(&*self.opened.device)?;
        let (name, why, block) = (self.name.typed.shown(), &damaged.why, damaged.block);
        warn(format_args!(
            "{name}: its superblock is damaged ({why}); this is read by the copy in block {block}, \
             which may be older"
        ));
        options.access.superblock = Some(damaged.kib());
        Some(block)
    }

    fn refused(&self, options: &VolumeOptions, error: impl std::fmt::Display) -> Failure {
        refused(&self.name, &self.opened, options, error)
    }
}
