//! The volumes that are damaged: small, of every kind, with something of everything in them.
//!
//! Made by mke2fs and filled by the library, always in the same way: no random numbers choose a place (all directories
//! lie below one that mke2fs made), so that a seed means the same damage on every machine. Times, and the generations of
//! inodes, differ; checksums hide that.

use std::process::Command;
use std::sync::OnceLock;

use extol::vfs::{Creds, Fallocate, FileSystem, NewNode, Rdev, XattrSet};
use extol::{Ext4, MountOptions};
use extol_device::{BlockDevice, MemDevice};
use extol_ondisk::extent;

use crate::disk::{Disk, pattern};
use crate::layout::{Kind, Layout, read};

/// A kind of volume.
pub struct Variant {
    pub name: &'static str,
    pub size: &'static str,
    pub args: &'static [&'static str],
    /// Ends with a crash: the log has something in it, and orphans wait.
    pub dirty: bool,
    pub options: &'static str,
}

pub const VARIANTS: &[Variant] = &[
    Variant { name: "ext4-1k", size: "6M", args: &["-t", "ext4", "-b", "1024"], dirty: false, options: "" },
    Variant { name: "ext4-4k", size: "12M", args: &["-t", "ext4", "-b", "4096"], dirty: false, options: "" },
    Variant {
        name: "ext4-1k-nocsum",
        size: "6M",
        args: &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit,uninit_bg"],
        dirty: false,
        options: "",
    },
    Variant {
        name: "inline-orphanfile",
        size: "6M",
        args: &["-t", "ext4", "-b", "1024", "-I", "512", "-O", "inline_data,orphan_file"],
        dirty: false,
        options: "",
    },
    Variant { name: "ext3", size: "6M", args: &["-t", "ext3", "-b", "1024"], dirty: false, options: "" },
    Variant { name: "ext2-4k", size: "8M", args: &["-t", "ext2", "-b", "4096"], dirty: false, options: "" },
    Variant {
        name: "groups",
        size: "6M",
        args: &[
            "-t",
            "ext4",
            "-b",
            "1024",
            "-g",
            "1024",
            "-N",
            "512",
            "-O",
            "^resize_inode,meta_bg",
            "-G",
            "2",
        ],
        dirty: false,
        options: "",
    },
    Variant { name: "dirty", size: "6M", args: &["-t", "ext4", "-b", "1024"], dirty: true, options: "" },
    Variant {
        name: "dirty-orphanfile",
        size: "6M",
        args: &["-t", "ext4", "-b", "1024", "-O", "orphan_file,inline_data"],
        dirty: true,
        options: "",
    },
    Variant { name: "dirty-ext3", size: "6M", args: &["-t", "ext3", "-b", "1024"], dirty: true, options: "" },
    Variant {
        name: "dirty-datajournal",
        size: "6M",
        args: &["-t", "ext4", "-b", "1024"],
        dirty: true,
        options: "data=journal",
    },
];

/// A volume and what is where on it.
pub struct Base {
    pub image: MemDevice,
    pub layout: Layout,
}

/// The volume of a variant; made once.
pub fn base(which: usize) -> &'static Base {
    static BASES: [OnceLock<Base>; VARIANTS.len()] = [const { OnceLock::new() }; VARIANTS.len()];
    BASES[which].get_or_init(|| make(&VARIANTS[which]))
}

fn mke2fs(v: &Variant) -> MemDevice {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("t")).unwrap();
    let uuid = "5a3c1f00-1111-4222-8333-0123456789ab";
    let out = Command::new("mke2fs")
        .args([
            "-q",
            "-F",
            "-U",
            uuid,
            "-E",
            "hash_seed=6b8b4567-327b-4c64-a3a8-dd1cd5b5ee0f,lazy_itable_init=1",
        ])
        .args(v.args)
        .arg("-d")
        .arg(&root)
        .arg(&path)
        .arg(v.size)
        .output()
        .unwrap();
    assert!(out.status.success(), "mke2fs: {}", String::from_utf8_lossy(&out.stderr));
    MemDevice::from_bytes(&std::fs::read(&path).unwrap())
}

/// Nothing happens by itself, so the log is always the same.
fn options(text: &str) -> MountOptions {
    MountOptions { commit: std::time::Duration::from_secs(3600), ..MountOptions::parse(text).unwrap() }
}

