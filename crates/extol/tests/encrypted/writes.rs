//! Trees that Linux made, changed with their key: Linux reads what Extol wrote, and the reverse.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use extol::{Ext4, MountOptions};
use extol_testkit::{
    Image, KernelMount, Scratch, add_encryption_key, e2fsck, require, set_encryption_policy,
};
use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::subject::{Change, Extol, Linux, Subject};
use crate::{KEY_OF_V1, NEEDS};

/// Changes of each turn.
const CHANGES: usize = 120;
const TURNS: usize = 6;
/// Longest file.
const LONGEST: u64 = 90_000;

/// How a volume, and the tree on it, are encrypted.
pub struct Kind {
    pub features: &'static str,
    pub block_size: &'static str,
    pub inode_size: &'static str,
    /// Flags of the policy, binary logarithm of its data units; none: a policy of version 1.
    pub policy: Option<(u8, u8)>,
}

/// Makes a volume with an empty encrypted directory `tree`.
pub fn make(scratch: &Scratch, kind: &Kind) -> Image {
    let Kind { features, block_size, inode_size, policy } = kind;
    let of = if features.contains("^extents") { "ext2" } else { "ext4" };
    let options = ["-t", of, "-b", block_size, "-I", inode_size, "-N", "2048", "-O", features];
    let image = Image::mke2fs(scratch.path(), "written.img", 48 << 20, &options);
    let at = scratch.dir("linux");
    let mount = KernelMount::mount(&image, &at, &[]);
    let identifier = add_keys(&at);
    fs::create_dir(at.join("tree")).unwrap();
    let policy = match policy {
        Some((flags, unit)) => [&[2, 1, 4, *flags, *unit, 0, 0, 0][..], &identifier].concat(),
        None => [&[0, 1, 4, 2][..], b"descript"].concat(),
    };
    set_encryption_policy(&at.join("tree"), &policy).unwrap();
    mount.unmount();
    image
}

fn add_keys(at: &Path) -> [u8; 16] {
    add_encryption_key(at, Some(*b"descript"), &KEY_OF_V1);
    add_encryption_key(at, None, &[7; 64])
}

pub fn with_keys(options: &str) -> MountOptions {
    let mut options = MountOptions::parse(options).unwrap();
    options.keys.add(&[7; 64]).unwrap();
    options.keys.add_as(*b"descript", &KEY_OF_V1).unwrap();
    options
}

pub fn open(image: &Image, options: &str) -> Arc<Ext4> {
    Ext4::open_path(&image.path, &with_keys(options)).unwrap()
}

/// Unmounts a volume, and closes its image.
pub fn close(fs: Arc<Ext4>) {
    fs.unmount().unwrap();
}

/// Draws changes of a small tree, so that many of them meet.
struct Draw {
    rng: SmallRng,
    dirs: Vec<PathBuf>,
    names: Vec<String>,
}

impl Draw {
    fn new(seed: u64) -> Self {
        let dirs = ["", "dir", "dir/below", "another directory"].map(PathBuf::from).into();
        let lengths = [1, 2, 15, 16, 17, 40, 100, 143, 200, 255];
        let names = lengths.into_iter().map(|len| format!("{len:x<len$}")).collect();
        Self { rng: SmallRng::seed_from_u64(seed), dirs, names }
    }

    fn path(&mut self) -> PathBuf {
        let dir = self.dirs.choose(&mut self.rng).unwrap();
        dir.join(self.names.choose(&mut self.rng).unwrap())
    }

    /// A place in a file, and a length: often at edges of blocks.
    fn range(&mut self, most: u64) -> (u64, u64) {
        let rng = &mut self.rng;
        let round = |n: u64, rng: &mut SmallRng| match rng.random_range(0..3) {
            0 => n / 4096 * 4096,
            1 => n / 1024 * 1024,
            _ => n,
        };
        let at = round(rng.random_range(0..LONGEST), rng);
        let len = round(rng.random_range(1..most), rng).max(1);
        (at, len)
    }

    fn change(&mut self) -> Change {
        let path = self.path();
        match self.rng.random_range(0..100) {
            0..34 => {
                let most = *[20, 3000, 30_000].choose(&mut self.rng).unwrap();
                let (at, len) = self.range(most);
                let mut bytes = vec![0; len as usize];
                self.rng.fill(&mut bytes[..]);
                Change::Write { path, at, bytes }
            }
            34..44 => Change::SetLen { path, len: self.range(2).0 },
            44..51 => {
                let (at, len) = self.range(20_000);
                Change::Punch { path, at, len }
            }
            51..57 => {
                let (at, len) = self.range(20_000);
                Change::Zero { path, at, len }
            }
            57..60 => {
                let (at, len) = self.range(20_000);
                Change::Allocate { path, at, len }
            }
            60..66 => {
                let dirs: Vec<_> = self.dirs[1..].to_vec();
                Change::Dir { path: dirs.choose(&mut self.rng).unwrap().clone() }
            }
            66..72 => {
                let len = *[4, 13, 14, 56, 57, 58, 300, 1000].choose(&mut self.rng).unwrap();
                // (It leads nowhere: there is no directory to make what is written through it.)
                Change::Symlink { target: "no/".repeat(len)[..len].into(), path }
            }
            72..77 => Change::Link { from: self.path(), to: path },
            77..87 => Change::Rename { from: self.path(), to: path },
            87..90 => Change::Exchange { from: self.path(), to: path },
            90..99 => Change::Remove { path },
            _ => Change::RemoveDir { path: self.dirs.choose(&mut self.rng).unwrap().clone() },
        }
    }
}

