//! Crafted areas on volumes made here: contents that no load makes, and hostile ones.

use std::sync::Arc;

use extol::vfs::FileSystem as _;
use extol::{Ext4, MountOptions, inspect_journal};
use extol_block::{BlockDevice as _, BlockNr, BlockSize, MemDevice, SharedDevice};
use extol_devices::{Event, RecordingDevice};
use extol_jbd2::Tid;
use extol_ondisk::fast_commit::{FcEntry, FcRecord, FcRecords, FcWriter};
use extol_ondisk::inode::{FileType, Inode, InodeFlags};
use extol_ondisk::{Geometry, Superblock};

use crate::common::{assert_clean, file, image, open};

const BS: usize = 1024;
const ROOT: u32 = 2;

/// A volume after a crash, without fast commits yet.
struct Base {
    image: MemDevice,
    a: u32,
    b: u32,
    /// Blocks of `a`, and as many free ones.
    of_a: u64,
    free: u64,
}

fn contents(seed: u8) -> Vec<u8> {
    (0..8 * BS).map(|i| (i / BS) as u8 ^ seed).collect()
}

fn base() -> Base {
    let dev = image(
        "12M",
        &["-t", "ext4", "-b", "1024", "-I", "256", "-O", "fast_commit", "-E", "lazy_itable_init=0"],
    );
    let fs = open(&dev, "");
    let (a, b) = (file(&fs, ROOT, "a"), file(&fs, ROOT, "b"));
    let spare = file(&fs, ROOT, "spare");
    for (ino, seed) in [(a, 1), (spare, 9), (b, 2)] {
        fs.write(ino, 0, &contents(seed)).unwrap();
        fs.fsync(ino, false).unwrap();
    }
    let place = |ino| fs.fiemap(ino, 0, 1 << 20).unwrap()[0].physical / BS as u64;
    let (of_a, free) = (place(a), place(spare));
    fs.setattr(spare, &extol::vfs::SetAttr { size: Some(0), ..Default::default() }).unwrap();
    fs.sync().unwrap();
    let image = dev.snapshot();
    Base { image, a, b, of_a, free }
}

impl Base {
    fn geo(&self) -> Geometry {
        let mut bytes = [0; 1024];
        self.image.read_at(&mut bytes, 1024).unwrap();
        Geometry::new(&Superblock::decode(&bytes).unwrap(), None).unwrap()
    }

    /// The image of a file as an INODE record has it.
    fn inode(&self, ino: u32, size: usize, links: u16) -> FcRecord {
        let geo = self.geo();
        let mut raw = Inode::new_empty(&geo);
        raw.mode = FileType::Regular.mode_bits() | 0o644;
        raw.flags = InodeFlags::EXTENTS;
        (raw.size, raw.links) = (size as u64, links);
        if (self.a..=self.b).contains(&ino) {
            raw.generation = self.generation(ino);
        }
        let mut bytes = vec![0; usize::from(geo.inode_size)];
        raw.encode_into(&mut bytes, extol_ondisk::InodeNr(ino), &geo);
        bytes.truncate(128 + usize::from(raw.extra_isize));
        FcRecord::Inode { ino, image: bytes.into() }
    }

    fn generation(&self, ino: u32) -> u32 {
        let fs = open_ro(&self.image);
        fs.getattr(ino).unwrap().id.generation
    }

    /// The volume with a fast commit of these records.
    fn with(&self, records: &[FcRecord]) -> MemDevice {
        let image = self.image.snapshot();
        let device: SharedDevice = Arc::new(image.snapshot());
        let report = inspect_journal(&device, &MountOptions::default()).unwrap();
        assert!(report.recovery.needed && report.recovery.refused.is_none());
        let (first, _) = report.superblock.fast_commit.expect("an area");
        // The journal of a small volume lies in one piece.
        let start = (0..image.size() / BS as u64).find(|nr| {
            let mut head = [0; 8];
            image.read_at(&mut head, nr * BS as u64).unwrap();
            head == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 4]
        });
        let tid = Tid(report.recovery.end_tid);
        let chain = FcWriter::chain(
            BlockSize::new(BS as u32).unwrap(),
            tid.0,
            true,
            &FcRecords::encode(records).unwrap(),
            &[],
        )
        .unwrap();
        let at =
            BlockNr(start.unwrap() + u64::from(first)).offset(BlockSize::new(BS as u32).unwrap());
        image.write_at(&chain.bytes, at).unwrap();
        image
    }
}

fn open_ro(image: &MemDevice) -> Arc<Ext4> {
    Ext4::open(Arc::new(image.snapshot()), &MountOptions::parse("ro").unwrap()).unwrap()
}

fn name(parent: u32, ino: u32, name: &str) -> FcEntry {
    FcEntry { parent, ino, name: name.as_bytes().into() }
}

fn add(ino: u32, block: u32, len: u32, start: u64) -> FcRecord {
    FcRecord::AddRange { ino, block, len, start, unwritten: false }
}

