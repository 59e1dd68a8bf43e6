//! Full volumes: reservations hold, and failed operations leave nothing behind.

use std::time::Duration;

use extol::Ext4;
use extol::vfs::{Creds, Fallocate, FileSystem, FsError, NewNode, StatFs};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::disk::{Disk, Variant};
use super::engine::Engine;
use super::generate::Bounds;
use super::{close, seeds, watched, work_dir};

/// Free counters, once everything that was freed is free.
fn free(fs: &Ext4) -> (u64, u64) {
    fs.sync().unwrap();
    let StatFs { blocks_free, inodes_free, .. } = fs.statfs().unwrap();
    (blocks_free, inodes_free)
}

fn fill_and_empty(variant: Variant, seed: u64) {
    let label = format!("full {} seed {seed}", variant.name);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut disk = Disk::new(variant, "6M");
    let fs = disk.mount(&mut rng);
    let empty = free(&fs);
    let root = work_dir(&fs, "/work");
    let (block_size, extents) = (disk.block_size(), disk.has_extents());
    let mut engine = Engine::new(label.clone(), seed, root, block_size, extents);
    engine.tight = true;
    engine.small_inodes = disk.has_small_inodes();
    engine.cluster_size = disk.cluster_size();
    drop(fs);
    for round in 0..3 {
        let goal = engine.full + 30;
        let mut steps = 0;
        while engine.full < goal && steps < 4000 {
            engine.step(Bounds { bytes: 64 << 20, nodes: 400 });
            steps += 1;
        }
        assert!(engine.full >= goal, "{label}: the volume did not fill up");
        engine.sync();
        engine.verify();
        // Some room, to fill it in another way.
        if rng.random_bool(0.5) {
            engine.change_all_to_nothing();
        }
        if round == 1 {
            close(&engine, &mut disk);
            disk.assert_clean(&label);
            let fs = disk.mount(&mut rng);
            let root = fs.inode("/work").unwrap();
            engine.reopened(&fs, root);
            engine.verify();
        }
    }
    let fs = engine.fs.clone();
    engine.held.clear();
    engine.root = fs.root_dir().unwrap();
    fs.remove_dir_all("/work").unwrap();
    assert_eq!(free(&fs), empty, "{label}: blocks and inodes free after everything was removed");
    let stats = fs.stats();
    assert_eq!((stats.reserved_blocks, stats.orphans), (0, 0), "{label}");
    drop(fs);
    close(&engine, &mut disk);
    disk.assert_clean(&label);
}

impl Engine {
    fn change_all_to_nothing(&mut self) {
        let mut ids: Vec<_> = self.contents.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            if self.rng.random_bool(0.7) {
                self.change(id, super::engine::Change::Truncate { size: 0 });
            }
        }
    }
}

#[test]
fn full_volumes() {
    const VARIANTS: &[Variant] = &[
        Variant::new("ext4", &["-t", "ext4", "-b", "4096", "-J", "size=1"]),
        Variant::new("ext4 1k", &["-t", "ext4", "-b", "1024", "-J", "size=1"]),
        Variant::new("ext4 1k data=journal", &["-t", "ext4", "-b", "1024", "-J", "size=1"])
            .with("data=journal"),
        Variant::new(
            "inline_data",
            &["-t", "ext4", "-b", "1024", "-O", "inline_data", "-J", "size=1"],
        ),
        Variant::new("ext3 1k", &["-t", "ext3", "-b", "1024", "-J", "size=1"]),
        Variant::new("ext2 1k", &["-t", "ext2", "-b", "1024"]),
        Variant::new("ext2", &["-t", "ext2", "-b", "4096"]),
        Variant::new(
            "bigalloc",
            &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096", "-J", "size=1"],
        ),
        Variant::new(
            "bigalloc data=journal",
            &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "2048", "-J", "size=1"],
        )
        .with("data=journal"),
        Variant::new("few inodes", &["-t", "ext4", "-b", "1024", "-J", "size=1", "-N", "100"]),
    ];
    for seed in seeds() {
        for variant in VARIANTS {
            let what = format!("full {} seed {seed}", variant.name);
            watched(&what, Duration::from_secs(120), || fill_and_empty(*variant, seed));
        }
    }
}

