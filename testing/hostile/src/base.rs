//! The volumes that are damaged: small, of every kind, with something of everything in them.
//!
//! Made and filled by the library in memory, always in the same way: no random number chooses a
//! place (see `first_dir`), so that a seed or an input means the same damage on every machine.
//! Times, and the generations of inodes, differ; checksums hide that.

mod more;

pub use more::KEY;

use std::sync::OnceLock;

use extol::mkfs::{FsType, MkfsOptions, mkfs};
use extol::vfs::{Creds, Fallocate, FileSystem, NewNode, Rdev, XattrSet};
use extol::{Ext4, MountOptions};
use extol_block::{BlockDevice, MemDevice};
use extol_ondisk::{Compat, Incompat, RoCompat, Superblock, extent};

use crate::disk::{Disk, pattern};
use crate::layout::{Kind, Layout, read};

/// A kind of volume.
#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// For messages.
    pub name: &'static str,
    fs_type: FsType,
    mib: u64,
    block: u32,
    features: &'static str,
    inode_size: Option<u32>,
    /// Blocks per group, groups per flexible group, inodes.
    groups: Option<(u32, u32, u64)>,
    /// Ends with a crash: the log has something in it, and orphans wait.
    dirty: bool,
    options: &'static str,
    /// Bytes of a cluster.
    cluster: Option<u32>,
    revision: Option<u32>,
    /// Puts more into it.
    more: fn(&Ext4),
    /// Changes its superblock when all is in it. e2fsck may not like that.
    patch: Option<fn(&mut Superblock)>,
    /// It can be mounted read-only alone.
    pub read_only: bool,
}

impl Variant {
    /// Options of a mount, or `ro` if it cannot be mounted with them.
    #[must_use]
    pub fn options(&self, options: &'static str) -> &'static str {
        if self.read_only { "ro" } else { options }
    }

    /// True if e2fsck must call it clean.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.patch.is_none()
    }
}

const MUST: &str = "a step on a sound volume";
/// The kind with an encrypted directory, whose key is [`KEY`].
pub const ENCRYPTED: &str = "encrypt";

const EXT4: Variant = Variant {
    name: "ext4-1k",
    fs_type: FsType::Ext4,
    mib: 6,
    block: 1024,
    features: "",
    inode_size: None,
    groups: None,
    dirty: false,
    options: "",
    cluster: None,
    revision: None,
    more: |_| {},
    patch: None,
    read_only: false,
};

const EXT2: Variant =
    Variant { name: "ext2-4k", fs_type: FsType::Ext2, mib: 8, block: 4096, ..EXT4 };

const READ_ONLY: Variant = Variant {
    name: "read-only",
    patch: Some(|sb| sb.feature_ro_compat |= RoCompat::READONLY),
    read_only: true,
    ..EXT4
};

/// All kinds. (New ones at the end: inputs of the fuzzer name them by number.)
pub const VARIANTS: &[Variant] = &[
    EXT4,
    Variant { name: "ext4-4k", mib: 12, block: 4096, ..EXT4 },
    Variant { name: "ext4-1k-nocsum", features: "^metadata_csum,^64bit,uninit_bg", ..EXT4 },
    Variant {
        name: "inline-orphanfile",
        inode_size: Some(512),
        features: "inline_data,orphan_file",
        ..EXT4
    },
    Variant { name: "ext3", fs_type: FsType::Ext3, ..EXT4 },
    EXT2,
    Variant {
        name: "groups",
        features: "^resize_inode,meta_bg",
        groups: Some((1024, 2, 512)),
        ..EXT4
    },
    Variant { name: "dirty", dirty: true, ..EXT4 },
    Variant { name: "dirty-orphanfile", features: "orphan_file,inline_data", dirty: true, ..EXT4 },
    Variant { name: "dirty-ext3", fs_type: FsType::Ext3, dirty: true, ..EXT4 },
    Variant { name: "dirty-datajournal", dirty: true, options: "data=journal", ..EXT4 },
    Variant { name: "dirty-nocsum", features: "^metadata_csum,^64bit", dirty: true, ..EXT4 },
    Variant { name: "ea-inode", features: "ea_inode", more: more::large_values, ..EXT4 },
    Variant { name: "bigalloc", features: "bigalloc", cluster: Some(4096), ..EXT4 },
    Variant { name: "casefold", features: "casefold", more: more::folded, ..EXT4 },
    Variant { name: "quota", features: "quota,project", more: more::owned, ..EXT4 },
    Variant { name: "verity", features: "verity", mib: 8, more: more::verified, ..EXT4 },
    Variant { name: ENCRYPTED, more: more::secret, ..EXT4 },
    Variant {
        name: "quota-bigalloc",
        features: "quota,project,bigalloc,ea_inode",
        cluster: Some(2048),
        more: |fs| {
            more::owned(fs);
            more::large_values(fs);
        },
        ..EXT4
    },
    READ_ONLY,
    Variant {
        name: "shared-blocks",
        patch: Some(|sb| sb.feature_ro_compat |= RoCompat::SHARED_BLOCKS),
        ..READ_ONLY
    },
    Variant { name: "hurd", patch: Some(|sb| sb.creator_os = 1), read_only: true, ..EXT2 },
    Variant { name: "revision-0", revision: Some(0), ..EXT2 },
    Variant {
        name: "orphanfile-without-log",
        features: "orphan_file",
        patch: Some(|sb| {
            sb.feature_compat.remove(Compat::HAS_JOURNAL);
            sb.journal_inum = 0;
        }),
        ..EXT4
    },
];

