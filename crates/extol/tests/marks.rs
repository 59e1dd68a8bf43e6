//! What `chattr` flags and the caller decide about a write: the library without a kernel in front.

use std::sync::Arc;

use extol::device::MemDevice;
use extol::mkfs::{MkfsOptions, mkfs};
use extol::vfs::{
    Author, Creds, Fallocate, FileSystem, FsError, NewNode, SetAttr, SetTime, Timestamp, Tune,
};
use extol::vfs::{Mountable as _, VolumeControl as _};
use extol::{Ext4, MountOptions};

const EXTENTS: u32 = 0x8_0000;
const IMMUTABLE: u32 = 0x10;
const APPEND: u32 = 0x20;
const JOURNAL_DATA: u32 = 0x4000;
const DAX: u32 = 0x200_0000;

fn volume(options: &MkfsOptions) -> Arc<Ext4> {
    let device = MemDevice::new(32 << 20);
    mkfs(&device, options, &mut |_| {}).unwrap();
    Ext4::open(Arc::new(device), &MountOptions::default()).unwrap()
}

fn file(fs: &Ext4, name: &str, uid: u32) -> u32 {
    let owner = Creds { uid, gid: uid };
    fs.create(fs.root(), name.as_bytes(), NewNode::Regular, 0o666, 0, owner).unwrap().id.ino
}

fn mark(fs: &Ext4, ino: u32, flags: u32) -> Result<(), FsError> {
    fs.setattr(ino, &SetAttr { flags: Some(EXTENTS | flags), ..SetAttr::default() }).map(drop)
}

fn read(fs: &Ext4, ino: u32) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    let len = fs.read(ino, 0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

#[test]
fn the_place_of_a_write_decides_where_only_appends_are_allowed() {
    let fs = volume(&MkfsOptions::default());
    let ino = file(&fs, "log", 0);
    let process = Author::Process(Creds::default());
    fs.write(ino, 0, b"0123").unwrap();
    mark(&fs, ino, APPEND).unwrap();
    for at in [0, 3] {
        assert_eq!(fs.write_as(ino, at, b"evil", process), Err(FsError::NotPermitted), "{at}");
        assert_eq!(fs.write(ino, at, b"evil"), Err(FsError::NotPermitted), "{at}");
    }
    assert_eq!(fs.write_as(ino, 4, b"45", process), Ok(2));
    assert_eq!(fs.fallocate(ino, Fallocate::PunchHole, 0, 4), Err(FsError::NotPermitted));
    // A cache writes the last page as a whole.
    assert_eq!(fs.write_as(ino, 0, b"01234567", Author::Cache), Ok(8));
    mark(&fs, ino, IMMUTABLE).unwrap();
    assert_eq!(fs.write_as(ino, 8, b"8", process), Err(FsError::NotPermitted));
    assert_eq!(fs.kill_privileges(ino, true), Ok(()), "there are none");
    assert_eq!(fs.write_as(ino, 8, b"8", Author::Cache), Ok(1));
    assert_eq!(read(&fs, ino), b"012345678");
}

#[test]
fn set_id_bits_of_an_immutable_file_stay() {
    let fs = volume(&MkfsOptions::default());
    let ino = file(&fs, "tool", 0);
    fs.setattr(ino, &SetAttr { perm: Some(0o6766), ..SetAttr::default() }).unwrap();
    mark(&fs, ino, IMMUTABLE).unwrap();
    assert_eq!(fs.kill_privileges(ino, true), Err(FsError::NotPermitted));
    assert_eq!(fs.getattr(ino).unwrap().perm, 0o6766);
    mark(&fs, ino, 0).unwrap();
    fs.kill_privileges(ino, false).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().perm, 0o2766, "the group may not execute it");
    fs.kill_privileges(ino, true).unwrap();
    assert_eq!(fs.getattr(ino).unwrap().perm, 0o766);
}