/// Both make the same changes. (`RemoveDir` of the tree itself is left out.)
fn both(draw: &mut Draw, subject: &dyn Subject, model: &dyn Subject) {
    let mut made = 0;
    while made < CHANGES {
        let change = draw.change();
        if matches!(&change, Change::RemoveDir { path } if path.as_os_str().is_empty()) {
            continue;
        }
        made += 1;
        assert_eq!(subject.make(&change), model.make(&change), "{change:?}");
    }
    compare(subject, model);
}

fn compare(subject: &dyn Subject, model: &dyn Subject) {
    let (found, wanted) = (subject.seen(), model.seen());
    for (path, wanted) in &wanted {
        assert!(found.get(path) == Some(wanted), "{}", path.display());
    }
    assert_eq!(found.len(), wanted.len());
}

/// Extol and Linux take turns in changing a tree.
fn take_turns(kind: &Kind, options: &str, seed: u64) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, kind);
    let (model, at) = (scratch.dir("model"), scratch.dir("linux"));
    let model = Linux(&model);
    let mut draw = Draw::new(seed);
    for turn in 0..TURNS {
        let fs = open(&image, options);
        let subject = Extol(&fs, Path::new("/tree"));
        compare(&subject, &model);
        both(&mut draw, &subject, &model);
        close(fs);
        e2fsck(&image).assert_clean(&format!("turn {turn}"));
        let mount = KernelMount::mount(&image, &at, &[]);
        add_keys(&at);
        let tree = at.join("tree");
        compare(&Linux(&tree), &model);
        both(&mut draw, &Linux(&tree), &model);
        mount.unmount();
        e2fsck(&image).assert_clean(&format!("turn {turn} of Linux"));
    }
}

/// Data units are smaller than blocks.
#[test]
fn linux_and_extol_take_turns() {
    let kind = Kind {
        features: "encrypt,fast_commit",
        block_size: "4096",
        inode_size: "256",
        policy: Some((1, 9)),
    };
    take_turns(&kind, "", 1);
}

/// Nothing of an encrypted tree is inside of inodes, and its data is not journalled.
#[test]
fn they_take_turns_with_the_features_that_others_have() {
    let kind = Kind {
        features: "encrypt,inline_data,stable_inodes,ea_inode",
        block_size: "4096",
        inode_size: "256",
        policy: Some((0x0A, 0)),
    };
    take_turns(&kind, "data=journal", 2);
}

/// The context lies in a block of its own, and directories have no index.
#[test]
fn they_take_turns_where_inodes_are_small() {
    let kind = Kind {
        features: "encrypt,^dir_index,^extents",
        block_size: "1024",
        inode_size: "128",
        policy: None,
    };
    // (Without extents there is no preallocation.)
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, &kind);
    let (model, at) = (scratch.dir("model"), scratch.dir("linux"));
    let model = Linux(&model);
    let mut draw = Draw::new(3);
    let plain = |change: &Change| {
        !matches!(change, Change::Zero { .. } | Change::Allocate { .. } | Change::RemoveDir { .. })
    };
    for _ in 0..TURNS / 2 {
        let changes: Vec<_> =
            std::iter::repeat_with(|| draw.change()).filter(plain).take(2 * CHANGES).collect();
        let (first, second) = changes.split_at(CHANGES);
        let fs = open(&image, "nodelalloc");
        let subject = Extol(&fs, Path::new("/tree"));
        for change in first {
            assert_eq!(subject.make(change), model.make(change), "{change:?}");
        }
        compare(&subject, &model);
        close(fs);
        e2fsck(&image).assert_clean("the turn of Extol");
        let mount = KernelMount::mount(&image, &at, &[]);
        add_keys(&at);
        let tree = at.join("tree");
        compare(&Linux(&tree), &model);
        for change in second {
            assert_eq!(Linux(&tree).make(change), model.make(change), "{change:?}");
        }
        mount.unmount();
        let fs = open(&image, "");
        compare(&Extol(&fs, Path::new("/tree")), &model);
        close(fs);
    }
}