/// A volume and what is where on it.
#[derive(Debug)]
pub struct Base {
    /// The volume: take a snapshot.
    pub image: MemDevice,
    /// What is where.
    pub layout: Layout,
}

/// The volume of a variant; made once.
///
/// # Panics
/// If it cannot be made.
pub fn base(which: usize) -> &'static Base {
    static BASES: [OnceLock<Base>; VARIANTS.len()] = [const { OnceLock::new() }; VARIANTS.len()];
    BASES[which].get_or_init(|| make(&VARIANTS[which]))
}

/// A sound volume with room for fast commits, which [`crate::fast`] fills; made once.
///
/// # Panics
/// If it cannot be made.
pub fn fast() -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| make(&Variant { name: "fast-commit", features: "fast_commit", ..EXT4 }))
}

fn empty(v: &Variant) -> MemDevice {
    let device = MemDevice::new(v.mib << 20);
    let mut options = MkfsOptions {
        fs_type: v.fs_type,
        block_size: Some(v.block),
        inode_size: v.inode_size,
        blocks_per_group: v.groups.map(|g| g.0),
        groups_per_flex: v.groups.map(|g| g.1),
        inodes: v.groups.map(|g| g.2),
        cluster_size: v.cluster,
        revision: v.revision,
        uuid: Some("5a3c1f00-1111-4222-8333-0123456789ab".into()),
        ..MkfsOptions::default()
    };
    options.extended.hash_seed = Some(*b"always the same!");
    options.features.extend((!v.features.is_empty()).then(|| v.features.to_owned()));
    mkfs(&device, &options, &mut |_| {}).expect("mkfs");
    device
}

/// A directory at top level goes to a unit of groups that is chosen at random: it is made until
/// that is the first one that it can be.
fn first_dir(fs: &Ext4, v: &Variant) -> u32 {
    for _ in 0..1000 {
        let ino = make_dir(fs, fs.root(), "t");
        let units = v
            .groups
            .map_or(1, |(size, flex, _)| (v.mib << 20).div_ceil(u64::from(v.block * size * flex)));
        let all = fs.statfs().expect("statfs").inodes;
        if units <= 2 || u64::from(ino) <= 2 * all / units {
            return ino;
        }
        fs.rmdir(fs.root(), b"t").expect("rmdir");
    }
    panic!("{}: the directory never came to the first unit", v.name);
}

/// Nothing happens by itself, so the log is always the same.
fn options(text: &str) -> MountOptions {
    let mut options = MountOptions::parse(text).expect(MUST);
    options.journal.commit = std::time::Duration::from_secs(3600);
    options
}

