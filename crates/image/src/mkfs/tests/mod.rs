//! mkfs against its peers: mke2fs makes the same volume from the same options, e2fsck finds
//! nothing, Linux mounts it.

mod clusters;
pub(crate) mod harness;
pub(crate) mod linux;
mod peers;
mod refusals;

use super::config::Config;
use super::plan::{Contents, Plan};
use super::{MkfsOptions, MkfsProgress, Stage, existing_contents, mkfs};
use extol_block::{BlockDevice, MemDevice};
use extol_ondisk::{Geometry, GroupDesc, GroupNr, Incompat, Superblock};

/// The geometry of a default volume.
pub(crate) fn geometry(block_size: u32, blocks: u64) -> Geometry {
    geometry_of(&format!("-b {block_size}"), blocks)
}

/// The geometry that mke2fs's options give; they name the block size.
pub(crate) fn geometry_of(options: &str, blocks: u64) -> Geometry {
    let options = harness::options(options).expect("options");
    let bytes = blocks * u64::from(options.block_size.expect("block size"));
    let config = Config::new(&options, bytes).expect("config");
    Plan::new(&options, config, Contents::Empty).expect("plan").geo
}

fn superblock(device: &dyn BlockDevice) -> Superblock {
    let mut bytes = [0; 1024];
    device.read_at(&mut bytes, 1024).expect("read");
    Superblock::decode(&bytes).expect("superblock")
}

#[test]
fn what_is_written_reads_back() {
    let device = MemDevice::new(1 << 30);
    let summary = mkfs(&device, &MkfsOptions::default(), &mut |_| {}).expect("mkfs");
    let sb = superblock(&device);
    let geo = Geometry::new(&sb, Some(device.size())).expect("geometry");
    let mut free = 0;
    for group in (0..geo.groups()).map(GroupNr) {
        let (block, offset) = geo.desc_block(group);
        let mut bytes = vec![0; usize::from(geo.desc_size)];
        device.read_at(&mut bytes, block.offset(geo.block_size) + offset as u64).expect("read");
        free += u64::from(GroupDesc::decode(&bytes, &geo, group).expect("descriptor").free_blocks);
    }
    assert_eq!((free, sb.free_blocks_count), (summary.free_blocks, summary.free_blocks));
    assert_eq!(summary.blocks, 262_144);
    assert_eq!(summary.backup_superblocks, [32_768, 98_304, 163_840, 229_376]);
    let text = summary.to_string();
    assert!(
        text.contains("262144 4k blocks and 65536 inodes") && text.contains("journal: 8192"),
        "{text}"
    );
    assert!(device.allocated() < 4 << 20, "{} bytes written", device.allocated());
}

#[test]
fn the_encoding_is_in_the_superblock() {
    for (args, encoding, flags) in [
        ("", 0, 0),
        ("-O casefold", 1, 0),
        ("-E encoding=utf8", 1, 0),
        ("-E encoding=utf8-12.1,encoding_flags=strict", 1, 1),
        ("-O casefold -E encoding_flags=strict", 1, 1),
        ("-E encoding=utf8,encoding_flags=nostrict", 1, 0),
    ] {
        let device = MemDevice::new(64 << 20);
        mkfs(&device, &harness::options(args).expect(args), &mut |_| {}).expect(args);
        let sb = superblock(&device);
        assert_eq!((sb.encoding, sb.encoding_flags), (encoding, flags), "{args}");
        assert_eq!(sb.feature_incompat.contains(Incompat::CASEFOLD), encoding == 1, "{args}");
    }
}

/// As mke2fs does.
#[test]
fn a_volume_for_encryption_names_the_usual_ciphers() {
    for (args, ciphers) in [("-O encrypt", [1, 4, 0, 0]), ("-O stable_inodes", [0; 4])] {
        let device = MemDevice::new(64 << 20);
        mkfs(&device, &harness::options(args).expect(args), &mut |_| {}).expect(args);
        let sb = superblock(&device);
        assert_eq!(sb.encrypt_algos, ciphers, "{args}");
        assert_eq!(sb.feature_incompat.contains(Incompat::ENCRYPT), ciphers != [0; 4], "{args}");
    }
}

