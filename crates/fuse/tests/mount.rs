//! The front end on a real mount, over a file system in memory. Needs root and `/dev/fuse`; without them there is
//! nothing to test and each test says so.
//!
//! The same file is a module of `over_io_uring.rs`, where requests come over io_uring instead.

#[path = "memfs/mod.rs"]
mod memfs;

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use extol_fuse::{DAEMON_XATTR, Mount, MountConfig, MountError, STATS_XATTR, Stopper, Transport};
use memfs::MemFs;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, RenameFlags, SeekFrom as Whence, XattrFlags};

pub(crate) struct Mounted {
    pub(crate) fs: Arc<MemFs>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) stopper: Stopper,
    pub(crate) server: Option<JoinHandle<Result<(), MountError>>>,
}

impl Mounted {
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn unmount(&mut self) {
        self.stopper.unmount().unwrap();
        self.server.take().unwrap().join().unwrap().unwrap();
    }

    /// Waits until the kernel has given every reference back.
    pub(crate) fn wait_forgotten(&self) {
        let start = Instant::now();
        loop {
            fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
            if self.fs.held().0 == 0 {
                return;
            }
            assert!(start.elapsed() < Duration::from_secs(20), "{} references left", self.fs.held().0);
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if self.server.is_some() {
            let _ = self.stopper.detach();
            self.stopper.abandon();
        }
    }
}

/// True if these are the tests of `over_io_uring.rs`.
fn over_io_uring() -> bool {
    module_path!().starts_with("over_io_uring")
}

fn mount_with(by_number: bool, config: &MountConfig) -> Option<Mounted> {
    if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
        eprintln!("skipped: needs root and /dev/fuse");
        return None;
    }
    let dir = tempfile::tempdir().unwrap();
    let fs = Arc::new(MemFs::new(by_number));
    let io_uring = over_io_uring();
    if io_uring
        && std::fs::read_to_string("/sys/module/fuse/parameters/enable_uring")
            .map_or(true, |text| text != "Y\n")
    {
        eprintln!("skipped: needs Linux 6.14 and \"echo Y > /sys/module/fuse/parameters/enable_uring\"");
        return None;
    }
    let config = MountConfig { io_uring, ..config.clone() };
    let mount = Mount::new(fs.clone(), dir.path(), &config).unwrap();
    let transport = if io_uring { Transport::IoUring } else { Transport::Device };
    assert_eq!((mount.transport(), mount.note()), (transport, None));
    let stopper = mount.stopper();
    let server = Some(std::thread::spawn(move || mount.run()));
    Some(Mounted { fs, dir, stopper, server })
}

pub(crate) fn mount() -> Option<Mounted> {
    mount_with(true, &MountConfig { allow_other: true, ..MountConfig::default() })
}

