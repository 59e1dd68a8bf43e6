//! What lies on the disk, read from the image.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use extol_fscrypt::{Context, Volume};
use extol_ondisk::{Compat, Geometry, RoCompat, Superblock, dirent, htree, xattr};
use extol_testkit::{Image, debugfs};

/// A volume that is not mounted.
pub struct Disk {
    image: Image,
    pub geo: Geometry,
}

impl Disk {
    pub fn open(image: &Image) -> Self {
        let mut bytes = vec![0; 1024];
        File::open(&image.path).unwrap().read_exact_at(&mut bytes, 1024).unwrap();
        let sb = Superblock::decode(&bytes).unwrap();
        let geo = Geometry::new(&sb, None).unwrap();
        Self { image: image.clone(), geo }
    }

    pub fn block_len(&self) -> usize {
        self.geo.block_len()
    }

    fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        File::open(&self.image.path).unwrap().read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    /// What decides which policies are accepted.
    pub fn volume(&self) -> Volume {
        Volume {
            block_bits: self.geo.block_size.bits() as u8,
            huge_files: self.geo.ro_compat.contains(RoCompat::HUGE_FILE),
            stable_inodes: self.geo.compat().contains(Compat::STABLE_INODES),
            uuid: self.geo.uuid,
        }
    }

    /// The whole inode. debugfs says where it lies.
    pub fn inode(&self, ino: u64) -> Vec<u8> {
        let told = debugfs(&self.image, &format!("imap <{ino}>"));
        let (_, place) = told.split_once("located at block ").expect(&told);
        let (block, offset) = place.split_once(", offset 0x").expect(&told);
        let block: u64 = block.parse().unwrap();
        let offset = u64::from_str_radix(offset.trim(), 16).unwrap();
        self.read(block * self.block_len() as u64 + offset, 256)
    }

    /// The encryption context of an inode, whose attributes are in it.
    pub fn context(&self, ino: u64) -> Context {
        let inode = self.inode(ino);
        let extra = usize::from(u16::from_le_bytes([inode[0x80], inode[0x81]]));
        let entries = xattr::parse_ibody(&inode[0x80 + extra..]).unwrap();
        let found = entries.iter().find(|e| e.is(xattr::index::ENCRYPTION, Context::XATTR));
        let bytes = &found.expect("an encryption context").value;
        let context = Context::parse(bytes).unwrap();
        assert_eq!(&context.to_bytes(), bytes);
        context
    }

    /// The numbers of the blocks of an inode, zero for holes.
    pub fn blocks(&self, ino: u64) -> Vec<u64> {
        let told = debugfs(&self.image, &format!("blocks <{ino}>"));
        told.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    }

    /// All bytes of an inode's blocks, which are mapped from the start on.
    pub fn contents(&self, ino: u64) -> Vec<u8> {
        let len = self.block_len();
        self.blocks(ino).iter().flat_map(|&block| self.read(block * len as u64, len)).collect()
    }

    /// Writes over the blocks of an inode.
    pub fn overwrite(&self, ino: u64, bytes: &[u8]) {
        let file = File::options().write(true).open(&self.image.path).unwrap();
        for (block, bytes) in self.blocks(ino).into_iter().zip(bytes.chunks(self.block_len())) {
            file.write_all_at(bytes, block * self.block_len() as u64).unwrap();
        }
    }

    /// What is stored for a symbolic link.
    pub fn symlink(&self, ino: u64) -> Vec<u8> {
        let inode = self.inode(ino);
        let size = u32::from_le_bytes(inode[4..8].try_into().unwrap()) as usize;
        let sectors = u32::from_le_bytes(inode[0x1C..0x20].try_into().unwrap());
        let mut bytes = if sectors == 0 { inode[0x28..0x64].to_vec() } else { self.contents(ino) };
        bytes.truncate(size);
        bytes
    }

    /// The names in a directory as they are on disk, with their inodes.
    pub fn names(&self, ino: u64) -> Vec<(Vec<u8>, u64)> {
        let dump = self.image.path.with_extension("dump");
        let _ = debugfs(&self.image, &format!("dump <{ino}> {}", dump.display()));
        let bytes = std::fs::read(dump).unwrap();
        let blocks = bytes.chunks(self.block_len());
        // Blocks of an index hold one unused entry, and the tail of checksums is another one.
        let entries = blocks.flat_map(dirent::iter).map(Result::unwrap);
        let used = entries.filter(|entry| entry.is_used() && !entry.is_dot());
        used.map(|entry| (entry.name.to_vec(), u64::from(entry.ino.0))).collect()
    }

    /// The hashes of a name in a directory.
    pub fn hash(&self, name: &[u8]) -> [u32; 2] {
        let hash = htree::Hasher::default_for(&self.geo).hash(name);
        [hash.hash, hash.minor]
    }
}
