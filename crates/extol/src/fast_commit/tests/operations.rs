//! What each operation of the file system gives: records, or the reason for a full commit.

mod deleted;
mod files;
mod inodes;
mod names;

use std::process::Command;
use std::sync::Arc;

use extol_block::MemDevice;
use extol_ondisk::fast_commit::FcRecord;
use extol_vfs::{Creds, FileSystem, NewNode, RenameFlags};

use crate::data::flush;
use crate::fast_commit::Tracker;
use crate::fast_commit::{Collected, Reason, SyncTarget};
use crate::{Ext4, MountOptions};

const BLOCK: usize = 4096;

struct Rig {
    dev: Arc<MemDevice>,
    fs: Arc<Ext4>,
    tracker: Arc<Tracker>,
    root: u32,
}

impl Rig {
    fn new() -> Self {
        Self::with(&[], "")
    }

    fn with(mke2fs: &[&str], options: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        let made = Command::new("mke2fs")
            .args([
                "-q",
                "-F",
                "-t",
                "ext4",
                "-b",
                "4096",
                "-O",
                "^resize_inode,fast_commit",
                "-J",
                "size=8",
            ])
            // Where names go, and so when leaves are divided, is up to the seed of the hash, which
            // would be a random one.
            .args(["-E", "hash_seed=5a3f9c1e-7b24-4d86-a1c0-3e9b72d4f608"])
            .args(mke2fs)
            .arg(&path)
            .arg("32M")
            .status();
        assert!(made.unwrap().success());
        let dev = Arc::new(MemDevice::from_bytes(&std::fs::read(&path).unwrap()));
        let options = MountOptions::parse(options).unwrap().without_threads();
        let fs = Ext4::open(Arc::clone(&dev) as _, &options).unwrap();
        let tracker = Arc::clone(&fs.inner().tracker);
        let root = fs.root();
        let rig = Self { dev, fs, tracker, root };
        rig.commit();
        rig
    }

    /// A new base.
    fn commit(&self) {
        self.fs.sync().unwrap();
    }

    fn make(&self, dir: u32, name: &str, new: NewNode) -> u32 {
        self.fs.create(dir, name.as_bytes(), new, 0o644, 0, Creds::default()).unwrap().id.ino
    }

    fn file(&self, name: &str) -> u32 {
        self.make(self.root, name, NewNode::Regular)
    }

    fn dir(&self, name: &str) -> u32 {
        self.make(self.root, name, NewNode::Directory)
    }

    fn write(&self, ino: u32, at: usize, len: usize) {
        assert_eq!(self.fs.write(ino, at as u64, &vec![7; len]).unwrap(), len);
    }

    fn rename(&self, from: (u32, &str), to: (u32, &str), flags: RenameFlags) {
        self.fs.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), flags).unwrap();
    }

    /// What an fsync collects.
    fn ask_as(&self, ino: u32, data_only: bool) -> Collected {
        let fs = self.fs.inner();
        flush::flush(fs, &mut fs.cell(ino).unwrap().write().unwrap()).unwrap();
        self.tracker.collect(fs.vol.journal.newest(), &[SyncTarget { ino, data_only }])
    }

    fn ask(&self, ino: u32) -> Collected {
        self.ask_as(ino, false)
    }

    /// The kinds of the records that an fsync collects.
    #[track_caller]
    fn records(&self, ino: u32) -> String {
        match self.ask(ino) {
            Collected::Records(records) => kinds(&records),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn refused(&self, ino: u32, reason: Reason) {
        assert_eq!(self.ask(ino), Collected::Full(reason));
        // After the full commit all is well again.
        self.commit();
        assert_eq!(self.ask(ino), Collected::Nothing);
    }
}

fn kinds(records: &[FcRecord]) -> String {
    let kind = |record: &FcRecord| {
        let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        match record {
            FcRecord::AddRange { block, len, unwritten, .. } => {
                format!("{}{block}+{len}", if *unwritten { "ZERO" } else { "ADD" })
            }
            FcRecord::DelRange { block, len, .. } => format!("DEL{block}+{len}"),
            FcRecord::Creat(e) => format!("CREAT:{}", name(&e.name)),
            FcRecord::Link(e) => format!("LINK:{}", name(&e.name)),
            FcRecord::Unlink(e) => format!("UNLINK:{}", name(&e.name)),
            FcRecord::Inode { .. } => "INODE".to_owned(),
        }
    };
    records.iter().map(kind).collect::<Vec<_>>().join(" ")
}
