//! Names, and how long what they led to is remembered.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

use extol_fuse::MountConfig;
use extol_vfs::{Creds, FileSystem, NewNode};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RenameFlags};

use super::{as_ordinary_user, mount, mount_with};

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

/// A name that is there although the kernel knows it as missing is opened as any other: emptied if
/// asked for, and only with the permission to do so.
#[test]
fn a_name_that_the_kernel_knows_as_missing_is_opened() {
    let Some(mut m) = mount() else { return };
    let behind = |name: &str| {
        assert!(!m.path(name).exists());
        let (root, new, creds) = (m.fs.root(), NewNode::Regular, Creds::default());
        let ino = m.fs.create(root, name.as_bytes(), new, 0o644, 0, creds).unwrap().id.ino;
        m.fs.write(ino, 0, b"old contents").unwrap();
        m.fs.forget(ino, 1);
        u64::from(ino)
    };
    let ino = behind("x");
    let mut file = File::create(m.path("x")).unwrap();
    file.write_all(b"new").unwrap();
    assert_eq!(file.metadata().unwrap().ino(), ino);
    assert_eq!(fs::read(m.path("x")).unwrap(), b"new");
    behind("kept");
    let kept = File::options().append(true).create(true).open(m.path("kept")).unwrap();
    assert_eq!(kept.metadata().unwrap().size(), 12);
    behind("new");
    let error = File::create_new(m.path("new")).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
    behind("mine");
    let said = as_ordinary_user(&format!("echo text > {}", m.path("mine").display()));
    assert!(said.contains("Permission denied"), "{said}");
    assert_eq!(fs::read(m.path("mine")).unwrap(), b"old contents");
    drop((file, kept));
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
    let rename =
        |flags| rustix::fs::renameat_with(CWD, m.path("named"), CWD, m.path("other"), flags);
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
fn handles_outlive_eviction() {
    let Some(mut m) = mount() else { return };
    fs::create_dir(m.path("d")).unwrap();
    fs::write(m.path("d/f"), "reached by handle").unwrap();
    // Python's standard library has no file handles; ctypes reaches the two system calls.
    let script = r#"
import ctypes, os, sys, time
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("size", ctypes.c_uint), ("kind", ctypes.c_int), ("bytes", ctypes.c_ubyte * 128)]
handle, mount_id = Handle(size=128), ctypes.c_int()
path = sys.argv[1].encode()
got = libc.name_to_handle_at(-100, path, ctypes.byref(handle), ctypes.byref(mount_id), 0)
assert got == 0, ctypes.get_errno()
open("/proc/sys/vm/drop_caches", "w").write("2")
root = os.open(os.path.dirname(os.path.dirname(sys.argv[1])), os.O_RDONLY)
fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
assert fd >= 0, ctypes.get_errno()
sys.stdout.write(os.read(fd, 100).decode())
os.close(fd)
os.unlink(path)
# The kernel keeps the inode until it learns that the file is closed, and close does not wait for that.
for attempt in range(2000):
    fd = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    if fd == -1:
        break
    os.close(fd)
    time.sleep(0.005)
assert fd == -1 and ctypes.get_errno() == 116, (fd, ctypes.get_errno())
"#;
    let output = Command::new("python3").args(["-c", script]).arg(m.path("d/f")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"reached by handle");
    m.wait_forgotten();
    m.unmount();
}
