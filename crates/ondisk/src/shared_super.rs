//! One superblock, two writers: which fields belong to a mounted file system, and which to other
//! programs.
//!
//! `tune2fs` and `e2label` change a mounted volume's superblock in place. Linux keeps such a
//! change: it has one buffer for the superblock, which these tools write through, and it changes
//! only single fields of it. Extol keeps its own copy, so it takes all bytes that are not its own
//! from the device before it writes.
//!
//! - Fields of the mount: free counts, time of the last write, head of the orphan list, record of
//!   errors, the bit "clean", the features `needs_recovery` and `orphan_present`. And what changes
//!   when the volume grows: numbers of blocks and inodes, descriptor blocks, overhead, the features
//!   `resize_inode` and `meta_bg`. A size that is ahead of its transaction would name descriptors
//!   that are not there yet.
//! - Of both: the bit "has errors", set if one of the two has it.
//! - Of the device: all other fields, until the mount changes one on purpose ([`Deliberate`]).
//!
//! Invariants
//! - OD-1: a byte of the device's half never comes from a stale copy: [`merge`] takes it from the
//!   device, or from a change on purpose that the device does not have yet.
//! - OD-2: a field is never half one and half the other: changes on purpose are noted by fields
//!   ([`Deliberate::note`]).

use crate::checksum::crc32c;
use crate::features::RoCompat;
use crate::superblock::{SUPERBLOCK_LEN, Superblock};

/// The bytes of a superblock.
pub type Bytes = [u8; SUPERBLOCK_LEN];

const CHECKSUM_AT: usize = 0x3FC;
const STATE_AT: usize = 0x3A;
const STATE_VALID: u8 = 1;
const STATE_ERROR: u8 = 2;

/// The bits that are the mount's.
const OWNED: Bytes = owned();

const fn owned() -> Bytes {
    let mut mask = [0; SUPERBLOCK_LEN];
    let ranges: [(usize, usize); 13] = [
        (0x00, 0x08),   // inodes, blocks (low half)
        (0x150, 0x154), // blocks, high half
        (0xCE, 0xD0),   // reserved descriptor blocks
        (0x104, 0x108), // first meta block group
        (0x248, 0x254), // overhead, groups of the copies
        (0x0C, 0x14),   // free blocks (low half), free inodes
        (0x158, 0x15C), // free blocks, high half
        (0x30, 0x34),   // time of the last write
        (0x274, 0x275), // its high byte
        (0xE8, 0xEC),   // head of the orphan list
        (0x194, 0x200), // record of errors
        (0x278, 0x27C), // times' high bytes and numbers of errors
        (CHECKSUM_AT, SUPERBLOCK_LEN),
    ];
    let mut i = 0;
    while i < ranges.len() {
        let mut at = ranges[i].0;
        while at < ranges[i].1 {
            mask[at] = 0xFF;
            at += 1;
        }
        i += 1;
    }
    mask[STATE_AT] = STATE_VALID;
    mask[0x5C] = 0x10; // COMPAT_RESIZE_INODE
    mask[0x60] = 4 | 0x10; // INCOMPAT_RECOVER, INCOMPAT_META_BG
    mask[0x66] = 1; // RO_COMPAT_ORPHAN_PRESENT
    mask
}

/// Fields of the device's half that the mount changes on purpose (a label set by ioctl, say).
#[derive(Clone, Debug, Default)]
pub struct Deliberate {
    fields: Vec<(usize, Vec<u8>)>,
}

impl Deliberate {
    /// Notes what `after` has that `before` had not.
    pub fn note(&mut self, before: &Bytes, after: &Bytes) {
        if !differs(before, after) {
            return;
        }
        let mut covered = [false; SUPERBLOCK_LEN];
        for &(at, len) in Superblock::FIELDS {
            covered[at..at + len].fill(true);
            self.note_field(at, len, before, after);
        }
        for (at, _) in covered.iter().enumerate().filter(|(_, covered)| !**covered) {
            self.note_field(at, 1, before, after);
        }
    }

    fn note_field(&mut self, at: usize, len: usize, before: &Bytes, after: &Bytes) {
        let range = at..at + len;
        if range.clone().any(|i| (before[i] ^ after[i]) & !OWNED[i] != 0) {
            self.fields.retain(|(field, _)| *field != at);
            self.fields.push((at, after[range].to_vec()));
        }
    }

    /// True without such a change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Drops the changes that these bytes have: they are on the device.
    pub fn settle(&mut self, written: &Bytes) {
        self.fields.retain(|(at, bytes)| written[*at..*at + bytes.len()] != **bytes);
    }

    fn apply(&self, bytes: &mut Bytes) {
        for (at, field) in &self.fields {
            for (i, new) in field.iter().enumerate() {
                let mask = OWNED[at + i];
                bytes[at + i] = (bytes[at + i] & mask) | (new & !mask);
            }
        }
    }
}

