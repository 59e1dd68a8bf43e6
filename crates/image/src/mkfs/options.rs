//! What a caller may ask for: mke2fs's options as fields, and parsers for its option texts.
//!
//! Every field left at its default means "as mke2fs would". Texts with several parts (`-O`, `-E`,
//! `-J`) are parsed here; whether the parts fit together is decided when the volume is planned.

use super::bad_blocks::BlockTest;
use super::system::CreatorOs;
use super::uuid::parse_uuid;
use super::{MkfsError, Result, refuse};
use crate::sys;
use extol_block::SharedDevice;
use extol_ondisk::quota;
use extol_proc::{bytes_of, os_string};
use extol_vfs::{NumberError, Size, bytes_text, nearest, number};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;

/// Which kind of volume: it decides about the default features.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FsType {
    /// No journal, block maps.
    Ext2,
    /// ext2 with a journal.
    Ext3,
    /// Extents, checksums and everything else of today.
    #[default]
    Ext4,
}

impl FsType {
    /// From `ext2`, `ext3`, `ext4`.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "ext2" => Ok(Self::Ext2),
            "ext3" => Ok(Self::Ext3),
            "ext4" => Ok(Self::Ext4),
            _ => {
                // (Of those that are equally near the first one is named.)
                let meant = meant(name, ["ext4", "ext3", "ext2"]);
                refuse(format!(
                    "unknown file system type '{name}'{meant}; it must be ext2, ext3 or ext4"
                ))
            }
        }
    }
}

/// What Linux does when it meets an error on the volume (`-e`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum OnError {
    /// Go on.
    #[default]
    Continue,
    /// Remount read-only.
    RemountReadOnly,
    /// Halt the machine.
    Panic,
}

impl OnError {
    /// From `continue`, `remount-ro`, `panic`.
    pub fn parse(name: &str) -> Result<Self> {
        match name {
            "continue" => Ok(Self::Continue),
            "remount-ro" => Ok(Self::RemountReadOnly),
            "panic" => Ok(Self::Panic),
            _ => refuse(format!(
                "bad error behaviour '{name}': it must be continue, remount-ro or panic"
            )),
        }
    }

    pub(super) fn code(self) -> u16 {
        match self {
            Self::Continue => 1,
            Self::RemountReadOnly => 2,
            Self::Panic => 3,
        }
    }
}

/// An external journal to use (`-J device=`).
#[derive(Clone, Debug)]
pub struct JournalDevice {
    /// The device, formatted with `-O journal_dev`.
    pub device: SharedDevice,
    /// Its device number (`st_rdev`), 0 for an image.
    pub rdev: u64,
}

/// The journal (`-J`).
#[derive(Clone, Debug, Default)]
pub struct JournalOptions {
    /// Size in MiB (`size=`).
    pub size_mib: Option<u32>,
    /// Size of the fast-commit area in KiB (`fast_commit_size=`).
    pub fast_commit_kib: Option<u32>,
    /// A volume that is too small for a journal is refused.
    pub required: bool,
    /// The log gets at most so many blocks if `size=` is not given.
    pub most_blocks: Option<u32>,
    /// Where the log begins (`location=`): a block, or a distance from the start of the volume.
    pub location: Option<Size>,
    /// Path of an external journal (`device=`). The caller opens it and sets `device`.
    pub device_path: Option<PathBuf>,
    /// The opened external journal.
    pub device: Option<JournalDevice>,
}