/// Runs a shell command as nobody.
fn as_nobody(script: &str) -> String {
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script])
        .output()
        .unwrap();
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn files_and_directories() {
    let Some(mut m) = mount() else { return };
    assert_eq!(fs::metadata(m.dir.path()).unwrap().ino(), 2);
    fs::create_dir(m.path("d")).unwrap();
    let data: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    fs::write(m.path("d/big"), &data).unwrap();
    assert_eq!(fs::read(m.path("d/big")).unwrap(), data);
    fs::write("/proc/sys/vm/drop_caches", "3").unwrap();
    assert_eq!(fs::read(m.path("d/big")).unwrap(), data);

    fs::hard_link(m.path("d/big"), m.path("hard")).unwrap();
    assert_eq!(fs::metadata(m.path("hard")).unwrap().nlink(), 2);
    symlink("d/big", m.path("soft")).unwrap();
    assert_eq!(fs::read_link(m.path("soft")).unwrap(), Path::new("d/big"));
    assert_eq!(fs::metadata(m.path("soft")).unwrap().size(), 3_000_000);

    fs::rename(m.path("hard"), m.path("d/moved")).unwrap();
    assert!(!m.path("hard").exists());
    fs::remove_file(m.path("d/big")).unwrap();
    assert_eq!(fs::metadata(m.path("d/moved")).unwrap().nlink(), 1);
    assert_eq!(fs::remove_dir(m.path("d")).unwrap_err().raw_os_error(), Some(libc::ENOTEMPTY));
    assert_eq!(
        fs::write(m.path("n".repeat(256).as_str()), "").unwrap_err().raw_os_error(),
        Some(libc::ENAMETOOLONG)
    );

    let file = File::options().read(true).write(true).open(m.path("d/moved")).unwrap();
    fs::remove_file(m.path("d/moved")).unwrap();
    file.write_all_at(b"still here", 10).unwrap();
    file.sync_all().unwrap();
    file.set_len(20).unwrap();
    let mut tail = [0; 20];
    file.read_exact_at(&mut tail, 0).unwrap();
    assert_eq!(&tail[10..], b"still here");
    drop(file);
    fs::remove_dir(m.path("d")).unwrap();
    fs::remove_file(m.path("soft")).unwrap();
    m.wait_forgotten();
    assert_eq!(m.fs.held(), (0, 1));
    m.unmount();
    assert!(m.stopper.has_ended());
}

#[test]
fn large_directories_and_their_references() {
    for by_number in [true, false] {
        let Some(mut m) = mount_with(by_number, &MountConfig::default()) else { return };
        for n in 0..5000 {
            File::create(m.path(&format!("file-{n}"))).unwrap();
        }
        m.wait_forgotten();
        for _ in 0..2 {
            let mut names = Vec::new();
            for entry in fs::read_dir(m.dir.path()).unwrap() {
                let entry = entry.unwrap();
                assert!(entry.metadata().unwrap().is_file());
                names.push(entry.file_name().into_string().unwrap());
            }
            names.sort();
            names.dedup();
            assert_eq!(names.len(), 5000);
        }
        m.wait_forgotten();
        for (n, entry) in fs::read_dir(m.dir.path()).unwrap().enumerate() {
            fs::remove_file(entry.unwrap().path()).unwrap();
            if n == 100 {
                File::create(m.path("late")).unwrap();
            }
        }
        assert!(fs::read_dir(m.dir.path()).unwrap().count() <= 1);
        m.wait_forgotten();
        m.unmount();
    }
}

#[test]
fn names_that_do_not_exist_are_remembered_until_made() {
    let Some(mut m) = mount() else { return };
    assert!(!m.path("x").exists());
    assert!(!m.path("x").exists());
    fs::write(m.path("x"), "1").unwrap();
    assert_eq!(fs::read_to_string(m.path("x")).unwrap(), "1");
    m.unmount();
}

#[test]
fn many_threads() {
    let Some(mut m) = mount() else { return };
    std::thread::scope(|scope| {
        for t in 0..24 {
            let m = &m;
            scope.spawn(move || {
                let dir = m.path(&format!("t{t}"));
                fs::create_dir(&dir).unwrap();
                for n in 0..100 {
                    let path = dir.join(n.to_string());
                    let mut file = File::create(&path).unwrap();
                    file.write_all(&vec![t; 5000]).unwrap();
                    if n % 10 == 0 {
                        file.sync_all().unwrap();
                    }
                    drop(file);
                    assert_eq!(fs::read(&path).unwrap(), vec![t; 5000]);
                    fs::rename(&path, dir.join(format!("r{n}"))).unwrap();
                }
                assert_eq!(fs::read_dir(&dir).unwrap().count(), 100);
                fs::remove_dir_all(&dir).unwrap();
            });
        }
    });
    m.wait_forgotten();
    assert_eq!(m.fs.held(), (0, 1));
    m.unmount();
}

