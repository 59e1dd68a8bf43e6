//! Whatever is on the device: no panic, no endless work, little memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use extol::mkfs::{MkfsOptions, mkfs};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice, BlockNr, MemDevice, SharedDevice};
use extol_check::{CheckError, CheckOptions, Kind, Recovery, Report, check};
use extol_ondisk::{Geometry, GroupNr, Inode, InodeFlags, InodeNr, Superblock, extent};
use rand::rngs::SmallRng;
use rand::{Rng, RngCore, SeedableRng};

/// A volume of 16 MiB with a few hundred files.
fn filled(features: &str) -> MemDevice {
    let device = Arc::new(MemDevice::new(16 << 20));
    let mut options = MkfsOptions { block_size: Some(1024), ..MkfsOptions::default() };
    options.features.push(features.to_owned());
    mkfs(&*device, &options, &mut |_| {}).expect("mkfs");
    let fs = Ext4::open(device.clone() as SharedDevice, &MountOptions::default()).expect("open");
    for d in 0..5 {
        fs.create_dir_all(format!("/dir{d}/inner")).expect("mkdir");
        for f in 0..60 {
            fs.write_file(format!("/dir{d}/a file with number {f}"), vec![1; f * 40])
                .expect("write");
        }
    }
    let file = fs.create_file("/fragments").expect("create");
    for n in 0..200 {
        file.write_all_at(b"x", n * 4096).expect("write");
    }
    file.sync_all().expect("fsync");
    drop(file);
    fs.unmount().expect("unmount");
    device.snapshot()
}

fn look(device: MemDevice, recovery: Recovery) -> Result<Report, CheckError> {
    let opts = CheckOptions { recovery, threads: 1, max_findings: 20, ..CheckOptions::default() };
    check(Arc::new(device), &opts, &mut |_| {})
}

fn in_time(what: &str, device: MemDevice) -> Result<Report, CheckError> {
    let start = Instant::now();
    let report = look(device, Recovery::InMemory);
    assert!(start.elapsed() < Duration::from_secs(5), "{what} took {:?}", start.elapsed());
    report
}

struct Volume {
    device: MemDevice,
    geo: Geometry,
}

impl Volume {
    fn new(device: MemDevice) -> Self {
        let mut bytes = [0; 1024];
        device.read_at(&mut bytes, 1024).expect("read");
        let geo = Geometry::new(&Superblock::decode(&bytes).expect("superblock"), None)
            .expect("geometry");
        Self { device, geo }
    }

    fn inode_offset(&self, ino: u32) -> u64 {
        let (group, index) = self.geo.group_of_inode(InodeNr(ino));
        let (block, offset) = self.geo.desc_block(GroupNr(group.0));
        let mut table = [0; 4];
        self.device
            .read_at(&mut table, block.offset(self.geo.block_size) + offset as u64 + 8)
            .expect("read");
        u64::from(u32::from_le_bytes(table)) * 1024
            + u64::from(index) * u64::from(self.geo.inode_size)
    }

    fn edit(&self, ino: u32, change: impl FnOnce(&mut Inode)) {
        let at = self.inode_offset(ino);
        let mut bytes = vec![0; usize::from(self.geo.inode_size)];
        self.device.read_at(&mut bytes, at).expect("read");
        let mut inode = Inode::decode(&bytes, InodeNr(ino), &self.geo).expect("inode");
        change(&mut inode);
        inode.encode_into(&mut bytes, InodeNr(ino), &self.geo);
        self.device.write_at(&bytes, at).expect("write");
    }

    fn write_block(&self, nr: u64, bytes: &[u8]) {
        self.device.write_at(bytes, BlockNr(nr).offset(self.geo.block_size)).expect("write");
    }
}

#[test]
fn noise_in_the_metadata() {
    let mut rng = SmallRng::seed_from_u64(1);
    let rounds = if std::env::var("EXTOL_LONG").is_ok_and(|v| v == "1") { 20_000 } else { 400 };
    for features in [
        "metadata_csum",
        "^metadata_csum",
        "^metadata_csum,^extents,^64bit",
        "inline_data,^metadata_csum",
    ] {
        let base = filled(features);
        for _ in 0..rounds {
            let device = base.snapshot();
            for _ in 0..rng.random_range(1..30) {
                // Most of the metadata of a small volume is at its beginning.
                let end = if rng.random_bool(0.8) { 2 << 20 } else { 16 << 20 };
                let at = rng.random_range(1024..end);
                let mut noise = vec![0; rng.random_range(1..40)];
                if rng.random_bool(0.7) {
                    rng.fill_bytes(&mut noise);
                }
                if !(1024..2048).contains(&at) || rng.random_bool(0.05) {
                    device.write_at(&noise, at).expect("write");
                }
            }
            let recovery = if rng.random_bool(0.5) { Recovery::InMemory } else { Recovery::Ignore };
            // Any report will do, and so will a refusal.
            let _ = look(device, recovery);
        }
    }
}

#[test]
fn devices_without_a_volume() {
    for size in [0u64, 100, 2047, 2048, 1 << 20] {
        assert!(matches!(
            look(MemDevice::new(size), Recovery::InMemory),
            Err(CheckError::NoFileSystem(_))
        ));
    }
    let cut = filled("metadata_csum").to_bytes();
    let report =
        look(MemDevice::from_bytes(&cut[..8 << 20]), Recovery::InMemory).expect("a report");
    assert!(report.has(Kind::SuperblockBad), "{report}");
}

