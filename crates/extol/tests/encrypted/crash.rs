//! After a power cut all that was acknowledged is there, with the key; and at no time is a byte of
//! it on the device in clear text.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use extol::vfs::FileSystem as _;
use extol::{Ext4, OpenOptions};
use extol_block::{MemDevice, SharedDevice};
use extol_devices::{Event, RecordingDevice};
use extol_testkit::{
    Image, KernelMount, Scratch, add_encryption_key, e2fsck_fix, require, run_ok, text, tool,
};
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};

use crate::NEEDS;
use crate::folded::fold;
use crate::writes::{Kind, make, with_keys};

const MARKER: &[u8] = b"a plain secret. ";
/// Of a file that is not encrypted.
const NO_SECRET: &[u8] = b"this is no secret";
const FILES: usize = 14;
const CUTS: usize = 70;

const KIND: Kind = Kind {
    features: "encrypt,fast_commit",
    block_size: "1024",
    inode_size: "256",
    policy: Some((3, 0)),
};

/// What was acknowledged: from this position of the log on a file begins with these bytes.
struct Promise {
    since: usize,
    path: PathBuf,
    contents: Vec<u8>,
}

fn secret(len: usize) -> Vec<u8> {
    MARKER.iter().copied().cycle().take(len).collect()
}

/// Makes files, lets them grow, and renames them, each with an fsync.
fn work(fs: &Arc<Ext4>, device: &RecordingDevice) -> Vec<Promise> {
    let mut promises = Vec::new();
    let mut promise = |path: &str, contents: &[u8]| {
        let (path, contents) = (path.into(), contents.to_vec());
        promises.push(Promise { since: device.position(), path, contents });
    };
    for number in 0..FILES {
        let path = format!("/tree/a plain secret. {number}");
        let mut contents = secret(1 + number * 700);
        let file = fs.create_file(&path).unwrap();
        file.write_all_at(&contents, 0).unwrap();
        file.sync_all().unwrap();
        promise(&path, &contents);
        for more in [3, 400, 2000] {
            let from = contents.len();
            contents = secret(from + more);
            file.write_all_at(&contents[from..], from as u64).unwrap();
            file.sync_data().unwrap();
            promise(&path, &contents);
        }
        fs.symlink("a plain secret. ".repeat(1 + number), format!("{path} link")).unwrap();
        if number % 4 == 0 {
            let to = format!("/tree/moved: a plain secret. {number}");
            fs.rename_path(&path, &to).unwrap();
            fs.sync().unwrap();
            promise(&to, &contents);
        }
    }
    fs.write_file("/plain", NO_SECRET).unwrap();
    // Straight to the device, and cut inside a block.
    let path = "/tree/large";
    let contents = secret(700_000);
    fs.write_file(path, &contents).unwrap();
    let file = fs.open_file(path, OpenOptions::new().write(true)).unwrap();
    file.set_len(600_001).unwrap();
    file.sync_all().unwrap();
    promise(path, &contents[..600_001]);
    promises
}

/// True if the last promises of these files are kept. (A file that was renamed later may have
/// either name.)
fn check(fs: &Arc<Ext4>, promises: &[Promise], cut: usize, tree: Tree) {
    for promise in promises.iter().filter(|promise| promise.since <= cut) {
        let name = promise.path.file_name().unwrap().to_str().unwrap();
        let moved = format!("/tree/moved: {name}");
        let contents = fs.read_file(&promise.path).or_else(|_| fs.read_file(&moved));
        let contents = contents.unwrap_or_else(|error| panic!("{name} at {cut}: {error}"));
        assert!(contents.starts_with(&promise.contents), "{name} at {cut}");
        if tree == Tree::Folded {
            let other = format!("/tree/{}", name.to_uppercase());
            let moved = moved.replace("moved: a", "MOVED: A");
            let again = fs.read_file(other).or_else(|_| fs.read_file(moved));
            assert!(again.as_ref() == Ok(&contents), "{name} at {cut}, in another spelling");
        }
    }
}

/// Whether the tree folds names, too.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Tree {
    Exact,
    Folded,
}

