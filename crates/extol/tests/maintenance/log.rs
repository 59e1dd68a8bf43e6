use extol::vfs::VolumeControl as _;
use extol::vfs::{CheckpointFlags, FileSystem, FsError, Shutdown};
use extol_block::MemDevice;

use crate::common::*;

/// The blocks of the volume's journal, as debugfs reads them.
fn journal_of(dev: &MemDevice) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (path, journal) = (dir.path().join("image"), dir.path().join("journal"));
    std::fs::write(&path, dev.to_bytes()).unwrap();
    let dump = format!("dump <8> {}", journal.display());
    let out =
        std::process::Command::new("debugfs").args(["-R", &dump]).arg(&path).output().unwrap();
    std::fs::read(&journal)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&out.stderr)))
}

fn fill(fs: &extol::Ext4, from: u32) {
    for i in from..from + 50 {
        let ino = file(fs, fs.root(), &format!("name-{i}"));
        fs.write(ino, 0, b"contents").unwrap();
    }
    fs.sync().unwrap();
}

/// The log is empty, and with a flag erased to its last block, the fast-commit area included.
#[test]
fn a_checkpoint_erases_the_log() {
    for features in ["^fast_commit", "fast_commit"] {
        let block = if features == "fast_commit" { 1024 } else { 4096 };
        let size = block.to_string();
        let dev = image("64M", &["-t", "ext4", "-b", &size, "-O", features, "-J", "size=8"]);
        let fs = open(&dev, "commit=3600");
        for (round, flags) in
            [CheckpointFlags::empty(), CheckpointFlags::ZERO_OUT, CheckpointFlags::DISCARD]
                .into_iter()
                .enumerate()
        {
            fill(&fs, round as u32 * 50);
            let nonzero = |log: &[u8]| log[block..].iter().filter(|b| **b != 0).count();
            let before = journal_of(&dev);
            assert!(nonzero(&before) > 1000, "the log was used");
            fs.checkpoint(flags | CheckpointFlags::DRY_RUN).unwrap();
            assert_eq!(journal_of(&dev), before, "a dry run changed something");
            fs.checkpoint(flags).unwrap();
            let log = journal_of(&dev);
            assert_eq!(
                u32::from_be_bytes(log[28..32].try_into().unwrap()),
                0,
                "the log is not empty"
            );
            if flags.is_empty() {
                assert!(nonzero(&log) > 1000, "erased without a wish");
            } else {
                assert_eq!(nonzero(&log), 0, "{flags:?}");
            }
        }
        // And it can be used again.
        fill(&fs, 500);
        fs.crash();
        let fs = open(&dev, "");
        fs.lookup(fs.root(), b"name-549").unwrap();
        fs.unmount().unwrap();
        assert_clean(&dev, features);
    }
}

#[test]
fn impossible_checkpoints() {
    let both = CheckpointFlags::DISCARD | CheckpointFlags::ZERO_OUT;
    let (ext4, ext2) = (image("16M", &["-t", "ext4"]), image("16M", &["-t", "ext2"]));
    for (dev, plain) in [(&ext4, Ok(())), (&ext2, Err(FsError::NoJournal))] {
        let fs = open(dev, "");
        assert!(matches!(fs.checkpoint(both), Err(FsError::Invalid(_))));
        assert!(matches!(fs.checkpoint(both | CheckpointFlags::DRY_RUN), Err(FsError::Invalid(_))));
        assert_eq!(fs.checkpoint(CheckpointFlags::empty()), plain);
        assert_eq!(fs.checkpoint(CheckpointFlags::ZERO_OUT), plain);
        fs.unmount().unwrap();
    }
    let fs = open(&ext4, "ro");
    assert_eq!(fs.checkpoint(CheckpointFlags::empty()), Ok(()));
    assert_eq!(fs.checkpoint(CheckpointFlags::ZERO_OUT), Err(FsError::ReadOnly));
    fs.freeze().unwrap();
    fs.thaw().unwrap();
}

/// What each kind of shutdown leaves, and no mark of an error.
#[test]
fn shutdowns() {
    for how in [Shutdown::Sync, Shutdown::FlushLog, Shutdown::Now] {
        let dev = image("32M", &["-t", "ext4", "-J", "size=4"]);
        let fs = open(&dev, "commit=3600");
        let make = |name: &str| {
            let ino = file(&fs, fs.root(), name);
            fs.write(ino, 0, &[7; 5000]).unwrap();
            ino
        };
        fs.fsync(make("synced"), false).unwrap();
        make("left");
        fs.shut_down(how).unwrap();
        fs.shut_down(Shutdown::Sync).unwrap();
        let new = fs.create(
            fs.root(),
            b"new",
            extol::vfs::NewNode::Regular,
            0o644,
            0,
            Default::default(),
        );
        assert!(matches!(new, Err(FsError::ReadOnly | FsError::Io(_))), "{how:?}: {new:?}");
        assert!(
            fs.sync().is_err() || how == Shutdown::Sync,
            "{how:?}: nothing may be promised any more"
        );
        fs.unmount().unwrap();
        drop(fs);
        let fs = open(&dev, "");
        let size = |name: &[u8]| fs.lookup(fs.root(), name).ok().map(|attr| attr.size);
        assert_eq!(size(b"synced"), Some(5000), "{how:?}");
        let left = match how {
            Shutdown::Sync => Some(5000),
            Shutdown::FlushLog => Some(0),
            Shutdown::Now => None,
        };
        assert_eq!(size(b"left"), left, "{how:?}");
        assert!(fs.first_error().is_none());
        fs.unmount().unwrap();
        let bytes = dev.to_bytes();
        assert_eq!(bytes[1024 + 0x3A] & 2, 0, "{how:?}: the volume says that it has errors");
        assert_clean(&dev, &format!("{how:?}"));
    }
}
