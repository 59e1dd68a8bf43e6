//! INODE: the first bytes of an inode as they were when it was made durable.
//!
//! The image is taken as it is, but for what other records say or the base knows better: the map
//! (ranges), the count of blocks, a directory's size and links (its names), and the link of the
//! orphan list.

use extol_ondisk::inode::I_BLOCK_LEN;
use extol_ondisk::{FileType, Inode, InodeFlags};
use extol_vfs::{FsError, Result};

use super::{Life, Replay, Touched};
use crate::inline;
use crate::map;

/// Where `i_block` is in an inode.
const I_BLOCK: std::ops::Range<usize> = 0x28..0x28 + I_BLOCK_LEN;
/// Flags that say what the map is.
const FORM: InodeFlags = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);

impl Replay<'_> {
    pub(super) fn inode(&mut self, ino: u32, image: &[u8]) -> Result<()> {
        let size = usize::from(self.vol.geo.inode_size);
        let bad = |what: &str| FsError::corrupt(what).in_inode(ino.into());
        if image.len() < 128 || image.len() > size {
            return Err(bad("the image of an inode has an impossible length"));
        }
        let plain = self.plain.clone();
        let has_csum = self.vol.geo.has_metadata_csum();
        self.touch(ino)?;
        let (vol, h) = (self.vol, &mut self.h);
        let Some(t) = self.inodes.get_mut(&ino) else { return Ok(()) };
        // An orphan whose number a new file got: nothing says so but the generation.
        let generation = image
            .get(0x64..0x68)
            .and_then(|b| b.first_chunk())
            .map_or(0, |b| u32::from_le_bytes(*b));
        let reborn = t.life == Life::Dead
            || t.life == Life::Alive
                && t.node.raw.links == 0
                && generation != t.node.raw.generation;
        if reborn {
            Self::empty(vol, h, t)?;
        }
        let fresh = reborn || t.life == Life::Absent;
        let link = t.node.raw.dtime;
        let mut old = if fresh { Inode::new_empty(&plain) } else { t.node.raw.clone() };
        if fresh {
            old.extra_isize = 0;
            old.tail = vec![0; size - 128];
            old.raw_extra = Vec::new();
        }
        let mut bytes = vec![0; size];
        old.encode_into(&mut bytes, t.node.ino, &plain);
        for (at, (to, from)) in bytes.iter_mut().zip(image).enumerate() {
            if fresh || !I_BLOCK.contains(&at) {
                *to = *from;
            }
        }
        let mut new = Inode::decode(&bytes, t.node.ino, &plain)
            .map_err(|_| bad("the image of an inode makes no sense"))?;
        let Some(kind) = new.kind() else {
            return Err(bad("the image of an inode has an unknown type"));
        };
        if fresh {
            if new.file_acl != 0 {
                return Err(bad("the image of a new inode names an attribute block"));
            }
            begin(&plain, &mut new, kind).map_err(bad)?;
        } else {
            if Some(kind) != old.kind() || new.file_acl != old.file_acl {
                return Err(bad("the image of an inode does not fit to what it was"));
            }
            if has_csum && new.generation != old.generation {
                return Err(bad("the image of an inode has another generation"));
            }
            keep(t, &mut new, image).map_err(bad)?;
        }
        new.dtime = if t.listed { link } else { 0 };
        t.node.raw = new;
        t.life = Life::Alive;
        if fresh {
            t.names = 0;
            let links = self.touch(ino)?.node.raw.links;
            for (parent, name) in self.waiting.remove(&ino).unwrap_or_default() {
                self.add_name(parent, ino, &name)?;
            }
            if links > 0 {
                // Their records came before: the image counts them.
                self.touch(ino)?.node.raw.links = links;
            }
        }
        Ok(())
    }
}

/// A new inode: nothing is mapped yet.
fn begin(
    geo: &extol_ondisk::Geometry,
    new: &mut Inode,
    kind: FileType,
) -> std::result::Result<(), &'static str> {
    new.blocks = 0;
    match kind {
        FileType::Regular | FileType::Directory => {
            if kind == FileType::Directory {
                new.size = 0;
                new.links = 0;
                new.flags.remove(InodeFlags::INDEX);
            }
            if new.flags.contains(InodeFlags::INLINE_DATA) {
                // Its contents are in the image.
                return if kind == FileType::Regular {
                    Ok(())
                } else {
                    Err("a new directory inside its inode")
                };
            }
            let extents = new.flags.contains(InodeFlags::EXTENTS);
            map::init(geo, new);
            match (extents, new.flags.contains(InodeFlags::EXTENTS)) {
                (false, true) => {
                    new.flags.remove(InodeFlags::EXTENTS);
                    new.i_block = [0; I_BLOCK_LEN];
                    Ok(())
                }
                (true, false) => Err("a file with extents on a volume without"),
                _ => Ok(()),
            }
        }
        FileType::Symlink if !new.is_fast_symlink() => Err("a symbolic link without its target"),
        _ => Ok(()),
    }
}

/// What of an existing inode stays.
fn keep(t: &mut Touched, new: &mut Inode, image: &[u8]) -> std::result::Result<(), &'static str> {
    let old = &t.node.raw;
    new.blocks = old.blocks;
    if old.is_dir() {
        // Its names change it.
        let fixed = FORM.union(InodeFlags::INDEX);
        new.flags = new.flags.difference(fixed) | old.flags.intersection(fixed);
        (new.size, new.links) = (old.size, old.links);
        return Ok(());
    }
    if new.flags.intersection(FORM) == old.flags.intersection(FORM) {
        if new.flags.contains(InodeFlags::INLINE_DATA)
            && let Some(contents) = image.get(I_BLOCK)
        {
            new.i_block.copy_from_slice(contents);
        }
        return Ok(());
    }
    Err("a file is mapped in another way")
}

impl Touched {
    /// A small file has outgrown its inode: from now on it maps blocks.
    pub(super) fn leave_inode(&mut self, vol: &crate::volume::Volume) -> Result<()> {
        inline::clear(&mut self.node)?;
        map::init(&vol.geo, &mut self.node.raw);
        Ok(())
    }
}