fn nothing_in_clear(device: &RecordingDevice) {
    let mut plain = false;
    for event in device.log() {
        if let Event::Write { offset, data, .. } = event {
            let has = |text: &[u8]| data.windows(text.len()).any(|bytes| bytes == text);
            assert!(!has(MARKER), "in clear text, in a write to {offset}");
            plain |= has(NO_SECRET);
        }
    }
    assert!(plain, "what is not encrypted would be found");
}

fn cut_anywhere(options: &str, tree: Tree) {
    if !require(&NEEDS) {
        return;
    }
    let scratch = Scratch::new();
    let image = make(&scratch, &KIND);
    if tree == Tree::Folded {
        run_ok(tool("tune2fs").args(["-O", "casefold", text(&image.path)]));
    }
    let base = MemDevice::from_bytes(&fs::read(&image.path).unwrap());
    let device = Arc::new(RecordingDevice::new(base));
    let options = with_keys(options).without_threads();
    let fs = Ext4::open(Arc::clone(&device) as SharedDevice, &options).unwrap();
    if tree == Tree::Folded {
        fold(&fs, "/tree").unwrap();
    }
    let promises = work(&fs, &device);
    let fast = fs.stats().journal.fast_commit.commits;
    fs.unmount().unwrap();
    assert!(fast > 0 || options.journal.fast_commit == Some(false), "fast commits are compared");
    nothing_in_clear(&device);
    let mut rng = SmallRng::seed_from_u64(4);
    for _ in 0..CUTS {
        let cut = rng.random_range(0..=device.position());
        let after = device.image_at(cut, |_| rng.random());
        let fs = Ext4::open(Arc::new(after), &options).unwrap();
        check(&fs, &promises, cut, tree);
        fs.unmount().unwrap();
    }
    match tree {
        Tree::Exact => linux_reads(&scratch, &image, &device, &promises),
        // (The kernel beside the tests cannot mount it.)
        Tree::Folded => e2fsck_repairs_nothing(&image, &device),
    }
}

/// Linux recovers some of them as well.
fn linux_reads(scratch: &Scratch, image: &Image, device: &RecordingDevice, all: &[Promise]) {
    let at = scratch.dir("linux");
    for part in 1..=4 {
        let cut = device.position() * part / 4;
        let after = device.image_at(cut, |event| event % 2 == 0);
        fs::write(&image.path, after.to_bytes()).unwrap();
        let mount = KernelMount::mount(image, &at, &[]);
        add_encryption_key(&at, None, &[7; 64]);
        for promise in all.iter().filter(|promise| promise.since <= cut) {
            let path = at.join(promise.path.strip_prefix("/").unwrap());
            let name = promise.path.file_name().unwrap().to_str().unwrap();
            let moved = at.join("tree").join(format!("moved: {name}"));
            let contents = fs::read(&path).or_else(|_| fs::read(moved)).unwrap();
            assert!(contents.starts_with(&promise.contents), "{name} at {cut}");
        }
        mount.unmount();
        let report = e2fsck_fix(image);
        assert_eq!(report.unexpected_repairs(), None, "at {cut}");
    }
}

fn e2fsck_repairs_nothing(image: &Image, device: &RecordingDevice) {
    for part in 1..=8 {
        let cut = device.position() * part / 8;
        let after = device.image_at(cut, |event| event % 2 == 0);
        fs::write(&image.path, after.to_bytes()).unwrap();
        assert_eq!(e2fsck_fix(image).unexpected_repairs(), None, "at {cut}");
    }
}

#[test]
fn a_power_cut_loses_nothing_and_shows_nothing() {
    cut_anywhere("", Tree::Exact);
}

#[test]
fn a_power_cut_loses_nothing_where_names_are_folded() {
    cut_anywhere("", Tree::Folded);
    cut_anywhere("nofast_commit", Tree::Folded);
}

#[test]
fn a_power_cut_loses_nothing_where_data_would_be_journalled() {
    cut_anywhere("data=journal,nofast_commit", Tree::Exact);
}

#[test]
fn a_power_cut_loses_nothing_without_fast_commits() {
    cut_anywhere("nofast_commit", Tree::Exact);
}
