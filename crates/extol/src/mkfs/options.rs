//! What a caller may ask for: mke2fs's options as fields, and parsers for its option texts.
//!
//! Every field left at its default means "as mke2fs would". Texts with several parts (`-O`, `-E`,
//! `-J`) are parsed here; whether the parts fit together is decided when the volume is planned.

use super::{MkfsError, Result, refuse};
use extol_block::SharedDevice;
use extol_vfs::{NumberError, Size, bytes_text, nearest, number};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt as _;
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
    /// `-g`: blocks per group.
    pub blocks_per_group: Option<u32>,
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
    /// `-E` options.
    pub extended: ExtendedOptions,
    /// Sector size of the device: a smaller block size is refused. Default 512.
    pub sector_size: Option<u32>,
    /// Time stamp of everything, in seconds since 1970. Default: now.
    pub now: Option<u64>,
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
    /// `root_owner=uid:gid`.
    pub root_owner: (u32, u32),
    /// `root_perms=`: mode of the root directory, in octal. Default 755.
    pub root_perms: Option<u16>,
    /// `num_backup_sb=`: copies of the superblock with sparse_super2.
    pub backup_superblocks: Option<u8>,
    /// `hash_seed=`, as UUID.
    pub hash_seed: Option<[u8; 16]>,
    /// `orphan_file_size=`; a plain number counts blocks.
    pub orphan_file_size: Option<Size>,
    /// `mmp_update_interval=`, in seconds.
    pub mmp_update_interval: u16,
    /// `test_fs`.
    pub test_fs: bool,
    /// `no_copy_xattrs`: for a caller that puts files into the new volume.
    pub no_copy_xattrs: bool,
}

/// Longest `mmp_update_interval=` in seconds, as in Linux.
const MOST_MMP_INTERVAL: u16 = 300;

/// Extended options of mke2fs that are refused, and why.
const REFUSED: &[(&str, &str)] = &[
    ("encoding", "it needs the feature casefold, which Extol cannot make: use mke2fs"),
    ("encoding_flags", "it needs the feature casefold, which Extol cannot make: use mke2fs"),
    ("quotatype", "it needs the feature quota, which Extol cannot make: use mke2fs"),
    ("offset", "make the volume on a loop device: losetup --offset BYTES --show -f IMAGE"),
    ("android_sparse", "images here are ordinary sparse files"),
    ("root_selinux", "set the label on a mount: setfattr -n security.selinux"),
];

