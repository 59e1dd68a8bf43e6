//! Volumes with clusters (bigalloc): what belongs to the volume comes and goes, and files move into
//! fewer pieces.

use extol::vfs::{Fallocate, Outcome, VolumeControl};
use extol_testkit::{Need, require};

use super::tune::request;
use super::*;

const LAYOUTS: &[&str] = &[
    "-t ext4 -b 1024 -O bigalloc,^orphan_file -C 4096",
    "-t ext4 -b 1024 -O bigalloc,^orphan_file -C 65536 -N 1024",
    "-t ext4 -b 4096 -O bigalloc,^orphan_file -C 8192",
];

/// One after the other.
const REQUESTS: &[&str] = &[
    "-O ^has_journal",
    "-J size=4",
    "-O orphan_file",
    "-O ^orphan_file",
    "-O orphan_file -E orphan_file_size=40k",
    "-O mmp",
    "-O ^mmp",
    "-O ^resize_inode",
    "-O ^orphan_file",
    "-O ^has_journal",
    "-J size=5",
];

#[test]
fn volumes_with_clusters_are_tuned() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    for layout in LAYOUTS {
        let args: Vec<&str> = layout.split(' ').collect();
        let image = Image::new("80M", &args);
        image.with(|fs| fill_some(fs, 8));
        let free = image.number("Free blocks");
        for options in REQUESTS {
            // (A claim is waited for each time.)
            if options.contains("mmp") && !layout.contains("-b 4096") {
                continue;
            }
            let what = format!("{layout}: {options}");
            let tuned = image.tune(&request(options)).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(!tuned.changes.is_empty(), "{what}");
            image.assert_clean(&what);
            image.with(|fs| assert_some(fs, 8, &what));
            image.assert_clean(&format!("{what}, used"));
        }
        let journal = 1024 * 1024 / image.number("Block size");
        let gained = image.number("Free blocks") + journal;
        assert!(gained >= free, "{layout}: {free} blocks were free, {gained} are");
        image.with(|fs| {
            let free = fs.statfs().unwrap();
            let half = free.blocks_available * u64::from(free.block_size) / 2;
            assert!(fill_up(fs) > half, "{layout}");
        });
        image.assert_clean(&format!("{layout}, full"));
    }
}

#[test]
fn files_in_clusters_move_into_fewer_pieces() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    for layout in LAYOUTS {
        let args: Vec<&str> = layout.split(' ').collect();
        let image = Image::new("80M", &args);
        let tree = image.number("Cluster size") / 512;
        let pieces = 30;
        image.with(|fs| {
            let files = [0, 1].map(|nr| common::file(fs, fs.root(), &format!("pieces{nr}")));
            for step in 0..pieces {
                for ino in files {
                    fs.write(ino, step * 70_000, &contents(step, 70_000)).unwrap();
                    fs.fsync(ino, false).unwrap();
                }
            }
            // Holes, and blocks that were never written, in clusters of the file.
            for at in [5, 90, 300, 301, 800] {
                fs.fallocate(files[0], Fallocate::PunchHole, at * 2048, 3000).unwrap();
            }
            let keep = Fallocate::Allocate { keep_size: true };
            fs.fallocate(files[0], keep, 90 * 2048, 1500).unwrap();
            let mut before = vec![0; pieces as usize * 70_000];
            assert_eq!(fs.read(files[0], 0, &mut before).unwrap(), before.len());
            let sectors = fs.getattr(files[0]).unwrap().blocks;
            let done = fs.defragment(files[0]).unwrap();
            assert_eq!(done.outcome, Outcome::Moved, "{layout}: {done:?}");
            assert!(done.after.extents < done.before.extents, "{layout}: {done:?}");
            let mut after = vec![0; before.len()];
            assert_eq!(fs.read(files[0], 0, &mut after).unwrap(), after.len());
            assert!(before == after, "{layout}: other bytes");
            let now = fs.getattr(files[0]).unwrap().blocks;
            // (Fewer extents may need no tree block, which has a cluster.)
            assert!([sectors, sectors - tree].contains(&now), "{layout}: {sectors}, now {now}");
            fs.write(files[0], 10_000, &contents(9, 30_000)).unwrap();
        });
        image.assert_clean(layout);
    }
}