/// What stands at the place of a superblock that is named is its own matter.
#[test]
fn a_superblock_that_is_named_can_be_anywhere() {
    let device: SharedDevice = Arc::new(filled("metadata_csum"));
    let by = |place: u64| {
        let opts = CheckOptions { superblock: Some(place), ..CheckOptions::default() };
        check(Arc::clone(&device), &opts, &mut |_| {})
    };
    for place in [0, 1, 1023, 1025, 4 << 20, (16 << 20) - 1, 16 << 20, u64::MAX - 5, u64::MAX] {
        assert!(matches!(by(place), Err(CheckError::NoFileSystem(_))), "{place}");
    }
    let first = by(1024).expect("a report");
    assert!(first.is_clean() && first.notes == 0, "{first}");
    let copy = by(8193 * 1024).expect("a report");
    let is_told = copy.findings.iter().any(|f| f.kind == Kind::BackupSuperblock);
    assert!(copy.is_clean() && is_told, "{copy}");
}

/// A tree whose nodes name each other over and over: each level multiplies.
#[test]
fn an_extent_tree_that_is_a_bomb() {
    let v = Volume::new(filled("^metadata_csum"));
    let fan = 84u16;
    let first = 9000u64;
    for level in 0..5u64 {
        let mut node = vec![0; 1024];
        let entries: Vec<extent::ExtentIndex> = (0..u32::from(fan))
            .map(|i| extent::ExtentIndex { block: i, leaf: first + level + 1 })
            .collect();
        extent::Node {
            max: fan,
            depth: (4 - level) as u16,
            generation: 0,
            entries: extent::Entries::Index(entries),
        }
        .encode_into(&mut node);
        v.write_block(first + level, &node);
    }
    v.edit(13, |inode| {
        let root = extent::Node {
            max: 4,
            depth: 5,
            generation: 0,
            entries: extent::Entries::Index(vec![extent::ExtentIndex { block: 0, leaf: first }; 1]),
        };
        root.encode_into(&mut inode.i_block);
        inode.size = 1 << 40;
    });
    let report = in_time("extent bomb", v.device).expect("a report");
    assert!(report.has(Kind::BlockShared), "{report}");
}

/// A block map whose indirect blocks all name one of themselves.
#[test]
fn a_block_map_that_is_a_bomb() {
    let v = Volume::new(filled("^metadata_csum,^extents,^64bit"));
    let own = 9000u32;
    let block: Vec<u8> = (0..256).flat_map(|_| own.to_le_bytes()).collect();
    v.write_block(u64::from(own), &block);
    for ino in [7, 8, 13, 20] {
        v.edit(ino, |inode| {
            inode
                .i_block
                .chunks_exact_mut(4)
                .for_each(|word| word.copy_from_slice(&own.to_le_bytes()));
            inode.flags.remove(InodeFlags::INLINE_DATA);
            inode.size = 1 << 33;
        });
    }
    let report = in_time("block map bomb", v.device).expect("a report");
    assert!(report.has(Kind::BlockShared), "{report}");
}

/// Every inode claims the whole volume.
#[test]
fn extents_that_claim_everything() {
    let v = Volume::new(filled("^metadata_csum"));
    for ino in 12..300 {
        v.edit(ino, |inode| {
            let extents = (0..4).map(|i| extent::Extent {
                block: i * 10_000,
                len: 10_000,
                start: 1 + u64::from(i) * 1000,
                unwritten: false,
            });
            extent::Node {
                max: 4,
                depth: 0,
                generation: 0,
                entries: extent::Entries::Leaf(extents.collect()),
            }
            .encode_into(&mut inode.i_block);
            inode.flags |= InodeFlags::EXTENTS;
        });
    }
    let report = in_time("greedy extents", v.device).expect("a report");
    assert!(report.has(Kind::BlockOnMetadata) && report.has(Kind::BlockShared), "{report}");
    assert!(report.findings.len() <= 20 && report.errors > 300);
}

/// Directories that contain each other, and a bad answer from every inode number.
#[test]
fn directories_in_a_ring() {
    let v = Volume::new(filled("^metadata_csum"));
    let fs_before = look(v.device.snapshot(), Recovery::InMemory).expect("a report");
    assert!(fs_before.is_clean(), "{fs_before}");
    // Names of inner directories are exchanged with their parents' numbers: entry `inner` of /dir0
    // leads to /dir0's neighbour.
    let bytes = v.device.to_bytes();
    let mut changed = 0;
    for at in (0..bytes.len() - 16).step_by(4) {
        if &bytes[at + 8..at + 13] == b"inner" && bytes[at + 6] == 5 {
            v.device.write_at(&(12u32 + changed).to_le_bytes(), at as u64).expect("write");
            changed += 1;
        }
    }
    assert!(changed >= 5);
    let report = in_time("ring of directories", v.device).expect("a report");
    assert!(report.has(Kind::DirLinked) || report.has(Kind::DirLoop), "{report}");
    assert!(report.has(Kind::Unattached), "{report}");
}
