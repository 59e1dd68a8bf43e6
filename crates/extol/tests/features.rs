//! What Linux mounts read-write Extol mounts read-write, whatever feature the volume has: each bit
//! of the three words is tried with both, and the table in the guide says what comes of it.

use std::fmt;
use std::path::Path;

use extol::vfs::{FileSystem as _, SetAttr, XattrSet};
use extol::{Ext4, MountOptions};
use extol_guest::Guest;
use extol_ondisk::{Compat, Incompat, RoCompat, Superblock};
use extol_testkit::{Image, KernelMount, Need, Scratch, e2fsck, require};

const NEEDS: [Need; 4] = [Need::Root, Need::Loop, Need::Kernel("ext4"), Need::Tool("mke2fs")];
const SUPERBLOCK: usize = 1024;
const SIZE: u64 = 24 << 20;
/// Features for which not every kernel is built.
const OPTIONAL: [&str; 3] = ["casefold", "quota", "project"];

/// How a volume is mounted at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Mounts {
    Refused,
    ReadOnly,
    ReadWrite,
}

impl fmt::Display for Mounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "refused",
            Self::ReadOnly => "read-only",
            Self::ReadWrite => "read-write",
        })
    }
}

/// A word of features in the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Word {
    Compat,
    Incompat,
    RoCompat,
}

impl Word {
    const ALL: [Self; 3] = [Self::Compat, Self::Incompat, Self::RoCompat];

    fn name(self) -> &'static str {
        match self {
            Self::Compat => "compat",
            Self::Incompat => "incompat",
            Self::RoCompat => "ro_compat",
        }
    }

    /// The name of a bit, if it has one.
    fn feature(self, bit: u32) -> Option<&'static str> {
        let names = match self {
            Self::Compat => Compat::from_bits_retain(bit).names(),
            Self::Incompat => Incompat::from_bits_retain(bit).names(),
            Self::RoCompat => RoCompat::from_bits_retain(bit).names(),
        };
        names.first().copied()
    }

    fn set(self, sb: &mut Superblock, bit: u32) {
        match self {
            Self::Compat => sb.feature_compat |= Compat::from_bits_retain(bit),
            Self::Incompat => sb.feature_incompat |= Incompat::from_bits_retain(bit),
            Self::RoCompat => sb.feature_ro_compat |= RoCompat::from_bits_retain(bit),
        }
    }
}

/// The features that mke2fs is given, so that the volume has what goes with the bit.
fn asked(feature: Option<&str>) -> String {
    const BESIDE: [(&str, &str); 6] = [
        ("meta_bg", "meta_bg,^resize_inode"),
        ("sparse_super2", "sparse_super2"),
        ("uninit_bg", "uninit_bg,^metadata_csum"),
        ("bigalloc", "bigalloc,^resize_inode"),
        ("orphan_present", "orphan_file"),
        ("project", "project,quota"),
    ];
    // What only its bit makes is set afterwards.
    const BITS: [&str; 19] = [
        "dir_prealloc",
        "imagic_inodes",
        "lazy_bg",
        "exclude_inode",
        "snapshot_bitmap",
        "compression",
        "needs_recovery",
        "journal_dev",
        "dirdata",
        "btree_dir",
        "snapshot",
        "replica",
        "read-only",
        "shared_blocks",
        "stable_inodes",
        "ext_attr",
        "filetype",
        "sparse_super",
        "large_file",
    ];
    match feature {
        Some(name) if BITS.contains(&name) => "^orphan_file".into(),
        Some(name) => {
            let beside = BESIDE.iter().find(|(of, _)| *of == name);
            beside.map_or(name, |(_, features)| features).to_owned()
        }
        None => "^orphan_file".into(),
    }
}

