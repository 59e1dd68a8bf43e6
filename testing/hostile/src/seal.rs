//! Checksums made right after damage, so that what lies behind the checksum is reached.

use extol_block::{BlockDevice, BlockNr, MemDevice};
use extol_jbd2::format::crc32c as log_crc;
use extol_ondisk::checksum::{crc16, crc32c};
use extol_ondisk::{Incompat, InodeNr, dirent, extent, htree, orphan_file, xattr};

use crate::layout::{Kind, Layout, Target, le16, le32, read};

fn put16(b: &mut [u8], at: usize, v: u16) {
    if let Some(b) = b.get_mut(at..at + 2) {
        b.copy_from_slice(&v.to_le_bytes());
    }
}

fn put32(b: &mut [u8], at: usize, v: u32) {
    if let Some(b) = b.get_mut(at..at + 4) {
        b.copy_from_slice(&v.to_le_bytes());
    }
}

/// Brings the checksum inside `b`, a structure of kind `t.kind` that belongs at `t.at`, up to date.
/// (Bitmaps have theirs elsewhere: [`bitmap`].)
pub fn seal(layout: &Layout, t: &Target, b: &mut [u8]) {
    let geo = &layout.geo;
    let nr = BlockNr(t.at / geo.block_len() as u64);
    let csum = geo.has_metadata_csum();
    let seed =
        geo.fs_seed.inode(InodeNr(t.ino), layout.generations.get(&t.ino).copied().unwrap_or(0));
    match t.kind {
        Kind::Super if csum => {
            let sum = crc32c(!0, &b[..0x3FC]);
            put32(b, 0x3FC, sum);
        }
        Kind::Desc(g) => desc(layout, g, b),
        Kind::Inode if csum => inode(layout, t.ino, b),
        Kind::Extents if csum && 12 * (1 + usize::from(le16(b, 4))) + 4 <= b.len() => {
            extent::set_csum(b, seed)
        }
        Kind::Leaf if csum => dirent::set_csum(b, seed),
        Kind::Index(kind) if csum && has_room_for_sum(b, kind.count_at()) => {
            htree::set_csum(b, kind, seed)
        }
        Kind::Attributes if csum => xattr::set_csum(b, nr, geo.fs_seed),
        Kind::Orphans if csum => orphan_file::set_csum(b, nr, seed),
        Kind::JournalSuper | Kind::JournalDesc | Kind::JournalRevoke | Kind::JournalCommit => {
            log_block(layout, t, b)
        }
        _ => {}
    }
}

fn desc(layout: &Layout, group: u32, b: &mut [u8]) {
    let geo = &layout.geo;
    if !geo.has_gdt_csum() {
        return;
    }
    let number = group.to_le_bytes();
    let (head, tail) = (b[..0x1E].to_vec(), b[0x20..].to_vec());
    let sum = if geo.has_metadata_csum() {
        let sum = crc32c(crc32c(crc32c(geo.fs_seed.0, &number), &head), &[0, 0]);
        crc32c(sum, &tail) as u16
    } else {
        let sum = crc16(crc16(crc16(!0, &geo.uuid), &number), &head);
        if geo.incompat().contains(Incompat::BIT64) { crc16(sum, &tail) } else { sum }
    };
    put16(b, 0x1E, sum);
}

fn inode(layout: &Layout, ino: u32, b: &mut [u8]) {
    let seed = layout.geo.fs_seed.inode(InodeNr(ino), le32(b, 0x64));
    let has_high = b.len() > 128 && le16(b, 0x80) >= 4;
    put16(b, 0x7C, 0);
    if has_high {
        put16(b, 0x82, 0);
    }
    let sum = seed.crc(b);
    put16(b, 0x7C, sum as u16);
    if has_high {
        put16(b, 0x82, (sum >> 16) as u16);
    }
}

/// Makes the checksum in a group's descriptor (and its free count, if `count`) agree with a bitmap.
pub fn bitmap(layout: &Layout, dev: &MemDevice, t: &Target, count: bool) {
    let geo = &layout.geo;
    let (group, is_blocks) = match t.kind {
        Kind::BlockBitmap(g) => (g, true),
        Kind::InodeBitmap(g) => (g, false),
        _ => return,
    };
    let Some(d) = layout.targets.iter().find(|d| d.kind == Kind::Desc(group)) else { return };
    let bits = read(dev, t.at, t.len);
    let mut b = read(dev, d.at, d.len);
    let (sum, lo, hi) = if is_blocks {
        (extol_ondisk::bitmap::block_bitmap_csum(geo, &bits), 0x18, 0x38)
    } else {
        (extol_ondisk::bitmap::inode_bitmap_csum(geo, &bits), 0x1A, 0x3A)
    };
    if geo.has_metadata_csum() {
        put16(&mut b, lo, sum as u16);
        put16(&mut b, hi, (sum >> 16) as u16);
    }
    if count {
        let real = if is_blocks {
            geo.group_blocks(extol_ondisk::GroupNr(group))
        } else {
            geo.inodes_per_group
        };
        let free = extol_ondisk::bitmap::count_zeros(&bits, real);
        let (lo, hi) = if is_blocks { (0x0C, 0x2C) } else { (0x0E, 0x2E) };
        put16(&mut b, lo, free as u16);
        put16(&mut b, hi, (free >> 16) as u16);
    }
    desc(layout, group, &mut b);
    let _ = dev.write_at(&b, d.at);
}

/// Brings the checksum of a block of the log up to date.
pub fn log_block(layout: &Layout, t: &Target, b: &mut [u8]) {
    let Some(jsb) = &layout.journal else { return };
    if !jsb.features.has_csum_v2_or_v3() {
        return;
    }
    let (seed, at) = match t.kind {
        Kind::JournalSuper => (!0, 0xFC),
        Kind::JournalCommit => (jsb.seed(), 0x10),
        _ => (jsb.seed(), b.len() - 4),
    };
    b[at..at + 4].fill(0);
    let sum = log_crc(seed, b);
    b[at..at + 4].copy_from_slice(&sum.to_be_bytes());
}

/// A copy in the log was changed: its tag gets the new sum, and the descriptor its own.
pub fn log_copy(layout: &Layout, dev: &MemDevice, tag: u64, copy: &[u8]) {
    let Some(jsb) = &layout.journal else { return };
    let bs = layout.geo.block_len() as u64;
    let at = tag / bs * bs;
    let mut block = read(dev, at, bs as usize);
    let inside = (tag - at) as usize;
    let tid = block[8..12].to_vec();
    let sum = log_crc(log_crc(jsb.seed(), &tid), copy);
    if jsb.features.has_csum_v3() {
        block[inside + 12..inside + 16].copy_from_slice(&sum.to_be_bytes());
    } else if jsb.features.has_csum_v2() {
        block[inside + 4..inside + 6].copy_from_slice(&(sum as u16).to_be_bytes());
    }
    let t = Target { kind: Kind::JournalDesc, ino: 0, at, len: bs as usize };
    log_block(layout, &t, &mut block);
    let _ = dev.write_at(&block, at);
}

/// The place of the checksum of an index node depends on fields that may be damaged.
fn has_room_for_sum(b: &[u8], at: usize) -> bool {
    let (limit, count) = (usize::from(le16(b, at)), usize::from(le16(b, at + 2)));
    count <= limit && at + 8 * limit + 8 <= b.len()
}
