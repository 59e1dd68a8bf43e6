//! A volume with fast commits in memory, power cuts, and the peers that recover what each cut
//! leaves.

use std::path::Path;
use std::sync::Arc;

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, FileSystem as _, MountOptions};
use extol_block::{MemDevice, SharedDevice};
use extol_jbd2::fast::FastCommitStats;
use extol_jbd2::inspect::{BlockReport, FcOutcome, FcTagReport, JournalReport};
use extol_testkit::{Image, KernelMount, Need, Scratch, e2fsck, e2fsck_fix, require, run_ok, tool};

const SIZE: u64 = 16 << 20;
pub const BLOCK: u64 = 1024;

const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("e2fsck"), Need::Tool("debugfs")];

/// An open volume. Without threads: nothing is committed but what the test asks for.
pub struct Rig {
    pub scratch: Scratch,
    device: Arc<MemDevice>,
    pub fs: Arc<Ext4>,
}

impl Rig {
    /// A new volume with `/old` on it, all durable and the log live. `None`: the machine lacks
    /// something.
    pub fn new(options: &str) -> Option<Self> {
        Self::with(options, &[])
    }

    /// The same on a volume with these features, too.
    pub fn with(options: &str, features: &[&str]) -> Option<Self> {
        if !require(&NEEDS) {
            return None;
        }
        let device = Arc::new(MemDevice::new(SIZE));
        let mut how =
            MkfsOptions { features: vec!["fast_commit".into()], ..MkfsOptions::default() };
        how.features.extend(features.iter().map(|one| (*one).into()));
        how.journal.fast_commit_kib = Some(64);
        how.block_size = Some(BLOCK as u32);
        mkfs(&*device, &how, &mut |_| {}).unwrap();
        let mut options = MountOptions::parse(options).unwrap();
        options.background.threads = false;
        let fs = Ext4::open(Arc::clone(&device) as SharedDevice, &options).unwrap();
        let rig = Self { scratch: Scratch::new(), device, fs };
        rig.put("/old", b"old");
        // The first commit behind a mount is a full one.
        rig.fs.sync().unwrap();
        Some(rig)
    }

    /// Writes a file, not durably.
    pub fn put(&self, path: &str, contents: &[u8]) {
        self.fs.write_file(path, contents).unwrap();
    }

    pub fn fsync(&self, path: &str) {
        let file = self.fs.open_file(path, extol::OpenOptions::new().read(true)).unwrap();
        file.sync_all().unwrap();
    }

    pub fn counters(&self) -> FastCommitStats {
        self.fs.stats().journal.fast_commit
    }

    /// What `work` adds: fast commits, and full ones.
    pub fn commits(&self, work: impl FnOnce()) -> (u64, u64) {
        let count = || (self.counters().commits, self.fs.stats().journal.transactions);
        let before = count();
        work();
        let after = count();
        (after.0 - before.0, after.1 - before.1)
    }

    /// What a power cut leaves now.
    pub fn cut(&self) -> Cut<'_> {
        let image = Image::sparse(self.scratch.path().join("cut.img"), SIZE);
        image.write_at(0, &self.device.to_bytes());
        Cut { scratch: &self.scratch, image }
    }
}

/// A volume as the power cut left it.
pub struct Cut<'a> {
    scratch: &'a Scratch,
    pub image: Image,
}

impl Cut<'_> {
    pub fn report(&self) -> JournalReport {
        let bytes = self.image.read_at(0, SIZE as usize);
        let device: SharedDevice = Arc::new(MemDevice::from_bytes(&bytes));
        extol::inspect_journal(&device, &MountOptions::default()).unwrap()
    }

    /// The records of each fast commit that counts, by the names of their tags.
    pub fn valid(&self) -> Vec<Vec<FcTagReport>> {
        let report = self.report();
        let tags_of = |first: u32, blocks: u32| {
            let blocks = report.blocks.iter().filter_map(move |block| match block {
                BlockReport::FastCommit { block, tags, .. } => {
                    (first..first + blocks).contains(block).then_some(tags)
                }
                _ => None,
            });
            blocks.flatten().cloned().collect()
        };
        let valid = report.fast_commits.iter().filter(|commit| commit.outcome == FcOutcome::Valid);
        valid.map(|commit| tags_of(commit.block, commit.blocks)).collect()
    }

    /// Bytes of a journal block on the image.
    pub fn offset_of(&self, journal_block: u32) -> u64 {
        // (-c: of a volume that is not recovered it shall not look at the bitmaps. It greets, too.)
        let request = format!("bmap <8> {journal_block}");
        let text = run_ok(tool("debugfs").args(["-c", "-R", &request]).arg(&self.image.path));
        let block = text.lines().find_map(|line| line.trim().parse::<u64>().ok());
        let block = block.unwrap_or_else(|| panic!("{text}"));
        block * BLOCK
    }

    /// Three peers recover a copy each: Linux mounts it, Extol opens it, e2fsck replays its log.
    /// After each, e2fsck must call the volume clean, and `look` sees it through a mount by Linux.
    #[track_caller]
    pub fn assert_recovered(self, what: &str, look: impl Fn(&Path)) {
        let dir = self.scratch.dir("mnt");
        for peer in ["Linux", "Extol", "e2fsck"] {
            let what = format!("{what}: {peer}");
            let copy = self.image.copy_as("copy.img");
            match peer {
                "Linux" => {}
                "e2fsck" => {
                    let done =
                        run_ok(tool("e2fsck").args(["-y", "-E", "journal_only"]).arg(&copy.path));
                    assert!(
                        !done.contains("while recovering") && !done.contains("rror"),
                        "{what}: {done}"
                    );
                }
                _ => {
                    let fs = Ext4::open_path(&copy.path, &MountOptions::default())
                        .unwrap_or_else(|e| panic!("{what}: {e}"));
                    fs.unmount().unwrap();
                }
            }
            match peer {
                // Counts of the superblock are out of date behind every crash.
                "e2fsck" => e2fsck_fix(&copy).assert_only_recovered(&what),
                "Extol" => e2fsck(&copy).assert_clean(&what),
                _ => {}
            }
            let mount =
                KernelMount::try_mount(&copy, &dir, &[]).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert_eq!(std::fs::read(dir.join("old")).ok().as_deref(), Some(&b"old"[..]), "{what}");
            look(&dir);
            mount.unmount();
            if peer == "Linux" {
                e2fsck(&copy).assert_clean(&what);
            }
            copy.remove();
        }
        self.image.remove();
    }
}

/// A file's contents must be these.
#[track_caller]
pub fn holds(dir: &Path, name: &str, contents: &[u8]) {
    let found = std::fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert!(found == contents, "{name}: {} bytes, not {} as written", found.len(), contents.len());
}

#[track_caller]
pub fn lacks(dir: &Path, name: &str) {
    assert!(dir.join(name).symlink_metadata().is_err(), "{name} is there");
}

/// The names of tags, in order.
pub fn names(tags: &[FcTagReport]) -> Vec<&'static str> {
    let name = |tag: &FcTagReport| match tag {
        FcTagReport::Head { .. } => "head",
        FcTagReport::AddRange { .. } => "add",
        FcTagReport::DelRange { .. } => "del",
        FcTagReport::Creat { .. } => "creat",
        FcTagReport::Link { .. } => "link",
        FcTagReport::Unlink { .. } => "unlink",
        FcTagReport::Inode { .. } => "inode",
        FcTagReport::Pad => "pad",
        FcTagReport::DataChecksums { .. } => "checksum",
        FcTagReport::Tail { .. } => "tail",
    };
    tags.iter().map(name).collect()
}