fn volume(dir: &Path, word: Word, bit: u32) -> Image {
    let features = asked(word.feature(bit));
    let name = format!("{}-{bit:x}.img", word.name());
    let image = Image::mke2fs(dir, &name, SIZE, &["-t", "ext4", "-b", "4096", "-O", &features]);
    let mut bytes = std::fs::read(&image.path).unwrap();
    let place = SUPERBLOCK..2 * SUPERBLOCK;
    let mut sb = Superblock::decode(&bytes[place.clone()]).unwrap();
    word.set(&mut sb, bit);
    bytes[place].copy_from_slice(&sb.encode());
    std::fs::write(&image.path, bytes).unwrap();
    image
}

fn linux(image: &Image, dir: &Path) -> Mounts {
    let copy = Image { path: image.path.with_extension("linux"), journal: None };
    std::fs::copy(&image.path, &copy.path).unwrap();
    let mounted = match KernelMount::try_mount(&copy, dir, &[]) {
        Ok(mount) => {
            let written = std::fs::write(dir.join("file"), "contents").is_ok();
            mount.unmount();
            if written { Mounts::ReadWrite } else { Mounts::ReadOnly }
        }
        Err(_) => match KernelMount::try_mount(&copy, dir, &["ro"]) {
            Ok(mount) => {
                mount.unmount();
                Mounts::ReadOnly
            }
            Err(_) => Mounts::Refused,
        },
    };
    std::fs::remove_file(&copy.path).unwrap();
    mounted
}

fn extol(image: &Image) -> Mounts {
    let options = MountOptions::default();
    if let Ok(fs) = Ext4::open_path(&image.path, &options) {
        fs.write_file("/file", b"contents").unwrap();
        fs.unmount().unwrap();
        return Mounts::ReadWrite;
    }
    match Ext4::open_path(&image.path, &options.read_only()) {
        Ok(fs) => {
            fs.unmount().unwrap();
            Mounts::ReadOnly
        }
        Err(_) => Mounts::Refused,
    }
}

/// The table of the guide: feature, word and bit, Linux, Extol.
fn rows() -> Vec<[String; 4]> {
    let guide = include_str!("../../../docs/guide/limits.md");
    let table = guide.split("\n## Features\n").nth(1).expect("the section of the guide");
    let rows = table.lines().skip_while(|line| !line.starts_with("|---")).skip(1);
    let cells = |line: &str| {
        let cells: Vec<_> =
            line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
        <[String; 4]>::try_from(cells).expect("four cells")
    };
    rows.take_while(|line| line.starts_with('|')).map(cells).collect()
}

/// What the guide says of a bit: Linux, Extol.
fn stated(rows: &[[String; 4]], word: Word, bit: u32) -> (String, String) {
    let name = word.feature(bit).unwrap_or("others");
    let place = match word.feature(bit) {
        Some(_) => format!("{} {bit:#x}", word.name()),
        None => word.name().to_owned(),
    };
    let row = rows.iter().find(|row| row[0].trim_matches('`') == name && row[1] == place);
    row.map_or_else(Default::default, |row| (row[2].clone(), row[3].clone()))
}

