//! Why something cannot be used as an ext4 volume, in words.

use extol_ondisk::Superblock;
use extol_ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};
use extol_proc::Shown as _;

use super::Opened;
use super::found::{Found, identify, superblock_copy};
use super::name::OpenName;
use super::signatures::{END_GPT, LOST_GPT};
use crate::BlockDevice;

const TOO_SMALL: &str = "too small to hold a superblock";

/// What an open device holds in place of an ext4 volume, as the end of a sentence that begins with
/// its name, and what to do. `None`: it has a superblock, so something else is wrong.
#[must_use]
pub fn explain(name: &OpenName, opened: &Opened) -> Option<String> {
    let shown = name.path.shown().to_string();
    let line = explain_device(&*opened.device, &shown, &place(opened), opened.is_whole())?;
    Some(match opened.container() {
        // (e2fsck cannot unpack it.)
        Some(known) if line.contains("e2fsck") => {
            format!("{line} (not in {}: {})", known.what, known.advice)
        }
        _ => line,
    })
}

/// A volume whose first superblock is damaged.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Damaged {
    /// What is wrong with it.
    pub why: String,
    /// The block of a copy of it.
    pub block: u64,
    /// Bytes of a block.
    pub block_size: u64,
}

impl Damaged {
    /// Where the copy begins, in bytes.
    #[must_use]
    pub fn at(&self) -> u64 {
        self.block * self.block_size
    }

    /// The same in KiB, as `sb=` has it.
    #[must_use]
    pub fn kib(&self) -> u64 {
        self.at() / 1024
    }
}

/// Whether the first superblock of a volume is damaged, and there is a copy of it. `None` for what
/// holds something else, though an old volume may have left a copy of its superblock there.
#[must_use]
pub fn damaged_superblock(device: &dyn BlockDevice) -> Option<Damaged> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    device.read_at(&mut bytes, SUPERBLOCK_OFFSET).ok()?;
    copy_for(device, Superblock::decode(&bytes).err()?.to_string())
}

/// The same, if it is known why the first superblock is damaged.
fn copy_for(device: &dyn BlockDevice, why: String) -> Option<Damaged> {
    let (block, block_size) = superblock_copy(device)?;
    let damaged = Damaged { why, block, block_size };
    match identify(device) {
        Found::Table(_) => None,
        // (A volume that was made over partitions may leave some of their table.)
        Found::Known(known) if ![END_GPT, LOST_GPT].contains(&known) => None,
        _ => Some(damaged),
    }
}

/// As [`explain`], of a device: `shown` is what its partitions are named by, `place` the word by
/// which e2fsck is told of the volume. Of a device that is itself a part no partition is named.
#[must_use]
pub fn explain_device(
    device: &dyn BlockDevice,
    shown: &str,
    place: &str,
    is_whole: bool,
) -> Option<String> {
    let mut bytes = [0; SUPERBLOCK_LEN];
    let damage = match device.read_at(&mut bytes, SUPERBLOCK_OFFSET) {
        Ok(()) => Superblock::decode(&bytes).err()?.to_string(),
        Err(_) if device.size() < SUPERBLOCK_OFFSET + SUPERBLOCK_LEN as u64 => TOO_SMALL.into(),
        Err(_) => return None,
    };
    if let Some(damaged) = copy_for(device, damage.clone()) {
        let Damaged { why, block, block_size } = &damaged;
        return Some(format!(
            "its superblock is damaged ({why}): read it with -o sb={}, or repair it from a copy \
             with e2fsck -b {block} -B {block_size} {place}",
            damaged.kib()
        ));
    }
    Some(match identify(device) {
        Found::Table(table) if is_whole => {
            let volume = table.first_volume();
            let note =
                if table.is_copy { " (its first table is damaged; this is the copy)" } else { "" };
            match (volume, table.parts.is_empty()) {
                (Some(part), _) => format!("is {table}{note}: say {shown}:{}", part.number),
                (None, true) => format!("is {table}{note}"),
                (None, false) => {
                    format!("is {table}{note}: none of them is an ext2, ext3 or ext4 volume")
                }
            }
        }
        Found::Table(table) => format!("holds {table}, and not an ext2, ext3 or ext4 volume"),
        Found::Known(known) => {
            let advice = match known.advice {
                "" => String::new(),
                advice => format!(": {advice}"),
            };
            format!("is {}, and not an ext2, ext3 or ext4 volume{advice}", known.what)
        }
        Found::Zeros => "holds nothing but zeros: extol mkfs makes a volume".to_owned(),
        _ if damage == TOO_SMALL => format!("not an ext4 volume: {TOO_SMALL}"),
        _ => format!(
            "not an ext4 volume, or its superblock is damaged ({damage}) and there is no copy of \
             it in the usual places (mke2fs -n with the options of its making lists others)"
        ),
    })
}

/// How e2fsck is told of the volume: the file, and where in it the volume begins.
fn place(opened: &Opened) -> String {
    let start = opened.start().unwrap_or(0);
    let mut word = opened.base.path().as_os_str().to_owned();
    if start != 0 {
        word.push(format!("?offset={start}"));
    }
    word.shown().to_string()
}
