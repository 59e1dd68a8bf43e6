//! The cases: what a program can see of a file system, by subject matter.

use extol_testkit::{Image, KernelMount, Scratch, debugfs, dump_super, run_ok, tool};
use rustix::fs::{FileType, OFlags, RenameFlags, SeekFrom, XattrFlags};

use crate::posix::{Caller, Fd, Posix, Stat, Time};
use crate::{Transcript, Volume};

mod attributes;
mod crash;
mod data;
mod directories;
mod files;
mod links;
mod names;
mod paths;
mod permissions;
mod rename;
mod space;
mod times;

/// How a case runs.
#[derive(Clone, Copy)]
pub enum Run {
    /// In a directory of its own.
    Plain(fn(&dyn Posix, &mut Transcript)),
    /// In the root, because it remounts.
    Remounting(fn(&dyn Posix, &mut Transcript)),
}

/// A case.
#[derive(Clone, Copy)]
pub struct Case {
    /// Name.
    pub name: &'static str,
    /// Names of the kinds of volumes that it runs on.
    pub volumes: &'static [&'static str],
    /// What it does.
    pub run: Run,
}

const fn case(
    name: &'static str,
    volumes: &'static [&'static str],
    run: fn(&dyn Posix, &mut Transcript),
) -> Case {
    Case { name, volumes, run: Run::Plain(run) }
}

/// All cases.
pub fn all() -> impl Iterator<Item = &'static Case> {
    [
        attributes::CASES,
        crash::CASES,
        data::CASES,
        directories::CASES,
        files::CASES,
        links::CASES,
        names::CASES,
        paths::CASES,
        permissions::CASES,
        rename::CASES,
        space::CASES,
        times::CASES,
    ]
    .into_iter()
    .flatten()
}

const EXT4: &[&str] = &["ext4"];
const EXT4_1K: &[&str] = &["ext4", "1k", "bigalloc"];
const LAYOUTS: &[&str] = &["ext4", "1k", "bigalloc", "inline", "ext3", "ext2"];

const LIKE_LINUX: Volume =
    Volume { name: "", mke2fs: &[], prepare: None, linux: None, like: None, is_encrypted: false };

/// Kinds of volumes.
pub const VOLUMES: &[Volume] = &[
    Volume { name: "ext4", mke2fs: &["-t", "ext4", "-b", "4096"], ..LIKE_LINUX },
    Volume { name: "1k", mke2fs: &["-t", "ext4", "-b", "1024"], ..LIKE_LINUX },
    Volume {
        name: "bigalloc",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"],
        ..LIKE_LINUX
    },
    Volume {
        name: "inline",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "inline_data"],
        ..LIKE_LINUX
    },
    Volume { name: "ext3", mke2fs: &["-t", "ext3", "-b", "1024"], ..LIKE_LINUX },
    Volume { name: "ext2", mke2fs: &["-t", "ext2", "-b", "4096"], ..LIKE_LINUX },
    Volume { name: "small", mke2fs: &["-t", "ext4", "-I", "128", "-b", "1024"], ..LIKE_LINUX },
    Volume {
        name: "values",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "ea_inode"],
        ..LIKE_LINUX
    },
    Volume {
        name: "plain",
        mke2fs: &["-t", "ext4", "-O", "^flex_bg,^metadata_csum", "-m", "10"],
        ..LIKE_LINUX
    },
    Volume {
        name: "meta_bg",
        mke2fs: &["-t", "ext4", "-O", "meta_bg,^resize_inode"],
        ..LIKE_LINUX
    },
    Volume {
        name: "sparse2",
        mke2fs: &["-t", "ext4", "-O", "sparse_super2", "-E", "num_backup_sb=1"],
        ..LIKE_LINUX
    },
    Volume { name: "links", mke2fs: &["-t", "ext4"], prepare: Some(many_links), ..LIKE_LINUX },
    Volume {
        name: "dirs",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "dir_nlink"],
        prepare: Some(many_dirs),
        ..LIKE_LINUX
    },
    Volume {
        name: "dirs-",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "^dir_nlink"],
        prepare: Some(many_dirs),
        ..LIKE_LINUX
    },
    // What this kernel may not be built with changes nothing for ordinary files: Linux has the same
    // volume without it.
    Volume {
        name: "casefold",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "casefold"],
        linux: Some(&["-t", "ext4", "-b", "1024"]),
        like: Some("1k"),
        ..LIKE_LINUX
    },
    Volume {
        name: "quota",
        mke2fs: &["-t", "ext4", "-b", "1024", "-O", "quota,project,bigalloc", "-C", "4096"],
        linux: Some(&["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096"]),
        like: Some("bigalloc"),
        ..LIKE_LINUX
    },
    Volume {
        name: "verity",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "verity"],
        like: Some("ext4"),
        ..LIKE_LINUX
    },
    Volume {
        name: "encrypt",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "encrypt,stable_inodes"],
        like: Some("ext4"),
        ..LIKE_LINUX
    },
    Volume {
        name: "encrypted",
        mke2fs: &["-t", "ext4", "-b", "4096", "-O", "encrypt"],
        like: Some("ext4"),
        is_encrypted: true,
        ..LIKE_LINUX
    },
    Volume {
        name: "revision 0",
        mke2fs: &["-r", "0", "-b", "4096"],
        like: Some("ext2"),
        ..LIKE_LINUX
    },
    Volume {
        name: "orphans without log",
        mke2fs: &["-t", "ext4", "-O", "orphan_file", "-b", "4096"],
        prepare: Some(without_log),
        like: Some("bigalloc"),
        ..LIKE_LINUX
    },
];

