//! Large attribute values, which are in inodes of their own. An input is
//!
//! ```text
//!   0    bit 0: with quotas and clusters; bit 1: crash at the end; bits 4..: changes (at most 7)
//!   1..  8 bytes for each change: they choose structure, field and value
//!   then operations, 4 bytes each, until the input ends
//! ```

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use extol::vfs::{Creds, FileSystem as _, FsError, NewNode, XattrSet};
use extol::{Ext4, MountOptions};
use extol_block::BlockDevice as _;
use extol_check::{Kind as Finding, Report};
use extol_ondisk::{Inode, InodeFlags, InodeNr, extent, xattr};

use super::volume::{MAX_REQUESTS, verify};
use crate::base::{self, Base, VARIANTS};
use crate::choices::Choices;
use crate::disk::Disk;
use crate::layout::{Kind, Target, read};
use crate::mutate::{Damage, Mutator};
use crate::seal;

/// Bytes of a change.
const RECORD: usize = 8;
/// Bytes of an operation.
const OPERATION: usize = 4;
/// Most operations of an input.
const MAX_OPERATIONS: usize = 24;
/// Values that an operation sets: some fit an inode or a block, some are those that are there.
const LENGTHS: [usize; 8] = [0, 40, 900, 3000, 4000, 8000, 20_000, 65_536];
const NAMES: [&[u8]; 4] = [b"trusted.large1", b"trusted.large2", b"user.other", b"user.third"];
/// What no change of attributes makes, whatever the values are.
const NEVER: [Finding; 4] = [
    Finding::GroupChecksum,
    Finding::InodeChecksum,
    Finding::BlockBitmapChecksum,
    Finding::InodeBitmapChecksum,
];
/// Fields of a value's inode: size, checksum of the value, users, the inode that has it (in the old
/// form), links, flags, its generation, attributes.
const FIELDS: [(usize, usize); 12] = [
    (0x00, 2),
    (0x04, 4),
    (0x08, 4),
    (0x0C, 4),
    (0x10, 4),
    (0x14, 4),
    (0x1A, 2),
    (0x1C, 4),
    (0x20, 4),
    (0x24, 4),
    (0x64, 4),
    (0x68, 4),
];
const CHECKSUM: usize = 0x08;

/// A volume with values, and where they are.
struct Subject {
    base: &'static Base,
    /// The inodes of values.
    values: Vec<Target>,
    /// Blocks of values.
    contents: Vec<Target>,
    /// What refers to values, and what leads to their blocks.
    others: Vec<Target>,
    /// All values that attributes have.
    sound: BTreeSet<Vec<u8>>,
}

static SUBJECTS: LazyLock<[Subject; 2]> =
    LazyLock::new(|| ["ea-inode", "quota-bigalloc"].map(Subject::new));

impl Subject {
    fn new(kind: &str) -> Self {
        let which = VARIANTS.iter().position(|v| v.name == kind).expect("a kind of volume");
        let base = base::base(which);
        let geo = &base.layout.geo;
        let of_kind =
            |kind: Kind| base.layout.targets.iter().filter(move |t| t.kind == kind).copied();
        let inode = |t: &Target| {
            Inode::decode(&read(&base.image, t.at, t.len), InodeNr(t.ino), geo).expect("an inode")
        };
        let is_value = |t: &Target| inode(t).flags.contains(InodeFlags::EA_INODE);
        let values: Vec<Target> = of_kind(Kind::Inode).filter(is_value).collect();
        let contents: Vec<Target> = values
            .iter()
            .flat_map(|t| blocks(&inode(t), base).into_iter().map(|at| (t.ino, at)))
            .map(|(ino, at)| Target { kind: Kind::Own, ino, at, len: geo.block_len() })
            .collect();
        let mut others: Vec<Target> = of_kind(Kind::Attributes).collect();
        others.extend(of_kind(Kind::Inode).filter(|t| inode(t).file_acl != 0));
        assert!(values.len() > 1 && contents.len() > 8 && others.len() > 3, "{kind}");
        let mut subject = Self { base, values, contents, others, sound: BTreeSet::new() };
        let fs = open(&Disk::new(base.image.snapshot(), false)).expect("a sound volume");
        for ino in owners(&fs) {
            let names = fs.listxattr(ino).expect("names");
            subject.sound.extend(names.iter().map(|name| fs.getxattr(ino, name).expect("a value")));
        }
        fs.crash();
        subject
    }
}

