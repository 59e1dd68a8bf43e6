//! Files synced as they grow keep fast commits with one flush: logs side by side, and mailboxes.
//! And a file written out of order lies in one run.

#[allow(dead_code)]
mod common;

use common::*;
use extol::vfs::FileSystem;
use extol::{Ext4, MountOptions};
use rand::{Rng, SeedableRng, rngs::SmallRng};

const BLOCK: u64 = 4096;

fn volume() -> (std::sync::Arc<extol_block::MemDevice>, std::sync::Arc<Ext4>) {
    let dev = image("256M", &["-t", "ext4", "-b", "4096", "-O", "fast_commit"]);
    // Zeroed blocks come when they are asked for, not when a thread gets to it.
    let options = MountOptions::parse("fast_commit").unwrap().without_threads();
    let fs = Ext4::open(dev.clone() as _, &options).unwrap();
    (dev, fs)
}

/// Runs of blocks of a file.
fn extents(fs: &Ext4, ino: u32) -> usize {
    let mut runs = fs.fiemap(ino, 0, u64::MAX).unwrap();
    runs.dedup_by(|next, run| {
        let joined = run.physical + run.len == next.physical;
        run.len += if joined { next.len } else { 0 };
        joined
    });
    runs.len()
}

#[test]
fn logs_side_by_side() {
    for (logs, pieces, size) in [(2, 600, BLOCK), (4, 400, BLOCK), (7, 120, 5000), (3, 60, 100_000)]
    {
        let (dev, fs) = volume();
        let inos: Vec<u32> =
            (0..logs).map(|nr| file(&fs, fs.root(), &format!("log{nr}"))).collect();
        let data = vec![7; size as usize];
        for piece in 0..pieces {
            for ino in &inos {
                fs.write(*ino, piece * size, &data).unwrap();
                fs.fsync(*ino, false).unwrap();
            }
        }
        let what = format!("{logs} logs, {pieces} times {size} bytes");
        let most = inos.iter().map(|ino| extents(&fs, *ino)).max().unwrap();
        assert!(most <= 4, "{what}: {most} extents");
        let stats = fs.stats().journal.fast_commit;
        assert_eq!(stats.ineligible, 0, "{what}: {:?}", stats.reasons);
        // Pieces of more than 64 KiB get no data checksum.
        let two_flushes = stats.commits - stats.checksummed;
        assert!(
            size > 65536 || two_flushes < 3 * logs,
            "{what}: {two_flushes} of {} with two flushes",
            stats.commits
        );
        fs.unmount().unwrap();
        assert_clean(&dev, &what);
    }
}

/// Many files that get a few pieces each, side by side, and are deleted.
#[test]
fn mailboxes() {
    let (dev, fs) = volume();
    let mut rng = SmallRng::seed_from_u64(3);
    let mut boxes: Vec<(String, u32)> = Vec::new();
    for nr in 0..1500 {
        if boxes.len() > 100 {
            let (name, _) = boxes.swap_remove(rng.random_range(0..boxes.len()));
            fs.unlink(fs.root(), name.as_bytes()).unwrap();
        }
        let name = format!("m{nr}");
        boxes.push((name.clone(), file(&fs, fs.root(), &name)));
        for nth in [boxes.len() - 1, rng.random_range(0..boxes.len())] {
            let ino = boxes[nth].1;
            let end = fs.getattr(ino).unwrap().size;
            fs.write(ino, end, &vec![7; rng.random_range(1..16384)]).unwrap();
            fs.fsync(ino, false).unwrap();
        }
    }
    let stats = fs.stats().journal.fast_commit;
    assert!(
        stats.checksummed * 100 > stats.commits * 97,
        "{} of {} with one flush",
        stats.checksummed,
        stats.commits
    );
    let torn = stats.reasons.iter().find(|(why, _)| why == "Extent tree").map(|(_, count)| *count);
    assert_eq!(torn, Some(0));
    fs.unmount().unwrap();
    assert_clean(&dev, "mailboxes");
}

/// The kernel writes a large file back from several threads.
#[test]
fn pieces_out_of_order() {
    const PIECE: u64 = 254 * BLOCK;
    let orders: [&[u64]; 4] =
        [&[0, 1, 2, 3, 4, 5], &[1, 0, 2, 4, 3, 5], &[3, 1, 0, 2, 5, 4], &[5, 4, 3, 2, 1, 0]];
    let dev = image("256M", &["-t", "ext4", "-b", "4096"]);
    let options = MountOptions::default().without_threads();
    let fs = Ext4::open(dev.clone() as _, &options).unwrap();
    for (nr, order) in orders.into_iter().enumerate() {
        // The space near the inode is in use.
        let other = file(&fs, fs.root(), &format!("other{nr}"));
        fs.write(other, 0, &vec![1; 90 * BLOCK as usize]).unwrap();
        fs.fsync(other, false).unwrap();
        let ino = file(&fs, fs.root(), &format!("file{nr}"));
        for piece in order {
            fs.write(ino, piece * PIECE, &vec![2; PIECE as usize]).unwrap();
            fs.fsync(ino, false).unwrap();
        }
        assert_eq!(extents(&fs, ino), 1, "{order:?}");
    }
    fs.unmount().unwrap();
    assert_clean(&dev, "pieces out of order");
}
