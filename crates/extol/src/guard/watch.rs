//! What another writer necessarily changes, compared with what this mount wrote last.
//!
//! | found on the device | what it means |
//! |---|---|
//! | it is smaller than the volume | the file, or that below a loop device, was cut |
//! | the log's superblock, or the superblock, is all zeros | it was cut and is longer again, or was overwritten |
//! | the log's superblock has another start, sequence or errno | another mount, a recovery, e2fsck |
//! | another time of mount in the superblock | another mount |
//! | `needs_recovery` set or cleared | a recovery, another mount's end |
//! | no magic number, another geometry or checksum seed | mkfs, resize2fs, `tune2fs -U` |
//! | anything else | `tune2fs`, `e2label`: taken over |
//!
//! A time of mount has seconds: another mount in the very second of this one, of a volume without a
//! log, is not seen.
//!
//! After a failed write of one of the two superblocks the contents of the device are not known, and
//! nothing is concluded from them any more. (The journal aborts.) Before the volume is opened
//! again, those fields are compared that have one value during a whole mount, so that another mount
//! is seen also then ([`Watch::check_before_reopening`]).

use std::time::Duration;

use extol_block::SharedDevice;
use extol_ondisk::Superblock;
use extol_ondisk::features::{Incompat, RoCompat};
use extol_ondisk::shared_super::Bytes;
use extol_ondisk::superblock::{SUPERBLOCK_LEN, SUPERBLOCK_OFFSET};

use crate::error::{OpenError, OpenResult};

/// Shortest time between two checks.
const EVERY: Duration = Duration::from_secs(1);
/// The part of the log's superblock that is compared: header, sizes, first block, sequence, start,
/// errno.
pub(super) const LOG_PART: usize = 0x24;

type LogPart = [u8; LOG_PART];

/// The two superblocks as this mount knows them.
#[derive(Debug)]
pub(super) struct Watch {
    device: SharedDevice,
    superblock: Box<Bytes>,
    log: Option<Log>,
    /// When the next check is due.
    next: u64,
    /// A write failed.
    uncertain: bool,
}

/// The log's superblock.
#[derive(Debug)]
struct Log {
    device: SharedDevice,
    at: u64,
    part: LogPart,
    /// It is not on the volume's device.
    is_external: bool,
}