/// Where the blocks of a value are.
fn blocks(inode: &Inode, base: &Base) -> Vec<u64> {
    let geo = &base.layout.geo;
    let node = extent::Node::decode(&inode.i_block, geo).expect("extents");
    let extent::Entries::Leaf(all) = node.entries else { return Vec::new() };
    let len = geo.block_len() as u64;
    all.iter().flat_map(|e| (0..u64::from(e.len)).map(|n| (e.start + n) * len)).collect()
}

fn open(disk: &Arc<Disk>) -> Option<Arc<Ext4>> {
    let options = MountOptions::parse("errors=continue").expect("options").without_threads();
    Ext4::open(disk.clone(), &options).ok()
}

/// The inodes that have attributes, if they are found.
fn owners(fs: &Ext4) -> Vec<u32> {
    let Ok(dir) = fs.lookup(fs.root(), b"t") else { return Vec::new() };
    ["small1", "small3", "slow-link", "small5"]
        .iter()
        .filter_map(|name| fs.lookup(dir.id.ino, name.as_bytes()).ok())
        .map(|attr| attr.id.ino)
        .collect()
}

/// What the changes of an input have touched.
#[derive(Default)]
struct Touched {
    /// Anything but contents of values.
    structures: bool,
    log: Vec<String>,
}

fn change(subject: &Subject, disk: &Disk, record: &[u8], touched: &mut Touched) {
    let mut choices = Choices::from_bytes(record);
    let layout = &subject.base.layout;
    let how = choices.below(8);
    let is_sealed = choices.below(4) > 0;
    if how < 4 {
        touched.structures = true;
        let value = *choices.pick(&subject.values);
        let (at, width) = *choices.pick(&FIELDS);
        let mut bytes = read(&disk.mem, value.at, value.len);
        let old = u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let new = match choices.below(6) {
            0 => 0,
            1 => old.wrapping_add(1),
            2 => old.wrapping_sub(1),
            3 => old ^ 1 << choices.below(8 * width),
            4 => *choices.pick(&layout.inodes),
            _ => choices.any() as u32,
        };
        bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
        if is_sealed {
            seal::seal(layout, &value, &mut bytes);
        }
        let _ = disk.mem.write_at(&bytes, value.at);
        touched.log.push(format!("value {}: {at:#x}: {old:#x} -> {new:#x}", value.ino));
        return;
    }
    let targets = if how < 6 { &subject.contents } else { &subject.others };
    touched.structures |= how >= 6;
    let target = *choices.pick(targets);
    let mut mutator =
        Mutator { layout, dev: &disk.mem, rng: &mut choices, damage: Damage::default() };
    mutator.damage_to(&target, is_sealed);
    touched.log.append(&mut mutator.damage.log);
    if how == 5 {
        touched.structures = true;
        state_checksum(subject, disk, target.ino);
    }
}

/// The inode of a value gets the checksum of its contents as they are.
fn state_checksum(subject: &Subject, disk: &Disk, ino: u32) {
    let layout = &subject.base.layout;
    let Some(value) = subject.values.iter().find(|value| value.ino == ino) else { return };
    let mut bytes = read(&disk.mem, value.at, value.len);
    let places = subject.contents.iter().filter(|block| block.ino == ino);
    let mut contents: Vec<u8> = places.flat_map(|b| read(&disk.mem, b.at, b.len)).collect();
    let size = u32::from_le_bytes(bytes[4..8].try_into().expect("four bytes"));
    contents.truncate(size as usize);
    let sum = xattr::value_hash(&contents, layout.geo.fs_seed);
    bytes[CHECKSUM..CHECKSUM + 4].copy_from_slice(&sum.to_le_bytes());
    seal::seal(layout, value, &mut bytes);
    let _ = disk.mem.write_at(&bytes, value.at);
}

/// Reads all attributes. Returns what was refused as damaged.
fn look(subject: &Subject, fs: &Ext4, touched: &Touched) -> Vec<FsError> {
    let mut refused = Vec::new();
    for ino in owners(fs) {
        let names = fs.listxattr(ino).unwrap_or_else(|e| {
            refused.push(e);
            Vec::new()
        });
        for name in names {
            match fs.getxattr(ino, &name) {
                Ok(value) => {
                    assert!(value.len() <= 65_536, "{} bytes", value.len());
                    // A change of contents alone never goes unnoticed.
                    let is_right = touched.structures || subject.sound.contains(&value);
                    assert!(is_right, "{} bytes of {ino} changed: {:?}", value.len(), touched.log);
                }
                Err(e) => refused.push(e),
            }
        }
    }
    refused
}

