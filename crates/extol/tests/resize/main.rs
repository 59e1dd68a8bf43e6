//! Volumes grow, and are tuned: against e2fsck, resize2fs, tune2fs and the check of this project,
//! on many layouts.

mod claims;
mod clusters;
mod clusters_smaller;
mod clusters_tuned;
#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;
mod copies;
mod crash;
mod journal;
mod large_moves;
mod lent;
mod matrix;
mod minimum;
mod odd;
mod partly;
mod quotas;
mod refused;
mod tune;
mod tune_external;
mod tune_journal;
mod tune_quotas;
mod values;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use extol::resize::{Resized, Target};
use extol::vfs::FileSystem;
use extol::{Ext4, MountOptions};
use extol_block::MemDevice;
use extol_devices::RecordingDevice;
use tempfile::TempDir;

/// A volume made by mke2fs in a sparse file.
struct Image {
    _dir: TempDir,
    path: PathBuf,
}

fn run(program: &str, args: &[&str], path: &Path) -> (i32, String) {
    let mut command = Command::new(program);
    let (options, size) = match args.split_last() {
        Some((last, rest)) if last.starts_with('=') => (rest, Some(&last[1..])),
        _ => (args, None),
    };
    let out = command.args(options).arg(path).args(size).output().unwrap();
    let text = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    (out.status.code().unwrap_or(-1), text.concat())
}

impl Image {
    fn new(size: &str, args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let size = format!("={size}");
        let args: Vec<&str> = [&["-q", "-F"], args, &[&size]].concat();
        let (code, text) = run("mke2fs", &args, &path);
        assert_eq!(code, 0, "mke2fs {args:?}: {text}");
        Self { _dir: dir, path }
    }

    fn open(&self) -> Arc<Ext4> {
        let options = MountOptions::default().without_threads();
        Ext4::open_path(&self.path, &options).unwrap()
    }

    /// Opens a copy of it in memory, which remembers what is written.
    fn recorded(&self) -> (Arc<RecordingDevice>, Arc<Ext4>) {
        let base = MemDevice::from_bytes(&std::fs::read(&self.path).unwrap());
        let device = Arc::new(RecordingDevice::new(base));
        let options = MountOptions::default().without_threads();
        let fs = Ext4::open(Arc::clone(&device) as _, &options).unwrap();
        (device, fs)
    }

    /// Opens it, and closes it behind `work`.
    fn with<T>(&self, work: impl FnOnce(&Ext4) -> T) -> T {
        let fs = self.open();
        let result = work(&fs);
        fs.unmount().unwrap();
        result
    }

    /// Grows to so many blocks.
    fn grow(&self, blocks: u64) -> Resized {
        self.with(|fs| fs.grow(Target::Blocks(blocks), &mut |_| true).unwrap())
    }

    #[track_caller]
    fn assert_clean(&self, what: &str) {
        let (code, text) = run("e2fsck", &["-fn"], &self.path);
        assert_eq!(code, 0, "{what}: e2fsck says\n{text}");
    }

    fn dumpe2fs(&self) -> String {
        let (code, text) = run("dumpe2fs", &[], &self.path);
        assert_eq!(code, 0, "{text}");
        text
    }

    /// A number of the superblock, as dumpe2fs shows it.
    fn number(&self, name: &str) -> u64 {
        let text = self.dumpe2fs();
        let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("0");
        line.trim_start_matches(':').trim().split(' ').next().unwrap().parse().unwrap()
    }

    fn blocks(&self) -> u64 {
        self.number("Block count")
    }
}

/// Contents that say which file they belong to.
fn contents(nr: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (nr.wrapping_mul(31) ^ at ^ (at >> 8)) as u8).collect()
}

/// Some files of some sizes, in some directories.
fn fill_some(fs: &Ext4, files: u64) {
    for nr in 0..files {
        let parent =
            if nr % 5 == 0 { common::dir(fs, fs.root(), &format!("dir{nr}")) } else { fs.root() };
        let ino = common::file(fs, parent, &format!("file{nr}"));
        fs.write(ino, 0, &contents(nr, 3000 + 517 * nr as usize)).unwrap();
    }
}

fn assert_some(fs: &Ext4, files: u64, what: &str) {
    for nr in 0..files {
        let parent = if nr % 5 == 0 {
            fs.lookup(fs.root(), format!("dir{nr}").as_bytes()).unwrap().id.ino
        } else {
            fs.root()
        };
        let attr = fs.lookup(parent, format!("file{nr}").as_bytes()).unwrap();
        let mut bytes = vec![0; attr.size as usize];
        assert_eq!(fs.read(attr.id.ino, 0, &mut bytes).unwrap(), bytes.len(), "{what}");
        assert_eq!(bytes, contents(nr, 3000 + 517 * nr as usize), "{what}: file {nr}");
    }
}

/// Writes until the volume is full; how many bytes found room.
fn fill_up(fs: &Ext4) -> u64 {
    let ino = common::file(fs, fs.root(), "big");
    let piece = vec![0xA5; 1 << 20];
    let mut at = 0;
    loop {
        match fs.write(ino, at, &piece) {
            Ok(n) if n > 0 => at += n as u64,
            Ok(_) => break,
            Err(extol::FsError::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
        if at % (16 << 20) == 0 {
            fs.fsync(ino, false).unwrap();
        }
    }
    at
}