/// The orphan file stays, and is not used any more.
fn without_log(image: &Image) {
    run_ok(tool("tune2fs").args(["-O", "^has_journal"]).arg(&image.path));
    assert!(dump_super(image).contains("orphan_file"), "tune2fs must have left it");
}

/// 65000 names would take long to make; debugfs sets the count instead.
fn many_links(image: &Image) {
    for request in ["write /dev/null file", "sif file links_count 64998"] {
        run_ok(tool("debugfs").args(["-w", "-R", request]).arg(&image.path));
    }
    assert!(
        debugfs(image, "stat file").contains("Links: 64998"),
        "debugfs must have set the count"
    );
}

/// Linux fills a directory until it is indexed; then its count is set just below the limit.
fn many_dirs(image: &Image) {
    let scratch = Scratch::new();
    let mount = KernelMount::mount(image, &scratch.dir("prepare"), &[]);
    for n in 0..40 {
        std::fs::create_dir_all(mount.path().join(format!("dir/{n:0200}"))).expect("mkdir");
    }
    mount.unmount();
    run_ok(tool("debugfs").args(["-w", "-R", "sif dir links_count 64998"]).arg(&image.path));
}

/// Kind, links and size of a name, or its absence.
fn look(t: &mut Transcript, fs: &dyn Posix, path: &str) {
    let shown = |s: Stat| (s.kind, s.nlink, if s.kind == FileType::Directory { 0 } else { s.size });
    t.note(path, fs.lstat(path).map(shown));
}

fn look_all(t: &mut Transcript, fs: &dyn Posix, dir: &str) {
    let names = fs.names(dir).expect("readdir");
    t.value("names", &names);
    for name in names {
        look(t, fs, &format!("{dir}/{name}"));
    }
}

/// Mode and owner.
fn owner(t: &mut Transcript, fs: &dyn Posix, path: &str) {
    t.note(path, fs.lstat(path).map(|s| (format!("{:?} {:o}", s.kind, s.mode), s.uid, s.gid)));
}

/// Size and where bytes of which value begin.
fn runs(t: &mut Transcript, fs: &dyn Posix, fd: Fd) {
    let size = fs.fstat(fd).expect("stat").size;
    let bytes = fs.pread(fd, 0, size as usize).expect("read");
    let starts = (0..bytes.len()).filter(|n| *n == 0 || bytes[n - 1] != bytes[*n]);
    let runs: Vec<(usize, u8)> = starts.map(|n| (n, bytes[n])).collect();
    t.value("size, runs", (size, bytes.len(), runs));
}

/// The alternation of data and holes.
fn segments(t: &mut Transcript, fs: &dyn Posix, fd: Fd) {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(data) = fs.lseek(fd, SeekFrom::Data(at)) {
        let hole = fs.lseek(fd, SeekFrom::Hole(data)).expect("a hole behind data");
        found.push((data, hole));
        at = hole;
    }
    t.value("segments", found);
}

fn chmod(fs: &dyn Posix, path: &str, mode: u32) {
    fs.chmod(path, mode).unwrap_or_else(|e| panic!("chmod {path}: {e}"));
}

fn chown(fs: &dyn Posix, path: &str, uid: u32, gid: u32) {
    fs.chown(path, Some(uid), Some(gid)).unwrap_or_else(|e| panic!("chown {path}: {e}"));
}

fn put(fs: &dyn Posix, path: &str, bytes: &[u8]) {
    fs.put(path, bytes).unwrap_or_else(|e| panic!("write {path}: {e}"));
}

fn mkdir(fs: &dyn Posix, path: &str) {
    fs.mkdirs(path).unwrap_or_else(|e| panic!("mkdir {path}: {e}"));
}

/// Calls by an ordinary user.
fn by(fs: &dyn Posix, uid: u32, gid: u32, work: impl FnMut(&dyn Posix) + Send) {
    let mut work = work;
    fs.as_user(&Caller::user(uid, gid), &mut work);
}

/// The flag of files mapped by extents: it must be handed back as it was read.
fn keep(fs: &dyn Posix, path: &str) -> u32 {
    fs.get_flags(path).unwrap_or(0) & 0x1008_0000
}

const PLAIN: RenameFlags = RenameFlags::empty();
const ANY: XattrFlags = XattrFlags::empty();
const RW: OFlags = OFlags::RDWR;
const SECOND: fn(i64) -> Time = |s| Time::At(s, 0);
