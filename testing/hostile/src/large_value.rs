//! A value of an attribute in an inode of its own. Extol reads these and never writes them, so one
//! is put together here: the contents of a small file become the value of an attribute of another.

use extol_block::{BlockDevice, BlockNr, MemDevice};
use extol_ondisk::{Inode, InodeFlags, InodeNr, xattr};

use crate::layout::{Kind, Layout, read};
use crate::seal;

/// The file whose attribute it becomes, and the file that becomes the value.
const OWNER: &[u8] = b"small1";
const VALUE: &[u8] = b"small4";
const INCOMPAT_EA_INODE: u8 = 4;

/// Changes the volume that `base` fills.
///
/// # Panics
/// If the volume is not that one.
pub fn put(dev: &MemDevice) {
    let layout = Layout::of(dev);
    let inode = |name: &[u8]| {
        let (ino, _) = layout.names.iter().find(|(_, n)| n.name == name).expect("the file");
        let target = layout
            .targets
            .iter()
            .find(|t| t.kind == Kind::Inode && t.ino == *ino)
            .expect("its inode");
        let raw = read(dev, target.at, target.len);
        (*target, Inode::decode(&raw, InodeNr(*ino), &layout.geo).expect("an inode"), raw)
    };
    let (_, owner, _) = inode(OWNER);
    let (place, mut value, mut raw) = inode(VALUE);
    let first = extol_ondisk::extent::Extent::read(&value.i_block, 12).start;
    let bs = layout.geo.block_len();
    let contents = read(dev, first * bs as u64, value.size as usize);
    value.flags |= InodeFlags::EA_INODE;
    value.atime.sec = i64::from(layout.geo.fs_seed.crc(&contents).cast_signed());
    // How many attributes use it.
    (value.ctime.sec, value.version) = (0, 1);
    value.encode_into(&mut raw, InodeNr(place.ino), &layout.geo);
    dev.write_at(&raw, place.at).expect("write");

    let at = owner.file_acl * bs as u64;
    let (header, mut entries) =
        xattr::parse_block(&read(dev, at, bs)).expect("a block of attributes");
    let entry = entries.iter_mut().find(|e| e.name == b"long").expect("the attribute");
    entry.value.clear();
    (entry.value_inum, entry.value_size) = (place.ino, value.size as u32);
    let mut block = xattr::build_block(&mut entries, bs, header.refcount).expect("room");
    xattr::set_csum(&mut block, BlockNr(owner.file_acl), layout.geo.fs_seed);
    dev.write_at(&block, at).expect("write");

    let mut sb = read(dev, 1024, 1024);
    sb[0x61] |= INCOMPAT_EA_INODE;
    seal::seal(&layout, &layout.targets[0], &mut sb);
    dev.write_at(&sb, 1024).expect("write");
}