/// Options of mkfs. mke2fs(8) documents them.
#[derive(Clone, Debug, Default)]
pub struct MkfsOptions {
    /// `-t`.
    pub fs_type: FsType,
    /// `-T`: usage types such as `small`, `news` or `largefile`, comma separated; a later one wins.
    /// Default: by size.
    pub usage: Option<String>,
    /// `-O`, as often as given: feature names, `^` takes one away, `none` all of them.
    pub features: Vec<String>,
    /// Size of the volume in bytes. Default: the device's.
    pub size: Option<u64>,
    /// `-b`: block size in bytes.
    pub block_size: Option<u32>,
    /// `-b` with a negative number: at least so many bytes, if `block_size` is not given.
    pub least_block_size: Option<u32>,
    /// `-g`: blocks per group; with bigalloc clusters.
    pub blocks_per_group: Option<u32>,
    /// Bytes of a cluster (`-C`), with the feature bigalloc.
    pub cluster_size: Option<u32>,
    /// `-G`: groups per flexible group.
    pub groups_per_flex: Option<u32>,
    /// `-I`: bytes per inode.
    pub inode_size: Option<u32>,
    /// `-i`: one inode per so many bytes of the volume.
    pub bytes_per_inode: Option<u32>,
    /// `-N`: number of inodes.
    pub inodes: Option<u64>,
    /// `-J`.
    pub journal: JournalOptions,
    /// `-L`: label, of which 16 bytes are kept.
    pub label: Option<OsString>,
    /// `-m`: percentage of blocks reserved for the super-user.
    pub reserved_percent: Option<f64>,
    /// `-M`: directory it was last mounted on, of which 64 bytes are kept.
    pub last_mounted: Option<OsString>,
    /// `-r`: revision, 0 or 1.
    pub revision: Option<u32>,
    /// `-U`: a UUID, `random`, `time` or `null`.
    pub uuid: Option<String>,
    /// `-e`.
    pub on_error: OnError,
    /// `-F`: allow block sizes above 4096 bytes.
    pub force: bool,
    /// `-n`: plan, but write nothing.
    pub dry_run: bool,
    /// `-o`.
    pub creator_os: CreatorOs,
    /// `-l`: blocks that are bad.
    pub bad_blocks: Vec<u64>,
    /// `-c`: a test that adds to them.
    pub block_test: Option<BlockTest>,
    /// `-S`: superblocks and descriptors are written, and all else stays as it is.
    pub only_superblocks: bool,
    /// `-E` options.
    pub extended: ExtendedOptions,
    /// Sector size of the device: a smaller block size is refused. Default 512.
    pub sector_size: Option<u32>,
    /// Time stamp of everything, in seconds since 1970. Default: now.
    pub now: Option<u64>,
    /// Whether hashes of names take characters as signed. Default: as C does on this machine, like
    /// mke2fs.
    pub signed_hash: Option<bool>,
}

/// A coding of names, with the rules by which they are folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Encoding {
    /// UTF-8, folded as Unicode 12.1.0 says.
    Utf8,
}

/// The options of `-E`.
#[derive(Clone, Debug, Default)]
pub struct ExtendedOptions {
    /// `lazy_itable_init=`: leave inode tables to be zeroed later. Default yes, where descriptors
    /// have checksums.
    pub lazy_itable_init: Option<bool>,
    /// `lazy_journal_init=`: do not zero the journal.
    pub lazy_journal_init: bool,
    /// `nodiscard` is `Some(false)`.
    pub discard: Option<bool>,
    /// `assume_storage_prezeroed=`: the device reads as zeros.
    pub prezeroed: bool,
    /// `stride=`, in blocks.
    pub stride: u16,
    /// `stripe_width=`, in blocks.
    pub stripe_width: u32,
    /// `resize=`: reserve descriptors to grow to this size; a plain number counts blocks.
    pub resize: Option<Size>,
    /// `desc_size=`.
    pub desc_size: Option<u16>,
    /// `packed_meta_blocks=`: all bitmaps, inode tables and the journal at the start.
    pub packed_meta_blocks: bool,
    /// `root_owner=uid:gid`. Default 0:0.
    pub root_owner: Option<(u32, u32)>,
    /// `root_perms=`: mode of the root directory, in octal. Default 755.
    pub root_perms: Option<u16>,
    /// `num_backup_sb=`: copies of the superblock with sparse_super2.
    pub backup_superblocks: Option<u8>,
    /// `encoding=`: how names are coded, for casefolded directories. It asks for casefold.
    pub encoding: Option<Encoding>,
    /// `encoding_flags=strict`: casefolded directories take only names in valid UTF-8.
    pub strict_encoding: bool,
    /// `hash_seed=`, as UUID.
    pub hash_seed: Option<[u8; 16]>,
    /// `orphan_file_size=`; a plain number counts blocks.
    pub orphan_file_size: Option<Size>,
    /// `quotatype=`: the kinds of quota files, with the feature quota. Default: those for users and
    /// groups, and that for projects with the feature project.
    pub quota_types: Vec<quota::Kind>,
    /// `mmp_update_interval=`, in seconds.
    pub mmp_update_interval: u16,
    /// `root_selinux=`: label of the root directory.
    pub root_selinux: Option<Vec<u8>>,
    /// `android_sparse`: for a caller that writes the volume to a file of this format.
    pub android_sparse: bool,
    /// `test_fs`.
    pub test_fs: bool,
    /// `no_copy_xattrs`: for a caller that puts files into the new volume.
    pub no_copy_xattrs: bool,
}

/// Longest `mmp_update_interval=` in seconds, as in Linux.
const MOST_MMP_INTERVAL: u16 = 300;