impl Log {
    /// How long an external log is, in bytes.
    fn bytes(&self) -> u64 {
        let word = |at| u64::from(u32::from_be_bytes(std::array::from_fn(|i| self.part[at + i])));
        let (block_size, blocks) = (word(0x0C), word(0x10));
        block_size.saturating_mul(blocks)
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

impl Watch {
    pub fn new(
        device: &SharedDevice,
        log: Option<(&SharedDevice, u64)>,
        now: u64,
    ) -> OpenResult<Self> {
        let mut superblock = Box::new([0; SUPERBLOCK_LEN]);
        device.read_at(&mut superblock[..], SUPERBLOCK_OFFSET).map_err(OpenError::from)?;
        let log = match log {
            None => None,
            Some((its, at)) => {
                let mut part = [0; LOG_PART];
                its.read_at(&mut part, at).map_err(OpenError::from)?;
                let is_external = !SharedDevice::ptr_eq(its, device);
                Some(Log { device: SharedDevice::clone(its), at, part, is_external })
            }
        };
        let next = now.saturating_add(nanos(EVERY));
        Ok(Self { device: SharedDevice::clone(device), superblock, log, next, uncertain: false })
    }

    /// The superblock as the device has it.
    pub fn superblock(&self) -> &Bytes {
        &self.superblock
    }

    /// The next check is due.
    pub fn make_due(&mut self) {
        self.next = 0;
    }

    /// Checks if it is time; returns the time of the next check, or a line about the other writer.
    pub fn check(&mut self, now: u64) -> Result<u64, String> {
        if now >= self.next && !self.uncertain {
            self.next = now.saturating_add(nanos(EVERY));
            self.check_sizes()?;
            if let Some(Log { device, at, part: known, .. }) = &self.log {
                let mut part = [0; LOG_PART];
                // A device that cannot be read says nothing about writers.
                if device.read_at(&mut part, *at).is_ok() && part != *known {
                    return Err(match part == [0; LOG_PART] {
                        true => zeroed("the journal's superblock"),
                        false => other_writer("the journal was changed"),
                    });
                }
            }
            self.read_superblock()?;
        }
        Ok(self.next)
    }

    /// Checks at once, and after a failed write, too, that no other program has had the volume.
    pub fn check_before_reopening(&mut self) -> Result<(), String> {
        if !self.uncertain {
            self.next = 0;
            return self.check(0).map(|_| ());
        }
        self.check_sizes()?;
        let mut theirs = Box::new([0; SUPERBLOCK_LEN]);
        if self.device.read_at(&mut theirs[..], SUPERBLOCK_OFFSET).is_err() {
            return Ok(());
        }
        if theirs.iter().all(|byte| *byte == 0) {
            return Err(zeroed("the superblock"));
        }
        constant(&self.superblock, &theirs).map_or(Ok(()), |what| Err(other_writer(what)))
    }

    /// An opening has failed that may have written both superblocks: what the device has is taken
    /// as this mount's, if it is the same volume.
    pub fn after_failed_reopening(&mut self) -> Result<(), String> {
        self.uncertain = true;
        let mut now = Box::new([0; SUPERBLOCK_LEN]);
        if self.device.read_at(&mut now[..], SUPERBLOCK_OFFSET).is_ok() {
            if let Some(what) = geometry(&self.superblock, &now) {
                return Err(other_writer(what));
            }
            self.superblock = now;
        }
        Ok(())
    }

    /// Checks that the devices are as long as what lies on them.
    pub fn check_sizes(&self) -> Result<(), String> {
        let volume = Superblock::decode(&self.superblock[..])
            .map_or(0, |sb| u64::from(sb.block_bytes()).saturating_mul(sb.blocks_count));
        let log = self.log.as_ref().filter(|log| log.is_external);
        let log = log.map(|log| ("the journal", &log.device, log.bytes()));
        let cut = |(_, device, needed): &(_, &SharedDevice, u64)| device.size_now() < *needed;
        match std::iter::once(("the volume", &self.device, volume)).chain(log).find(cut) {
            None => Ok(()),
            Some((what, device, needed)) => Err(format!(
                "the device below {what} was cut to {} of {needed} bytes: nothing more is written \
                 here; unmount it, give it its size back, run e2fsck and mount it again",
                device.size_now()
            )),
        }
    }

    /// The superblock as it is on the device now.
    pub fn read_superblock(&mut self) -> Result<&Bytes, String> {
        let mut theirs = Box::new([0; SUPERBLOCK_LEN]);
        if !self.uncertain && self.device.read_at(&mut theirs[..], SUPERBLOCK_OFFSET).is_ok() {
            if theirs.iter().all(|byte| *byte == 0) {
                return Err(zeroed("the superblock"));
            }
            if let Some(what) = foreign(&self.superblock, &theirs) {
                return Err(other_writer(what));
            }
            self.superblock = theirs;
        }
        Ok(&self.superblock)
    }

    /// These bytes were written to the log's superblock.
    pub fn wrote_log(&mut self, part: LogPart) {
        if let Some(log) = &mut self.log {
            log.part = part;
        }
    }

    /// These bytes were written to the superblock.
    pub fn wrote_superblock(&mut self, bytes: &Bytes) {
        *self.superblock = *bytes;
    }

    /// A write of one of the two failed.
    pub fn set_uncertain(&mut self) {
        self.uncertain = true;
    }
}

fn other_writer(what: &str) -> String {
    format!(
        "another program or system writes to this volume ({what}): nothing more is written here; \
         unmount it everywhere, run e2fsck and mount it again"
    )
}

/// What a file that was cut and became longer again has, and what no file system writes.
fn zeroed(what: &str) -> String {
    format!(
        "{what} is all zeros: the file or device below was cut, or overwritten; nothing more is \
         written here; unmount it, run e2fsck and mount it again"
    )
}

fn word(b: &Bytes, at: usize) -> u32 {
    u32::from_le_bytes(std::array::from_fn(|i| b[at + i]))
}

/// A change that no tool makes to the superblock of a mounted volume.
fn foreign(known: &Bytes, theirs: &Bytes) -> Option<&'static str> {
    let needs_recovery = |b: &Bytes| word(b, 0x60) & Incompat::NEEDS_RECOVERY.bits();
    constant(known, theirs).or_else(|| {
        (needs_recovery(known) != needs_recovery(theirs))
            .then_some("its journal was recovered or closed")
    })
}

/// A change of what has one value during a whole mount.
fn constant(known: &Bytes, theirs: &Bytes) -> Option<&'static str> {
    let same = |range: std::ops::Range<usize>| known[range.clone()] == theirs[range];
    geometry(known, theirs).or_else(|| {
        (!same(0x2C..0x30) || !same(0x275..0x276)).then_some("it was mounted a second time")
    })
}

/// It is another volume.
fn geometry(known: &Bytes, theirs: &Bytes) -> Option<&'static str> {
    let same = |range: std::ops::Range<usize>| known[range.clone()] == theirs[range];
    // Magic number, counts of inodes and blocks, sizes, sizes of inodes and descriptors, high half
    // of the blocks.
    let geometry = [0x38..0x3A, 0x00..0x08, 0x14..0x2C, 0x58..0x5A, 0xFE..0x100, 0x150..0x154];
    if !geometry.into_iter().all(same) {
        return Some("it has another geometry");
    }
    let checksums = RoCompat::from_bits_retain(word(known, 0x64))
        .intersects(RoCompat::METADATA_CSUM | RoCompat::UNINIT_BG);
    let seeded = Incompat::from_bits_retain(word(known, 0x60)).contains(Incompat::CSUM_SEED);
    if checksums && !if seeded { same(0x270..0x274) } else { same(0x68..0x78) } {
        return Some("its checksums have another seed");
    }
    None
}