#[test]
fn planning_a_large_volume_is_quick_and_small() {
    let device = MemDevice::new(64 << 40);
    let options = MkfsOptions { dry_run: true, ..MkfsOptions::default() };
    let start = std::time::Instant::now();
    let summary = mkfs(&device, &options, &mut |_| {}).expect("plan");
    assert_eq!(summary.groups, 524_288);
    assert_eq!(device.allocated(), 0, "a dry run writes nothing");
    assert!(start.elapsed().as_secs() < 20);
}

#[test]
fn progress_ends_at_the_end_of_each_stage() {
    let device = MemDevice::new(64 << 20);
    let mut seen: Vec<MkfsProgress> = Vec::new();
    let mut options = MkfsOptions::default();
    options.set_extended("nodiscard,lazy_itable_init=0").expect("options");
    mkfs(&device, &options, &mut |p| seen.push(p)).expect("mkfs");
    for stage in [Stage::InodeTables, Stage::Groups, Stage::Journal, Stage::Superblocks] {
        let last = seen.iter().rfind(|p| p.stage == stage).expect("stage seen");
        assert_eq!(last.done, last.total, "{stage}");
        assert!(seen.iter().filter(|p| p.stage == stage).is_sorted_by_key(|p| p.done));
    }
}

#[test]
fn random_numbers_differ_and_given_ones_hold() {
    let make = |options: &MkfsOptions| {
        let device = MemDevice::new(16 << 20);
        mkfs(&device, options, &mut |_| {}).expect("mkfs");
        superblock(&device)
    };
    let (a, b) = (make(&MkfsOptions::default()), make(&MkfsOptions::default()));
    assert!(a.uuid != b.uuid && a.hash_seed != b.hash_seed);
    let fixed = |uuid: &str| MkfsOptions {
        uuid: Some(uuid.into()),
        now: Some(1_000_000),
        ..MkfsOptions::default()
    };
    let sb = make(&fixed("00112233-4455-6677-8899-aabbccddeeff"));
    assert_eq!((sb.uuid[15], sb.mkfs_time, sb.wtime), (0xFF, 1_000_000, 1_000_000));
    assert_eq!(make(&fixed("null")).uuid, [0; 16]);
}

/// An interrupted mkfs leaves no superblock behind, neither the old one nor a new one.
#[test]
fn interrupted_making_leaves_nothing_that_looks_whole() {
    use extol_block::DeviceOp;
    use extol_devices::{Fault, FaultDevice};
    let device = FaultDevice::new(MemDevice::new(64 << 20), []);
    mkfs(&device, &MkfsOptions::default(), &mut |_| {}).expect("first");
    assert_eq!(existing_contents(&device).as_deref(), Some("an ext4 file system"));
    for nth in [1, 2, 5, 10] {
        device.arm(Fault::from_then_on(DeviceOp::Write, nth));
        assert!(mkfs(&device, &MkfsOptions::default(), &mut |_| {}).is_err());
        device.disarm();
        assert_eq!(existing_contents(&device), None, "failed at write {nth}");
    }
}

#[test]
fn recognises_what_is_there() {
    let device = MemDevice::new(64 << 20);
    assert_eq!(existing_contents(&device), None);
    assert_eq!(existing_contents(&MemDevice::new(512)), None);
    let mut options = MkfsOptions { label: Some("data".into()), ..MkfsOptions::default() };
    for (kind, words) in [("ext2", "ext2"), ("ext3", "ext3"), ("ext4", "ext4")] {
        options.fs_type = super::FsType::parse(kind).expect("type");
        mkfs(&device, &options, &mut |_| {}).expect("mkfs");
        assert_eq!(
            existing_contents(&device),
            Some(format!("an {words} file system labelled 'data'"))
        );
    }
    options.features.push("journal_dev".into());
    mkfs(&device, &options, &mut |_| {}).expect("mkfs");
    assert_eq!(existing_contents(&device).as_deref(), Some("an ext4 journal"));
}
