//! O_DIRECT and asynchronous I/O through a mount: errors as Linux reports them, and no stale pages
//! beside a direct writer.

use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::Duration;

use extol_testkit::{Finished, Image, Mounted, Need, Scratch, Subject, require, run, tool};

const NEEDS: [Need; 4] = [Need::Root, Need::Fuse, Need::Loop, Need::Tool("fio")];
const LONG: Duration = Duration::from_secs(120);
const MIB: usize = 1 << 20;
/// Of the file that is read and written at the same time.
const SIZE: usize = 2 * MIB;

fn subjects() -> [Subject; 2] {
    [Subject::Extol, Subject::Kernel]
}

/// A fresh volume of this size, mounted. `None`: the machine lacks something.
fn mounted(subject: &Subject, size: u64) -> Option<(Scratch, Mounted)> {
    if !require(&NEEDS) {
        return None;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(scratch.path(), "a.img", size, &["-t", "ext4", "-b", "4096"]);
    let mount = subject.mount(&image, &scratch.dir("mnt"), &[]);
    Some((scratch, mount))
}

/// fio with asynchronous direct writes of 1 MiB, eight at a time.
fn fio(file: &Path, size: usize, more: &[&str]) -> Finished {
    let name = format!("--filename={}", file.display());
    let size = format!("--size={size}");
    let mut fio = tool("fio");
    fio.args([
        "--name=a",
        "--ioengine=libaio",
        "--direct=1",
        "--iodepth=8",
        "--bs=1M",
        "--rw=write",
    ]);
    run(fio.args([&name, &size]).args(more), LONG)
}

/// A full volume answers ENOSPC, never EIO.
#[test]
fn a_full_volume_says_so() {
    for subject in subjects() {
        let Some((_scratch, mount)) = mounted(&subject, 48 << 20) else { return };
        let file = mount.path().join("file");
        let done = fio(&file, 100 * MIB, &["--fallocate=none", "--file_append=1"]);
        assert!(!done.success(), "100 MiB fit into 48");
        assert!(done.output.contains("No space left on device"), "{subject:?}: {}", done.output);
        assert!(!done.output.contains("Input/output error"), "{subject:?}: {}", done.output);
        mount.unmount();
    }
}

/// What a direct write has replaced is not read any more, also where reading brings pages in
/// meanwhile.
#[test]
fn readers_see_what_direct_writers_wrote() {
    for subject in subjects() {
        let Some((_scratch, mount)) = mounted(&subject, 96 << 20) else { return };
        let path = mount.path().join("file");
        std::fs::write(&path, vec![1; SIZE]).unwrap();
        std::fs::File::open(&path).unwrap().sync_all().unwrap();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            for first in 0..3 {
                let (path, done) = (&path, &done);
                scope.spawn(move || {
                    let file = std::fs::File::open(path).unwrap();
                    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random).unwrap();
                    let mut page = [0; 4096];
                    while !done.load(std::sync::atomic::Ordering::SeqCst) {
                        for at in (first * 4096..SIZE as u64).step_by(12 << 10) {
                            file.read_exact_at(&mut page, at).unwrap();
                        }
                    }
                });
            }
            // What each round replaces is another byte, so a page of the round before is seen.
            let mut stale = 0;
            for byte in 2..14_u8 {
                let pattern = format!("--buffer_pattern={byte:#04x}");
                let written = fio(&path, SIZE, &[&pattern, "--rw=randwrite", "--bs=16k"]);
                if !written.success() {
                    eprintln!("{}", written.output);
                    stale = usize::MAX;
                    break;
                }
                let cached = std::fs::read(&path).unwrap();
                stale += cached.iter().filter(|seen| **seen != byte).count();
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
            assert_eq!(stale, 0, "{subject:?}: bytes of old pages");
        });
        mount.unmount();
    }
}

/// A synchronous direct write extends a file, and its end is seen at once.
#[test]
fn direct_writes_extend_files() {
    for subject in subjects() {
        let Some((_scratch, mount)) = mounted(&subject, 48 << 20) else { return };
        let path = mount.path().join("file");
        let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
        let mut open = std::fs::File::options();
        let file =
            open.read(true).write(true).create(true).custom_flags(direct).open(&path).unwrap();
        // (Memory of this size begins at a page.)
        let mut memory = vec![0x77_u8; 3 * 4096];
        let start = memory.as_ptr().align_offset(4096);
        let piece = &mut memory[start..start + 4096];
        for n in 0..4_u64 {
            file.write_all_at(piece, n * 4096).unwrap();
            let size = std::fs::metadata(&path).unwrap().len();
            assert_eq!(size, (n + 1) * 4096, "{subject:?}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), vec![0x77; 4 * 4096]);
        drop(file);
        mount.unmount();
    }
}
