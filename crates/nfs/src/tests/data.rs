//! Contents of files.

use extol_block::SharedDevice;
use extol_devices::{CountingDevice, EmulatedMedia, Profile};

use super::*;
use crate::limits;

#[test]
fn what_is_written_is_read() {
    let (_, client) = Client::new(Config::default());
    let file = client.create(&client.root(), b"file", 0o600).expect("create");
    let data: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
    for (at, piece) in data.chunks(70_001).enumerate() {
        assert_eq!(client.write(&file, at as u64 * 70_001, piece, 0).0, 0);
    }
    assert_eq!(client.size(&file), 300_000);
    assert_eq!(client.read(&file, 0, 1 << 20), Ok((data.clone(), true)));
    assert_eq!(client.read(&file, 1000, 77), Ok((data[1000..1077].to_vec(), false)));
    assert_eq!(client.read(&file, 299_990, 10), Ok((data[299_990..].to_vec(), true)));
    assert_eq!(client.read(&file, 300_000, 10), Ok((Vec::new(), true)));
    assert_eq!(client.read(&file, u64::MAX, u32::MAX), Ok((Vec::new(), true)));
    assert_eq!(client.truncate(&file, 5), 0);
    assert_eq!(client.read(&file, 0, 100), Ok((data[..5].to_vec(), true)));
    assert_eq!(client.truncate(&file, 1 << 33), 0);
    let (zeros, is_end) = client.read(&file, 1 << 32, u32::MAX).expect("a hole");
    assert!(!is_end && zeros == vec![0; limits::DATA as usize]);
}

#[test]
fn a_file_that_is_read_on_is_read_ahead_in_large_requests() {
    const LEN: u64 = 6 << 20;
    const PART: u64 = 32 << 10;
    let data: Vec<u8> = (0..LEN).map(|n| (n % 249) as u8).collect();
    let memory = device();
    let fs = open(&memory);
    fs.write_file("/file", &data).expect("write");
    fs.unmount().expect("unmount");
    let profile = Profile::from_text("cloud:latency=5ms").expect("a medium");
    // The parts in order, and, but for the first, with each second one before the one in front of
    // it.
    for overtaken in [false, true] {
        // (The threads that read ahead need a device that takes its time, or the client is first.)
        let slow = EmulatedMedia::new(memory.clone() as SharedDevice, profile.clone());
        let device = Arc::new(CountingDevice::new(Arc::new(slow) as SharedDevice));
        let fs = Ext4::open(device.clone(), &MountOptions::default()).expect("open");
        let client = Client::of(fs, Config::default());
        let file = client.lookup(&client.root(), b"file").expect("lookup");
        let before = device.stats().reads;
        for part in 0..LEN / PART {
            let offset = PART * if overtaken && part > 3 { part ^ 1 } else { part };
            let (bytes, _) = client.read(&file, offset, 32 << 10).expect("read");
            assert!(bytes == data[offset as usize..(offset + PART) as usize]);
        }
        let reads = device.stats().reads - before;
        assert!(reads < LEN / PART / 2, "{reads} reads, overtaken: {overtaken}");
    }
}

#[test]
fn only_regular_files_have_contents() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    assert_eq!(client.read(&root, 0, 10), Err(21));
    assert_eq!(client.write(&root, 0, b"x", 0).0, 21);
    assert_eq!(client.commit(&root).0, 21);
    assert_eq!(client.truncate(&root, 0), 21);
    let file = client.create(&root, b"file", 0o600).expect("create");
    assert_eq!(client.write(&file, u64::MAX - 1, b"xyz", 0).0, 27);
    assert_eq!(client.write(&file, i64::MAX as u64 - 1, b"xyz", 0).0, 27);
    assert_eq!(client.write(&file, 0, b"", 2).0, 0);
}

#[test]
fn the_file_system_tells_its_limits() {
    let (_, client) = Client::new(Config::default());
    let root = client.root();
    let words = |number| {
        let (status, rest) = client.call(number, |out| {
            out.opaque(&root);
        });
        assert_eq!(status, 0);
        let words = rest[4 + ATTR..].chunks_exact(4);
        words.map(|word| u32::from_be_bytes(word.try_into().expect("a word"))).collect::<Vec<_>>()
    };
    let info = words(FSINFO);
    assert_eq!(info.len(), 12);
    assert_eq!((info[0], info[3]), (limits::DATA, limits::DATA));
    assert_eq!(words(PATHCONF), [65000, 255, 1, 1, 0, 1]);
    let stat = words(FSSTAT);
    let bytes = |at: usize| u64::from(stat[at]) << 32 | u64::from(stat[at + 1]);
    assert!(bytes(0) <= 16 << 20 && bytes(2) <= bytes(0) && bytes(4) <= bytes(2));
    assert!(bytes(8) < bytes(6));
}

#[test]
fn a_full_volume_is_told() {
    let (_, client) = Client::new(Config::default());
    let file = client.create(&client.root(), b"file", 0o600).expect("create");
    let data = vec![7; 1 << 20];
    let mut status = 0;
    for at in 0..20 {
        status = client
            .call(WRITE, |out| {
                out.opaque(&file).u64(at << 20).u32(1 << 20).u32(0).opaque(&data);
            })
            .0;
        if status != 0 {
            break;
        }
    }
    assert_eq!(status, 28);
    assert_eq!(client.commit(&file).0, 0);
}