/// Extended options that are taken; some that have a value end in `=`.
const EXTENDED: [&str; 20] = [
    "lazy_itable_init=",
    "lazy_journal_init=",
    "discard",
    "nodiscard",
    "assume_storage_prezeroed=",
    "stride=",
    "stripe_width=",
    "stripe-width=",
    "resize=",
    "desc_size=",
    "desc-size=",
    "packed_meta_blocks=",
    "root_owner=",
    "root_perms=",
    "num_backup_sb=",
    "hash_seed=",
    "orphan_file_size=",
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
                "packed_meta_blocks" => e.packed_meta_blocks = switch(name, value)?,
                "root_owner" => e.root_owner = owner(value)?,
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
                "revision" => *revision = Some(count(name, value, 0..=1)?),
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
        for part in text.as_ref().as_bytes().split(|&b| b == b',').filter(|p| !p.is_empty()) {
            if let Some(path) = part.strip_prefix(b"device=".as_slice())
                && !path.is_empty()
            {
                journal.device_path = Some(OsStr::from_bytes(path).into());
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

fn permissions(text: &str) -> Result<u16> {
    let mode = number::octal(text, 0o7777).map_err(|error| about("root_perms", &error))?;
    Ok(mode as u16)
}

fn owner(value: Option<&str>) -> Result<(u32, u32)> {
    use std::os::unix::fs::MetadataExt;
    let Some(value) = value else {
        // The ids of this process: the owner of its own folder in /proc.
        return match std::fs::metadata("/proc/self") {
            Ok(me) => Ok((me.uid(), me.gid())),
            Err(_) => refuse("cannot read the ids of this process: use root_owner=UID:GID"),
        };
    };
    let Some((user, group)) = value.split_once(':') else {
        return refuse(format!("bad root_owner '{value}': it must be UID:GID"));
    };
    let id = |text| number::count(text, 0..=u32::MAX).map_err(|error| about("root_owner", &error));
    Ok((id(user)?, id(group)?))
}

/// Reads the usual form of a UUID.
pub(super) fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let bytes = text.as_bytes();
    if bytes.len() != 36 || [8, 13, 18, 23].iter().any(|i| bytes[*i] != b'-') {
        return None;
    }
    let hex: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(hex.as_chunks::<2>().0) {
        let digit = |b: u8| char::from(b).to_digit(16);
        *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
    }
    (hex.len() == 32).then_some(uuid)
}

/// A new random UUID (version 4).
pub(super) fn random_uuid() -> [u8; 16] {
    let mut uuid: [u8; 16] = rand::random();
    uuid[6] = uuid[6] & 0x0F | 0x40;
    uuid[8] = uuid[8] & 0x3F | 0x80;
    uuid
}

/// A UUID of the time `since` 1970 (version 1), with a random node in place of a network address.
pub(super) fn time_uuid(since: std::time::Duration) -> [u8; 16] {
    /// From the start of the Gregorian calendar to 1970, in the unit of these UUIDs.
    const GREGORIAN: u128 = 122_192_928_000_000_000;
    let ticks = (since.as_nanos() / 100 + GREGORIAN) as u64;
    let mut uuid: [u8; 16] = rand::random();
    uuid[..4].copy_from_slice(&(ticks as u32).to_be_bytes());
    uuid[4..6].copy_from_slice(&((ticks >> 32) as u16).to_be_bytes());
    uuid[6..8].copy_from_slice(&((ticks >> 48) as u16 & 0x0FFF | 0x1000).to_be_bytes());
    uuid[8] = uuid[8] & 0x3F | 0x80;
    // The bit of a multicast address: no network card has such a one.
    uuid[10] |= 1;
    uuid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids() {
        let text = "00112233-4455-6677-8899-aAbBcCdDeEfF";
        let expected: [u8; 16] = std::array::from_fn(|i| i as u8 * 0x11);
        assert_eq!(parse_uuid(text), Some(expected));
        for bad in [
            "",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233x4455-6677-8899-aabbccddeeff",
            "gg112233-4455-6677-8899-aabbccddeeff",
            "0011223-34455-6677-8899-aabbccddeeff",
            "--------------------------------1234",
        ] {
            assert_eq!(parse_uuid(bad), None, "{bad}");
        }
        assert_ne!(random_uuid(), random_uuid());
        assert_eq!((random_uuid()[6] >> 4, random_uuid()[8] >> 6), (4, 2));
        // (The time in the example of RFC 9562.)
        let since = std::time::Duration::from_nanos(1_645_557_742_000_000_000);
        let uuid = time_uuid(since);
        assert_eq!(uuid[..8], [0xC2, 0x32, 0xAB, 0x00, 0x94, 0x14, 0x11, 0xEC]);
        assert_eq!((uuid[8] >> 6, uuid[10] & 1), (2, 1));
    }

    /// A mistake names the word that was perhaps meant.
    #[test]
    fn the_nearest_word_is_named() {
        let mut o = MkfsOptions::default();
        for (text, meant) in [
            ("strid=4", "stride="),
            ("nodiscrad", "nodiscard"),
            ("lazy_itable_ini=0", "lazy_itable_init="),
            ("no_copy_xatrs", "no_copy_xattrs"),
        ] {
            let line = o.set_extended(text).expect_err(text).to_string();
            assert!(line.ends_with(&format!("did you mean \"{meant}\"?")), "{line}");
        }
        assert!(!o.set_extended("frobnicate").expect_err("no word").to_string().contains("mean"));
        let line = o.set_journal("siz=4").expect_err("no word").to_string();
        assert!(line.contains("did you mean \"size=\"?"), "{line}");
        assert!(FsType::parse("xt4").expect_err("no type").to_string().contains("\"ext4\""));
        // The list of names is the one that is taken.
        for name in EXTENDED {
            let bare = name.trim_end_matches('=');
            let taken = ["", "=0", "=1", "=1:1", "=00112233-4455-6677-8899-aabbccddeeff"]
                .iter()
                .any(|value| o.set_extended(&format!("{bare}{value}")).is_ok());
            assert!(taken, "{name}");
        }
    }

    #[test]
    fn numbers_say_what_is_wrong() {
        let mut o = MkfsOptions::default();
        for (text, words) in [
            ("stride=-1", "must not be negative"),
            ("stride=70000", "larger than 65535"),
            ("stripe_width=99999999999999999999", "larger than 4294967295"),
            ("num_backup_sb=3", "larger than 2"),
            ("root_perms=-7", "must not be negative"),
            ("root_perms=77777", "larger than 7777"),
            ("root_owner=4294967296:0", "larger than 4294967295"),
            ("resize=99999999999T", "2^64"),
        ] {
            let line = o.set_extended(text).expect_err(text).to_string();
            assert!(line.contains(words), "{text}: {line}");
        }
        for (text, words) in [
            ("size=0", "\"0\": it is less than 1M"),
            ("size=-1", "must not be negative"),
            ("fast_commit_size=9999P", "larger than"),
        ] {
            let line = o.set_journal(text).expect_err(text).to_string();
            assert!(line.contains(words), "{text}: {line}");
        }
        o.set_extended("revision=1").expect("revision");
        assert_eq!(o.revision, Some(1));
    }

    #[test]
    fn option_texts() {
        let mut o = MkfsOptions::default();
        o.set_extended(
            "lazy_itable_init=0,nodiscard,stride=16,stripe-width=64,root_owner=5:6,\
            lazy_journal_init,,test_fs,root_perms=0750,resize=2G",
        )
        .expect("parse");
        let e = &o.extended;
        assert_eq!(
            (e.lazy_itable_init, e.discard, e.stride, e.stripe_width),
            (Some(false), Some(false), 16, 64)
        );
        assert_eq!((e.root_owner, e.lazy_journal_init, e.test_fs), ((5, 6), true, true));
        assert_eq!((e.root_perms, e.resize), (Some(0o750), "2G".parse().ok()));
        o.set_journal("size=64M,fast_commit_size=256,location=1G,device=/dev/x").expect("parse");
        assert_eq!((o.journal.size_mib, o.journal.fast_commit_kib), (Some(64), Some(256)));
        assert_eq!(o.journal.location, "1G".parse().ok());
        assert_eq!(o.journal.device_path.as_deref(), Some(std::path::Path::new("/dev/x")));
        o.set_journal(OsStr::from_bytes(b"device=/x/\xFF")).expect("a path of bytes");
        assert_eq!(o.journal.device_path.as_ref().expect("path").as_os_str().len(), 4);
        for bad in [
            "bogus",
            "stride",
            "stride=x",
            "stride=70000",
            "root_owner=5",
            "hash_seed=1",
            "offset=5",
            "encoding=utf8",
            "quotatype=usrquota",
            "root_perms=8",
            "root_perms=+7",
            "root_perms=10000",
            "resize=",
            "resize=-5M",
            "orphan_file_size=x",
            "revision=2",
            "revision",
            "num_backup_sb=3",
            "mmp_update_interval=301",
            "root_owner=-1:0",
        ] {
            let error = o.set_extended(bad).expect_err(bad).to_string();
            assert!(
                !error.contains('\n') && error.contains(bad.split('=').next().expect("name")),
                "{error}"
            );
        }
        for bad in [
            "size=",
            "size=x",
            "size",
            "size=1K",
            "size=9999999P",
            "location=",
            "nonsense=1",
            "device=",
        ] {
            assert!(o.set_journal(bad).is_err(), "{bad}");
        }
    }
}