fn make(v: &Variant) -> Base {
    let disk = Disk::new(mke2fs(v), false);
    let fs = Ext4::open(disk.clone(), &options(v.options)).unwrap();
    fill(&fs);
    fs.unmount().unwrap();
    drop(fs);
    deepen(&disk.mem);
    if !v.dirty {
        let image = disk.mem.snapshot();
        return Base { layout: Layout::of(&image), image };
    }
    let fs = Ext4::open(disk.clone(), &options(v.options)).unwrap();
    work(&fs);
    fs.crash();
    drop(fs);
    let image = disk.mem.snapshot();
    // Where things are is seen on a copy that was recovered; what the log holds, on the volume itself.
    let copy = Disk::new(image.snapshot(), false);
    Ext4::open(copy.clone(), &options("")).unwrap().unmount().unwrap();
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

fn who() -> Creds {
    Creds::default()
}

fn make_file(fs: &Ext4, dir: u32, name: &str) -> u32 {
    fs.create(dir, name.as_bytes(), NewNode::Regular, 0o644, 0, who()).unwrap().id.ino
}

fn make_dir(fs: &Ext4, dir: u32, name: &str) -> u32 {
    fs.create(dir, name.as_bytes(), NewNode::Directory, 0o755, 0, who()).unwrap().id.ino
}

fn fill(fs: &Ext4) {
    let bs = u64::from(fs.statfs().unwrap().block_size);
    let t = fs.lookup(fs.root(), b"t").unwrap().id.ino;
    for i in 0..6 {
        let ino = make_file(fs, t, &format!("small{i}"));
        fs.write(ino, 0, &pattern(i * 700)).unwrap();
    }
    let frag = |name: &str, extents: u64| {
        let ino = make_file(fs, t, name);
        for i in 0..extents {
            fs.write(ino, 2 * i * bs, &pattern(bs as usize)).unwrap();
        }
        fs.fsync(ino, false).unwrap();
        ino
    };
    frag("extents", 20);
    frag("many-extents", 400);
    let far = make_file(fs, t, "sparse");
    for at in [0, 13 * bs, 300 * bs, 70_000 * bs] {
        fs.write(far, at, &pattern(bs as usize)).unwrap();
    }
    let whole = make_file(fs, t, "whole");
    fs.write(whole, 0, &pattern(40 * bs as usize + 100)).unwrap();
    let deep = make_file(fs, t, "deep");
    fs.write(deep, 0, &pattern(4 * bs as usize)).unwrap();
    let promised = make_file(fs, t, "unwritten");
    let _ = fs.fallocate(promised, Fallocate::Allocate { keep_size: false }, 0, 30 * bs);
    fs.write(promised, 5 * bs, &pattern(2 * bs as usize)).unwrap();
    for dir in ["empty", "one", "big", "tall", "nest"] {
        make_dir(fs, t, dir);
    }
    let sub = |name: &str| fs.lookup(t, name.as_bytes()).unwrap().id.ino;
    for i in 0..8 {
        make_file(fs, sub("one"), &format!("n{i}"));
    }
    for i in 0..150 {
        fs.link(whole, sub("big"), format!("link-number-{i:04}").as_bytes()).unwrap();
    }
    if bs == 1024 {
        for i in 0..560 {
            fs.link(far, sub("tall"), format!("{i:03}{}", "x".repeat(240)).as_bytes()).unwrap();
        }
    }
    let mut at = sub("nest");
    for name in ["a", "b", "c", "d"] {
        at = make_dir(fs, at, name);
        make_file(fs, at, "leaf");
    }
    fs.create(t, b"fast-link", NewNode::Symlink(b"small1".to_vec()), 0o777, 0, who()).unwrap();
    fs.create(t, b"slow-link", NewNode::Symlink(vec![b'y'; 150]), 0o777, 0, who()).unwrap();
    fs.create(t, b"fifo", NewNode::Fifo, 0o600, 0, who()).unwrap();
    fs.create(t, b"device", NewNode::CharDevice(Rdev { major: 5, minor: 1 }), 0o600, 0, who()).unwrap();
    for name in ["small1", "small2", "one", "whole"] {
        let ino = sub(name);
        fs.setxattr(ino, b"user.short", b"value", XattrSet::Any).unwrap();
        fs.setxattr(ino, b"user.long", &[7; 500], XattrSet::Any).unwrap();
    }
    let acl = [
        2u8, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 5, 0, 255, 255, 255, 255, 32, 0, 5, 0, 255, 255,
        255, 255,
    ];
    let _ = fs.setxattr(sub("one"), b"system.posix_acl_default", &acl, XattrSet::Any);
    fs.sync().unwrap();
}

/// Changes that stay in the log, revocations among them, and orphans.
fn work(fs: &Ext4) {
    let t = fs.lookup(fs.root(), b"t").unwrap().id.ino;
    let sub = |name: &str| fs.lookup(t, name.as_bytes()).unwrap().id.ino;
    for i in 0..5 {
        let ino = make_file(fs, sub("nest"), &format!("new{i}"));
        fs.write(ino, 0, &pattern(3000)).unwrap();
        fs.fsync(ino, false).unwrap();
    }
    fs.rmdir(t, b"empty").unwrap();
    fs.unlink(t, b"many-extents").unwrap();
    fs.sync().unwrap();
    // Still known to somebody when their names go: orphans.
    for name in ["small3", "whole", "small5"] {
        sub(name);
        fs.unlink(t, name.as_bytes()).unwrap();
    }
    let unnamed = fs.create_unnamed(t, 0o600, 0, who()).unwrap().id.ino;
    fs.write(unnamed, 0, &pattern(5000)).unwrap();
    fs.fsync(unnamed, false).unwrap();
    let last = make_dir(fs, t, "last");
    fs.fsync(last, false).unwrap();
}

/// Gives the file "deep", which has four blocks in one extent, a tree of three levels below the root: three of its
/// blocks become the nodes, the last one stays data.
fn deepen(dev: &MemDevice) {
    let layout = Layout::of(dev);
    let Some((ino, _)) = layout.names.iter().find(|(_, n)| n.name == b"deep") else { return };
    let Some(t) = layout.targets.iter().find(|t| t.kind == Kind::Inode && t.ino == *ino) else { return };
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
            extent::Extent { block: 0, len: 1, start: nr + 1, unwritten: false }.write(&mut node, 12);
        }
        if layout.geo.has_metadata_csum() {
            extent::set_csum(&mut node, seed);
        }
        dev.write_at(&node, nr * bs as u64).unwrap();
    }
    index(&mut raw[0x28..0x64], 3, 4, first);
    crate::seal::seal(&layout, t, &mut raw);
    dev.write_at(&raw, t.at).unwrap();
}