#[test]
fn attributes_and_times() {
    let Some(mut m) = mount() else { return };
    let path = m.path("f");
    fs::write(&path, "abc").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    std::os::unix::fs::chown(&path, Some(12), Some(34)).unwrap();
    let stat = |path: &Path| fs::metadata(path).unwrap();
    assert_eq!((stat(&path).mode(), stat(&path).uid(), stat(&path).gid()), (0o100_640, 12, 34));
    for (sec, nsec) in [(0, 0), (-2, 800_000_000), (1 << 33, 5), (i64::MIN, 0), (i64::MAX, 0)] {
        let times = rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec },
            last_modification: rustix::fs::Timespec { tv_sec: sec, tv_nsec: nsec },
        };
        rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).unwrap();
        assert_eq!((stat(&path).mtime(), stat(&path).mtime_nsec()), (sec, nsec));
        fs::write("/proc/sys/vm/drop_caches", "2").unwrap();
        assert_eq!((stat(&path).mtime(), stat(&path).atime_nsec()), (sec, nsec));
    }
    assert!(stat(&path).created().is_ok());
    let statfs = rustix::fs::statvfs(m.dir.path()).unwrap();
    assert_eq!((statfs.f_blocks, statfs.f_bfree, statfs.f_bavail, statfs.f_files), (1000, 700, 600, 500));
    m.unmount();
}

#[test]
fn the_mask_reaches_the_file_system() {
    let Some(mut m) = mount() else { return };
    as_nobody(&format!("umask 027; cd {}; touch f; mkdir d; mkfifo p", m.dir.path().display()));
    for (name, perm) in [("f", 0o640), ("d", 0o750), ("p", 0o640)] {
        let stat = fs::metadata(m.path(name)).unwrap();
        assert_eq!((stat.mode() & 0o7777, stat.uid()), (perm, 65534), "{name}");
    }
    m.unmount();
}

#[test]
fn permissions_are_checked() {
    let Some(mut m) = mount() else { return };
    fs::write(m.path("secret"), "x").unwrap();
    fs::set_permissions(m.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    let said = as_nobody(&format!("cat {}", m.path("secret").display()));
    assert!(said.contains("Permission denied"), "{said}");
    m.unmount();
}

#[test]
fn set_id_bits_go_when_they_must() {
    let Some(mut m) = mount() else { return };
    let path = m.path("prog");
    let perm = || fs::metadata(&path).unwrap().mode() & 0o7777;
    let reset = || fs::set_permissions(&path, fs::Permissions::from_mode(0o6777)).unwrap();
    fs::write(&path, "x").unwrap();
    let shown = path.display();
    for script in [
        format!("echo y >> {shown}"),
        format!("dd if=/dev/zero of={shown} bs=4k count=1 oflag=direct conv=notrunc 2>&1"),
        format!("truncate -s 1 {shown}"),
        format!(": > {shown}"),
        format!("fallocate -l 9000 {shown}"),
    ] {
        reset();
        assert_eq!(perm(), 0o6777);
        let said = as_nobody(&script);
        assert_eq!(perm(), 0o777, "{script}: {said}");
    }
    // Root keeps them on writing, nobody keeps them on chown.
    reset();
    File::options().append(true).open(&path).unwrap().write_all(b"z").unwrap();
    assert_eq!(perm(), 0o6777);
    std::os::unix::fs::chown(&path, Some(5), None).unwrap();
    assert_eq!(perm(), 0o777);
    m.unmount();
}

#[test]
fn extended_attributes() {
    let Some(mut m) = mount() else { return };
    let path = m.path("f");
    fs::write(&path, "").unwrap();
    let set = |name: &str, value: &[u8], flags| rustix::fs::setxattr(&path, name, value, flags);
    set("user.a", b"one", XattrFlags::CREATE).unwrap();
    assert_eq!(set("user.a", b"two", XattrFlags::CREATE), Err(rustix::io::Errno::EXIST));
    assert_eq!(set("user.b", b"two", XattrFlags::REPLACE), Err(rustix::io::Errno::NODATA));
    set("user.a", b"three", XattrFlags::REPLACE).unwrap();
    assert_eq!(rustix::fs::getxattr_query(&path, "user.a"), Ok(5));
    let mut small = [0; 3];
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut small[..]), Err(rustix::io::Errno::RANGE));
    let mut room = [0; 30];
    assert_eq!(rustix::fs::getxattr(&path, "user.a", &mut room[..]), Ok(5));
    assert_eq!(&room[..5], b"three");
    assert_eq!(rustix::fs::listxattr(&path, &mut room[..]), Ok(7));
    assert_eq!(&room[..7], b"user.a\0");
    rustix::fs::removexattr(&path, "user.a").unwrap();
    assert_eq!(rustix::fs::removexattr(&path, "user.a"), Err(rustix::io::Errno::NODATA));

    let mut text = [0; 500];
    let len = rustix::fs::getxattr(m.dir.path(), STATS_XATTR, &mut text[..]).unwrap();
    let stats = std::str::from_utf8(&text[..len]).unwrap();
    let fuse = stats.strip_prefix("{\"handles\":0,\"fuse\":{\"transport\":\"").expect(stats);
    let requests = fuse.strip_prefix(if over_io_uring() { "io_uring" } else { "device" }).expect(stats);
    assert!(requests.starts_with("\",\"piped_writes\":0,\"requests\":{\"lookup\":"), "{stats}");
    assert!(stats.contains("\"removexattr\":2"), "{stats}");
    let len = rustix::fs::getxattr(m.dir.path(), DAEMON_XATTR, &mut text[..]).unwrap();
    assert_eq!(std::str::from_utf8(&text[..len]).unwrap(), std::process::id().to_string());
    assert_eq!(rustix::fs::listxattr(m.dir.path(), &mut text[..]), Ok(0));
    assert_eq!(rustix::fs::getxattr(&path, STATS_XATTR, &mut text[..]), Err(rustix::io::Errno::NODATA));
    assert!(rustix::fs::setxattr(m.dir.path(), STATS_XATTR, b"", XattrFlags::empty()).is_err());
    m.unmount();
}

