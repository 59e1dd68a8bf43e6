//! Attributes of what a directory lists, read by inode number.

use super::*;

/// Opens the volume again: no inode is in memory.
fn reopened(fs: Arc<Ext4>, device: Arc<MemDevice>, options: &MountOptions) -> Arc<Ext4> {
    fs.unmount().unwrap();
    drop(fs);
    Ext4::open(device, options).unwrap()
}

fn is_in_memory(fs: &Arc<Ext4>, ino: u32) -> bool {
    fs.inner().table.cached(ino).is_some()
}

/// A walk and entries of a directory tell of files what a lookup tells, and keep none in memory.
#[test]
fn lists_keep_no_file_in_memory() {
    let device = Arc::new(MemDevice::new(8 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let fs = Ext4::open(device.clone(), &MountOptions::default()).unwrap();
    fs.create_dir("/d").unwrap();
    for n in 0..400 {
        fs.write_file(format!("/d/{n}"), vec![b'x'; n]).unwrap();
    }
    fs.symlink("/d/7", "/d/link").unwrap();
    for options in [MountOptions::default(), MountOptions::default().read_only()] {
        let fs = reopened(Arc::clone(&fs), Arc::clone(&device), &options);
        let walked: Vec<_> = fs.walk("/d").unwrap().map(Result::unwrap).collect();
        let listed: Vec<_> = fs.read_dir("/d").unwrap().map(Result::unwrap).collect();
        assert_eq!((walked.len(), listed.len()), (402, 401));
        for (walked, listed) in walked[1..].iter().zip(&listed) {
            let attr = listed.metadata().unwrap();
            assert_eq!((walked.attr(), walked.path()), (&attr, &*listed.path()));
            assert!(!is_in_memory(&fs, attr.id.ino));
            assert_eq!(attr.id.ino, listed.ino());
        }
        for listed in listed {
            let attr = fs.symlink_metadata(listed.path()).unwrap();
            assert_eq!(attr, listed.metadata().unwrap());
        }
        fs.unmount().unwrap();
    }
}

/// What is written, and not on the disk yet, is seen.
#[test]
fn lists_tell_the_newest_state() {
    let fs = volume();
    fs.create_dir("/d").unwrap();
    let file = fs.create_file("/d/f").unwrap();
    let item = fs.read_dir("/d").unwrap().next().unwrap().unwrap();
    assert_eq!(item.metadata().unwrap().size, 0);
    file.write_all_at(b"hello", 0).unwrap();
    assert_eq!(item.metadata().unwrap().size, 5);
    let walked = fs.walk("/d").unwrap().nth(1).unwrap().unwrap();
    assert_eq!(walked.attr().size, 5);
    fs.set_permissions("/d/f", 0o600).unwrap();
    assert_eq!(item.metadata().unwrap().perm, 0o600);
    drop((file, item));
    finish(&fs);
}

/// An entry whose name leads elsewhere meanwhile does not tell of a file that has its number now.
#[test]
fn an_old_entry_is_looked_up_again() {
    let fs = volume();
    fs.create_dir("/d").unwrap();
    fs.write_file("/d/name", "old").unwrap();
    fs.write_file("/d/other", "").unwrap();
    let items: Vec<_> = fs.read_dir("/d").unwrap().map(Result::unwrap).collect();
    let item = items.iter().find(|item| item.file_name() == "name").unwrap();
    let number = item.ino();
    fs.remove_file("/d/name").unwrap();
    assert_eq!(item.metadata().unwrap_err(), FsError::NotFound);
    // The number is given to a file elsewhere.
    let mut made = 0;
    while fs.create_file(format!("/new{made}")).unwrap().inode().ino() != number {
        made += 1;
    }
    assert_eq!(item.metadata().unwrap_err(), FsError::NotFound);
    fs.rename_path("/d/other", "/d/name").unwrap();
    let renamed = item.metadata().unwrap();
    assert_ne!(renamed.id.ino, number);
    assert_eq!(renamed, fs.metadata("/d/name").unwrap());
    // A walk that has read the entries, too.
    let mut walk = fs.walk("/d").unwrap();
    assert_eq!(walk.next().unwrap().unwrap().depth(), 0);
    fs.remove_file("/d/name").unwrap();
    assert!(walk.next().is_none());
    drop((walk, items));
    finish(&fs);
}

/// The version of a directory counts from its loading on: a listing from before does not take the
/// same number of changes for none.
#[test]
fn a_listing_holds_its_directory_in_memory() {
    let fs = volume();
    fs.create_dir("/d").unwrap();
    fs.write_file("/d/name", "").unwrap();
    fs.sync().unwrap();
    fs.inner().table.drop_idle();
    let item = fs.read_dir("/d").unwrap().next().unwrap().unwrap();
    let dir = fs.metadata("/d").unwrap().id.ino;
    fs.inner().table.drop_idle();
    assert!(is_in_memory(&fs, dir));
    fs.remove_file("/d/name").unwrap();
    fs.sync().unwrap();
    fs.inner().table.drop_idle();
    assert_eq!(item.metadata().unwrap_err(), FsError::NotFound);
    drop(item);
    fs.inner().table.drop_idle();
    assert!(!is_in_memory(&fs, dir));
    finish(&fs);
}

/// An entry that names an inode without a name is shown as what it is.
#[test]
fn damaged_entries_are_told() {
    let unused = 1000_u32;
    let fs = with_an_entry(|entry, _| {
        entry[..4].copy_from_slice(&unused.to_le_bytes());
        entry[7] = 1;
    });
    let item = fs.read_dir("/outer").unwrap().next().unwrap().unwrap();
    assert!(matches!(item.metadata(), Err(FsError::Corrupt { .. })), "{:?}", item.metadata());
    let walked: Vec<_> = fs.walk("/outer").unwrap().collect();
    assert!(matches!(walked[..], [Ok(_), Err(FsError::Corrupt { .. })]), "{walked:?}");
}
