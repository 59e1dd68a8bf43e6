//! Inodes that hold the values of attributes.

use extol_ondisk::checksum::crc32c;
use extol_ondisk::{FileType, xattr};

use crate::bytes::{join, le32, part};
use crate::error::Result;
use crate::map::Walk;
use crate::raw::Raw;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

/// Checks an inode that `refs` attributes name: it counts them, and holds what its checksum says.
pub(crate) fn value_inode(vol: &Vol, ino: u32, refs: u64, out: &mut Findings) -> Result<()> {
    let Some(bytes) = vol.inode(ino)? else { return Ok(()) };
    let raw = Raw { b: &bytes, ino };
    // Change time and version hold the count, access time the checksum; in the old form there is no
    // count and no checksum.
    let (atime, ctime) = (le32(raw.b, 8), le32(raw.b, 0x0C));
    if ctime == atime {
        return Ok(());
    }
    let stated = join(le32(raw.b, 0x24), ctime);
    if stated != refs {
        let what = format!("the attribute inode states {stated} users, but has {refs}");
        out.push(Finding::error(Kind::XattrInode, what).inode(ino));
    }
    // (e2fsck does not look further.)
    let mut error =
        |what: &str| out.push(Finding::error(Kind::XattrInode, what).inode(ino).beyond());
    if !raw.is(FileType::Regular) {
        error("an attribute's value is in something else than a regular file");
        return Ok(());
    }
    if le32(raw.attributes(), 0) == xattr::MAGIC || raw.file_acl(&vol.geo) != 0 {
        error("an inode with an attribute's value has attributes itself");
    }
    match checksum(vol, raw)? {
        None => error("an attribute's value is too long, or has holes"),
        Some(found) if found != atime => error("an attribute's value does not match its checksum"),
        Some(_) => {}
    }
    Ok(())
}

/// The checksum of the contents; `None` if they cannot be read as a value: too long, or with holes.
fn checksum(vol: &Vol, raw: Raw<'_>) -> Result<Option<u32>> {
    let bs = vol.geo.block_len() as u64;
    let size = raw.size();
    if size > u64::from(xattr::MAX_INODE_VALUE) {
        return Ok(None);
    }
    // (What is wrong with the map is reported where it is checked.)
    let mut ignored = Findings::new(0);
    let runs = Walk::new(vol, None, raw, true, &mut ignored).run()?.runs;
    let mut sum = vol.geo.fs_seed.0;
    let mut at = 0;
    for run in runs {
        for n in 0..run.len {
            if at >= size {
                break;
            }
            if run.lblk + n != at / bs || !vol.is_block(run.pblk + n) {
                return Ok(None);
            }
            let block = vol.block(run.pblk + n)?;
            let len = (size - at).min(bs);
            sum = crc32c(sum, part(&block, 0, len as usize));
            at += len;
        }
    }
    Ok((at >= size).then_some(sum))
}