#[test]
fn special_files() {
    let Some(mut m) = mount() else { return };
    let make = |name: &str, kind, dev| {
        rustix::fs::mknodat(CWD, m.path(name), kind, Mode::from_raw_mode(0o600), dev).unwrap();
        fs::metadata(m.path(name)).unwrap()
    };
    let dev = rustix::fs::makedev(259, 70_000);
    let block = make("b", rustix::fs::FileType::BlockDevice, dev);
    assert!(block.file_type().is_block_device());
    assert_eq!(block.rdev(), dev);
    assert!(make("c", rustix::fs::FileType::CharacterDevice, 5).file_type().is_char_device());
    assert!(make("p", rustix::fs::FileType::Fifo, 0).file_type().is_fifo());
    assert!(make("s", rustix::fs::FileType::Socket, 0).file_type().is_socket());
    assert!(make("r", rustix::fs::FileType::RegularFile, 0).is_file());
    m.unmount();
}

#[test]
fn unnamed_files_and_rename_flags() {
    let Some(mut m) = mount() else { return };
    let mode = Mode::from_raw_mode(0o600);
    let unnamed = rustix::fs::open(m.dir.path(), OFlags::TMPFILE | OFlags::RDWR, mode).unwrap();
    rustix::io::write(&unnamed, b"from nowhere").unwrap();
    rustix::fs::linkat(&unnamed, "", CWD, m.path("named"), AtFlags::EMPTY_PATH).unwrap();
    drop(unnamed);
    assert_eq!(fs::read(m.path("named")).unwrap(), b"from nowhere");
    drop(rustix::fs::open(m.dir.path(), OFlags::TMPFILE | OFlags::RDWR, mode).unwrap());

    fs::write(m.path("other"), "o").unwrap();
    let rename = |flags| rustix::fs::renameat_with(CWD, m.path("named"), CWD, m.path("other"), flags);
    assert_eq!(rename(RenameFlags::NOREPLACE), Err(rustix::io::Errno::EXIST));
    rename(RenameFlags::EXCHANGE).unwrap();
    assert_eq!(fs::read(m.path("named")).unwrap(), b"o");
    rename(RenameFlags::empty()).unwrap();
    assert_eq!(fs::read(m.path("other")).unwrap(), b"o");
    m.wait_forgotten();
    assert_eq!(m.fs.held(), (0, 2));
    m.unmount();
}