#[test]
fn each_feature_is_mounted_as_the_guide_says() {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let dir = scratch.dir("mnt");
    let rows = rows();
    let mut wrong = Vec::new();
    for (word, bit) in Word::ALL.into_iter().flat_map(|word| (0..32).map(move |n| (word, 1 << n))) {
        let image = volume(scratch.path(), word, bit);
        let name = word.feature(bit);
        let (theirs, ours) = (linux(&image, &dir), extol(&image));
        std::fs::remove_file(&image.path).unwrap();
        let is_optional = name.is_some_and(|name| OPTIONAL.contains(&name));
        if ours < theirs {
            wrong.push(format!("{word:?} {bit:#x} {name:?}: Linux {theirs}, Extol {ours}"));
        }
        let (linux_stated, extol_stated) = stated(&rows, word, bit);
        let as_stated = is_optional || linux_stated == theirs.to_string();
        if !as_stated || extol_stated != ours.to_string() {
            wrong.push(format!(
                "| `{}` | {} {bit:#x} | {theirs} | {ours} | is not in the guide",
                name.unwrap_or("others"),
                word.name()
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A kernel with all formats, which this one may not be built with.
#[test]
fn optional_features_are_mounted_as_the_guide_says() {
    if !require(&[Need::Guest, Need::Tool("mke2fs")]) {
        return;
    }
    let scratch = Scratch::new();
    let rows = rows();
    let mut guest = Guest::new().module("quota_v2");
    let mut script = String::new();
    let bits = [
        (Word::Incompat, Incompat::CASEFOLD.bits()),
        (Word::RoCompat, RoCompat::QUOTA.bits()),
        (Word::RoCompat, RoCompat::PROJECT.bits()),
    ];
    for ((word, bit), drive) in bits.into_iter().zip('a'..) {
        let image = volume(scratch.path(), word, bit);
        guest = guest.drive(&image.path);
        script += &format!(
            "mount -t ext4 /dev/vd{drive} /mnt && echo x > /mnt/file && umount /mnt && \
             echo {} read-write\n",
            word.feature(bit).unwrap()
        );
    }
    let report = guest.run(&script);
    for (word, bit) in bits {
        let name = word.feature(bit).unwrap();
        let line = format!("{name} read-write");
        assert!(report.lines().contains(&line.as_str()), "{name}: {report:?}");
        assert_eq!(stated(&rows, word, bit).0, "read-write", "{name}");
    }
}

/// A volume gets the features that its files need, also one of the first revision.
#[test]
fn files_bring_the_features_that_they_need() {
    if !require(&[Need::Tool("mke2fs"), Need::Tool("e2fsck")]) {
        return;
    }
    let scratch = Scratch::new();
    // (A resize inode is longer than 2 GiB.)
    for (args, revision) in [
        (&["-t", "ext2", "-O", "^large_file,^ext_attr,^resize_inode"][..], 1),
        (&["-t", "ext4", "-O", "^large_file,^ext_attr,^huge_file,^resize_inode"], 1),
        (&["-r", "0"], 0),
    ] {
        let image = Image::mke2fs(scratch.path(), "a.img", SIZE, &[&["-b", "4096"], args].concat());
        let superblock = || {
            let bytes = std::fs::read(&image.path).unwrap();
            Superblock::decode(&bytes[SUPERBLOCK..2 * SUPERBLOCK]).unwrap()
        };
        let has = |sb: &Superblock| {
            [
                sb.feature_compat.contains(Compat::EXT_ATTR),
                sb.feature_ro_compat.contains(RoCompat::LARGE_FILE),
            ]
        };
        assert_eq!((has(&superblock()), superblock().rev_level), ([false, false], revision));
        let mut wanted = [false, false];
        type Step = fn(&Ext4, u32);
        let steps: [(Step, [bool; 2]); 5] = [
            (|_, _| {}, [false, false]),
            (|fs, ino| set_size(fs, ino, i32::MAX as u64), [false, false]),
            (
                |fs, ino| {
                    fs.setxattr(ino, b"user.name", &[7; 200], XattrSet::Any).unwrap();
                },
                [true, false],
            ),
            (|fs, ino| set_size(fs, ino, 1 << 31), [false, true]),
            (
                |fs, ino| {
                    fs.write(ino, 3 << 30, b"contents").unwrap();
                },
                [false, true],
            ),
        ];
        for (step, brings) in steps {
            let fs = Ext4::open_path(&image.path, &MountOptions::default()).unwrap();
            if fs.lookup(fs.root(), b"file").is_err() {
                fs.write_file("/file", b"contents").unwrap();
            }
            let ino = fs.lookup(fs.root(), b"file").unwrap().id.ino;
            step(&fs, ino);
            fs.unmount().unwrap();
            wanted = [wanted[0] | brings[0], wanted[1] | brings[1]];
            assert_eq!(has(&superblock()), wanted, "{args:?}");
            e2fsck(&image).assert_clean(&format!("{args:?}"));
        }
    }
}

fn set_size(fs: &Ext4, ino: u32, size: u64) {
    fs.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
}
