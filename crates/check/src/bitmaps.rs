//! Pass 5: bitmaps, their checksums and padding, and the counts of each group, against what the
//! passes before found.

use extol_ondisk::{GroupFlags, GroupNr, bitmap};

use crate::bits::Claimed;
use crate::claims::Claims;
use crate::error::Result;
use crate::inodes::Inodes;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

/// Free clusters and inodes by the bitmaps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Free {
    pub clusters: u64,
    pub inodes: u64,
}

/// Checks a group's bitmaps and counts.
pub(crate) fn group(
    vol: &Vol,
    claims: &Claims,
    uninit: &Claimed,
    inodes: &Inodes,
    group: u32,
    out: &mut Findings,
) -> Result<Free> {
    Ok(Free {
        clusters: blocks(vol, claims, uninit, group, out)?,
        inodes: inode_bitmap(vol, inodes, group, out)?,
    })
}

fn blocks(
    vol: &Vol,
    claims: &Claims,
    uninit: &Claimed,
    nr: u32,
    out: &mut Findings,
) -> Result<u64> {
    let geo = &vol.geo;
    let Some(g) = vol.groups.get(nr as usize).filter(|g| g.block_bitmap_ok) else { return Ok(0) };
    let per_group = geo.clusters_per_group;
    let count = geo.group_clusters(GroupNr(nr));
    let bytes = per_group as usize / 8;
    let first = u64::from(nr) * u64::from(per_group);
    // Metadata of groups whose bitmaps were never written. e2fsck takes it for marked, wherever it
    // lies; Linux goes by what is written, and would give such a block away.
    let mut assumed = vec![0; bytes];
    uninit.copy_bytes(first, &mut assumed);
    let on_disk = if vol.is_uninit(nr, GroupFlags::BLOCK_UNINIT) {
        assumed.clone()
    } else {
        let block = vol.block(g.block_bitmap)?;
        if vol.has_csum() && bitmap::block_bitmap_csum(geo, &block) != g.block_csum {
            let what = "the block bitmap's checksum is wrong";
            let finding =
                Finding::error(Kind::BlockBitmapChecksum, what).group(nr).block(g.block_bitmap);
            let theirs = united(&block, &assumed);
            let passed_over = bitmap::block_bitmap_csum(geo, &theirs) == g.block_csum;
            out.push(if passed_over { finding.beyond() } else { finding });
        }
        if !padded(&block, count) {
            let what = "the bits behind the end of the block bitmap are not set";
            out.push(
                Finding::error(Kind::BlockBitmapPadding, what).group(nr).block(g.block_bitmap),
            );
        }
        block
    };
    let mut found = vec![0; bytes];
    claims.found.copy_bytes(first, &mut found);
    compare(&on_disk, &found, count, |from, len, marked| {
        let block =
            geo.group_first_block(GroupNr(nr)).0 + u64::from(from) * u64::from(geo.cluster_ratio);
        let blocks = u64::from(len) * u64::from(geo.cluster_ratio);
        let what = if marked {
            format!("{blocks} blocks are marked as used, but nothing uses them")
        } else {
            format!("{blocks} blocks are in use, but not marked")
        };
        let finding = Finding::error(Kind::BlockBitmap, what).group(nr).block(block);
        let passed_over = !marked && (from..from + len).all(|n| bitmap::test(&assumed, n));
        out.push(if passed_over { finding.beyond() } else { finding });
    });
    let free = bitmap::count_zeros(&on_disk, count);
    if free != g.free_blocks {
        let what = format!("the group states {} free blocks, its bitmap has {free}", g.free_blocks);
        let finding = Finding::error(Kind::GroupCount, what).group(nr);
        let passed_over = bitmap::count_zeros(&united(&on_disk, &assumed), count) == g.free_blocks;
        out.push(if passed_over { finding.beyond() } else { finding });
    }
    Ok(u64::from(free))
}

/// The block bitmaps of the groups whose own were never written, by cluster: their fixed metadata,
/// wherever it is.
pub(crate) fn uninit_metadata(vol: &Vol) -> Claimed {
    let any = (0..vol.geo.groups()).any(|group| vol.is_uninit(group, GroupFlags::BLOCK_UNINIT));
    let map = Claimed::new(if any { vol.clusters() } else { 0 });
    let mark = |from: u64, len: u64| {
        if len > 0 {
            let (first, last) = (vol.cluster(from), vol.cluster(from.saturating_add(len - 1)));
            map.claim_range(first, last - first + 1);
        }
    };
    for (group, g) in (0u32..)
        .zip(&vol.groups)
        .filter(|(group, _)| vol.is_uninit(*group, GroupFlags::BLOCK_UNINIT))
    {
        let (from, len) = vol.base_meta(group);
        mark(from, len);
        mark(g.inode_table, u64::from(vol.geo.inode_table_blocks));
        mark(g.block_bitmap, 1);
        mark(g.inode_bitmap, 1);
    }
    map
}