/// Extended options of mke2fs that are refused, and why.
const REFUSED: &[(&str, &str)] =
    &[("offset", "the caller opens the part of the device, and makes the volume in it")];

/// Extended options that are taken; some that have a value end in `=`.
const EXTENDED: [&str; 25] = [
    "android_sparse",
    "root_selinux=",
    "lazy_itable_init=",
    "lazy_journal_init=",
    "discard",
    "nodiscard",
    "assume_storage_prezeroed=",
    "stride=",
    "stripe_width=",
    "stripe-width=",
    "encoding=",
    "encoding_flags=",
    "resize=",
    "desc_size=",
    "desc-size=",
    "packed_meta_blocks=",
    "root_owner=",
    "root_perms=",
    "num_backup_sb=",
    "hash_seed=",
    "orphan_file_size=",
    "quotatype=",
    "mmp_update_interval=",
    "revision=",
    "test_fs",
];
/// The same of `-J`.
const JOURNAL: [&str; 4] = ["size=", "fast_commit_size=", "location=", "device="];

/// The end of a line about an unknown word: the known one that is near it, if there is one.
pub(super) fn meant<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let near = nearest(word, known);
    near.map(|near| format!(": did you mean \"{near}\"?")).unwrap_or_default()
}

/// A mistake in the value of an option.
fn about(name: &str, error: &NumberError) -> MkfsError {
    MkfsError::Refused(format!("option {name}: {error}"))
}

fn count<T: Copy + Into<u64> + TryFrom<u64>>(
    name: &str,
    value: Option<&str>,
    bounds: RangeInclusive<T>,
) -> Result<T> {
    let value = value
        .ok_or_else(|| MkfsError::Refused(format!("option {name} needs a number: {name}=N")))?;
    number::count(value, bounds).map_err(|error| about(name, &error))
}

/// `name` alone means yes.
fn switch(name: &str, value: Option<&str>) -> Result<bool> {
    match value {
        None => Ok(true),
        Some(_) => count(name, value, 0..=u32::MAX).map(|n| n != 0),
    }
}

impl MkfsOptions {
    /// Takes a text of `-E`.
    pub fn set_extended(&mut self, text: &str) -> Result<()> {
        let revision = &mut self.revision;
        let e = &mut self.extended;
        for part in text.split(',').filter(|p| !p.is_empty()) {
            let (name, value) = match part.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (part, None),
            };
            let text = || {
                value.filter(|v| !v.is_empty()).ok_or_else(|| {
                    MkfsError::Refused(format!("option {name} needs a value: {name}=…"))
                })
            };
            match name {
                "lazy_itable_init" => e.lazy_itable_init = Some(switch(name, value)?),
                "lazy_journal_init" => e.lazy_journal_init = switch(name, value)?,
                "discard" => e.discard = Some(true),
                "nodiscard" => e.discard = Some(false),
                "assume_storage_prezeroed" => e.prezeroed = switch(name, value)?,
                "stride" => e.stride = count(name, value, 0..=u16::MAX)?,
                "stripe_width" | "stripe-width" => {
                    e.stripe_width = count(name, value, 0..=u32::MAX)?;
                }
                "resize" => e.resize = Some(size(name, text()?)?),
                "desc_size" | "desc-size" => {
                    e.desc_size = Some(count(name, value, 0..=u16::MAX)?);
                }
                "encoding" => e.encoding = Some(encoding(text()?)?),
                "encoding_flags" => e.strict_encoding = strict(text()?)?,
                "packed_meta_blocks" => e.packed_meta_blocks = switch(name, value)?,
                "root_owner" => e.root_owner = Some(owner(value)?),
                "root_perms" => e.root_perms = Some(permissions(text()?)?),
                "num_backup_sb" => e.backup_superblocks = Some(count(name, value, 0..=2)?),
                "hash_seed" => {
                    let seed = text()?;
                    e.hash_seed = Some(parse_uuid(seed).ok_or_else(|| {
                        MkfsError::Refused(format!("bad hash_seed '{seed}': it must be a UUID"))
                    })?);
                }
                "orphan_file_size" => e.orphan_file_size = Some(size(name, text()?)?),
                "mmp_update_interval" => {
                    e.mmp_update_interval = count(name, value, 0..=MOST_MMP_INTERVAL)?;
                }
                "quotatype" => e.quota_types = quota_types(text()?)?,
                "revision" => *revision = Some(count(name, value, 0..=1)?),
                "root_selinux" => e.root_selinux = Some(text()?.as_bytes().to_vec()),
                "android_sparse" => e.android_sparse = switch(name, value)?,
                "test_fs" => e.test_fs = true,
                "no_copy_xattrs" => e.no_copy_xattrs = true,
                _ => {
                    return match REFUSED.iter().find(|(refused, _)| *refused == name) {
                        Some((_, why)) => {
                            refuse(format!("extended option '{name}' is not supported: {why}"))
                        }
                        None => refuse(format!(
                            "unknown extended option '{name}'{}",
                            meant(name, EXTENDED.into_iter().chain(["no_copy_xattrs"]))
                        )),
                    };
                }
            }
        }
        Ok(())
    }

    /// Takes a text of `-J`. (A path need not be UTF-8.)
    pub fn set_journal(&mut self, text: impl AsRef<OsStr>) -> Result<()> {
        let journal = &mut self.journal;
        for part in bytes_of(text.as_ref()).split(|&b| b == b',').filter(|p| !p.is_empty()) {
            if let Some(path) = part.strip_prefix(b"device=".as_slice())
                && !path.is_empty()
            {
                journal.device_path = Some(os_string(path.to_vec()).into());
                continue;
            }
            let part = bytes_text(part);
            match part.split_once('=') {
                Some(("size", n)) => {
                    journal.size_mib = Some(whole("size", n, 1 << 20, "mebibytes")?);
                }
                Some(("fast_commit_size", n)) => {
                    journal.fast_commit_kib =
                        Some(whole("fast_commit_size", n, 1 << 10, "kibibytes")?);
                }
                Some(("location", at)) => journal.location = Some(size("location", at)?),
                _ => {
                    let name = part.split('=').next().unwrap_or_default();
                    if JOURNAL.iter().any(|known| known.trim_end_matches('=') == name) {
                        return refuse(format!("option {name} needs a value: {name}=…"));
                    }
                    return refuse(format!(
                        "unknown journal option '{part}'{}; known are size=MIB, \
                         fast_commit_size=KIB, location=BLOCK, device=PATH",
                        meant(name, JOURNAL)
                    ));
                }
            }
        }
        Ok(())
    }
}

