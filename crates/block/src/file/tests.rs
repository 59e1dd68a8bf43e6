//! File devices: requests of many shapes, opening, exclusion, flushes.

use super::pool::BOUNCE_MAX;
use super::*;
use crate::aligned::AlignedBuf;
use std::io;
use std::process::{Command, Stdio};
use tempfile::TempDir;

mod busy;
mod length;
#[cfg(feature = "io-uring")]
mod scattered;

const MIB: u64 = 1 << 20;

fn image(dir: &TempDir, size: u64) -> PathBuf {
    let path = dir.path().join("disk.img");
    File::create(&path).and_then(|f| f.set_len(size)).expect("image");
    path
}

fn run(program: &str, args: &[&str]) -> std::result::Result<String, String> {
    let out = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| e.to_string())?;
    if out.status.success() {
        Ok(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    } else {
        Err(String::from_utf8_lossy(&out.stderr).trim().to_owned())
    }
}

/// A loop device over a file, detached when dropped.
struct Loop {
    node: String,
    mount: Option<TempDir>,
}

impl Loop {
    /// `None` (and a SKIP line) where there are no loop devices.
    fn attach(file: &Path, extra: &[&str]) -> Option<Self> {
        let file = file.to_str().expect("utf-8");
        let args: Vec<&str> = [&["--show", "-f"], extra, &[file]].concat();
        let mut why = String::new();
        // Two processes may get the same free device, and one of them fails: tried again.
        for _ in 0..20 {
            match run("losetup", &args) {
                Ok(node) => return Some(Self { node, mount: None }),
                Err(words) => why = words,
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        println!("SKIP: no loop device ({why}); this part needs root and losetup");
        None
    }

    /// False (and a SKIP line) where mounting is not allowed.
    fn mount(&mut self, options: &str) -> bool {
        let dir = TempDir::with_prefix("extol mount ").expect("dir");
        match run(
            "mount",
            &["-t", "ext4", "-o", options, &self.node, dir.path().to_str().expect("utf-8")],
        ) {
            Ok(_) => {
                self.mount = Some(dir);
                true
            }
            Err(why) => {
                println!("SKIP: cannot mount a loop device ({why})");
                false
            }
        }
    }

    fn unmount(&mut self) {
        if let Some(dir) = self.mount.take() {
            run("umount", &[dir.path().to_str().expect("utf-8")]).expect("umount");
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        if let Some(dir) = self.mount.take() {
            let _ = run("umount", &[dir.path().to_str().expect("utf-8")]);
        }
        let _ = run("losetup", &["-d", &self.node]);
    }
}

fn open(path: impl AsRef<Path>, options: &OpenOptions) -> FileDevice {
    FileDevice::open(path.as_ref(), options).expect("open")
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed))
        .collect()
}

/// Requests of many shapes, compared with a plain vector.
fn exercise(device: &FileDevice) {
    let size = device.size() as usize;
    let mut model = vec![0u8; size];
    device.zero_range(0, size as u64).expect("zero");
    let shapes = [
        (0, 4096),
        (4096, 8192),
        (1, 1),
        (511, 2),
        (1024, 1024),
        (4095, 4098),
        (65_000, 70_000),
        (300_001, 2 * BOUNCE_MAX + 12_345),
        (1 << 20, BOUNCE_MAX),
        (size - 1, 1),
        (size - 5000, 5000),
    ];
    for (i, (offset, len)) in shapes.into_iter().enumerate() {
        let data = pattern(len, i as u8);
        if i % 3 == 0 {
            device.write_fua(&data, offset as u64).expect("fua");
        } else {
            device.write_at(&data, offset as u64).expect("write");
        }
        model[offset..offset + len].copy_from_slice(&data);
    }
    // Vectored: odd pieces, an empty one, more than one call takes.
    let data = pattern(3000 * 7, 99);
    let bufs: Vec<IoSlice<'_>> =
        [IoSlice::new(&[])].into_iter().chain(data.chunks(7).map(IoSlice::new)).collect();
    device.write_vectored_at(&bufs, 777).expect("writev");
    model[777..777 + data.len()].copy_from_slice(&data);
    // Vectored, all aligned.
    let mut blocks: Vec<AlignedBuf> = (0..5).map(|_| AlignedBuf::new(4096, 4096)).collect();
    for (i, block) in blocks.iter_mut().enumerate() {
        block.fill(i as u8 + 200);
        model[40_960 + i * 4096..][..4096].fill(i as u8 + 200);
    }
    let bufs: Vec<IoSlice<'_>> = blocks.iter().map(|b| IoSlice::new(b)).collect();
    device.write_vectored_at(&bufs, 40_960).expect("writev aligned");
    let (from, to) = (123_456, 456_789);
    device.zero_range(from, to - from).expect("zero");
    model[from as usize..to as usize].fill(0);
    device.zero_range(9, 3).expect("zero a little");
    model[9..12].fill(0);
    device.flush().expect("flush");

    let mut all = vec![1; size];
    device.read_at(&mut all, 0).expect("read");
    assert!(
        all == model,
        "contents differ first at {:?}",
        all.iter().zip(&model).position(|(a, b)| a != b)
    );
    for (offset, len) in shapes {
        let mut part = vec![1; len];
        device.read_at(&mut part, offset as u64).expect("read");
        assert!(part == model[offset..offset + len], "part at {offset}");
    }
    let mut pieces: Vec<Vec<u8>> = (0..1500).map(|i| vec![1; i % 9]).collect();
    let mut bufs: Vec<IoSliceMut<'_>> = pieces.iter_mut().map(|p| IoSliceMut::new(p)).collect();
    device.read_vectored_at(&mut bufs, 4321).expect("readv");
    let joined = pieces.concat();
    assert!(joined == model[4321..4321 + joined.len()]);
    for block in &mut blocks {
        block.fill(1);
    }
    let mut bufs: Vec<IoSliceMut<'_>> = blocks.iter_mut().map(|b| IoSliceMut::new(b)).collect();
    device.read_vectored_at(&mut bufs, 40_960).expect("readv aligned");
    assert!(blocks.concat_bytes() == model[40_960..40_960 + 5 * 4096]);
    // The page cache shows the same bytes.
    let others = std::fs::read(device.path()).expect("read the file");
    assert!(others == model);
}

trait Concat {
    fn concat_bytes(&self) -> Vec<u8>;
}

impl Concat for Vec<AlignedBuf> {
    fn concat_bytes(&self) -> Vec<u8> {
        self.iter().flat_map(|b| b.iter().copied()).collect()
    }
}

/// True if direct I/O works on this folder's file system; else prints a SKIP line.
fn direct_works(path: &Path) -> bool {
    match FileDevice::open(path, &OpenOptions::read_write().direct(Direct::On)) {
        Ok(device) => {
            assert!(device.is_direct() && device.alignment() >= 512);
            true
        }
        Err(e) => {
            println!("SKIP: {e}");
            false
        }
    }
}

#[test]
fn image_buffered() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB + 1234);
    let device = open(&path, &OpenOptions::read_write().direct(Direct::Off));
    assert_eq!(
        (device.is_direct(), device.is_block_device(), device.alignment()),
        (false, false, 1)
    );
    assert_eq!(device.size(), 4 * MIB + 1234);
    exercise(&device);
}

