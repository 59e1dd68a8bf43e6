//! The files below qcow2 images: which a name in an image opens, and that nothing else is opened
//! while their directory changes.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use extol_block::OpenOptions;
use extol_block::open::{Backing, OpenFailed, OpenName, Window, open};

const SIZE: usize = 1 << 20;
const CLUSTER: usize = 1 << 16;
/// A user that is not root.
const OTHER: u32 = 65_534;

/// An empty qcow2 image over the file of this name.
fn overlay(path: &Path, below: &str) {
    let mut image = vec![0; 3 * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| image[at..][..bytes.len()].copy_from_slice(bytes);
    put(0, b"QFI\xfb");
    put(4, &2_u32.to_be_bytes());
    put(8, &512_u64.to_be_bytes());
    put(16, &u32::try_from(below.len()).unwrap().to_be_bytes());
    put(20, &16_u32.to_be_bytes());
    put(24, &(SIZE as u64).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &(CLUSTER as u64).to_be_bytes());
    put(48, &(2 * CLUSTER as u64).to_be_bytes());
    put(56, &1_u32.to_be_bytes());
    put(512, below.as_bytes());
    fs::write(path, image).unwrap();
}

/// The first byte of what an image shows.
fn first_of(image: &Path, backing: Backing) -> Result<u8, OpenFailed> {
    let mut name = OpenName::parse(image, Window::default())?;
    name.backing = backing;
    let opened = open(&name, &OpenOptions::read_only())?;
    let mut first = [0];
    opened.device.read_at(&mut first, 0).unwrap();
    Ok(first[0])
}

fn auto(image: &Path) -> Result<u8, String> {
    first_of(image, Backing::Auto).map_err(|error| error.to_string())
}

/// A directory with an image over `base`, which holds ones.
fn scratch(base: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("over.qcow2");
    overlay(&image, base);
    fs::write(dir.path().join("base"), vec![1; SIZE]).unwrap();
    (dir, image)
}

#[test]
fn a_file_beside_the_image_is_opened() {
    let (dir, image) = scratch("base");
    let at = |name: &str| dir.path().join(name);
    assert_eq!(auto(&image), Ok(1));
    fs::create_dir(at("sub")).unwrap();
    symlink(".", at("here")).unwrap();
    let absolute = at("base");
    for name in ["./base", "sub/../base", "here/base", "file:base", absolute.to_str().unwrap()] {
        overlay(&image, name);
        assert_eq!(auto(&image), Ok(1), "{name}");
    }
    // The directory is that of the image, and not that of a link to it.
    overlay(&image, "base");
    symlink("../over.qcow2", at("sub/link.qcow2")).unwrap();
    fs::write(at("sub/base"), vec![2; SIZE]).unwrap();
    assert_eq!(auto(&at("sub/link.qcow2")), Ok(1));
}

#[test]
fn other_files_are_refused() {
    let (dir, image) = scratch("base");
    let at = |name: &str| dir.path().join(name);
    fs::create_dir(at("sub")).unwrap();
    fs::write(at("sub/base"), vec![2; SIZE]).unwrap();
    symlink("base", at("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        at("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    for (name, why) in [
        ("sub/base", "not in the directory of the image"),
        ("link", "not a regular file"),
        ("sub", "not a regular file"),
        ("pipe", "not a regular file"),
        ("/proc/self/exe", "not in the directory of the image"),
        ("none", "No such file"),
        ("over.qcow2", "lies over it in turn"),
    ] {
        overlay(&image, name);
        let refused = auto(&image).unwrap_err();
        assert!(refused.contains(why), "{name}: {refused}");
    }
    overlay(&image, "sub/base");
    assert_eq!(first_of(&image, Backing::Path(at("sub/base"))).unwrap(), 2);
    overlay(&image, "base");
    assert!(first_of(&image, Backing::None).is_err());
    if fs::metadata(dir.path()).unwrap().uid() != 0 {
        println!("SKIP: other owners need root");
        return;
    }
    chown(&image, Some(OTHER), None).unwrap();
    let refused = auto(&image).unwrap_err();
    assert!(refused.contains("another owner"), "{refused}");
    chown(at("base"), Some(OTHER), None).unwrap();
    assert_eq!(auto(&image), Ok(1));
}

/// The owner of an image changes the file below it and its directory while it is opened: never is
/// a file of another owner read.
#[test]
fn a_file_that_is_swapped_in_is_not_read() {
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: other owners need root");
        return;
    }
    let (dir, image) = scratch("base");
    let at = |name: &str| dir.path().join(name);
    let secret = tempfile::tempdir().unwrap();
    fs::write(secret.path().join("base"), vec![9; SIZE]).unwrap();
    chown(&image, Some(OTHER), None).unwrap();
    chown(at("base"), Some(OTHER), None).unwrap();
    symlink(secret.path().join("base"), at("other")).unwrap();
    let stop = AtomicBool::new(false);
    let (mut read, mut refused, mut foreign) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let dir = File::open(dir.path()).unwrap();
            while !stop.load(Ordering::Relaxed) {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                rustix::fs::renameat_with(&dir, "base", &dir, "other", exchange).unwrap();
            }
        });
        while (read < 2000 || refused < 2000) && read + refused + foreign < 20_000 {
            match auto(&image) {
                Ok(1) => read += 1,
                Ok(_) => foreign += 1,
                Err(_) => refused += 1,
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(foreign, 0, "a file of another owner was read ({read} of its own)");
    assert!(read > 0, "{refused} refused");
}
