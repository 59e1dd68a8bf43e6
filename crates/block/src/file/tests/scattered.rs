//! Scattered batches, compared with a device in memory.

use super::*;
use crate::{MemDevice, ScatteredWrite};

/// A small random number generator with a fixed sequence.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) % limit
    }
}

/// A write of a batch: its place, and its pieces.
struct Piece {
    offset: u64,
    memory: Vec<AlignedBuf>,
    /// Bytes left out at the beginning of each piece: makes it unaligned.
    skip: usize,
}

impl Piece {
    fn bufs(&self) -> Vec<IoSlice<'_>> {
        self.memory.iter().map(|m| IoSlice::new(&m[self.skip..])).collect()
    }

    fn filled(mut self, random: &mut Random) -> Self {
        for memory in &mut self.memory {
            let seed = random.below(256) as u8;
            for (i, byte) in memory.iter_mut().enumerate() {
                *byte = seed.wrapping_add((i / 64) as u8);
            }
        }
        self
    }
}

/// Writes of every kind, each in a slot of 256 KiB of its own.
fn pieces(random: &mut Random, size: u64) -> Vec<Piece> {
    const SLOT: u64 = 256 << 10;
    let memory =
        |count: usize, len: usize| (0..count).map(|_| AlignedBuf::new(len, 4096)).collect();
    let mut pieces = Vec::new();
    for slot in 0..size / SLOT {
        let offset = slot * SLOT + random.below(8) * 4096;
        let count = 1 + random.below(5) as usize;
        let piece = match random.below(9) {
            0 => continue,
            // All aligned.
            1..=3 => Piece { offset, memory: memory(count, 4096), skip: 0 },
            // Memory unaligned.
            4 | 5 => Piece { offset, memory: memory(count, 4096 + 8), skip: 8 },
            // Parts of sectors.
            6 => {
                Piece { offset: offset + random.below(5000), memory: memory(count, 1000), skip: 3 }
            }
            // More pieces than one call takes.
            7 => Piece { offset, memory: memory(1030, 128), skip: 0 },
            _ => Piece { offset, memory: Vec::new(), skip: 0 },
        };
        pieces.push(piece.filled(random));
    }
    // Any order.
    for i in (1..pieces.len()).rev() {
        pieces.swap(i, random.below(i as u64 + 1) as usize);
    }
    pieces
}

fn write(device: &dyn BlockDevice, pieces: &[Piece], durable: bool) -> Result<()> {
    let bufs: Vec<Vec<IoSlice<'_>>> = pieces.iter().map(Piece::bufs).collect();
    let writes: Vec<ScatteredWrite<'_>> = pieces
        .iter()
        .zip(&bufs)
        .map(|(p, bufs)| ScatteredWrite { offset: p.offset, bufs })
        .collect();
    if durable { device.write_scattered_fua(&writes) } else { device.write_scattered(&writes) }
}

fn compare(device: &FileDevice) {
    let size = device.size();
    device.zero_range(0, size).expect("zero");
    let model = MemDevice::new(size);
    let mut random = Random(size);
    for round in 0..6 {
        let mut batch = pieces(&mut random, size);
        if round == 3 {
            // A copy too long for one buffer, and more copies than one group takes.
            batch = (0..3)
                .map(|i| Piece {
                    offset: i * 1_300_000,
                    memory: vec![AlignedBuf::new(1_200_001, 1)],
                    skip: 1,
                })
                .chain((2..6).map(|i| Piece {
                    offset: i * 2 * MIB,
                    memory: vec![AlignedBuf::new(MIB as usize + 1, 1)],
                    skip: 1,
                }))
                .map(|piece| piece.filled(&mut random))
                .collect();
        }
        write(device, &batch, round % 2 == 1).expect("write");
        write(&model, &batch, false).expect("model");
        let mut all = vec![1; size as usize];
        device.read_at(&mut all, 0).expect("read");
        let expected = model.to_bytes();
        let differs = all.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(differs, None, "round {round} of {device:?}");
    }
}

/// Ended flushes of a block device (`stat` of `/sys/class/block`, field 16).
fn flushes_of(node: &str) -> u64 {
    let name = node.trim_start_matches("/dev/");
    let stat = std::fs::read_to_string(format!("/sys/class/block/{name}/stat")).expect("stat");
    stat.split_whitespace().nth(15).and_then(|n| n.parse().ok()).expect("a number")
}

