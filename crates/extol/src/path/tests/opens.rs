//! What is open once, what closes, and files that append.

use super::*;

/// Two volumes on one device would lose what the other one has acknowledged.
#[test]
fn a_device_is_open_once() {
    let device = Arc::new(MemDevice::new(8 << 20));
    mkfs(&*device, &MkfsOptions::default(), &mut |_| {}).unwrap();
    let read_only = MountOptions::default().read_only();
    let open = |options: &MountOptions| Ext4::open(Arc::<MemDevice>::clone(&device), options);
    let is_busy = |options: &MountOptions| open(options).unwrap_err().errno() == 16;
    let fs = open(&MountOptions::default()).unwrap();
    assert!(is_busy(&MountOptions::default()) && is_busy(&read_only));
    let file = fs.create_file("a").unwrap();
    fs.unmount().unwrap();
    // Readers may be beside each other.
    let readers = [open(&read_only).unwrap(), open(&read_only).unwrap()];
    assert!(is_busy(&MountOptions::default()));
    drop(readers);
    let fs = open(&MountOptions::default()).unwrap();
    fs.crash();
    open(&MountOptions::default()).unwrap().unmount().unwrap();
    drop((fs, file));
}

/// An image is closed with its volume, whatever handles are left.
#[test]
fn an_image_is_closed_with_its_volume() {
    let scratch = tempfile::tempdir().unwrap();
    let image = scratch.path().join("disk.img");
    let options = MkfsOptions { size: Some(8 << 20), ..MkfsOptions::default() };
    crate::image::mkfs_file(&image, &options, &mut |_| {}).unwrap();
    let fs = Ext4::open_path(&image, &MountOptions::default()).unwrap();
    fs.write_file("a", vec![7; 100_000]).unwrap();
    let again = Ext4::open_path(&image, &MountOptions::default()).unwrap_err();
    assert_eq!(again.errno(), 16);
    assert!(again.to_string().contains("open in this process already"), "{again}");
    let mut file = fs.open_file("a", OpenOptions::new().read(true).write(true)).unwrap();
    fs.unmount().unwrap();
    let second = Ext4::open_path(&image, &MountOptions::default()).unwrap();
    assert_eq!(second.read_file("a").unwrap(), [7; 100_000]);
    assert!(file.write_all(b"late").is_err());
    second.unmount().unwrap();
    // The error of an open names what was to be opened.
    std::fs::write(&image, "no volume").unwrap();
    let error = Ext4::open_path(&image, &MountOptions::default()).unwrap_err();
    assert!(error.to_string().starts_with(image.to_str().unwrap()), "{error}");
}

/// A file that was opened to append has no other place to be written at, as on Linux.
#[test]
fn offsets_do_not_count_for_a_file_that_appends() {
    let fs = volume();
    let file = fs.open_file("/log", OpenOptions::new().append(true).create(true)).unwrap();
    file.write_all_at(b"one", 0).unwrap();
    file.write_all_at(b"two", 0).unwrap();
    assert_eq!(fs.read_file("/log").unwrap(), b"onetwo");
    drop(file);
    finish(&fs);
}

/// Appends through several handles do not overwrite each other.
#[test]
fn appends_are_one_step() {
    let fs = volume();
    std::thread::scope(|scope| {
        for nr in 0..4_u8 {
            let fs = &fs;
            scope.spawn(move || {
                let how = OpenOptions::new().append(true).create(true).clone();
                let mut file = fs.open_file("/log", &how).unwrap();
                for _ in 0..500 {
                    file.write_all(&[nr; 7]).unwrap();
                    let end = file.stream_position().unwrap();
                    assert!(end.is_multiple_of(7) && end <= file.metadata().unwrap().size);
                }
            });
        }
    });
    let log = fs.read_file("/log").unwrap();
    assert_eq!(log.len(), 4 * 500 * 7);
    for nr in 0..4 {
        let records = log.chunks(7).filter(|record| **record == [nr; 7]).count();
        assert_eq!(records, 500);
    }
    finish(&fs);
}
