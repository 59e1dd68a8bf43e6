//! A tree goes into a volume and comes out again as it was.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use super::*;
use crate::args::{self, Command};

fn run(words: &[&OsStr]) -> Result<()> {
    let mut line: Vec<OsString> = vec!["extol".into()];
    line.extend(words.iter().map(|word| (*word).to_owned()));
    match args::parse(&line)? {
        Command::Mkfs(args) => crate::mkfs::run(*args),
        Command::Ls(args) => ls(&args),
        Command::Cat(args) => cat(&args),
        Command::Cp(args) => cp(&args),
        Command::Put(args) => change(&args),
        Command::Rm(args) => change(&args),
        Command::Mkdir(args) => change(&args),
        Command::Mv(args) => change(&args),
        Command::Ln(args) => change(&args),
        Command::Chmod(args) => change(&args),
        Command::Chown(args) => change(&args),
        Command::Touch(args) => change(&args),
        Command::Truncate(args) => change(&args),
        Command::Mknod(args) => change(&args),
        Command::Setxattr(args) => change(&args),
        Command::Getxattr(args) => getxattr(&args),
        other => panic!("{other:?}"),
    }
}

macro_rules! extol {
    ($($word:expr),+ $(,)?) => { run(&[$(OsStr::new(&$word)),+]) };
}

struct Fixture {
    scratch: tempfile::TempDir,
    image: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let image = scratch.path().join("image");
        extol!("mkfs", "-q", image, "64M").unwrap();
        Self { scratch, image }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// Paths on the volume, by the library.
    fn names(&self) -> Vec<String> {
        let volume =
            args::VolumeArgs { source: self.image.clone(), options: Vec::new(), keys: Vec::new() };
        let tree = Tree::open(&volume, false).unwrap();
        let mut names = Vec::new();
        let mut todo = vec![String::new()];
        while let Some(path) = todo.pop() {
            let place = if path.is_empty() { "/" } else { &path };
            let inode = tree.find(OsStr::new(place), false).unwrap();
            if inode.is_dir().unwrap() {
                let (entries, problem) = inode.entries();
                assert_eq!(problem, None);
                for entry in entries {
                    todo.push(format!("{path}/{}", String::from_utf8_lossy(&entry.name)));
                }
            }
            if !path.is_empty() && path != "/lost+found" {
                names.push(path);
            }
        }
        names.sort();
        tree.close(Ok(())).unwrap();
        names
    }
}

/// Everything that should survive, by relative path.
fn describe(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![root.to_path_buf()];
    while let Some(path) = todo.pop() {
        let metadata = path.symlink_metadata().unwrap();
        let mut text =
            format!("{:o} {} {}", metadata.mode(), metadata.uid(), metadata.mtime_nsec());
        if metadata.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if metadata.is_symlink() {
            text += &format!(" -> {}", fs::read_link(&path).unwrap().display());
        } else if metadata.is_file() {
            let sum = fs::read(&path)
                .unwrap()
                .iter()
                .fold(7_u64, |sum, &b| sum.wrapping_mul(31) ^ u64::from(b));
            text += &format!(" {} bytes {sum} links {}", metadata.len(), metadata.nlink());
        }
        let mut value = [0; 100];
        if let Ok(len) = rustix::fs::lgetxattr(&path, "user.note", &mut value[..]) {
            text += &format!(" note {}", String::from_utf8_lossy(&value[..len]));
        }
        all.insert(path.strip_prefix(root).unwrap().to_path_buf(), text);
    }
    all
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("a/b/c")).unwrap();
    fs::write(root.join("a/empty"), "").unwrap();
    fs::write(root.join("a/b/text"), "hello\n".repeat(1000)).unwrap();
    fs::hard_link(root.join("a/b/text"), root.join("again")).unwrap();
    symlink("a/b/text", root.join("link")).unwrap();
    symlink("/a/b", root.join("absolute")).unwrap();
    let sparse = File::create(root.join("sparse")).unwrap();
    sparse.write_all_at(b"middle", 5 << 20).unwrap();
    sparse.set_len(40 << 20).unwrap();
    fs::set_permissions(root.join("a/empty"), fs::Permissions::from_mode(0o1640)).unwrap();
    // Not every temporary directory keeps attributes; then there is none on either side.
    let _ = rustix::fs::setxattr(
        root.join("a/empty"),
        "user.note",
        b"kept",
        rustix::fs::XattrFlags::empty(),
    );
    for n in 0..300 {
        fs::write(root.join(format!("a/b/c/file-{n}")), vec![n as u8; n]).unwrap();
    }
}