#[test]
fn holes_and_fallocate() {
    let Some(mut m) = mount() else { return };
    let mut file = File::options().create_new(true).read(true).write(true).open(m.path("sparse")).unwrap();
    file.write_all_at(b"data", 1 << 20).unwrap();
    // Nothing has been written back yet.
    assert_eq!(rustix::fs::seek(&file, Whence::Data(0)), Ok(1 << 20));
    assert_eq!(rustix::fs::seek(&file, Whence::Hole(0)), Ok(0));
    assert_eq!(rustix::fs::seek(&file, Whence::Hole(1 << 20)), Ok((1 << 20) + 4));
    assert_eq!(rustix::fs::seek(&file, Whence::Data((1 << 20) + 4)), Err(rustix::io::Errno::NXIO));

    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 2 << 20);
    rustix::fs::fallocate(&file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1 << 20, 4096)
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
    let config = MountConfig { max_threads: 2, ..MountConfig::default() };
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

/// Lets stuck requests go on, also when a test fails.
struct Release<'a>(&'a MemFs);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.release_stuck();
    }
}

/// Requests that wait, though their kind does not by nature, do not keep others from being answered: whoever waits is
/// replaced, up to the greatest number of workers.
#[test]
fn requests_that_wait_keep_nobody_else_waiting() {
    const STUCK: usize = 20;
    let Some(mut m) = mount() else { return };
    // In a directory of their own: the kernel keeps new names out of it meanwhile.
    fs::create_dir(m.path("d")).unwrap();
    std::thread::scope(|scope| {
        let release = Release(&m.fs);
        let waiting: Vec<_> = (0..STUCK)
            .map(|n| {
                let m = &m;
                scope.spawn(move || fs::metadata(m.path(&format!("d/stuck{n}"))).is_err())
            })
            .collect();
        m.fs.wait_stuck(STUCK);
        // Nothing of this is known to the kernel.
        for n in 0..50 {
            assert!(fs::metadata(m.path(&format!("missing{n}"))).is_err());
            fs::write(m.path(&format!("new{n}")), "x").unwrap();
        }
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        drop(release);
        for thread in waiting {
            assert!(thread.join().unwrap());
        }
    });
    for n in 0..50 {
        assert_eq!(fs::read(m.path(&format!("new{n}"))).unwrap(), b"x");
    }
    m.unmount();
}

/// Reads that come in a crowd are done together, each gets its own, and what comes between them is answered as well.
#[test]
fn reads_in_a_crowd() {
    const BLOCKS: u64 = 64;
    let Some(mut m) = mount() else { return };
    let block = |n: u64| vec![n as u8; 4096];
    let bytes: Vec<u8> = (0..BLOCKS).flat_map(block).collect();
    fs::write(m.path("f"), &bytes[..bytes.len() - 1000]).unwrap();
    fs::write(m.path("bad"), "panic").unwrap();
    let direct = |name| {
        let flags = OFlags::RDONLY | OFlags::DIRECT;
        File::from(rustix::fs::openat(CWD, m.path(name), flags, Mode::empty()).unwrap())
    };
    let (began, patience) = (Instant::now(), Duration::from_secs(30));
    let is_over = |n: u64| {
        // Over io_uring each is taken alone.
        let met = over_io_uring() || m.fs.together.load(Ordering::Relaxed) >= 3;
        (met && n > 500) || began.elapsed() > patience
    };
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
            let (file, m, is_over) = (direct("bad"), &m, &is_over);
            scope.spawn(move || {
                let mut memory = vec![0; 8192];
                let skip = memory.as_ptr().align_offset(4096);
                for n in (0..).take_while(|n| !is_over(*n)) {
                    assert!(fs::metadata(m.path(&format!("missing{t}-{n}"))).is_err());
                    fs::write(m.path(&format!("new{t}")), "x").unwrap();
                    File::open(m.path(&format!("new{t}"))).unwrap().sync_all().unwrap();
                    // And to nobody else who is in the same batch.
                    let error = file.read_at(&mut memory[skip..skip + 4096], 0).unwrap_err();
                    assert_eq!(error.raw_os_error(), Some(libc::EIO));
                }
            });
        }
    });
    assert!(began.elapsed() < patience, "none came together");
    fs::remove_file(m.path("bad")).unwrap();
    m.unmount();
}