fn size(name: &str, text: &str) -> Result<Size> {
    text.parse().map_err(|error| about(name, &error))
}

/// A size in whole units, at least one.
fn whole(name: &str, text: &str, unit: u64, units: &str) -> Result<u32> {
    let bounds = unit..=unit.saturating_mul(u32::MAX.into());
    let bytes = number::size(text, unit, bounds).map_err(|error| about(name, &error))?;
    match u32::try_from(bytes / unit) {
        Ok(count) if bytes % unit == 0 => Ok(count),
        _ => refuse(format!("bad {name} \"{text}\": it must be a number of whole {units}")),
    }
}

fn encoding(text: &str) -> Result<Encoding> {
    match text {
        "utf8" | "utf8-12.1" => Ok(Encoding::Utf8),
        _ => refuse(format!("unknown encoding '{text}': Linux knows only utf8")),
    }
}

fn strict(text: &str) -> Result<bool> {
    match text {
        "strict" => Ok(true),
        "nostrict" => Ok(false),
        _ => refuse(format!("unknown flag '{text}' of the encoding: it can be strict or nostrict")),
    }
}

/// Names of kinds of quota files, with `:` between them.
fn quota_types(text: &str) -> Result<Vec<quota::Kind>> {
    let kind = |name| match name {
        "usrquota" => Ok(quota::Kind::User),
        "grpquota" => Ok(quota::Kind::Group),
        "prjquota" => Ok(quota::Kind::Project),
        _ => refuse(format!(
            "bad quotatype '{name}': it must be usrquota, grpquota or prjquota, or several of them \
             with : between them"
        )),
    };
    text.split(':').map(kind).collect()
}

fn permissions(text: &str) -> Result<u16> {
    let mode = number::octal(text, 0o7777).map_err(|error| about("root_perms", &error))?;
    Ok(mode as u16)
}

fn owner(value: Option<&str>) -> Result<(u32, u32)> {
    let Some(value) = value else {
        return match sys::own_ids() {
            Some(ids) => Ok(ids),
            None => refuse("cannot read the ids of this process: use root_owner=UID:GID"),
        };
    };
    let Some((user, group)) = value.split_once(':') else {
        return refuse(format!("bad root_owner '{value}': it must be UID:GID"));
    };
    let id = |text| number::count(text, 0..=u32::MAX).map_err(|error| about("root_owner", &error));
    Ok((id(user)?, id(group)?))
}

#[cfg(test)]
mod tests;