/// A loop device supports no FUA, so the kernel flushes behind durable writes: the flushes show
/// that the flag was set.
#[test]
fn a_durable_batch_asks_the_medium() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB);
    let Some(disk) = Loop::attach(&path, &[]) else { return };
    let device = open(&disk.node, &OpenOptions::read_write().direct(Direct::On));
    let mut random = Random(5);
    let batch: Vec<Piece> = (0..3)
        .map(|i| Piece { offset: i * MIB, memory: vec![AlignedBuf::new(8192, 4096)], skip: 0 })
        .map(|piece| piece.filled(&mut random))
        .collect();
    write(&device, &batch, false).expect("plain");
    let before = flushes_of(&disk.node);
    write(&device, &batch, false).expect("plain");
    assert_eq!(flushes_of(&disk.node), before);
    for some in [&batch[..], &batch[..1]] {
        let before = flushes_of(&disk.node);
        write(&device, some, true).expect("durable");
        assert!(flushes_of(&disk.node) > before, "of {} writes", some.len());
    }
    used_rings(&device);
}

/// True if rings were made; prints a SKIP line where the kernel allows none.
fn used_rings(device: &FileDevice) -> bool {
    if device.rings.refused() || uring::make().is_err() {
        println!("SKIP: no io_uring here; batches went one by one");
        return false;
    }
    assert!((1..=uring::MAX_RINGS).contains(&device.rings.made()), "{:?}", device.rings);
    true
}

const SIZE: u64 = 16 * MIB;

#[test]
fn batches_on_images() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, SIZE);
    let buffered = open(&path, &OpenOptions::read_write().direct(Direct::Off));
    compare(&buffered);
    assert_eq!(buffered.rings.made(), 0);
    drop(buffered);
    if direct_works(&path) {
        let device = open(&path, &OpenOptions::read_write().direct(Direct::On));
        compare(&device);
        used_rings(&device);
        device.rings.refuse();
        compare(&device);
        assert_eq!(device.rings.made(), 0);
    }
}

#[test]
fn batches_on_loop_devices() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, SIZE);
    for sector in ["512", "4096"] {
        let Some(disk) = Loop::attach(&path, &["-b", sector]) else { return };
        for direct in [Direct::On, Direct::Off] {
            let device = open(&disk.node, &OpenOptions::read_write().direct(direct));
            compare(&device);
            if direct == Direct::On {
                used_rings(&device);
            }
        }
    }
}

/// Threads write batches with interleaved pieces, some of them in the same sectors.
#[test]
fn many_threads_at_once() {
    const THREADS: u64 = 8;
    let dir = TempDir::new().expect("dir");
    let device = open(image(&dir, SIZE), &OpenOptions::read_write());
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let device = &device;
            s.spawn(move || {
                let mut random = Random(t);
                for round in 0..20u8 {
                    // Whole blocks in the first half of the device, 512 bytes each in the second.
                    let value = round.wrapping_mul(16) + t as u8;
                    let whole = [value; 4096];
                    let part = [value; 512];
                    let (whole_bufs, part_bufs) = ([IoSlice::new(&whole)], [IoSlice::new(&part)]);
                    let mut writes = Vec::new();
                    for i in 0..100 {
                        let offset = ((i * 20 + random.below(20)) * THREADS + t) * 4096;
                        if offset + 4096 <= SIZE / 2 {
                            writes.push(ScatteredWrite { offset, bufs: &whole_bufs });
                        }
                        if i < 4 {
                            let offset =
                                SIZE / 2 + ((u64::from(round) * 4 + i) * THREADS + t) * 512;
                            writes.push(ScatteredWrite { offset, bufs: &part_bufs });
                        }
                    }
                    device.write_scattered(&writes).expect("write");
                    for write in writes {
                        let mut back = vec![0; write.len() as usize];
                        device.read_at(&mut back, write.offset).expect("read");
                        assert!(
                            back.iter().all(|b| *b == value),
                            "thread {t} lost bytes at {}",
                            write.offset
                        );
                    }
                }
            });
        }
    });
    if device.is_direct() {
        used_rings(&device);
    }
    for at in 0..20 * 4 * THREADS {
        let mut back = [0; 512];
        device.read_at(&mut back, SIZE / 2 + at * 512).expect("read");
        let value = ((at / (4 * THREADS)) as u8).wrapping_mul(16) + (at % THREADS) as u8;
        assert_eq!(back, [value; 512], "part {at} was undone");
    }
}