/// One file takes every last block.
#[test]
fn full_to_the_last_block() {
    for args in [
        &["-t", "ext4", "-b", "1024"][..],
        &["-t", "ext2", "-b", "1024"],
        &["-t", "ext4", "-b", "4096"],
        &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "8192"],
    ] {
        let mut rng = SmallRng::seed_from_u64(1);
        let mut disk = Disk::new(Variant::new("last block", args), "8M");
        let bs = disk.block_size() as usize;
        let fs = disk.mount(&mut rng);
        let file = fs.create_file("/f").unwrap();
        let block = vec![7; bs];
        let mut at = 0;
        let end = loop {
            match file.write_at(&block, at) {
                Ok(n) => at += n as u64,
                Err(e) => break e,
            }
        };
        assert_eq!(end, FsError::NoSpace);
        file.sync_all().unwrap();
        // What is left is too little for one more block with its mapping.
        let left = fs.statfs().unwrap().blocks_free;
        let cluster = disk.cluster_size() / disk.block_size();
        assert!(left <= cluster, "{args:?}: {left} blocks left");
        assert_eq!(file.metadata().unwrap().size, at);
        // Room for one block is room for one block.
        file.set_len(at - bs as u64).unwrap();
        file.write_all_at(&block, at - bs as u64).unwrap();
        assert_eq!(file.write_at(&block, at), Err(FsError::NoSpace));
        file.sync_all().unwrap();
        drop(file);
        fs.unmount().unwrap();
        disk.unmounted();
        disk.assert_clean(&format!("{args:?}"));
    }
}

/// Preallocated space can be used to the last block in any order, even if no block is left for the
/// extent tree.
#[test]
fn preallocated_space_is_never_missing() {
    for options in ["", "data=journal"] {
        let mut rng = SmallRng::seed_from_u64(3);
        let variant = Variant::new("preallocated", &["-t", "ext4", "-b", "1024"]).with(options);
        let mut disk = Disk::new(variant, "8M");
        let fs = disk.mount(&mut rng);
        let file = fs.create_file("/f").unwrap();
        file.allocate(Fallocate::Allocate { keep_size: false }, 0, 2000 << 10).unwrap();
        let rest = fs.create_file("/rest").unwrap();
        let mut at = 0;
        while let Ok(n) = rest.write_at(&[1; 1024], at) {
            at += n as u64;
        }
        rest.sync_all().unwrap();
        fs.sync().unwrap();
        assert_eq!(fs.statfs().unwrap().blocks_free, 0);
        for i in (0..2000).step_by(3) {
            let data = [i as u8; 1024];
            file.write_all_at(&data, i << 10).unwrap();
            if i % 5 == 0 {
                file.sync_data().unwrap();
            }
        }
        file.sync_all().unwrap();
        let whole = fs.read_file("/f").unwrap();
        for (i, block) in whole.chunks(1024).enumerate() {
            let value = if i % 3 == 0 { i as u8 } else { 0 };
            assert!(block.iter().all(|b| *b == value), "{options}: block {i}");
        }
        drop((file, rest));
        fs.unmount().unwrap();
        disk.unmounted();
        disk.assert_clean("preallocated space");
    }
}

/// Every inode in use: one more is refused and leaves no trace; one removed is room for one.
#[test]
fn all_inodes() {
    for args in [&["-t", "ext4", "-N", "64"][..], &["-t", "ext2", "-b", "1024", "-N", "64"]] {
        let mut rng = SmallRng::seed_from_u64(2);
        let mut disk = Disk::new(Variant::new("all inodes", args), "8M");
        let fs = disk.mount(&mut rng);
        fs.create_dir("/d").unwrap();
        let before = fs.statfs().unwrap();
        let mut made = 0;
        while fs.write_file(format!("/d/{made}"), "x").is_ok() {
            made += 1;
        }
        assert_eq!((made, fs.statfs().unwrap().inodes_free), (before.inodes_free, 0));
        assert_eq!(fs.create_dir("/d/more"), Err(FsError::NoSpace));
        assert_eq!(fs.symlink("to", "/d/more"), Err(FsError::NoSpace));
        assert_eq!(fs.create_unnamed_file("/d").map(drop), Err(FsError::NoSpace));
        let pipe = fs.create_node("/d/more", NewNode::Fifo, 0o600, Creds::default());
        assert_eq!(pipe.map(drop), Err(FsError::NoSpace));
        assert!(!fs.exists("/d/more"));
        fs.hard_link("/d/0", "/d/more").unwrap();
        fs.remove_file("/d/0").unwrap();
        assert_eq!(fs.statfs().unwrap().inodes_free, 0);
        fs.remove_file("/d/more").unwrap();
        fs.create_dir("/d/more").unwrap();
        fs.unmount().unwrap();
        disk.unmounted();
        disk.assert_clean("all inodes in use");
        let fs = disk.mount(&mut rng);
        fs.remove_dir_all("/d").unwrap();
        fs.create_dir("/d").unwrap();
        fs.sync().unwrap();
        let after = fs.statfs().unwrap();
        assert_eq!(
            (after.inodes_free, after.blocks_free),
            (before.inodes_free, before.blocks_free)
        );
        fs.unmount().unwrap();
        disk.unmounted();
        disk.assert_clean("no inodes in use");
    }
}
