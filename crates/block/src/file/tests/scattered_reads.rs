//! Batches of reads, compared with what the file holds.

use super::*;
use crate::ScatteredRead;

/// What a batch of one read for each of these gives: where, how many bytes, and how many to leave
/// out at the beginning of the memory. Each is told once.
fn batch(device: &FileDevice, wanted: &[(u64, usize, usize)]) -> Vec<Result<Vec<u8>>> {
    let mut memory: Vec<_> =
        wanted.iter().map(|(_, len, skip)| AlignedBuf::new((len + skip).max(1), 4096)).collect();
    let mut reads: Vec<_> = wanted
        .iter()
        .zip(&mut memory)
        .map(|((offset, len, skip), buf)| ScatteredRead {
            offset: *offset,
            buf: &mut buf[*skip..skip + len],
        })
        .collect();
    let mut results: Vec<Option<Result<Vec<u8>>>> = wanted.iter().map(|_| None).collect();
    device.read_scattered(&mut reads, &mut |i, result| {
        assert!(results[i].replace(result.map(<[u8]>::to_vec)).is_none(), "{i} is told twice");
    });
    results.into_iter().map(|result| result.expect("told")).collect()
}

#[test]
fn each_read_has_its_own_result() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let contents = pattern(MIB as usize, 7);
    std::fs::write(&path, &contents).expect("write");
    // More than a ring holds, and all kinds between them.
    let mut wanted: Vec<(u64, usize, usize)> =
        (0..150).rev().map(|i| (i * 4096, 4096, 0)).collect();
    wanted.insert(3, (8192, 4096, 8)); // memory
    wanted.insert(7, (5000, 100, 0)); // a part of a sector
    wanted.insert(9, (4096, 0, 0));
    wanted.insert(10, (64 << 10, 512 << 10, 0));
    let mut bad = Vec::new();
    for (place, offset) in [(20, MIB), (40, MIB - 4095), (60, u64::MAX - 4095)] {
        wanted.insert(place, (offset, 4096, 0));
        bad.push(place);
    }
    for direct in [Direct::Auto, Direct::Off] {
        let device = open(&path, &OpenOptions::read_only().direct(direct));
        for refused in [false, true] {
            if refused {
                device.rings.refuse();
            }
            assert_eq!(device.reads_together(), device.is_direct() && !refused);
            for (i, (result, (offset, len, _))) in
                batch(&device, &wanted).into_iter().zip(&wanted).enumerate()
            {
                if bad.contains(&i) {
                    let error = result.expect_err("out of range");
                    assert_eq!(
                        (error.op, error.offset, error.len),
                        (DeviceOp::Read, *offset, 4096)
                    );
                } else {
                    let at = *offset as usize;
                    assert!(result.expect("read") == contents[at..at + len], "{len} at {offset}");
                }
            }
            if device.is_direct() && !refused && uring::make().is_ok() {
                assert!((1..=uring::MAX_RINGS).contains(&device.rings.made()));
            }
        }
    }
    assert!(batch(&open(&path, &OpenOptions::read_only()), &[]).is_empty());
}

/// What the kernel cannot read is an error of those who wanted it, and of nobody else.
#[test]
fn a_failure_is_that_of_one() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let contents = pattern(MIB as usize, 9);
    std::fs::write(&path, &contents).expect("write");
    let device = open(&path, &OpenOptions::read_only());
    File::options().write(true).open(&path).and_then(|file| file.set_len(MIB / 2)).expect("shrink");
    let wanted: Vec<_> = (0..128).map(|i| (i * 8192, 8192, 0)).collect();
    for (i, result) in batch(&device, &wanted).into_iter().enumerate() {
        match result {
            Ok(bytes) => assert!(i < 64 && bytes == contents[i * 8192..(i + 1) * 8192], "{i}"),
            Err(error) => assert!(i >= 64 && error.offset == i as u64 * 8192, "{i}: {error}"),
        }
    }
}