#[test]
fn dax_and_journalled_data_exclude_each_other() {
    let fs = volume(&MkfsOptions::default());
    let ino = file(&fs, "file", 0);
    mark(&fs, ino, DAX).unwrap();
    assert!(matches!(mark(&fs, ino, DAX | JOURNAL_DATA), Err(FsError::NotSupported(_))));
    assert!(matches!(mark(&fs, ino, JOURNAL_DATA), Err(FsError::NotSupported(_))), "instead of it");
    mark(&fs, ino, 0).unwrap();
    mark(&fs, ino, JOURNAL_DATA).unwrap();
    assert!(matches!(mark(&fs, ino, DAX), Err(FsError::NotSupported(_))));
}

/// Reserved blocks are for a caller that is root, whatever the owner of the file; their number can
/// change.
#[test]
fn reserved_blocks_are_for_the_caller() {
    let fs = volume(&MkfsOptions::default());
    let ino = file(&fs, "roots", 0);
    let user = Author::Process(Creds { uid: 1000, gid: 1000 });
    let blocks = fs.statfs().unwrap();
    let tunables = fs.tunables().unwrap();
    assert_eq!(blocks.blocks_free - blocks.blocks_available, tunables.reserved_blocks);
    let mut values = tunables;
    values.reserved_blocks = blocks.blocks_free - 10;
    let fields = extol::vfs::TuneFields::RESERVED_BLOCKS;
    let refused = fs.tune(&Tune { fields, values, label: None });
    assert!(matches!(refused, Err(FsError::Invalid(_))), "more than half");
    values.reserved_blocks = tunables.blocks / 2;
    fs.tune(&Tune { fields, values, label: Some(b"tuned".to_vec()) }).unwrap();
    assert_eq!(fs.identity().unwrap().label, b"tuned");
    let available = fs.statfs().unwrap().blocks_available;
    let len = (available + 1) * u64::from(blocks.block_size);
    let allocate = Fallocate::Allocate { keep_size: false };
    assert_eq!(fs.fallocate_as(ino, allocate, 0, len, user), Err(FsError::NoSpace));
    fs.fallocate_as(ino, allocate, 0, len, Author::Process(Creds::default())).unwrap();
    assert_eq!(fs.write_as(ino, len, &[7; 5000], user), Err(FsError::NoSpace));
    let made =
        fs.create(fs.root(), b"dir", NewNode::Directory, 0o755, 0, Creds { uid: 1000, gid: 1000 });
    assert_eq!(made, Err(FsError::NoSpace));
    fs.create(fs.root(), b"dir", NewNode::Directory, 0o755, 0, Creds::default()).unwrap();
}

/// A time that is set reads back as the inode stores it, at once and later.
#[test]
fn times_are_clamped_when_they_are_set() {
    let (least, most_128, most) = (-(1 << 31), (1_i64 << 31) - 1, (1_i64 << 34) - (1 << 31) - 1);
    for (inode_size, most, nsec) in [(128, most_128, 0), (256, most, 7)] {
        let fs = volume(&MkfsOptions { inode_size: Some(inode_size), ..MkfsOptions::default() });
        let ino = file(&fs, "file", 0);
        let (first, last) = (Timestamp { sec: least, nsec: 0 }, Timestamp { sec: most, nsec: 0 });
        let fits = Timestamp { sec: 1000, nsec };
        for (set, reads) in [
            (Timestamp { sec: i64::MIN, nsec: 7 }, first),
            (Timestamp { sec: least - 1, nsec: 7 }, first),
            (Timestamp { sec: most + 1, nsec: 7 }, last),
            (Timestamp { sec: i64::MAX, nsec: 7 }, last),
            (Timestamp { sec: 1000, nsec: 7 }, fits),
        ] {
            let at = Some(SetTime::At(set));
            let attr =
                fs.setattr(ino, &SetAttr { atime: at, mtime: at, ..SetAttr::default() }).unwrap();
            assert_eq!((attr.atime, attr.mtime), (reads, reads), "{inode_size}: {set:?}");
            let attr = fs.getattr(ino).unwrap();
            assert_eq!((attr.atime, attr.mtime), (reads, reads), "{inode_size}: {set:?}");
        }
    }
}