#[test]
fn in_and_out_again() {
    let fixture = Fixture::new();
    let tree = fixture.path("tree");
    make_tree(&tree);
    extol!("put", fixture.image, tree, "/copy").unwrap();
    // The root of the tree is `/copy`.
    assert_eq!(fixture.names().len(), describe(&tree).len());
    extol!("cp", "-a", fixture.image, "/copy", fixture.path("back")).unwrap();
    assert_eq!(describe(&fixture.path("back")), describe(&tree));
    assert!(fs::metadata(fixture.path("back/sparse")).unwrap().blocks() < 2048, "the hole is gone");
    // Once more over what is there, and into a directory.
    extol!("put", fixture.image, tree.join("a/b/text"), tree.join("sparse"), "/copy").unwrap();
    extol!("cp", fixture.image, "/copy/text", "/copy/sparse", fixture.path("back")).unwrap();
    assert_eq!(
        fs::read(fixture.path("back/text")).unwrap(),
        fs::read(tree.join("a/b/text")).unwrap()
    );
    check(&fixture.image);
}

/// Files of proc say that they are empty, and are not.
#[test]
fn files_that_do_not_say_their_size() {
    let fixture = Fixture::new();
    let source = "/proc/filesystems";
    assert_eq!(fs::metadata(source).unwrap().len(), 0);
    extol!("put", fixture.image, source, "/list").unwrap();
    extol!("cp", fixture.image, "/list", fixture.path("list")).unwrap();
    assert_eq!(fs::read(fixture.path("list")).unwrap(), fs::read(source).unwrap());
    check(&fixture.image);
}