/// Recovers, in memory and on the device, which must be sound then.
fn recovered(image: &MemDevice, what: &str) -> (Arc<Ext4>, MemDevice) {
    let before = image.to_bytes();
    let view = open_ro(image);
    assert!(image.to_bytes() == before);
    let dev = Arc::new(image.snapshot());
    open(&dev, "").unmount().unwrap();
    assert_clean(&dev, what);
    (view, dev.snapshot())
}

fn read(fs: &Arc<Ext4>, path: &str) -> Vec<u8> {
    fs.read_file(path).unwrap()
}

/// The blocks of one file go to another, in any order of records.
#[test]
fn blocks_move_between_files() {
    let base = base();
    let take = [add(base.b, 8, 8, base.of_a), base.inode(base.b, 16 * BS, 1)];
    let give = [FcRecord::DelRange { ino: base.a, block: 0, len: 8 }, base.inode(base.a, 0, 1)];
    for (records, what) in [
        ([take.clone(), give.clone()].concat(), "taken first"),
        ([give, take].concat(), "given first"),
    ] {
        let (view, dev) = recovered(&base.with(&records), what);
        for fs in [view, open_ro(&dev)] {
            assert_eq!(read(&fs, "/b"), [contents(2), contents(1)].concat(), "{what}");
            assert_eq!(read(&fs, "/a"), b"", "{what}");
        }
    }
}

/// A directory grows while the block behind its last one belongs to a record that comes later.
#[test]
fn a_directory_takes_no_block_of_a_record() {
    let base = base();
    let new = base.b + 10;
    let names = (0..12u32).flat_map(|i| {
        let long = format!("{i}-{}", "n".repeat(200));
        [base.inode(new + i, 0, 1), FcRecord::Creat(name(ROOT, new + i, &long))]
    });
    let names: Vec<FcRecord> = names.collect();
    let root_blocks = |dev: &MemDevice| {
        let fs = open_ro(dev);
        let extents = fs.fiemap(ROOT, 0, 1 << 20).unwrap();
        extents
            .iter()
            .flat_map(|e| (0..e.len).step_by(BS).map(|at| (e.physical + at) / BS as u64))
            .collect::<Vec<_>>()
    };
    let (_, alone) = recovered(&base.with(&names), "names alone");
    let before = root_blocks(&base.image);
    let grown = root_blocks(&alone);
    let fresh: Vec<u64> = grown.iter().copied().filter(|nr| !before.contains(nr)).collect();
    assert!(!fresh.is_empty());
    let ranges = fresh.iter().zip(8..).map(|(nr, block)| add(base.b, block, 1, *nr));
    let mut records = names.clone();
    records.extend(ranges);
    records.push(base.inode(base.b, (8 + fresh.len()) * BS, 1));
    let (_, dev) = recovered(&base.with(&records), "names and the blocks they would get");
    let now = root_blocks(&dev);
    assert!(
        now.len() == grown.len() && fresh.iter().all(|nr| !now.contains(nr)),
        "{now:?} and {fresh:?}"
    );
}

/// What Linux writes and cannot replay: a name in front of its inode, a directory, an inode without
/// a name.
#[test]
fn names_that_need_care() {
    let base = base();
    let (new, dir) = (base.b + 20, base.b + 21);
    let mut image_of_dir = base.inode(dir, 0, 2);
    if let FcRecord::Inode { image, .. } = &mut image_of_dir {
        let mut bytes = image.to_vec();
        bytes[1] = 0x41;
        *image = bytes.into();
    }
    let records = [
        FcRecord::Link(name(ROOT, new, "late")),
        base.inode(new, 3, 1),
        add(new, 0, 1, base.free),
        image_of_dir,
        FcRecord::Creat(name(ROOT, dir, "d")),
        FcRecord::Link(name(dir, base.a, "second")),
        FcRecord::Unlink(name(ROOT, base.a, "a")),
        FcRecord::Unlink(name(ROOT, base.b, "b")),
        FcRecord::Unlink(name(ROOT, base.b + 100, "never")),
        base.inode(base.b + 22, 7, 0),
    ];
    let (view, dev) = recovered(&base.with(&records), "care");
    for fs in [view, open_ro(&dev)] {
        assert_eq!(read(&fs, "/d/second"), contents(1));
        assert_eq!(read(&fs, "/late").len(), 3);
        assert!(fs.read_file("/a").is_err() && fs.read_file("/b").is_err());
        assert_eq!(fs.getattr(dir).unwrap().nlink, 2);
        assert_eq!(fs.getattr(ROOT).unwrap().nlink, 4);
    }
}

