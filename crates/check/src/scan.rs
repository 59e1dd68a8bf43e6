//! Pass 1 over a group: its inode table, block by block.

use crate::bytes::{is_zero, le32};
use crate::error::Result;
use crate::inode::{InodeCheck, Scanned};
use crate::inodes::Info;
use crate::raw::{Raw, extent_header_ok};
use crate::vol::Vol;
use extol_ondisk::{FileType, InodeFlags};

/// Bytes of an inode table that are read at once.
const CHUNK: usize = 128 << 10;

/// Checks the inodes of a group.
pub(crate) fn group(check: &InodeCheck<'_>, group: u32, max_findings: usize) -> Result<Scanned> {
    let vol = check.vol;
    let geo = &vol.geo;
    let mut to = Scanned::new(max_findings);
    let count = vol.scanned_inodes(group);
    let Some(g) = vol.groups.get(group as usize) else { return Ok(to) };
    let (bs, per_block) = (geo.block_len(), geo.inodes_per_block());
    let first = group * geo.inodes_per_group + 1;
    let per_chunk = (CHUNK / bs).max(1) as u64;
    let blocks = u64::from(count.div_ceil(per_block));
    let mut buf = vec![0; (per_chunk.min(blocks) as usize) * bs];
    let mut done = 0;
    while done < blocks {
        let n = per_chunk.min(blocks - done);
        let chunk = &mut buf[..n as usize * bs];
        vol.read(g.inode_table + done, chunk)?;
        for (i, block) in (0u32..).zip(chunk.chunks_exact(bs)) {
            let index = (done as u32 + i) * per_block;
            block_of_inodes(check, block, first + index, per_block.min(count - index), &mut to)?;
        }
        done += n;
    }
    let used = to.infos.iter().rposition(Info::is_used).map_or(0, |last| last + 1);
    to.infos.truncate(used);
    to.infos.shrink_to_fit();
    Ok(to)
}

/// Checks `count` inodes of a block of the table, the first of which is `first`.
fn block_of_inodes(
    check: &InodeCheck<'_>,
    block: &[u8],
    first: u32,
    count: u32,
    to: &mut Scanned,
) -> Result<()> {
    let vol = check.vol;
    let size = usize::from(vol.geo.inode_size);
    // The lowest numbers are in use whatever their inodes say, and so is that of a quota file.
    let quota = (first..first.saturating_add(count)).contains(&vol.sb.prj_quota_inum);
    if first >= vol.geo.first_ino.0 && !quota && is_zero(block) {
        to.infos.resize_with(to.infos.len() + count as usize, Info::default);
        return Ok(());
    }
    let inodes = || {
        (first..).zip(block.chunks_exact(size)).take(count as usize).map(|(ino, b)| Raw { b, ino })
    };
    let csums: Vec<bool> =
        inodes().map(|raw| !vol.has_csum() || raw.checksum_ok(&vol.geo)).collect();
    let broken =
        inodes().zip(&csums).filter(|(raw, csum_ok)| !**csum_ok || map_is_broken(vol, raw)).count();
    let per_block = vol.geo.inodes_per_block() as usize;
    let garbage = per_block >= 2 && broken > per_block / 2;
    for (raw, csum_ok) in inodes().zip(&csums) {
        let info = check.inode(raw, *csum_ok, garbage, to)?;
        to.counts.inodes += u64::from(info.is_used());
        to.infos.push(info);
    }
    Ok(())
}

/// True if what should be a map is nothing of the kind.
fn map_is_broken(vol: &Vol, raw: &Raw<'_>) -> bool {
    if raw.has(InodeFlags::EXTENTS) {
        return !extent_header_ok(raw.i_block());
    }
    let mapped = match raw.kind() {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => raw.size() > 60,
        _ => false,
    };
    if !mapped || raw.has(InodeFlags::INLINE_DATA) || raw.links() == 0 {
        return false;
    }
    let bad = raw.i_block().as_chunks::<4>().0.iter().filter(|word| {
        let nr = u64::from(le32(&word[..], 0));
        nr != 0 && !vol.is_block(nr)
    });
    bad.count() > 15 / 2
}