/// Changes attributes, copies them to other inodes by lists, and deletes what has them.
fn work(fs: &Ext4, operations: &[u8]) -> Vec<FsError> {
    let mut refused = Vec::new();
    let Ok(dir) = fs.lookup(fs.root(), b"t").map(|attr| attr.id.ino) else { return refused };
    let owners = owners(fs);
    for operation in operations.chunks_exact(OPERATION).take(MAX_OPERATIONS) {
        let [what, file, name, value] = operation else { continue };
        let name = NAMES[usize::from(*name) % NAMES.len()];
        let Some(ino) = owners.get(usize::from(*file) % owners.len().max(1)) else { break };
        let byte = value >> 4;
        let value = vec![byte; LENGTHS[usize::from(*value) % LENGTHS.len()]];
        let done = match what % 8 {
            0..3 => fs.setxattr(*ino, name, &value, XattrSet::Any),
            3 => fs.removexattr(*ino, name),
            4 => fs.getxattr(*ino, name).map(drop),
            5 => fs.fsync(*ino, false),
            6 => {
                let name = format!("new{byte}");
                let new = NewNode::Regular;
                fs.create(dir, name.as_bytes(), new, 0o644, 0, Creds::default())
                    .and_then(|made| fs.setxattr(made.id.ino, NAMES[0], &value, XattrSet::Any))
            }
            _ => {
                let name = ["small1", "small3", "slow-link", "new1"][usize::from(*file) % 4];
                fs.unlink(dir, name.as_bytes())
            }
        };
        refused.extend(done.err());
    }
    refused.extend(fs.sync().err());
    refused
}

fn kinds(report: Option<&Report>) -> BTreeSet<&'static str> {
    report.map_or_else(BTreeSet::new, |report| {
        report.findings.iter().map(|finding| finding.kind.name()).collect()
    })
}

/// Damage to a value. (A name with a zero byte is damage to Extol alone: the checker passes over it
/// as e2fsck does.)
fn is_damage(error: &FsError) -> bool {
    match error {
        FsError::Corrupt { what, .. } => what.contains("attribute value"),
        error => matches!(error, FsError::Io(_)),
    }
}

/// Reads, changes and deletes values that may be damaged. What the checker calls clean is read
/// without an error, and clean afterwards.
pub(super) fn values(input: &[u8]) {
    let Some((shape, rest)) = input.split_first() else { return };
    let subject = &SUBJECTS[usize::from(shape & 1)];
    let disk = Disk::new(subject.base.image.snapshot(), false);
    let changes = usize::from(shape >> 4).min(7).min(rest.len() / RECORD);
    let (records, operations) = rest.split_at(changes * RECORD);
    let mut touched = Touched::default();
    records.chunks(RECORD).for_each(|record| change(subject, &disk, record, &mut touched));
    let before = verify(&disk.mem);
    let was_clean = before.as_ref().is_some_and(Report::is_clean);
    let Some(fs) = open(&disk) else { return };
    let unread = look(subject, &fs, &touched);
    assert!(
        !was_clean || !unread.iter().any(is_damage),
        "clean, and refused: {unread:?}\n{}",
        touched.log.join("\n")
    );
    let refused = work(&fs, operations);
    if shape & 2 != 0 {
        fs.crash();
    } else {
        let _ = fs.unmount();
    }
    drop(fs);
    assert!(disk.requests() <= MAX_REQUESTS, "{} requests", disk.requests());
    assert!(disk.found().is_empty(), "{:?}", disk.found());
    let after = verify(&disk.mem);
    if was_clean {
        let damage: Vec<_> = refused.iter().filter(|e| is_damage(e)).collect();
        assert!(
            damage.is_empty() && after.as_ref().is_some_and(Report::is_clean),
            "clean before, and afterwards: {damage:?}, {}\n{}",
            after.map_or("no report".into(), |r| r.to_string()),
            touched.log.join("\n")
        );
        return;
    }
    let known = kinds(before.as_ref());
    let new = after
        .iter()
        .flat_map(|report| &report.findings)
        .find(|finding| NEVER.contains(&finding.kind) && !known.contains(finding.kind.name()));
    assert!(new.is_none(), "{new:?}\n{}", touched.log.join("\n"));
}