fn inode_bitmap(vol: &Vol, inodes: &Inodes, nr: u32, out: &mut Findings) -> Result<u64> {
    let geo = &vol.geo;
    let Some(g) = vol.groups.get(nr as usize).filter(|g| g.inode_bitmap_ok) else { return Ok(0) };
    let per_group = geo.inodes_per_group;
    let infos = inodes.group(nr);
    let on_disk = if vol.is_uninit(nr, GroupFlags::INODE_UNINIT) {
        vec![0; per_group as usize / 8]
    } else {
        let block = vol.block(g.inode_bitmap)?;
        if vol.has_csum() && bitmap::inode_bitmap_csum(geo, &block) != g.inode_csum {
            let what = "the inode bitmap's checksum is wrong";
            out.push(
                Finding::error(Kind::InodeBitmapChecksum, what).group(nr).block(g.inode_bitmap),
            );
        }
        if !padded(&block, per_group) {
            let what = "the bits behind the end of the inode bitmap are not set";
            out.push(
                Finding::error(Kind::InodeBitmapPadding, what).group(nr).block(g.inode_bitmap),
            );
        }
        block
    };
    let mut found = vec![0; per_group as usize / 8];
    let mut dirs = 0;
    for (n, info) in (0u32..).zip(infos) {
        if info.is_used() {
            bitmap::set(&mut found, n);
        }
        dirs += u32::from(info.is_used() && info.is_dir() && bitmap::test(&on_disk, n));
    }
    compare(&on_disk, &found, per_group, |from, len, marked| {
        let ino = nr.wrapping_mul(per_group).wrapping_add(from).wrapping_add(1);
        let what = if marked {
            format!("{len} inodes are marked as used, but are not in use")
        } else {
            format!("{len} inodes are in use, but not marked")
        };
        out.push(Finding::error(Kind::InodeBitmap, what).group(nr).inode(ino));
    });
    let free = bitmap::count_zeros(&on_disk, per_group);
    if free != g.free_inodes {
        let what = format!("the group states {} free inodes, its bitmap has {free}", g.free_inodes);
        out.push(Finding::error(Kind::GroupCount, what).group(nr));
    }
    if dirs != g.used_dirs {
        let what = format!("the group states {} directories, but has {dirs}", g.used_dirs);
        out.push(Finding::error(Kind::GroupCount, what).group(nr));
    }
    Ok(u64::from(free))
}

/// A bitmap's block with the bits of another one added.
fn united(block: &[u8], more: &[u8]) -> Vec<u8> {
    let more = more.iter().chain(std::iter::repeat(&0));
    block.iter().zip(more).map(|(a, b)| a | b).collect()
}

/// True if all bits of a bitmap's block from `bits` on are set.
fn padded(block: &[u8], bits: u32) -> bool {
    let whole = bits.div_ceil(8);
    let ragged = (bits..whole * 8).all(|n| bitmap::test(block, n));
    ragged && block.get(whole as usize..).is_none_or(|rest| rest.iter().all(|&b| b == 0xFF))
}

/// Calls `differ(from, len, marked)` for each run of bits that differ in the same way.
fn compare(on_disk: &[u8], found: &[u8], bits: u32, mut differ: impl FnMut(u32, u32, bool)) {
    let len = found.len().min(on_disk.len());
    if bits as usize == len * 8 && on_disk[..len] == found[..len] {
        return;
    }
    let mut run: Option<(u32, u32, bool)> = None;
    for n in 0..bits {
        let (marked, used) = (bitmap::test(on_disk, n), bitmap::test(found, n));
        match &mut run {
            Some((_, len, kind)) if marked != used && *kind == marked => *len += 1,
            _ => {
                if let Some((from, len, kind)) = run.take() {
                    differ(from, len, kind);
                }
                run = (marked != used).then_some((n, 1, marked));
            }
        }
    }
    if let Some((from, len, kind)) = run {
        differ(from, len, kind);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_come_as_runs() {
        let mut seen = Vec::new();
        compare(&[0b0011_0110, 0xFF], &[0b0000_0111, 0x0F], 16, |from, len, marked| {
            seen.push((from, len, marked));
        });
        assert_eq!(seen, [(0, 1, false), (4, 2, true), (12, 4, true)]);
        compare(&[1, 2, 3], &[1, 2, 3], 24, |_, _, _| unreachable!());
    }

    #[test]
    fn padding() {
        assert!(
            padded(&[0, 0xF0, 0xFF], 12)
                && !padded(&[0, 0xE0, 0xFF], 12)
                && !padded(&[0, 0xF0, 0xFE], 12)
        );
        assert!(padded(&[0], 8) && padded(&[0, 0xFF], 8));
    }
}
