//! Holes and changes of the size.

use super::*;

fn opened(path: &Path, direct: Direct) -> FileDevice {
    FileDevice::open(path, &OpenOptions::read_write().direct(direct)).expect("open")
}

/// All ranges of data, and the bytes outside of them.
fn data(device: &FileDevice) -> Vec<Range<u64>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(range) = device.data_from(at).expect("data") {
        assert!(range.start >= at && range.end > range.start && range.end <= device.size());
        at = range.end;
        found.push(range);
    }
    found
}

#[test]
fn what_is_no_data_reads_as_zeros() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB);
    let device = opened(&path, Direct::Auto);
    assert_eq!(device.data_from(4 * MIB).expect("the end"), None);
    assert_eq!(device.data_from(u64::MAX).expect("behind it"), None);
    device.write_at(&[7; 5000], MIB + 100).expect("write");
    device.write_at(&[7; 10], 3 * MIB).expect("write");
    device.flush().expect("flush");
    let mut bytes = vec![0; 4 * MIB as usize];
    device.read_at(&mut bytes, 0).expect("read");
    for range in data(&device) {
        bytes[range.start as usize..range.end as usize].fill(0);
    }
    assert!(bytes.iter().all(|b| *b == 0));
}

#[test]
fn an_image_grows_and_is_cut() {
    for direct in [Direct::Auto, Direct::Off] {
        let dir = TempDir::new().expect("dir");
        let path = image(&dir, MIB);
        let device = opened(&path, direct);
        device.write_at(&[1; 8192], MIB - 8192).expect("write");
        device.write_at(&[1], MIB).expect_err("behind the end");
        device.set_size(2 * MIB).expect("grow");
        assert_eq!((device.size(), device.size_now()), (2 * MIB, 2 * MIB));
        device.write_at(&[2; 4096], 2 * MIB - 4096).expect("write");
        device.set_size(MIB - 4096).expect("cut");
        assert_eq!(std::fs::metadata(&path).expect("stat").len(), MIB - 4096);
        device.read_at(&mut [0], MIB - 4096).expect_err("cut off");
        device.set_size(MIB).expect("grow again");
        let mut bytes = [9; 8192];
        device.read_at(&mut bytes, MIB - 8192).expect("read");
        assert!(bytes[..4096].iter().all(|b| *b == 1) && bytes[4096..].iter().all(|b| *b == 0));
        if device.is_direct() {
            device.set_size(MIB + 1).expect_err("not whole sectors");
        }
        device.set_size(u64::MAX / 4096 * 4096).expect_err("too large for every file system");
        assert_eq!((device.size(), device.size_now()), (MIB, MIB));
    }
}

#[test]
fn a_reader_changes_no_size() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let device = FileDevice::open(&path, &OpenOptions::read_only()).expect("open");
    let refused = device.set_size(2 * MIB).expect_err("read-only");
    assert_eq!(refused.source.raw_os_error(), Some(libc::EROFS));
    assert_eq!(std::fs::metadata(&path).expect("stat").len(), MIB);
}

#[test]
fn a_disk_takes_over_its_new_size() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let Some(disk) = Loop::attach(&path, &[]) else { return };
    let device = opened(Path::new(&disk.node), Direct::Auto);
    let refused = device.set_size(2 * MIB).expect_err("it is as large as it is");
    assert!(refused.is_unsupported(), "{refused}");
    File::options().write(true).open(&path).and_then(|f| f.set_len(3 * MIB)).expect("longer");
    run("losetup", &["-c", &disk.node]).expect("the loop device looks again");
    assert_eq!((device.size(), device.size_now()), (MIB, 3 * MIB));
    device.set_size(2 * MIB).expect("there is enough");
    assert_eq!(device.size(), 3 * MIB);
    device.write_at(&[1; 4096], 3 * MIB - 4096).expect("write");
    assert_eq!(device.data_from(0).expect("all of it"), Some(0..3 * MIB));
}