fn make(v: &Variant) -> Base {
    let disk = Disk::new(empty(v), false);
    let fs = Ext4::open(disk.clone(), &options(v.options)).expect(MUST);
    first_dir(&fs, v);
    fill(&fs);
    (v.more)(&fs);
    fs.unmount().expect(MUST);
    drop(fs);
    // (In clusters blocks that follow each other cannot change their places in the file.)
    if v.cluster.is_none() {
        deepen(&disk.mem);
    }
    if v.name == ENCRYPTED {
        more::patch(&disk.mem, |sb| sb.feature_incompat |= Incompat::ENCRYPT);
        more::encrypt(&disk.mem);
        let mut options = options(v.options);
        options.keys.add(&KEY).expect(MUST);
        let fs = Ext4::open(disk.clone(), &options).expect(MUST);
        more::secrets(&fs);
        fs.unmount().expect(MUST);
    }
    if let Some(change) = v.patch {
        more::patch(&disk.mem, change);
    }
    if !v.dirty {
        let image = disk.mem.snapshot();
        return Base { layout: Layout::of(&image), image };
    }
    let fs = Ext4::open(disk.clone(), &options(v.options)).expect(MUST);
    work(&fs);
    fs.crash();
    drop(fs);
    let image = disk.mem.snapshot();
    // Where things are is seen on a copy that was recovered; what the log holds, on the volume
    // itself.
    let copy = Disk::new(image.snapshot(), false);
    Ext4::open(copy.clone(), &options("")).expect(MUST).unmount().expect(MUST);
    let mut layout = Layout::of(&copy.mem);
    layout.targets.retain(|t| t.kind != Kind::JournalSuper);
    layout.look_at_log(&image, 8);
    assert!(
        layout.targets.iter().any(|t| matches!(t.kind, Kind::JournalCopy { .. })),
        "{}: the log is empty",
        v.name
    );
    Base { image, layout }
}

fn creds() -> Creds {
    Creds::default()
}

fn make_file(fs: &Ext4, dir: u32, name: &str) -> u32 {
    fs.create(dir, name.as_bytes(), NewNode::Regular, 0o644, 0, creds()).expect(MUST).id.ino
}

fn make_dir(fs: &Ext4, dir: u32, name: &str) -> u32 {
    fs.create(dir, name.as_bytes(), NewNode::Directory, 0o755, 0, creds()).expect(MUST).id.ino
}

fn fill(fs: &Ext4) {
    let bs = u64::from(fs.statfs().expect(MUST).block_size);
    let t = fs.lookup(fs.root(), b"t").expect(MUST).id.ino;
    for i in 0..6 {
        let ino = make_file(fs, t, &format!("small{i}"));
        fs.write(ino, 0, &pattern(i * 700)).expect(MUST);
    }
    let frag = |name: &str, extents: u64| {
        let ino = make_file(fs, t, name);
        for i in 0..extents {
            fs.write(ino, 2 * i * bs, &pattern(bs as usize)).expect(MUST);
        }
        fs.fsync(ino, false).expect(MUST);
        ino
    };
    frag("extents", 20);
    frag("many-extents", 400);
    let far = make_file(fs, t, "sparse");
    for at in [0, 13 * bs, 300 * bs, 70_000 * bs] {
        fs.write(far, at, &pattern(bs as usize)).expect(MUST);
    }
    let whole = make_file(fs, t, "whole");
    fs.write(whole, 0, &pattern(40 * bs as usize + 100)).expect(MUST);
    let deep = make_file(fs, t, "deep");
    fs.write(deep, 0, &pattern(4 * bs as usize)).expect(MUST);
    let promised = make_file(fs, t, "unwritten");
    let _ = fs.fallocate(promised, Fallocate::Allocate { keep_size: false }, 0, 30 * bs);
    fs.write(promised, 5 * bs, &pattern(2 * bs as usize)).expect(MUST);
    for dir in ["empty", "one", "big", "tall", "nest"] {
        make_dir(fs, t, dir);
    }
    let sub = |name: &str| fs.lookup(t, name.as_bytes()).expect(MUST).id.ino;
    for i in 0..8 {
        make_file(fs, sub("one"), &format!("n{i}"));
    }
    for i in 0..150 {
        fs.link(whole, sub("big"), format!("link-number-{i:04}").as_bytes()).expect(MUST);
    }
    if bs == 1024 {
        for i in 0..560 {
            fs.link(far, sub("tall"), format!("{i:03}{}", "x".repeat(240)).as_bytes()).expect(MUST);
        }
    }
    let mut at = sub("nest");
    for name in ["a", "b", "c", "d"] {
        at = make_dir(fs, at, name);
        make_file(fs, at, "leaf");
    }
    fs.create(t, b"fast-link", NewNode::Symlink(b"small1".to_vec()), 0o777, 0, creds())
        .expect(MUST);
    fs.create(t, b"slow-link", NewNode::Symlink(vec![b'y'; 150]), 0o777, 0, creds()).expect(MUST);
    fs.create(t, b"fifo", NewNode::Fifo, 0o600, 0, creds()).expect(MUST);
    fs.create(t, b"device", NewNode::CharDevice(Rdev { major: 5, minor: 1 }), 0o600, 0, creds())
        .expect(MUST);
    for name in ["small1", "small2", "one", "whole"] {
        let ino = sub(name);
        fs.setxattr(ino, b"user.short", b"value", XattrSet::Any).expect(MUST);
        fs.setxattr(ino, b"user.long", &[7; 500], XattrSet::Any).expect(MUST);
    }
    let acl = [
        2u8, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 5, 0,
        255, 255, 255, 255,
    ];
    let _ = fs.setxattr(sub("one"), b"system.posix_acl_default", &acl, XattrSet::Any);
    fs.sync().expect(MUST);
}

