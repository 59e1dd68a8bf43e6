//! Many threads at once: each in a tree of its own with a model, and all of them in two shared
//! directories.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use extol::Ext4;
use extol::path::Inode;
use extol::vfs::VolumeControl as _;
use extol::vfs::{Creds, FileSystem, FsError, NewNode, RenameFlags, Result};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::disk::{Disk, Variant};
use super::engine::{Engine, plain};
use super::generate::Bounds;
use super::{seeds, watched, work_dir};

const THREADS: u64 = 4;
const STEPS: usize = 400;
/// Shared files are written in blocks of one value each.
const BLOCK: usize = 4096;

/// An operation in the shared directories, where another thread may be first.
fn change_shared(fs: &Arc<Ext4>, shared: &[Inode; 2], rng: &mut SmallRng) {
    let dir = &shared[rng.random_range(0..2)];
    let name = format!("{}", rng.random_range(0..8));
    let other = &shared[rng.random_range(0..2)];
    let new_name = format!("{}", rng.random_range(0..8));
    let owner = Creds::default();
    let keep = |attr: extol::vfs::Attr| drop(Inode::from_attr(fs, &attr));
    // Sometimes inside a directory that another thread may move or remove at this moment.
    let inner =
        other.lookup(&new_name).ok().filter(|n| n.kind() == extol::vfs::FileKind::Directory);
    let other = inner.as_ref().unwrap_or(other);
    let done: Result<()> = match rng.random_range(0..12) {
        0 | 1 => fs.create(dir.ino(), name.as_bytes(), NewNode::Regular, 0o644, 0, owner).map(keep),
        2 | 3 => {
            fs.create(dir.ino(), name.as_bytes(), NewNode::Directory, 0o755, 0, owner).map(keep)
        }
        4 => fs.unlink(other.ino(), name.as_bytes()),
        5 => fs.rmdir(other.ino(), name.as_bytes()),
        6 | 7 => {
            let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE]
                [rng.random_range(0..3)];
            fs.rename(dir.ino(), name.as_bytes(), other.ino(), new_name.as_bytes(), flags)
        }
        8 => dir
            .lookup(&name)
            .and_then(|n| fs.link(n.ino(), other.ino(), new_name.as_bytes()).map(keep)),
        9 => dir.lookup(&name).and_then(|n| {
            let value = rng.random();
            fs.write(
                n.ino(),
                BLOCK as u64 * rng.random_range(0..80),
                &vec![value; BLOCK * rng.random_range(1..80)],
            )
            .map(drop)
        }),
        10 => dir.lookup(&name).and_then(|n| {
            let mut buf = vec![0; BLOCK * 160];
            let n = fs.read(n.ino(), 0, &mut buf)?;
            for block in buf[..n].chunks(BLOCK) {
                assert!(block.iter().all(|b| *b == block[0]), "a read saw half of a write");
            }
            Ok(())
        }),
        _ => fs.readdir(other.ino(), 0, &mut |_| true),
    };
    let fine = [
        FsError::NotFound,
        FsError::Exists,
        FsError::NotADirectory,
        FsError::IsADirectory,
        FsError::NotEmpty,
        FsError::NotPermitted,
        FsError::Invalid(""),
    ];
    if let Err(e) = plain(done) {
        assert!(fine.contains(&e), "in the shared directories: {e}");
    }
}

fn run(variant: Variant, seed: u64) {
    let label = format!("threads on {} seed {seed}", variant.name);
    let mut rng = SmallRng::seed_from_u64(seed);
    let mut disk = Disk::new(variant, "128M");
    let fs = disk.mount(&mut rng);
    let (block_size, extents) = (disk.block_size(), disk.has_extents());
    let shared = [work_dir(&fs, "/shared/a"), work_dir(&fs, "/shared/b")];
    let mut engines: Vec<Engine> = (0..THREADS)
        .map(|n| {
            let root = work_dir(&fs, &format!("/own/{n}"));
            let label = format!("{label} thread {n}");
            let mut engine = Engine::new(label, seed * 100 + n, root, block_size, extents);
            engine.small_inodes = disk.has_small_inodes();
            engine
        })
        .collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let workers: Vec<_> = engines
            .iter_mut()
            .map(|engine| {
                let (fs, shared) = (&fs, &shared);
                scope.spawn(move || {
                    let mut rng = engine.rng.clone();
                    for _ in 0..STEPS {
                        engine.step(Bounds { bytes: 4 << 20, nodes: 120 });
                        for _ in 0..3 {
                            change_shared(fs, shared, &mut rng);
                        }
                    }
                    engine.verify();
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                fs.sync().unwrap();
                let _ = fs.stats_json();
                fs.walk("/shared").unwrap().for_each(|item| match item {
                    Ok(_) => {}
                    // Directories move during the walk.
                    Err(FsError::Corrupt { what, .. }) => {
                        assert_eq!(what, "a directory has two names")
                    }
                    Err(e) => panic!("walk: {e}"),
                });
                std::thread::sleep(Duration::from_millis(2));
            }
        });
        let results: Vec<_> = workers.into_iter().map(|w| w.join()).collect();
        done.store(true, Ordering::Release);
        for result in results {
            result.unwrap_or_else(|e| std::panic::resume_unwind(e));
        }
    });
    drop(shared);
    let crash = variant.has_journal() && rng.random_bool(0.5);
    if crash {
        fs.sync().unwrap();
        engines.iter_mut().for_each(Engine::all_is_durable);
        disk.power_cut(&mut rng);
        fs.crash();
    } else {
        fs.unmount().unwrap();
        disk.unmounted();
        disk.assert_clean(&label);
    }
    assert_eq!(fs.stats().journal.overdrafts, 0, "{label}");
    assert_eq!(fs.stats().errors_seen, 0, "{label}");
    drop(fs);
    let fs = disk.mount(&mut rng);
    for (n, engine) in engines.iter_mut().enumerate() {
        let root = fs.inode(format!("/own/{n}")).unwrap();
        engine.reopened(&fs, root);
        engine.verify();
    }
    drop(engines);
    assert_eq!(fs.stats().inodes_known, 0, "{label}: references left");
    fs.unmount().unwrap();
    disk.unmounted();
    disk.assert_clean(&format!("{label} at the end"));
}

#[test]
fn many_threads() {
    const VARIANTS: &[Variant] = &[
        Variant::new("ext4", &["-t", "ext4", "-b", "4096", "-J", "size=4"]),
        Variant::new("ext4 1k", &["-t", "ext4", "-b", "1024"])
            .with("dirty_mb=1,inode_cache=64,cache_mb=4"),
        Variant::new("inline_data", &["-t", "ext4", "-b", "4096", "-O", "inline_data,orphan_file"]),
        Variant::new("ext3 data=journal", &["-t", "ext3", "-b", "1024"]).with("data=journal"),
        Variant::new("ext2", &["-t", "ext2", "-b", "4096"]),
    ];
    for seed in seeds() {
        for variant in VARIANTS {
            let what = format!("threads on {} seed {seed}", variant.name);
            watched(&what, Duration::from_secs(180), || run(*variant, seed));
        }
    }
}