/// `e2fsck -fn`, where it is installed.
fn check(image: &Path) {
    let Ok(output) = std::process::Command::new("e2fsck").arg("-fn").arg(image).output() else {
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn directories_and_removal() {
    let fixture = Fixture::new();
    extol!("mkdir", "-p", fixture.image, "/x/y/z", "/x/w").unwrap();
    extol!("mkdir", fixture.image, "/x/v/").unwrap();
    assert_eq!(fixture.names(), ["/x", "/x/v", "/x/w", "/x/y", "/x/y/z"]);
    assert_eq!(extol!("mkdir", fixture.image, "/x/v").unwrap_err().code, 32);
    assert_eq!(extol!("mkdir", fixture.image, "/no/way").unwrap_err().code, 32);
    assert_eq!(extol!("rm", fixture.image, "/x").unwrap_err().code, 32);
    assert_eq!(extol!("rm", fixture.image, "/").unwrap_err().code, 1);
    assert_eq!(extol!("rm", fixture.image, "/none").unwrap_err().code, 32);
    extol!("rm", "-f", fixture.image, "/none").unwrap();
    extol!("rm", "-r", fixture.image, "/x/y", "/x/w/").unwrap();
    assert_eq!(fixture.names(), ["/x", "/x/v"]);
    check(&fixture.image);
}

#[test]
fn links_are_followed_as_they_should() {
    let fixture = Fixture::new();
    let tree = fixture.path("tree");
    make_tree(&tree);
    symlink("loop", tree.join("loop")).unwrap();
    extol!(
        "put",
        fixture.image,
        tree.join("a"),
        tree.join("link"),
        tree.join("absolute"),
        tree.join("loop"),
        "/"
    )
    .unwrap();
    extol!("cat", fixture.image, "/absolute/text", "/link").unwrap();
    for path in ["/loop", "/a", "/a/empty/x", "/nothing"] {
        assert_eq!(extol!("cat", fixture.image, path).unwrap_err().code, 32, "{path}");
    }
    extol!("cp", fixture.image, "/link", fixture.path("l")).unwrap();
    assert_eq!(fs::read_link(fixture.path("l")).unwrap().as_os_str().as_bytes(), b"a/b/text");
    extol!("ls", "-lRai", fixture.image).unwrap();
    extol!("ls", "-R", fixture.image, "/a", "/absolute").unwrap();
    assert_eq!(extol!("ls", fixture.image, "/nothing").unwrap_err().code, 32);
}

#[test]
fn what_is_there_is_replaced_and_never_written_through() {
    let fixture = Fixture::new();
    fs::write(fixture.path("file"), "new").unwrap();
    extol!("put", fixture.image, fixture.path("file"), "/file").unwrap();
    fs::write(fixture.path("outside"), "old").unwrap();
    fs::create_dir(fixture.path("out")).unwrap();
    symlink(fixture.path("outside"), fixture.path("out/file")).unwrap();
    extol!("cp", fixture.image, "/file", fixture.path("out")).unwrap();
    assert_eq!(fs::read(fixture.path("outside")).unwrap(), b"old");
    assert_eq!(fs::read(fixture.path("out/file")).unwrap(), b"new");
}

#[test]
fn what_cannot_be_copied_leaves_what_was_there() {
    let fixture = Fixture::new();
    let file = fixture.path("file");
    fs::write(&file, "old").unwrap();
    extol!("put", fixture.image, file, "/file").unwrap();
    fs::create_dir(fixture.path("dir")).unwrap();
    assert_eq!(extol!("put", fixture.image, fixture.path("dir"), "/file").unwrap_err().code, 32);
    File::create(&file).unwrap().write_all_at(&[1; 80 << 20], 0).unwrap();
    assert_eq!(extol!("put", fixture.image, file, "/file").unwrap_err().code, 32);
    assert_eq!(fixture.names(), ["/file"]);
    let out = fixture.path("out");
    fs::create_dir_all(out.join("in")).unwrap();
    extol!("cp", fixture.image, "/file", out.join("file")).unwrap();
    assert_eq!(fs::read(out.join("file")).unwrap(), b"old");
    extol!("mkdir", fixture.image, "/d").unwrap();
    assert_eq!(extol!("cp", fixture.image, "/d", out.join("file")).unwrap_err().code, 32);
    assert_eq!(fs::read_dir(&out).unwrap().count(), 2);
    check(&fixture.image);
}

#[test]
fn hard_links_and_links_replace() {
    let fixture = Fixture::new();
    let tree = fixture.path("tree");
    make_tree(&tree);
    for _ in 0..2 {
        let (a, again, link) = (tree.join("a"), tree.join("again"), tree.join("link"));
        extol!("put", fixture.image, a, again, link, "/").unwrap();
        extol!("cp", "-a", fixture.image, "/a", "/again", "/link", fixture.path("")).unwrap();
    }
    let id = |name| fs::metadata(fixture.path(name)).unwrap().ino();
    assert_eq!(id("again"), id("a/b/text"));
    assert!(fixture.path("link").is_symlink());
    let left = fs::read_dir(fixture.path("")).unwrap().flatten();
    assert!(!left.map(|e| e.file_name()).any(|name| name.as_bytes().starts_with(b".extol")));
    assert!(!fixture.names().iter().any(|name| name.contains(".extol")));
    check(&fixture.image);
}

#[test]
fn attributes_of_security_modules_are_kept() {
    if !extol_testkit::require(&[extol_testkit::Need::Root]) {
        return;
    }
    let fixture = Fixture::new();
    let tree = fixture.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    rustix::fs::setxattr(tree.join("file"), "security.note", b"kept", flags).unwrap();
    extol!("put", fixture.image, tree.join("file"), "/").unwrap();
    let filled = fixture.path("filled");
    extol!("mkfs", "-q", "-d", tree, filled, "20M").unwrap();
    for image in [&fixture.image, &filled] {
        let out = fixture.path("out");
        extol!("cp", "-a", image, "/file", out).unwrap();
        let mut value = [0; 100];
        let len = rustix::fs::getxattr(&out, "security.note", &mut value[..]).unwrap();
        assert_eq!(&value[..len], b"kept");
        fs::remove_file(out).unwrap();
    }
}

#[test]
fn an_image_in_the_directory_that_fills_it() {
    let fixture = Fixture::new();
    let tree = fixture.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "whole").unwrap();
    let image = tree.join("image");
    extol!("mkfs", "-q", "-d", tree, image, "20M").unwrap();
    let fixture = Fixture { image, ..fixture };
    assert_eq!(fixture.names(), ["/file"]);
    check(&fixture.image);
    // Here it is a mistake.
    assert_eq!(extol!("put", fixture.image, tree, "/").unwrap_err().code, 32);
}

#[test]
fn what_fails_leaves_no_image_behind_a_link() {
    let fixture = Fixture::new();
    let tree = fixture.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), vec![1; 24 << 20]).unwrap();
    let (link, target) = (fixture.path("link"), fixture.path("target"));
    symlink("target", &link).unwrap();
    assert!(extol!("mkfs", "-q", "-d", tree, link, "20M").is_err());
    assert!(!target.exists() && link.is_symlink());
    assert!(extol!("mkfs", "-q", "-b", "1000", link, "20M").is_err());
    assert!(!target.exists() && link.is_symlink());
}

#[test]
fn making_is_careful() {
    let fixture = Fixture::new();
    assert_eq!(extol!("mkfs", "-q", fixture.image).unwrap_err().code, 32);
    extol!("mkfs", "-q", "-F", fixture.image).unwrap();
    extol!("mkfs", "-n", fixture.image).unwrap();
    extol!("mkfs", "-n", "-F", fixture.image, "100M").unwrap();
    assert_eq!(fs::metadata(&fixture.image).unwrap().len(), 64 << 20);
    assert_eq!(extol!("mkfs", "-q", fixture.path("new")).unwrap_err().code, 1);
    assert!(extol!("mkfs", "-q", "-b", "1000", fixture.path("new"), "8M").is_err());
    assert!(!fixture.path("new").exists());
    check(&fixture.image);
}
