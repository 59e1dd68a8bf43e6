//! SEEK_DATA, SEEK_HOLE and fiemap: what is where in a file.

use extol_ondisk::InodeFlags;
use extol_vfs::{FileExtent, FsError, Result, Seek};

use crate::inodes::InodeState;
use crate::map::{self, Mapping};
use crate::mounted::MountedFs;

/// Blocks of one kind.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    len: u64,
    data: bool,
}

fn stretch(fs: &MountedFs, st: &InodeState, lblk: u32) -> Result<Stretch> {
    if st.pages.get(lblk).is_some() {
        return Ok(Stretch { len: u64::from(st.pages.run(lblk, u32::MAX)), data: true });
    }
    let clean = st.pages.next(lblk).map_or(u64::MAX, |l| u64::from(l - lblk));
    let (len, data) = match map::lookup(&fs.vol, &st.node, lblk)? {
        Mapping::Hole { len } => (len, false),
        Mapping::Mapped { len, unwritten, .. } => (u64::from(len), !unwritten),
    };
    Ok(Stretch { len: len.min(clean).max(1), data })
}

/// Err once a file maps more blocks than the volume has: a damaged map may name one block of
/// pointers many times.
fn spend(budget: &mut u64, blocks: u64, st: &InodeState) -> Result<()> {
    let many = || {
        FsError::corrupt("file maps more blocks than the volume has").in_inode(st.node.ino.0.into())
    };
    *budget = budget.checked_sub(blocks).ok_or_else(many)?;
    Ok(())
}

/// First data, or first hole, at or after `offset`. The end of the file counts as a hole.
pub(crate) fn seek(fs: &MountedFs, st: &InodeState, offset: u64, what: Seek) -> Result<u64> {
    let size = st.node.raw.size;
    if offset >= size {
        return Err(FsError::NoDataThere);
    }
    if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        return Ok(if what == Seek::Data { offset } else { size });
    }
    let bs = fs.vol.geo.block_len() as u64;
    let mut at = offset;
    let mut budget = fs.vol.geo.blocks();
    while at < size {
        let lblk = u32::try_from(at / bs).map_err(|_| FsError::FileTooLarge)?;
        let s = stretch(fs, st, lblk)?;
        if s.data == (what == Seek::Data) {
            return Ok(at);
        }
        if s.data {
            spend(&mut budget, s.len, st)?;
        }
        at = (u64::from(lblk) + s.len).saturating_mul(bs);
    }
    match what {
        Seek::Data => Err(FsError::NoDataThere),
        Seek::Hole => Ok(size),
    }
}

/// The extents of a byte range, in order, neighbours joined.
pub(crate) fn fiemap(
    fs: &MountedFs,
    st: &InodeState,
    offset: u64,
    len: u64,
) -> Result<Vec<FileExtent>> {
    let size = st.node.raw.size;
    let mut found: Vec<FileExtent> = Vec::new();
    if st.node.raw.flags.contains(InodeFlags::INLINE_DATA) {
        if offset < size && len > 0 {
            found.push(FileExtent {
                logical: 0,
                physical: 0,
                len: size,
                unwritten: false,
                delayed: false,
                inline: true,
            });
        }
        return Ok(found);
    }
    let bits = fs.vol.geo.block_size.bits();
    let end = offset.saturating_add(len);
    let mut push = |e: FileExtent| match found.last_mut() {
        Some(last)
            if last.logical + last.len == e.logical
                && (last.physical + last.len == e.physical || e.delayed)
                && last.unwritten == e.unwritten
                && last.delayed == e.delayed =>
        {
            last.len += e.len;
        }
        _ => found.push(e),
    };
    let mut lblk = u32::try_from(offset >> bits).unwrap_or(u32::MAX);
    let to = u32::try_from(end.div_ceil(1 << bits)).unwrap_or(u32::MAX);
    let mut budget = fs.vol.geo.blocks();
    while lblk < to {
        let page = st.pages.get(lblk);
        let step = if page.is_some_and(|p| p.reserved) {
            let logical = u64::from(lblk) << bits;
            push(FileExtent {
                logical,
                physical: 0,
                len: 1 << bits,
                unwritten: false,
                delayed: true,
                inline: false,
            });
            1
        } else {
            let delayed = st
                .pages
                .range(lblk)
                .find(|(_, p)| p.reserved)
                .map_or(u64::MAX, |(l, _)| u64::from(l - lblk));
            match map::lookup(&fs.vol, &st.node, lblk)? {
                Mapping::Hole { len } => len.min(delayed).max(1),
                Mapping::Mapped { pblk, len, unwritten } => {
                    spend(&mut budget, len.into(), st)?;
                    push(FileExtent {
                        logical: u64::from(lblk) << bits,
                        physical: pblk.offset(fs.vol.geo.block_size),
                        len: u64::from(len) << bits,
                        unwritten,
                        delayed: false,
                        inline: false,
                    });
                    u64::from(len)
                }
            }
        };
        match u32::try_from(u64::from(lblk).saturating_add(step)) {
            Ok(next) => lblk = next,
            Err(_) => break,
        }
    }
    Ok(found)
}