/// Changes that stay in the log, revocations among them, and orphans.
fn work(fs: &Ext4) {
    let t = fs.lookup(fs.root(), b"t").expect(MUST).id.ino;
    let sub = |name: &str| fs.lookup(t, name.as_bytes()).expect(MUST).id.ino;
    for i in 0..5 {
        let ino = make_file(fs, sub("nest"), &format!("new{i}"));
        fs.write(ino, 0, &pattern(3000)).expect(MUST);
        fs.fsync(ino, false).expect(MUST);
    }
    fs.rmdir(t, b"empty").expect(MUST);
    fs.unlink(t, b"many-extents").expect(MUST);
    fs.sync().expect(MUST);
    // Still referenced when their names go: orphans.
    for name in ["small3", "whole", "small5"] {
        sub(name);
        fs.unlink(t, name.as_bytes()).expect(MUST);
    }
    let unnamed = fs.create_unnamed(t, 0o600, 0, creds()).expect(MUST).id.ino;
    fs.write(unnamed, 0, &pattern(5000)).expect(MUST);
    fs.fsync(unnamed, false).expect(MUST);
    let last = make_dir(fs, t, "last");
    fs.fsync(last, false).expect(MUST);
}

/// Gives the file "deep", which has four blocks in one extent, a tree of three levels below the
/// root: three of its blocks become the nodes, the last one stays data.
fn deepen(dev: &MemDevice) {
    let layout = Layout::of(dev);
    let Some((ino, _)) = layout.names.iter().find(|(_, n)| n.name == b"deep") else { return };
    let Some(t) = layout.targets.iter().find(|t| t.kind == Kind::Inode && t.ino == *ino) else {
        return;
    };
    let mut raw = read(dev, t.at, t.len);
    let block = &raw[0x28..0x64];
    if crate::layout::le16(block, 0) != extent::MAGIC || crate::layout::le16(block, 2) != 1 {
        return;
    }
    let first = u64::from(crate::layout::le32(block, 20));
    let bs = layout.geo.block_len();
    let seed = layout.geo.fs_seed.inode(extol_ondisk::InodeNr(*ino), layout.generations[ino]);
    let index = |b: &mut [u8], depth: u16, max: u16, child: u64| {
        b.fill(0);
        extent::ExtentHeader { entries: 1, max, depth, generation: 0 }.encode_into(b);
        extent::ExtentIndex { block: 0, leaf: child }.write(b, 12);
    };
    let max = extent::block_max(&layout.geo);
    for (nr, depth) in [(first, 2u16), (first + 1, 1), (first + 2, 0)] {
        let mut node = vec![0; bs];
        if depth > 0 {
            index(&mut node, depth, max, nr + 1);
        } else {
            extent::ExtentHeader { entries: 1, max, depth, generation: 0 }.encode_into(&mut node);
            extent::Extent { block: 0, len: 1, start: nr + 1, unwritten: false }
                .write(&mut node, 12);
        }
        if layout.geo.has_metadata_csum() {
            extent::set_csum(&mut node, seed);
        }
        dev.write_at(&node, nr * bs as u64).expect(MUST);
    }
    index(&mut raw[0x28..0x64], 3, 4, first);
    crate::seal::seal(&layout, t, &mut raw);
    dev.write_at(&raw, t.at).expect(MUST);
}