/// Refused with one line, and nothing of it is done, however often.
#[test]
fn records_that_make_no_sense() {
    let base = base();
    let (a, b) = (base.a, base.b);
    let cases: Vec<(&str, Vec<FcRecord>)> = vec![
        ("inode 0", vec![add(0, 0, 1, base.free)]),
        ("journal", vec![base.inode(8, 5, 1)]),
        ("inode out of range", vec![FcRecord::Link(name(ROOT, u32::MAX, "x"))]),
        ("superblock", vec![add(a, 20, 1, 1)]),
        ("behind the end", vec![add(a, 20, 8, 12 * 1024 - 4)]),
        ("a block twice", vec![add(a, 20, 1, base.free), add(b, 20, 1, base.free)]),
        ("another file's block", vec![add(b, 20, 1, base.of_a)]),
        ("past the last block", vec![add(a, u32::MAX, 1, base.free)]),
        (
            "the root loses its name",
            vec![FcRecord::Unlink(name(12, ROOT, "x")), base.inode(ROOT, 5, 1)],
        ),
        ("a directory twice", vec![FcRecord::Link(name(ROOT, 11, "again"))]),
        ("no inode", vec![FcRecord::Creat(name(ROOT, b + 30, "x"))]),
        ("a name with a slash", vec![FcRecord::Link(name(ROOT, a, "x/y"))]),
        ("dot", vec![FcRecord::Unlink(name(ROOT, a, "."))]),
        (
            "no links",
            vec![
                base.inode(b + 30, 5, 1),
                FcRecord::Creat(name(ROOT, b + 30, "x")),
                base.inode(b + 30, 5, 0),
            ],
        ),
    ];
    for (what, records) in cases {
        let dev = Arc::new(base.with(&records));
        let mut lines = Vec::new();
        for options in ["ro", "", ""] {
            let error =
                Ext4::open(Arc::clone(&dev) as _, &MountOptions::parse(options).unwrap()).err();
            let Some(error) = error else { panic!("{what}: opened with {options:?}") };
            lines.push(error.to_string());
        }
        assert!(
            lines.iter().all(|line| *line == lines[0] && !line.contains('\n')),
            "{what}: {lines:?}"
        );
        assert!(
            lines[0].contains("fast commits in the journal cannot be replayed"),
            "{what}: {lines:?}"
        );
        // The promises of the base are all there for e2fsck to find.
        let report = inspect_journal(&(dev as SharedDevice), &MountOptions::default()).unwrap();
        assert_eq!(report.recovery.fast_commit_count, 1, "{what}");
    }
}

/// A crash in any write of the recovery changes nothing of its result.
#[test]
fn recovery_can_be_interrupted() {
    let base = base();
    let new = base.b + 3;
    let records = [
        FcRecord::DelRange { ino: base.a, block: 0, len: 8 },
        base.inode(base.a, 0, 1),
        add(base.b, 8, 8, base.of_a),
        base.inode(base.b, 16 * BS, 1),
        base.inode(new, 4 * BS, 1),
        add(new, 0, 4, base.free),
        FcRecord::Creat(name(ROOT, new, "new")),
        FcRecord::Unlink(name(ROOT, base.b + 2, "none")),
        base.inode(new, 4 * BS, 1),
    ];
    let recording = Arc::new(RecordingDevice::new(base.with(&records)));
    let fs = Ext4::open(Arc::clone(&recording) as _, &MountOptions::parse("").unwrap()).unwrap();
    fs.unmount().unwrap();
    let events = recording.log();
    let mut seen = 0;
    for cut in 0..=events.len() {
        // Only what changes something, or makes it durable, makes a state of its own.
        if cut > 0 && !matches!(events[cut - 1], Event::Write { .. }) {
            continue;
        }
        for keep in [0, 1, 2] {
            let image = recording.image_at(cut, |i| keep == 0 || keep == 1 && i % 2 == 0);
            let fs = open_ro(&image);
            let what = format!("{cut} of {} events, kept {keep}", events.len());
            assert_eq!(read(&fs, "/b"), [contents(2), contents(1)].concat(), "{what}");
            assert!(read(&fs, "/a").is_empty() && read(&fs, "/new").len() == 4 * BS, "{what}");
            let report = extol::check::check(Arc::new(image), &Default::default(), &mut |_| {});
            assert!(report.unwrap().is_clean(), "{what}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen} states");
}

/// The journal says that there are fast commits, and the file system no longer has the feature: as
/// Linux, we replay them.
#[test]
fn the_feature_is_gone() {
    let base = base();
    let image =
        base.with(&[FcRecord::Link(name(ROOT, base.a, "second")), base.inode(base.a, 8 * BS, 2)]);
    let mut bytes = [0; 1024];
    image.read_at(&mut bytes, 1024).unwrap();
    let mut sb = Superblock::decode(&bytes).unwrap();
    sb.feature_compat = extol_ondisk::Compat::from_bits_retain(sb.feature_compat.bits() & !0x400);
    image.write_at(&sb.encode(), 1024).unwrap();
    let (view, dev) = recovered(&image, "without the feature");
    for fs in [view, open_ro(&dev)] {
        assert_eq!(read(&fs, "/second"), contents(1));
    }
}
