//! What files hold, read and written in several ways.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use extol_fuse::{MountConfig, STATS_XATTR};
use rustix::fs::{CWD, FallocateFlags, Mode, OFlags, SeekFrom as Whence};

use super::{mount, mount_with};

#[test]
fn holes_and_fallocate() {
    let Some(mut m) = mount() else { return };
    let mut file =
        File::options().create_new(true).read(true).write(true).open(m.path("sparse")).unwrap();
    file.write_all_at(b"data", 1 << 20).unwrap();
    // Nothing has been written back yet.
    assert_eq!(rustix::fs::seek(&file, Whence::Data(0)), Ok(1 << 20));
    assert_eq!(rustix::fs::seek(&file, Whence::Hole(0)), Ok(0));
    assert_eq!(rustix::fs::seek(&file, Whence::Hole(1 << 20)), Ok((1 << 20) + 4));
    assert_eq!(rustix::fs::seek(&file, Whence::Data((1 << 20) + 4)), Err(rustix::io::Errno::NXIO));

    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    rustix::fs::fallocate(
        &file,
        FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        1 << 20,
        4096,
    )
    .unwrap();
    let mut four = [1; 4];
    file.read_exact_at(&mut four, 1 << 20).unwrap();
    assert_eq!(four, [0; 4]);
    file.seek(SeekFrom::End(-2)).unwrap();
    file.write_all(b"end").unwrap();
    file.seek(SeekFrom::End(-3)).unwrap();
    let mut text = String::new();
    file.read_to_string(&mut text).unwrap();
    assert_eq!(text, "end");
    drop(file);
    m.unmount();
}

#[test]
fn seeks_do_not_starve_the_writes_they_cause() {
    let config = MountConfig { max_threads: 2, writeback_cache: true, ..MountConfig::default() };
    let Some(mut m) = mount_with(true, &config) else { return };
    std::thread::scope(|scope| {
        for n in 0..8_u64 {
            let m = &m;
            scope.spawn(move || {
                let file = File::create(m.path(&format!("f{n}"))).unwrap();
                for round in 1..20 {
                    file.write_all_at(&[1; 4096], round * 65536).unwrap();
                    assert_eq!(
                        rustix::fs::seek(&file, Whence::Data(round * 65536 - 4096)),
                        Ok(round * 65536)
                    );
                }
            });
        }
    });
    m.unmount();
}

/// Without the write-back cache files hold what was written, and closing and unlinking them costs
/// no request for times.
#[test]
fn written_through() {
    let config =
        MountConfig { writeback_cache: false, allow_other: true, ..MountConfig::default() };
    let Some(mut m) = mount_with(true, &config) else { return };
    let file = File::options().read(true).write(true).create_new(true).open(m.path("f")).unwrap();
    file.write_all_at(b"hello, world", 0).unwrap();
    file.write_all_at(b"HELLO", 0).unwrap();
    file.write_all_at(&[7; 10_000], 5000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 15_000);
    let mut text = [0; 12];
    file.read_exact_at(&mut text, 0).unwrap();
    assert_eq!(&text, b"HELLO, world");
    file.set_len(5).unwrap();
    drop(file);
    assert_eq!(fs::read(m.path("f")).unwrap(), b"HELLO");
    fs::remove_file(m.path("f")).unwrap();
    let mut stats = [0; 500];
    let len = rustix::fs::getxattr(m.dir.path(), STATS_XATTR, &mut stats[..]).unwrap();
    let stats = std::str::from_utf8(&stats[..len]).unwrap();
    assert!(stats.contains("\"setattr\":1,"), "only the new length: {stats}");
    m.unmount();
}

/// Of many reads at a time each gets its own, and what comes between them is answered as well.
#[test]
fn many_reads_at_a_time() {
    const BLOCKS: u64 = 64;
    let Some(mut m) = mount() else { return };
    let block = |n: u64| vec![n as u8; 4096];
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(block).collect();
    fs::write(m.path("f"), &bytes[..bytes.len() - 1000]).unwrap();
    let bad = [("panics", "panic", libc::EIO), ("fails", "error", libc::ENXIO)];
    for (name, content, _) in bad {
        fs::write(m.path(name), content).unwrap();
    }
    let direct = |name| {
        let flags = OFlags::RDONLY | OFlags::DIRECT;
        File::from(rustix::fs::openat(CWD, m.path(name), flags, Mode::empty()).unwrap())
    };
    let (began, patience) = (Instant::now(), Duration::from_secs(30));
    let is_over = |n: u64| n > 500 || began.elapsed() > patience;
    std::thread::scope(|scope| {
        for t in 0..12 {
            let (file, is_over) = (direct("f"), &is_over);
            scope.spawn(move || {
                let mut memory = vec![0; 8192];
                let skip = memory.as_ptr().align_offset(4096);
                for n in (0..).take_while(|n| !is_over(*n)) {
                    let at = (n * 7 + t * 5) % BLOCKS;
                    let count = file.read_at(&mut memory[skip..skip + 4096], at * 4096).unwrap();
                    assert_eq!(count, if at == BLOCKS - 1 { 3096 } else { 4096 });
                    assert!(memory[skip..skip + count] == block(at)[..count], "{at}");
                }
            });
        }
        for t in 0..4 {
            let (name, _, errno) = bad[t % bad.len()];
            let (file, m, is_over) = (direct(name), &m, &is_over);
            scope.spawn(move || {
                let mut memory = vec![0; 8192];
                let skip = memory.as_ptr().align_offset(4096);
                for n in (0..).take_while(|n| !is_over(*n)) {
                    assert!(fs::metadata(m.path(&format!("missing{t}-{n}"))).is_err());
                    fs::write(m.path(&format!("new{t}")), "x").unwrap();
                    File::open(m.path(&format!("new{t}"))).unwrap().sync_all().unwrap();
                    let error = file.read_at(&mut memory[skip..skip + 4096], 0).unwrap_err();
                    assert_eq!(error.raw_os_error(), Some(errno), "{name}");
                }
            });
        }
    });
    assert!(began.elapsed() < patience, "some took too long");
    for (name, ..) in bad {
        fs::remove_file(m.path(name)).unwrap();
    }
    m.unmount();
}