#[test]
fn nothing_is_done_if_one_is_out_of_range_or_all_are_forbidden() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let data = [1; 4096];
    let bufs = [IoSlice::new(&data)];
    let device = open(&path, &OpenOptions::read_write());
    for bad in [MIB - 4095, MIB, u64::MAX - 4096, u64::MAX] {
        let writes = [0, bad, 8192].map(|offset| ScatteredWrite { offset, bufs: &bufs });
        let error = device.write_scattered(&writes).expect_err("out of range");
        assert_eq!((error.op, error.offset, error.len), (DeviceOp::Write, bad, 4096));
    }
    device.write_scattered(&[]).expect("nothing");
    device.write_scattered(&[ScatteredWrite { offset: MIB, bufs: &[] }]).expect("nothing");
    drop(device);
    assert!(std::fs::read(&path).expect("read").iter().all(|b| *b == 0));
    let device = open(&path, &OpenOptions::read_only());
    let error = device
        .write_scattered(&[ScatteredWrite { offset: 0, bufs: &bufs }])
        .expect_err("read-only");
    assert_eq!(error.source.raw_os_error(), Some(libc::EROFS));
}

/// Fills the file system below a sparse image. Writes before the first failure of the batch must be
/// done.
fn fill(path: &Path, size: u64) {
    File::create(path).and_then(|f| f.set_len(size)).expect("sparse image");
    let device = open(path, &OpenOptions::read_write());
    let data = AlignedBuf::new(4096, 4096).iter().map(|_| 0x5A).collect::<Vec<u8>>();
    let bufs = [IoSlice::new(&data)];
    let offsets: Vec<u64> = (0..size / 4096).rev().map(|i| i * 4096).collect();
    let mut failures = 0;
    for batch in offsets.chunks(100) {
        let writes: Vec<_> =
            batch.iter().map(|offset| ScatteredWrite { offset: *offset, bufs: &bufs }).collect();
        let done = match device.write_scattered(&writes) {
            Ok(()) => writes.len(),
            Err(error) => {
                failures += 1;
                assert_eq!(error.source.raw_os_error(), Some(libc::ENOSPC), "{error}");
                assert_eq!((error.op, error.len), (DeviceOp::Write, 4096));
                batch
                    .iter()
                    .position(|offset| *offset == error.offset)
                    .expect("names a write of the batch")
            }
        };
        for write in &writes[..done] {
            let mut back = [0; 4096];
            device.read_at(&mut back, write.offset).expect("read");
            assert!(back.iter().all(|b| *b == 0x5A), "the write at {} is missing", write.offset);
        }
        // The file system stays full, and the rings stay usable.
        if failures == 3 {
            break;
        }
    }
    assert_eq!(failures, 3, "the file system never filled up");
    if device.is_direct() {
        used_rings(&device);
    }
}

#[test]
fn a_full_file_system_is_reported() {
    let dir = TempDir::new().expect("dir");
    // Buffered or direct, as the kernel's tmpfs supports.
    let target = dir.path().to_str().expect("utf-8");
    match run("mount", &["-t", "tmpfs", "-o", "size=1m", "tmpfs", target]) {
        Ok(_) => {
            let result = std::panic::catch_unwind(|| fill(&dir.path().join("sparse.img"), 4 * MIB));
            run("umount", &[target]).expect("umount");
            assert!(result.is_ok());
        }
        Err(why) => println!("SKIP: cannot mount a tmpfs ({why})"),
    }
    let path = image(&dir, 8 * MIB);
    if let Err(why) = run("mke2fs", &["-q", "-F", "-t", "ext4", path.to_str().expect("utf-8")]) {
        println!("SKIP: no mke2fs ({why})");
        return;
    }
    let Some(mut disk) = Loop::attach(&path, &[]) else { return };
    if disk.mount("rw") {
        let image = disk.mount.as_ref().expect("mounted").path().join("sparse.img");
        fill(&image, 32 * MIB);
        disk.unmount();
    }
}