/// True if two superblocks differ in what is the device's.
#[must_use]
pub fn differs(a: &Bytes, b: &Bytes) -> bool {
    a.iter().zip(b).zip(&OWNED).any(|((a, b), mask)| (a ^ b) & !mask != 0)
}

/// The superblock to write: the mount's half of `ours`, the device's half of `theirs`, what was
/// changed on purpose, and a new checksum.
#[must_use]
pub fn merge(ours: &Bytes, theirs: &Bytes, deliberate: &Deliberate) -> Bytes {
    let mut out = [0; SUPERBLOCK_LEN];
    for (i, byte) in out.iter_mut().enumerate() {
        *byte = (ours[i] & OWNED[i]) | (theirs[i] & !OWNED[i]);
    }
    out[STATE_AT] |= (ours[STATE_AT] | theirs[STATE_AT]) & STATE_ERROR;
    deliberate.apply(&mut out);
    let ro_compat = u32::from_le_bytes([out[0x64], out[0x65], out[0x66], out[0x67]]);
    if RoCompat::from_bits_retain(ro_compat).contains(RoCompat::METADATA_CSUM) {
        let sum = crc32c(!0, &out[..CHECKSUM_AT]);
        out[CHECKSUM_AT..].copy_from_slice(&sum.to_le_bytes());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::superblock::State;

    fn base() -> Superblock {
        let mut sb = Superblock::new_empty();
        sb.feature_ro_compat = RoCompat::METADATA_CSUM;
        sb.checksum_type = 1;
        sb.blocks_count = 100;
        sb.free_blocks_count = 50;
        sb.state = State::VALID;
        sb
    }

    fn merged(ours: &Superblock, theirs: &Superblock, deliberate: &Deliberate) -> Superblock {
        let bytes = merge(&ours.encode(), &theirs.encode(), deliberate);
        Superblock::decode(&bytes).expect("a sound superblock with the right checksum")
    }

    #[test]
    fn each_half_from_its_owner() {
        let (mut ours, mut theirs) = (base(), base());
        ours.free_blocks_count = 7;
        ours.last_orphan = 12;
        ours.state = State::empty();
        theirs.volume_name = *b"new label\0\0\0\0\0\0\0";
        theirs.max_mnt_count = 33;
        theirs.r_blocks_count = 5;
        theirs.free_blocks_count = 99;
        let out = merged(&ours, &theirs, &Deliberate::default());
        assert_eq!((out.free_blocks_count, out.last_orphan, out.state), (7, 12, State::empty()));
        assert_eq!(
            (out.label(), out.max_mnt_count, out.r_blocks_count),
            (&b"new label"[..], 33, 5)
        );
    }

    /// The superblock of an older transaction goes home while a newer one makes the volume larger.
    #[test]
    fn a_size_is_never_ahead_of_its_transaction() {
        let (home, mut older) = (base(), base());
        older.blocks_count = 200;
        older.inodes_count = 20;
        let mut newer = older.clone();
        (newer.blocks_count, newer.inodes_count, newer.first_meta_bg) = (300, 30, 2);
        newer.feature_incompat = crate::Incompat::META_BG;
        let mut deliberate = Deliberate::default();
        deliberate.note(&older.encode(), &newer.encode());
        let out = merged(&older, &home, &deliberate);
        assert_eq!((out.blocks_count, out.inodes_count, out.first_meta_bg), (200, 20, 0));
        assert!(out.feature_incompat.is_empty());
        assert_eq!(merged(&newer, &older, &deliberate).encode(), newer.encode());
    }

    #[test]
    fn an_error_is_never_forgotten() {
        for (ours, theirs) in [(true, false), (false, true)] {
            let (mut a, mut b) = (base(), base());
            a.state.set(State::ERROR, ours);
            b.state.set(State::ERROR, theirs);
            let out = merged(&a, &b, &Deliberate::default());
            assert!(out.state.contains(State::ERROR | State::VALID));
        }
    }

    #[test]
    fn a_change_on_purpose_wins_by_whole_fields_until_it_is_there() {
        let (before, mut after, mut theirs) = (base(), base(), base());
        after.volume_name = *b"a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        after.free_inodes_count = 3;
        theirs.volume_name = *b"xyz\0\0\0\0\0\0\0\0\0\0\0\0\0";
        let mut deliberate = Deliberate::default();
        deliberate.note(&before.encode(), &after.encode());
        assert_eq!(merged(&after, &theirs, &deliberate).label(), b"a");
        deliberate.settle(&theirs.encode());
        assert!(!deliberate.is_empty(), "the device does not have it");
        deliberate.settle(&after.encode());
        assert!(deliberate.is_empty());
        assert_eq!(merged(&after, &theirs, &deliberate).label(), b"xyz");
    }
}
