//! A log that mkfs did not zero: full of transactions of an earlier volume with the same UUID,
//! the same numbers and the same places. None of them may come back.

use std::sync::Arc;

use extol::Ext4;
use extol::device::{BlockDevice as _, MemDevice, SharedDevice};
use extol::mkfs::{JournalDevice, MkfsOptions, mkfs};
use extol::vfs::FileSystem as _;
use extol_testkit::{Image, Scratch, e2fsck_fix};

use crate::rig::*;

/// The volume, and its external journal if it has one.
struct Disks {
    volume: Arc<MemDevice>,
    journal: Option<Arc<MemDevice>>,
}

const LOG: u64 = 4 << 20;

impl Disks {
    fn new(external: bool) -> Self {
        Self { volume: Arc::new(garbage(SIZE)), journal: external.then(|| Arc::new(garbage(LOG))) }
    }

    /// `lazy`: the log's blocks stay as they are.
    fn make(&self, features: &str, lazy: bool) {
        let mut options = MkfsOptions {
            uuid: Some("3b241101-e2bb-4255-8caf-4136c566a962".into()),
            now: Some(1_700_000_000),
            ..lazily(features)
        };
        options.extended.hash_seed = Some([5; 16]);
        options.extended.lazy_journal_init = lazy;
        if let Some(journal) = &self.journal {
            let mut log = MkfsOptions {
                block_size: Some(1024),
                features: vec!["journal_dev".into()],
                uuid: Some("c1b9d5a2-f162-11cf-9ece-0020afc76f16".into()),
                ..MkfsOptions::default()
            };
            log.set_extended("nodiscard").expect("options");
            log.extended.lazy_journal_init = lazy;
            mkfs(&**journal, &log, &mut |_| {}).expect("mkfs");
            options.journal.device =
                Some(JournalDevice { device: Arc::clone(journal) as SharedDevice, rdev: 0 });
        }
        mkfs(&*self.volume, &options, &mut |_| {}).expect("mkfs");
    }

    fn open(&self) -> Arc<Ext4> {
        let mut options = by_hand("noinit_itable,noatime");
        options.journal.device = self.journal.clone().map(|j| j as SharedDevice);
        Ext4::open(Arc::clone(&self.volume) as SharedDevice, &options).expect("mount")
    }

    /// A file per transaction; then the machine stops.
    fn live(&self, name: &str, files: u32) {
        let fs = self.open();
        for f in 0..files {
            file(&fs, fs.root(), &format!("{name}{f}"));
            fs.sync().expect("sync");
        }
        fs.crash();
    }

    /// Names in the root after recovery.
    fn names(&self) -> Vec<String> {
        let fs = self.open();
        let mut names: Vec<String> = fs
            .read_dir("/")
            .expect("root")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .filter(|name| name != "lost+found")
            .collect();
        names.sort();
        fs.unmount().expect("unmount");
        names
    }

    /// Byte offset of the journal's superblock.
    fn journal_superblock(&self) -> u64 {
        let begins = |at: &u64| {
            let mut head = [0; 8];
            self.volume.read_at(&mut head, *at).expect("read");
            head == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]
        };
        (0..SIZE).step_by(1024).find(begins).expect("a journal superblock")
    }
}

fn first_three(name: &str) -> Vec<String> {
    (0..3).map(|f| format!("{name}{f}")).collect()
}

/// The danger is real: with the UUID and the numbers of an ordinary new journal,
/// transactions of the earlier life follow those of the new one.
#[test]
fn without_a_fresh_start_the_old_log_would_come_back() {
    let disks = Disks::new(false);
    disks.make("", false);
    disks.live("old", 40);
    disks.make("", true);
    let at = disks.journal_superblock();
    let mut uuid = [0; 16];
    disks.volume.read_at(&mut uuid, 1024 + 0x68).expect("uuid");
    disks.volume.write_at(&uuid, at + 0x30).expect("uuid");
    disks.volume.write_at(&1u32.to_be_bytes(), at + 0x18).expect("sequence");
    disks.live("new", 3);
    let names = disks.names();
    assert_ne!(names, first_three("new"), "the old transactions were not found");
}

#[test]
fn an_old_log_is_never_replayed() {
    for (features, external) in [
        ("", false),
        ("fast_commit", false),
        ("^metadata_csum,uninit_bg", false),
        ("^metadata_csum,^uninit_bg", false),
        ("", true),
        ("^metadata_csum,uninit_bg", true),
    ] {
        let what = format!("{features:?}, external: {external}");
        let disks = Disks::new(external);
        disks.make(features, false);
        disks.live("old", 40);
        disks.make(features, true);
        disks.live("new", 3);
        if !external {
            // e2fsck's own recovery agrees.
            let scratch = Scratch::new();
            let path = scratch.join("image");
            std::fs::write(&path, disks.volume.to_bytes()).expect("write");
            let image = Image::existing(path);
            e2fsck_fix(&image).assert_only_recovered(&what);
            let bytes = std::fs::read(&image.path).expect("read");
            let by_e2fsck =
                Disks { volume: Arc::new(MemDevice::from_bytes(&bytes)), journal: None };
            assert_eq!(by_e2fsck.names(), first_three("new"), "{what}, after e2fsck");
        }
        assert_eq!(disks.names(), first_three("new"), "{what}");
    }
}

/// Checksums of fast commits do not know the volume, so nothing of their area may stay.
#[test]
fn the_fast_commit_area_is_zeroed() {
    let disks = Disks::new(false);
    // Large groups, so that the journal lies in one piece.
    let mut options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    options.features.push("fast_commit".into());
    options.set_extended("nodiscard,lazy_journal_init=1").expect("options");
    mkfs(&*disks.volume, &options, &mut |_| {}).expect("mkfs");
    let at = disks.journal_superblock();
    let mut sb = [0; 1024];
    disks.volume.read_at(&mut sb, at).expect("read");
    let number =
        |at: usize| u64::from(u32::from_be_bytes(sb[at..at + 4].try_into().expect("four bytes")));
    let (all, fast) = (number(0x10), number(0x54));
    assert!(fast > 1 && fast < all, "{fast} of {all} blocks");
    let mut blocks = vec![0; (all * 1024) as usize];
    disks.volume.read_at(&mut blocks, at).expect("read");
    let (log, area) = blocks.split_at(((all - fast) * 1024) as usize);
    assert!(area.iter().all(|b| *b == 0), "the area");
    assert!(log[1024..].iter().all(|b| *b == GARBAGE), "the log is left alone");
}