/// Lets fsyncs be answered at once again, and those that wait, also when a test fails.
struct AtOnce<'a>(&'a MemFs);

impl Drop for AtOnce<'_> {
    fn drop(&mut self) {
        self.0.tell_later(false);
    }
}

/// An fsync that is told later takes no worker: however many there are, and however few workers, other requests are answered. Each
/// is told what became of its own; one that nobody tells fails.
#[test]
fn fsyncs_are_answered_by_whoever_is_told() {
    const FILES: usize = 12;
    if over_io_uring() {
        // There a worker waits for each.
        return;
    }
    let config = MountConfig { max_threads: 2, ..MountConfig::default() };
    let Some(mut m) = mount_with(true, &config) else { return };
    std::thread::scope(|scope| {
        let at_once = AtOnce(&m.fs);
        m.fs.tell_later(true);
        let waiting: Vec<_> = (0..FILES)
            .map(|n| {
                let m = &m;
                scope.spawn(move || {
                    let file = File::create(m.path(&format!("f{n}"))).unwrap();
                    if n % 2 == 0 { file.sync_all() } else { file.sync_data() }
                })
            })
            .collect();
        let dir = scope.spawn(|| {
            fs::create_dir(m.path("d")).unwrap();
            File::open(m.path("d")).unwrap().sync_all()
        });
        let mut asked = m.fs.take_asked(FILES + 1);
        for n in 0..50 {
            assert!(fs::metadata(m.path(&format!("missing{n}"))).is_err());
            fs::write(m.path(&format!("new{n}")), "x").unwrap();
        }
        assert!(waiting.iter().all(|thread| !thread.is_finished()) && !dir.is_finished());
        assert!(m.stopper.unmount().is_err(), "they have files open");
        // Two go wrong, in two ways; the rest goes well. In any order, from any thread.
        drop(asked.swap_remove(3));
        asked.swap_remove(5)(Err(extol_vfs::FsError::NoSpace));
        scope.spawn(move || asked.into_iter().for_each(|done| done(Ok(()))));
        let mut results: Vec<_> =
            waiting.into_iter().chain([dir]).map(|thread| thread.join().unwrap()).collect();
        results.retain(Result::is_err);
        let mut errors: Vec<_> = results.into_iter().filter_map(|r| r.unwrap_err().raw_os_error()).collect();
        errors.sort_unstable();
        assert_eq!(errors, [libc::EIO, libc::ENOSPC]);
        drop(at_once);
    });
    // And with one that waits.
    File::open(m.path("f0")).unwrap().sync_all().unwrap();
    m.unmount();
}

struct Thaw<'a>(&'a MemFs);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        self.0.set_frozen(false);
    }
}

