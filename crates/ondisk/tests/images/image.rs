//! An image whose parts this crate decodes, with every checksum verified on the way.

use extol_ondisk::BlockNr;
use extol_ondisk::xattr::{self, XattrEntry};
use extol_ondisk::{
    Geometry, GroupDesc, GroupFlags, GroupNr, Inode, InodeFlags, InodeNr, Superblock, bitmap,
    extent, indirect,
};
use std::path::Path;

/// An image in memory, with its superblock and geometry.
pub struct Image {
    pub bytes: Vec<u8>,
    pub sb: Superblock,
    pub geo: Geometry,
}

impl Image {
    pub fn load(path: &Path) -> Self {
        let bytes = std::fs::read(path).expect("image");
        let sb = Superblock::decode(&bytes[1024..2048]).expect("superblock");
        let geo = Geometry::new(&sb, Some(bytes.len() as u64)).expect("geometry");
        Self { bytes, sb, geo }
    }

    pub fn block(&self, nr: BlockNr) -> &[u8] {
        let at = nr.offset(self.geo.block_size) as usize;
        &self.bytes[at..at + self.geo.block_len()]
    }

    pub fn desc_bytes(&self, group: GroupNr) -> &[u8] {
        let (block, offset) = self.geo.desc_block(group);
        &self.block(block)[offset..offset + usize::from(self.geo.desc_size)]
    }

    pub fn desc(&self, group: GroupNr) -> GroupDesc {
        GroupDesc::decode(self.desc_bytes(group), &self.geo, group).expect("descriptor")
    }

    pub fn inode_bytes(&self, ino: InodeNr) -> &[u8] {
        let (group, index) = self.geo.group_of_inode(ino);
        let size = usize::from(self.geo.inode_size);
        let at = BlockNr(self.desc(group).inode_table).offset(self.geo.block_size) as usize
            + index as usize * size;
        &self.bytes[at..at + size]
    }

    pub fn inode(&self, ino: InodeNr) -> Inode {
        Inode::decode(self.inode_bytes(ino), ino, &self.geo)
            .unwrap_or_else(|e| panic!("{ino:?}: {e}"))
    }

    pub fn used_inodes(&self) -> Vec<InodeNr> {
        let mut out = Vec::new();
        for group in (0..self.geo.groups()).map(GroupNr) {
            let desc = self.desc(group);
            if desc.flags.contains(GroupFlags::INODE_UNINIT) {
                continue;
            }
            let bits = self.block(BlockNr(desc.inode_bitmap));
            out.extend(
                (0..self.geo.inodes_per_group)
                    .filter(|&n| bitmap::test(bits, n))
                    .map(|n| self.geo.inode_at(group, n)),
            );
        }
        out
    }

    /// Blocks of a file in order, with every extent node verified.
    pub fn file_blocks(&self, ino: InodeNr, inode: &Inode) -> Vec<(u32, BlockNr)> {
        let mut out = Vec::new();
        if inode.flags.contains(InodeFlags::EXTENTS) {
            self.walk_extents(ino, inode, &inode.i_block, None, &mut out);
        } else {
            let last = inode.size.div_ceil(u64::from(self.geo.block_size.bytes())) as u32;
            for b in 0..last {
                let path = indirect::path(b, self.geo.block_size).expect("path");
                let mut at = indirect::pointer(&inode.i_block, path.slots()[0]);
                for &slot in &path.slots()[1..] {
                    if at != 0 {
                        at = indirect::pointer(self.block(BlockNr(at.into())), slot);
                    }
                }
                if at != 0 {
                    out.push((b, BlockNr(at.into())));
                }
            }
        }
        out
    }

    pub fn walk_extents(
        &self,
        ino: InodeNr,
        inode: &Inode,
        bytes: &[u8],
        above: Option<u16>,
        out: &mut Vec<(u32, BlockNr)>,
    ) {
        let node =
            extent::Node::decode(bytes, &self.geo).unwrap_or_else(|e| panic!("{ino:?}: {e}"));
        if let Some(above) = above {
            assert_eq!(node.depth + 1, above);
            assert_eq!(node.max, extent::block_max(&self.geo));
            if self.geo.has_metadata_csum() {
                extent::verify_csum(bytes, inode.seed(ino, &self.geo)).expect("extent checksum");
            }
        }
        let mut copy = bytes.to_vec();
        node.encode_into(&mut copy);
        if above.is_some() && self.geo.has_metadata_csum() {
            extent::set_csum(&mut copy, inode.seed(ino, &self.geo));
        }
        let used = 12 * (1 + node.len());
        assert_eq!(copy[..used], bytes[..used]);
        match &node.entries {
            extent::Entries::Leaf(all) => {
                for e in all {
                    out.extend(
                        (0..u32::from(e.len))
                            .map(|i| (e.block + i, BlockNr(e.start + u64::from(i)))),
                    );
                }
            }
            extent::Entries::Index(all) => {
                for i in all {
                    self.walk_extents(
                        ino,
                        inode,
                        self.block(BlockNr(i.leaf)),
                        Some(node.depth),
                        out,
                    );
                }
            }
        }
    }

    pub fn xattrs(&self, ino: InodeNr, inode: &Inode) -> Vec<XattrEntry> {
        let mut all = xattr::parse_ibody(&inode.tail).unwrap_or_else(|e| panic!("{ino:?}: {e}"));
        if inode.file_acl != 0 {
            let block = self.block(BlockNr(inode.file_acl));
            if self.geo.has_metadata_csum() {
                xattr::verify_csum(block, BlockNr(inode.file_acl), self.geo.fs_seed)
                    .expect("attribute checksum");
            }
            let (header, mut entries) = xattr::parse_block(block).expect("attribute block");
            for e in &entries {
                assert_eq!(e.hash, xattr::entry_hash(&e.name, &e.value));
            }
            let rebuilt =
                xattr::build_block(&mut entries, block.len(), header.refcount).expect("room");
            let (header2, again) = xattr::parse_block(&rebuilt).expect("rebuilt");
            assert!(header2.refcount == header.refcount && again == entries);
            // e2fsprogs leaves the hash of the whole block at 0: never shared.
            assert!(header.hash == 0 || header2 == header);
            all.extend(entries);
        }
        all
    }
}
