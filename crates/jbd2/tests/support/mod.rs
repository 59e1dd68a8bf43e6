//! Finding journals in images, and comparing images.

use std::path::Path;
use std::time::Duration;

use extol_block::{BlockSize, FileDevice, OpenOptions};
use extol_jbd2::format::JournalSuperblock;
use extol_jbd2::recovery::{Recovered, read_superblock, recover_to_device};
use extol_jbd2::{LogMap, Result};
use extol_testkit::{Image, Need, debugfs, dump_super, run, tool};

/// What the tests with e2fsprogs need.
pub const E2FSPROGS: [Need; 4] =
    [Need::Tool("mke2fs"), Need::Tool("e2fsck"), Need::Tool("debugfs"), Need::Tool("dumpe2fs")];

/// A volume in image files and where its journal is.
pub struct Volume {
    pub fs: FileDevice,
    pub journal: Option<FileDevice>,
    pub map: LogMap,
    pub fs_blocks: u64,
}

impl Volume {
    pub fn open(image: &Image) -> Self {
        let summary = dump_super(image);
        let field = |name: &str| -> u64 {
            let line = summary.lines().find(|l| l.starts_with(name)).expect(name);
            line[name.len()..].trim().parse().expect(name)
        };
        let bs = BlockSize::new(field("Block size:") as u32).unwrap();
        let open = |path: &Path| FileDevice::open(path, &OpenOptions::read_write()).unwrap();
        let journal = image.journal.as_deref().map(open);
        let map = match &image.journal {
            Some(path) => {
                let bytes = std::fs::metadata(path).unwrap().len();
                LogMap::identity(bs, (bytes / u64::from(bs.bytes())) as u32)
            }
            None => LogMap::from_extents(bs, journal_extents(&debugfs(image, "stat <8>"))).unwrap(),
        };
        Self { fs: open(&image.path), journal, map, fs_blocks: field("Block count:") }
    }

    pub fn log(&self) -> &FileDevice {
        self.journal.as_ref().unwrap_or(&self.fs)
    }

    pub fn superblock(&self) -> JournalSuperblock {
        read_superblock(self.log(), &self.map).unwrap()
    }

    pub fn recover(&self) -> Result<Recovered> {
        let mut sb = self.superblock();
        recover_to_device(self.log(), &self.fs, &self.map, &mut sb, self.fs_blocks)
    }
}

/// `(0-11):786-797, (IND):798, (12):799` as debugfs prints it.
fn journal_extents(stat: &str) -> Vec<(u32, u64, u32)> {
    let range = |s: &str| -> Option<(u64, u64)> {
        let (a, b) = s.split_once('-').unwrap_or((s, s));
        Some((a.parse().ok()?, b.parse().ok()?))
    };
    let list =
        stat.split_once("BLOCKS:").or_else(|| stat.split_once("EXTENTS:")).expect("a block list").1;
    let mut extents: Vec<(u32, u64, u32)> = list
        .split([',', '\n'])
        .filter_map(|piece| {
            let (logical, physical) = piece.trim().strip_prefix('(')?.split_once("):")?;
            let (first, last) = range(logical)?;
            let (start, _) = range(physical)?;
            Some((first as u32, start, (last - first + 1) as u32))
        })
        .collect();
    extents.sort_unstable();
    assert!(!extents.is_empty(), "no journal in {stat}");
    extents
}

/// Lets e2fsck replay the journal and do nothing else. Gives what it printed.
pub fn e2fsck_journal_only(image: &Image) -> String {
    let mut command = tool("e2fsck");
    // Without -f, which would make it check everything.
    command.args(["-y", "-E", "journal_only"]);
    if let Some(journal) = &image.journal {
        command.arg("-j").arg(journal);
    }
    let done = run(command.arg(&image.path), Duration::from_secs(120));
    assert!(matches!(done.code, Some(0 | 1)), "e2fsck ended with {:?}: {}", done.code, done.output);
    done.output
}

/// Fails unless two images have the same bytes apart from the superblock of the file system and log
/// block 0.
pub fn assert_same_bytes(ours: &Image, theirs: &Image, map: &LogMap, what: &str) {
    let (a, b) = (std::fs::read(&ours.path).unwrap(), std::fs::read(&theirs.path).unwrap());
    assert_eq!(a.len(), b.len());
    let bs = map.block_size().len();
    let skip = if map.is_internal() { map.superblock_offset() } else { None };
    let mut different = Vec::new();
    for (nr, (x, y)) in a.chunks(bs).zip(b.chunks(bs)).enumerate() {
        let at = nr * bs;
        if x == y || Some(at as u64) == skip {
            continue;
        }
        let differs_outside =
            (0..x.len()).any(|i| x[i] != y[i] && !(1024..2048).contains(&(at + i)));
        if differs_outside {
            different.push(nr);
        }
    }
    assert!(different.is_empty(), "{what}: blocks {different:?} differ");
}