/// Of a buffered image no page is left, and nothing that was written is lost.
#[test]
fn pages_of_a_buffered_image_are_dropped() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB);
    let device = open(&path, &OpenOptions::read_write().direct(Direct::Off));
    let cached = |offset: u64| {
        let mut buf = [0; 4096];
        let bufs = &mut [IoSliceMut::new(&mut buf)];
        rustix::io::preadv2(device.file(), bufs, offset, rustix::io::ReadWriteFlags::NOWAIT).is_ok()
    };
    device.write_at(&[7; 8192], MIB).expect("write");
    const TMPFS: i64 = 0x0102_1994;
    if !cached(MIB) || rustix::fs::statfs(&path).is_ok_and(|fs| fs.f_type == TMPFS) {
        println!("SKIP: a file system that is nothing but a page cache");
        return;
    }
    device.flush().expect("flush");
    device.write_at(&[8; 4096], MIB + 4096).expect("write");
    device.drop_page_cache();
    assert!(!cached(MIB) && !cached(MIB + 4096));
    let mut read = [0; 8192];
    device.read_at(&mut read, MIB).expect("read");
    assert!(read[..4096] == [7; 4096] && read[4096..] == [8; 4096]);
}

#[test]
fn image_direct() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB);
    if direct_works(&path) {
        let device = open(&path, &OpenOptions::read_write().direct(Direct::On));
        exercise(&device);
    }
}

/// An image is read through the page cache for readers, though the file system has direct I/O.
#[test]
fn image_for_a_reader() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB);
    for (direct, is_direct) in [(Direct::Devices, false), (Direct::Auto, direct_works(&path))] {
        let device = open(&path, &OpenOptions::read_only().direct(direct));
        assert_eq!(device.is_direct(), is_direct, "{direct:?}");
    }
}