/// However many requests wait for a thaw, others find a worker, and afterwards all of them are done.
#[test]
fn a_freeze_leaves_somebody_who_reads() {
    let config = MountConfig { max_threads: 2, ..MountConfig::default() };
    let Some(mut m) = mount_with(true, &config) else { return };
    for n in 0..8 {
        // The kernel lets one name at a time into a directory.
        fs::create_dir(m.path(&format!("d{n}"))).unwrap();
    }
    std::thread::scope(|scope| {
        let thaw = Thaw(&m.fs);
        m.fs.set_frozen(true);
        let waiting: Vec<_> = (0..8)
            .map(|n| {
                let m = &m;
                scope.spawn(move || fs::write(m.path(&format!("d{n}/f")), "x"))
            })
            .collect();
        for n in 0..200 {
            assert!(fs::metadata(m.path(&format!("missing{n}"))).is_err());
        }
        assert!(waiting.iter().all(|thread| !thread.is_finished()));
        drop(thaw);
        for thread in waiting {
            thread.join().unwrap().unwrap();
        }
    });
    m.unmount();
}

/// Without the write-back cache files hold what was written, and closing and unlinking them costs no request for times.
#[test]
fn written_through() {
    let config = MountConfig { writeback_cache: false, allow_other: true, ..MountConfig::default() };
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

#[test]
fn flags_and_project_ids() {
    let Some(mut m) = mount() else { return };
    fs::write(m.path("f"), "").unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = Command::new(program).args(args).arg(m.path("f")).output().unwrap();
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    run("chattr", &["+d"]);
    run("chattr", &["-p", "77"]);
    let listed = run("lsattr", &["-p", "-v"]);
    let fields: Vec<_> = listed.split_whitespace().collect();
    assert_eq!(fields[0], "77");
    assert!(fields[2].contains('d'), "{listed}");
    m.unmount();
}

#[test]
fn handles_outlive_eviction() {
    let Some(mut m) = mount() else { return };
    fs::create_dir(m.path("d")).unwrap();
    fs::write(m.path("d/f"), "reached by handle").unwrap();
    // Python's standard library has no file handles; ctypes reaches the two system calls.
    let script = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]
handle, mount_id = Handle(size=128), ctypes.c_int()
path = sys.argv[1].encode()
assert libc.name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(mount_id), 0) == 0, ctypes.get_errno()
open("/proc/sys/vm/drop_caches", "w").write("2")
root = os.open(os.path.dirname(os.path.dirname(sys.argv[1])), os.O_RDONLY)
fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
assert fd >= 0, ctypes.get_errno()
sys.stdout.write(os.read(fd, 100).decode())
os.close(fd)
os.unlink(path)
fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
assert fd == -1 and ctypes.get_errno() == 116, (fd, ctypes.get_errno())
"#;
    let output = Command::new("python3").args(["-c", script]).arg(m.path("d/f")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"reached by handle");
    m.wait_forgotten();
    m.unmount();
}

#[test]
fn a_panic_is_an_error_to_its_caller_only() {
    let Some(mut m) = mount() else { return };
    for _ in 0..100 {
        assert_eq!(fs::metadata(m.path("panic")).unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    fs::write(m.path("fine"), "x").unwrap();
    m.unmount();
}

#[test]
fn a_busy_mount_can_be_detached() {
    let Some(mut m) = mount() else { return };
    let file = File::create(m.path("f")).unwrap();
    assert!(matches!(m.stopper.unmount(), Err(MountError::Busy { .. })));
    m.stopper.detach().unwrap();
    assert!(!m.path("f").exists());
    file.write_all_at(b"late", 0).unwrap();
    drop(file);
    m.server.take().unwrap().join().unwrap().unwrap();
}

#[test]
fn bad_mount_points_are_refused() {
    if !Path::new("/dev/fuse").exists() {
        return;
    }
    let fs = Arc::new(MemFs::new(true));
    let file = tempfile::NamedTempFile::new().unwrap();
    for path in [Path::new("/nonexistent"), file.path()] {
        let error = Mount::new(fs.clone(), path, &MountConfig::default()).unwrap_err();
        assert!(matches!(error, MountError::Dir { .. }), "{error}");
    }
}
