//! Volumes with quotas become smaller: usage stays what it was, and the quota files move.

use extol::vfs::{Creds, NewNode};
use extol_testkit::{Need, require};

use super::*;

const LAYOUTS: &[&str] = &[
    "-t ext4 -b 1024 -O quota -J size=2 -N 4096",
    "-t ext4 -b 1024 -O quota,project -J size=2 -g 2048 -N 4096 -I 256",
    "-t ext4 -b 1024 -O quota,bigalloc -C 4096 -g 8192 -J size=2 -N 4096",
    "-t ext4 -b 1024 -O quota,^has_journal -N 4096",
    "-t ext2 -b 1024 -O quota -N 4096",
];

/// Files of many owners, whose entries take several blocks of the quota files.
fn fill(fs: &Ext4) {
    for owner in 0..300 {
        let creds = Creds { uid: 1000 + owner, gid: 2000 + owner };
        let name = format!("owner{owner}");
        let new = |name: &str, kind| {
            let made = fs.create(fs.root(), name.as_bytes(), kind, 0o755, 0, creds);
            made.unwrap().id.ino
        };
        let ino = new(&name, NewNode::Regular);
        fs.write(ino, 0, &contents(owner.into(), 3000 + 300 * owner as usize)).unwrap();
        if owner % 10 == 0 {
            new(&format!("dir{owner}"), NewNode::Directory);
        }
    }
    fs.sync().unwrap();
}

/// A file takes all room that there is.
fn take_all(fs: &Ext4) {
    let ballast = common::file(fs, fs.root(), "ballast");
    let (mut at, mut bytes) = (0, 1_usize << 20);
    while bytes >= 4096 {
        match fs.write(ballast, at, &vec![1; bytes]) {
            Ok(written) => at += written as u64,
            Err(_) => bytes /= 2,
        }
    }
    fs.sync().unwrap();
}

/// Blocks of the file for users.
fn quota_blocks(image: &Image) -> Vec<u64> {
    let (code, text) = run("debugfs", &["-R", "blocks <3>"], &image.path);
    assert_eq!(code, 0, "{text}");
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

fn assert_filled(fs: &Ext4, what: &str) {
    for owner in 0..300_u64 {
        let attr = fs.lookup(fs.root(), format!("owner{owner}").as_bytes()).unwrap();
        assert_eq!(attr.uid, 1000 + owner as u32, "{what}");
        let mut bytes = vec![0; attr.size as usize];
        assert_eq!(fs.read(attr.id.ino, 0, &mut bytes).unwrap(), bytes.len(), "{what}");
        assert_eq!(bytes, contents(owner, 3000 + 300 * owner as usize), "{what}: {owner}");
    }
}

#[test]
fn volumes_with_quotas_become_smaller() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    for layout in LAYOUTS {
        let args: Vec<&str> = layout.split(' ').collect();
        // (A log that is lent needs room behind the end of the last group.)
        let image = Image::new("124M", &args);
        // All room of a small volume is taken, so the quota files get blocks behind its end when it
        // has grown.
        let all = image.blocks();
        let small = all * 9 / 16;
        image.with(|fs| fs.resize(Target::Blocks(small), &mut |_| true)).expect(layout);
        image.with(take_all);
        image.grow(all);
        image.with(|fs| {
            fill(fs);
            fs.unlink(fs.root(), b"ballast").unwrap();
        });
        let behind = |end: u64| quota_blocks(&image).into_iter().any(|block| block >= end);
        assert!(behind(small), "{layout}: {:?}", quota_blocks(&image));
        image.assert_clean(layout);
        for eighths in [6, 4] {
            let what = format!("{layout}, {eighths} eighths");
            let wish = Target::Blocks(all * eighths / 8);
            image.with(|fs| fs.resize(wish, &mut |_| true)).expect(&what);
            // (e2fsck compares the usage of each owner with what it finds.)
            image.assert_clean(&what);
            image.with(|fs| assert_filled(fs, &what));
        }
        assert!(!behind(all / 2), "{layout}: {:?}", quota_blocks(&image));
        let done = image.with(|fs| fs.resize(Target::Minimum, &mut |_| true)).expect(layout);
        assert!(done.blocks < all / 2, "{layout}: {done:?}");
        image.assert_clean(&format!("{layout}, minimum"));
        image.with(|fs| assert_filled(fs, layout));
        image.grow(all);
        image.with(|fs| {
            let attr = fs.lookup(fs.root(), b"owner7").unwrap();
            fs.write(attr.id.ino, 0, &contents(7, 90_000)).unwrap();
            fs.unlink(fs.root(), b"owner8").unwrap();
        });
        image.assert_clean(&format!("{layout}, used again"));
    }
}