#[test]
fn odd_size_falls_back_to_buffered() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB + 100);
    let device = open(&path, &OpenOptions::read_write());
    assert!(!device.is_direct());
    exercise(&device);
    assert_eq!(
        std::fs::metadata(&path).expect("stat").len(),
        4 * MIB + 100,
        "the file did not grow"
    );
    drop(device);
    let error =
        FileDevice::open(&path, &OpenOptions::read_write().direct(Direct::On)).expect_err("direct");
    assert_eq!(error.source.kind(), io::ErrorKind::Unsupported, "{error}");
}

#[test]
fn loop_devices_of_both_sector_sizes() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB);
    for sector in ["512", "4096"] {
        let Some(disk) = Loop::attach(&path, &["-b", sector]) else { return };
        for direct in [Direct::On, Direct::Off] {
            let device = open(&disk.node, &OpenOptions::read_write().direct(direct));
            assert!(device.is_block_device());
            assert_eq!(device.size(), 4 * MIB);
            if direct == Direct::On {
                assert_eq!(device.alignment().to_string(), sector);
            }
            exercise(&device);
        }
    }
}

/// Threads write neighbouring small pieces of the same sectors: none may undo another's.
#[test]
fn small_neighbours_do_not_undo_each_other() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let disk = Loop::attach(&path, &["-b", "4096"]);
    let path = disk.as_ref().map_or(path, |d| PathBuf::from(&d.node));
    let device = open(path, &OpenOptions::read_write());
    std::thread::scope(|s| {
        for t in 0..4u8 {
            let device = &device;
            s.spawn(move || {
                for i in 0..100u64 {
                    // Each thread owns every fourth kilobyte; thread 0 also rewrites whole sectors
                    // elsewhere.
                    let at = (i % 16 * 4 + u64::from(t)) * 1024;
                    device.write_at(&[t + 1; 1024], at).expect("write");
                    let mut back = [0; 1024];
                    device.read_at(&mut back, at).expect("read");
                    assert!(back.iter().all(|b| *b == t + 1), "thread {t} lost its bytes at {at}");
                    if t == 0 {
                        device.write_at(&[9; 8192], 128 << 10).expect("write");
                    }
                }
            });
        }
    });
}

#[test]
fn ranges_are_checked() {
    let dir = TempDir::new().expect("dir");
    let device = open(image(&dir, MIB), &OpenOptions::read_write());
    for offset in [MIB - 3, MIB, u64::MAX - 1, u64::MAX] {
        assert!(device.read_at(&mut [0; 4], offset).is_err());
        assert!(device.write_at(&[0; 4], offset).is_err());
        assert!(device.write_fua(&[0; 4], offset).is_err());
        assert!(device.zero_range(offset, 4).is_err());
        assert!(device.discard(offset, 4).is_err());
    }
    device.read_at(&mut [], MIB).expect("nothing");
    device.write_at(&[], MIB).expect("nothing");
    device.zero_range(MIB, 0).expect("nothing");
}

#[test]
fn a_file_that_shrank_gives_an_error() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    let device = open(&path, &OpenOptions::read_only());
    File::options().write(true).open(&path).and_then(|f| f.set_len(MIB / 2)).expect("shrink");
    let error = device.read_at(&mut [0; 4096], MIB / 2).expect_err("behind the end");
    assert_eq!(error.source.kind(), io::ErrorKind::UnexpectedEof);
    assert!(device.read_at(&mut vec![0; MIB as usize], 0).is_err());
}

#[test]
fn discard_gives_space_back() {
    use std::os::unix::fs::MetadataExt;
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, 4 * MIB);
    let used = || std::fs::metadata(&path).expect("stat").blocks() * 512;
    let check = |device: &FileDevice| {
        device.write_at(&vec![7; 2 * MIB as usize], MIB).expect("write");
        device.flush().expect("flush");
        assert!(used() >= 2 * MIB);
        match device.discard(MIB + 100, MIB) {
            Ok(()) => assert!(used() < 2 * MIB, "{} bytes still used", used()),
            Err(e) => assert!(e.is_unsupported(), "{e}"),
        }
        let mut edge = [0; 100];
        device.read_at(&mut edge, MIB).expect("read");
        assert_eq!(edge, [7; 100], "bytes outside the range stay");
        device.read_at(&mut edge, 2 * MIB + 100).expect("read");
        assert_eq!(edge, [7; 100]);
    };
    check(&open(&path, &OpenOptions::read_write()));
    if let Some(disk) = Loop::attach(&path, &[]) {
        check(&open(&disk.node, &OpenOptions::read_write()));
    }
}

