//! Quota files: what e2fsck wrote is read as debugfs reads it, and what this crate wrote is what
//! e2fsck expects and debugfs reads.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use extol_ondisk::quota::{BLOCK_LEN, Entry, InMemory, Kind, QuotaFile};

use super::image::Image;
use super::{InodeNr, Scratch, run};

/// The owner of a file: small and large numbers.
fn owner(n: u32) -> u32 {
    n.wrapping_mul(0x0123_4567) >> (n % 16)
}

/// Makes a volume whose files belong to many users, groups and projects.
fn make(scratch: &Scratch, block_size: &str) -> PathBuf {
    let image = scratch.path("image");
    let name = image.to_string_lossy().into_owned();
    let features = "quota,project";
    run("mke2fs", &["-qFt", "ext4", "-b", block_size, "-O", features, &name, "48M"], &[0]);
    let file = scratch.path("file");
    std::fs::write(&file, vec![0x5A; 5000]).expect("write");
    let mut script = String::new();
    for n in 1..=120u32 {
        script += &format!("write {} f{n}\n", file.display());
        script += &format!("sif f{n} uid {}\n", owner(n));
        script += &format!("sif f{n} gid {}\nsif f{n} projid {}\n", n * n, n % 7);
    }
    let commands = scratch.path("commands");
    std::fs::write(&commands, script).expect("write");
    run("debugfs", &[&format!("-wf{}", commands.display()), &name], &[0]);
    // Corrects the usage; 1 means that it did.
    run("e2fsck", &["-fy", &name], &[1]);
    image
}

fn inode_of(image: &Image, kind: Kind) -> InodeNr {
    InodeNr(match kind {
        Kind::User => image.sb.usr_quota_inum,
        Kind::Group => image.sb.grp_quota_inum,
        Kind::Project => image.sb.prj_quota_inum,
    })
}

/// The bytes of a quota file, in blocks of the volume.
fn load(image: &Image, kind: Kind) -> Vec<u8> {
    let ino = inode_of(image, kind);
    let inode = image.inode(ino);
    let mut bytes = Vec::new();
    for (index, (logical, nr)) in image.file_blocks(ino, &inode).into_iter().enumerate() {
        assert_eq!(index, logical as usize, "quota files have no holes");
        bytes.extend_from_slice(image.block(nr));
    }
    bytes.truncate(inode.size as usize);
    bytes
}

/// Stores the bytes of a quota file, which is as long as before.
fn store(image: &mut Image, kind: Kind, bytes: &[u8]) {
    let ino = inode_of(image, kind);
    let inode = image.inode(ino);
    assert_eq!(inode.size, bytes.len() as u64);
    let block_len = image.geo.block_len();
    let blocks = image.file_blocks(ino, &inode);
    for ((_, nr), chunk) in blocks.into_iter().zip(bytes.chunks(block_len)) {
        let at = nr.offset(image.geo.block_size) as usize;
        image.bytes[at..at + chunk.len()].copy_from_slice(chunk);
    }
}

fn open(image: &Image, kind: Kind) -> QuotaFile<InMemory> {
    let file = QuotaFile::open(InMemory(load(image, kind)), kind);
    file.unwrap_or_else(|e| panic!("{kind:?}: {e}"))
}

/// What debugfs lists: id, space, soft and hard limit, inodes, soft and hard limit.
fn listed(path: &Path, kind: Kind) -> BTreeMap<u32, Vec<u64>> {
    let command = format!("list_quota {}", kind.name());
    let text = run("debugfs", &["-R", &command, &path.to_string_lossy()], &[0]);
    let rows = text.lines().skip(1).map(|line| {
        let mut words = line.split_whitespace().map(|word| word.parse::<u64>().expect("number"));
        (words.next().expect("id") as u32, words.collect())
    });
    rows.collect()
}

fn row(e: &Entry) -> Vec<u64> {
    vec![e.space, e.space_soft, e.space_hard, e.inodes, e.inode_soft, e.inode_hard]
}

fn assert_listed(path: &Path, kind: Kind, file: &mut QuotaFile<InMemory>) {
    let entries = file.entries().expect("entries");
    let ours: BTreeMap<_, _> = entries.iter().map(|entry| (entry.id, row(entry))).collect();
    assert_eq!(ours, listed(path, kind), "{kind:?}");
}

#[test]
fn what_e2fsck_wrote_is_read_as_debugfs_reads_it() {
    for block_size in ["1024", "4096"] {
        let scratch = Scratch::new();
        let path = make(&scratch, block_size);
        let image = Image::load(&path);
        for kind in Kind::ALL {
            let mut file = open(&image, kind);
            file.verify().unwrap_or_else(|e| panic!("{kind:?}: {e}"));
            assert_listed(&path, kind, &mut file);
        }
        let mut users = open(&image, Kind::User);
        let owners: BTreeSet<u32> = (0..=120).map(owner).collect();
        let found = users.entries().expect("entries");
        assert_eq!(found.iter().map(|e| e.id).collect::<BTreeSet<_>>(), owners);
        let used = users.get(0).expect("read").expect("root's");
        assert_eq!(used.inodes, 2);
    }
}

#[test]
fn what_is_written_is_what_e2fsck_expects_and_debugfs_reads() {
    for block_size in ["1024", "4096"] {
        let scratch = Scratch::new();
        let path = make(&scratch, block_size);
        let mut image = Image::load(&path);
        for kind in Kind::ALL {
            let mut file = open(&image, kind);
            let mut entries = file.entries().expect("entries");
            entries.iter().for_each(|e| assert_eq!(file.remove(e.id), Ok(true)));
            assert_eq!(file.entries(), Ok(vec![]));
            // In another order than before, so that the entries get other places.
            entries.sort_by_key(|entry| entry.id.reverse_bits());
            for entry in &mut entries {
                entry.space_hard = 100 + u64::from(entry.id);
                entry.space_soft = 50;
                entry.inode_hard = 7;
                entry.inode_soft = 1 << 40;
                file.set(entry).expect("set");
            }
            file.verify().expect("whole");
            store(&mut image, kind, &file.into_blocks().0);
        }
        std::fs::write(&path, &image.bytes).expect("write");
        run("e2fsck", &["-fn", &path.to_string_lossy()], &[0]);
        for kind in Kind::ALL {
            assert_listed(&path, kind, &mut open(&image, kind));
        }
    }
}

#[test]
fn a_new_file_has_the_bytes_that_mke2fs_writes() {
    let scratch = Scratch::new();
    let path = scratch.path("image");
    let name = path.to_string_lossy().into_owned();
    run("mke2fs", &["-qFt", "ext4", "-b", "1024", "-O", "quota", &name, "16M"], &[0]);
    let image = Image::load(&path);
    let theirs = load(&image, Kind::Group);
    let header = open(&image, Kind::Group).header();
    let mut file =
        QuotaFile::create(InMemory::default(), header.kind, header.version).expect("created");
    file.set(&open(&image, Kind::Group).get(0).expect("read").expect("root's")).expect("set");
    let ours = file.into_blocks().0;
    assert_eq!(ours.len() % BLOCK_LEN, 0);
    assert_eq!(ours, theirs);
}