#[test]
fn read_only_needs_no_write_permission() {
    let dir = TempDir::new().expect("dir");
    let path = image(&dir, MIB);
    // Root may write to anything except a read-only device.
    let disk = Loop::attach(&path, &["-r"]);
    let path = match &disk {
        Some(disk) => PathBuf::from(&disk.node),
        None => {
            let mut permissions = std::fs::metadata(&path).expect("stat").permissions();
            permissions.set_readonly(true);
            std::fs::set_permissions(&path, permissions).expect("chmod");
            path
        }
    };
    let device = open(&path, &OpenOptions::read_only());
    assert!(device.is_read_only());
    device.read_at(&mut [0; 100], 50).expect("read");
    device.flush().expect("nothing to flush");
    for result in [
        device.write_at(&[1], 0),
        device.write_fua(&[1], 0),
        device.write_vectored_at(&[IoSlice::new(&[1])], 0),
        device.discard(0, 4096),
        device.zero_range(0, 4096),
    ] {
        assert_eq!(result.expect_err("read-only").source.raw_os_error(), Some(libc::EROFS));
    }
    drop(device);
    if disk.is_some() {
        let error =
            FileDevice::open(&path, &OpenOptions::read_write()).expect_err("write-protected");
        assert!(error.to_string().contains("write-protected"), "{error}");
    }
}

#[test]
fn other_kinds_of_files_are_refused_in_one_line() {
    let dir = TempDir::new().expect("dir");
    let empty = dir.path().join("empty");
    File::create(&empty).expect("create");
    let pipe = dir.path().join("pipe");
    run("mkfifo", &[pipe.to_str().expect("utf-8")]).expect("mkfifo");
    let cases = [
        (dir.path().to_owned(), "is a directory"),
        (dir.path().join("missing"), "No such file"),
        (empty, "is empty"),
        (pipe, "neither"),
        (PathBuf::from("/dev/null"), "neither"),
        (dir.path().join("disk.img/x"), "directory"),
    ];
    image(&dir, MIB);
    for (path, words) in cases {
        for options in [OpenOptions::read_write(), OpenOptions::read_only()] {
            let error = FileDevice::open(&path, &options).expect_err("must be refused");
            let text = error.to_string();
            assert_eq!(error.op, DeviceOp::Open);
            let named = text.starts_with(path.to_str().expect("utf-8"));
            assert!(named && text.to_lowercase().contains(&words.to_lowercase()), "{text}");
            assert!(!text.contains('\n') && !text.contains("os error"), "{text}");
        }
    }
}

#[test]
fn creates_and_grows_images() {
    let dir = TempDir::new().expect("dir");
    let path = dir.path().join("new.img");
    let options = OpenOptions::read_write().create_size(2 * MIB);
    assert_eq!(open(&path, &options).size(), 2 * MIB);
    assert_eq!(open(&path, &options.clone().create_size(MIB)).size(), 2 * MIB);
    assert_eq!(open(&path, &options.create_size(3 * MIB)).size(), 3 * MIB);
    let read_only = OpenOptions::read_only().create_size(MIB);
    assert!(FileDevice::open(dir.path().join("other.img"), &read_only).is_err());
}

#[test]
fn concurrent_flushes_all_succeed() {
    let dir = TempDir::new().expect("dir");
    let device = open(image(&dir, MIB), &OpenOptions::read_write());
    std::thread::scope(|s| {
        for t in 0..8 {
            let device = &device;
            s.spawn(move || {
                for i in 0..20 {
                    device.write_at(&[t as u8; 512], (i * 8 + t) * 512).expect("write");
                    device.flush().expect("flush");
                }
            });
        }
    });
}

#[test]
fn fua_works_without_kernel_support() {
    let dir = TempDir::new().expect("dir");
    let device = open(image(&dir, MIB), &OpenOptions::read_write());
    device.dsync_works.store(false, Ordering::Relaxed);
    device.write_fua(b"hello", 12_345).expect("fua");
    let mut back = [0; 5];
    device.read_at(&mut back, 12_345).expect("read");
    assert_eq!(&back, b"hello");
    assert_eq!(device.fua(), Fua::Flush);
    let bufs = [IoSlice::new(b"again")];
    device.write_scattered_fua(&[ScatteredWrite { offset: 54_321, bufs: &bufs }]).expect("batch");
    device.read_at(&mut back, 54_321).expect("read");
    assert_eq!(&back, b"again");
}
