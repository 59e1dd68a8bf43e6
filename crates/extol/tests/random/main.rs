//! Random operations on a volume, compared with a model in memory at every step, with remounts and
//! crashes in between.
//!
//! A seed, which a failure names, determines everything. `EXTOL_SEED=n` runs one seed;
//! `EXTOL_LONG=1` runs many. `EXTOL_KEEP_IMAGE=path` keeps an image in which e2fsck finds errors.

mod content;
mod crash;
mod disk;
mod engine;
mod full;
mod generate;
mod past;
mod threads;
mod tree;
mod verify;

use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, Variant};
use engine::Engine;
use extol::Ext4;
use extol::path::Inode;
use extol::vfs::FileSystem;
use generate::Bounds;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

/// Seeds to run.
pub fn seeds() -> std::ops::Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match (number("EXTOL_SEED"), number("EXTOL_LONG")) {
        (Some(seed), _) => seed..seed + 1,
        (None, Some(1..)) => 0..40,
        _ => 0..2,
    }
}

/// Aborts the process if a test hangs, so that a core dump shows where.
pub fn watched<T>(what: &str, limit: Duration, f: impl FnOnce() -> T) -> T {
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let what = what.to_owned();
    let watchdog = std::thread::spawn(move || {
        if wait.recv_timeout(limit) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{what}: no end after {limit:?}: a deadlock");
            std::process::abort();
        }
    });
    let result = f();
    drop(done);
    watchdog.join().unwrap();
    result
}

/// The directory that a test works in.
pub fn work_dir(fs: &Arc<Ext4>, name: &str) -> Inode {
    fs.create_dir_all(name).unwrap();
    fs.inode(name).unwrap()
}

/// Operations, and now and then a clean remount or a crash.
fn run(variant: Variant, seed: u64) {
    let label = format!("{} seed {seed}", variant.name);
    let mut rng = SmallRng::seed_from_u64(seed ^ 0x5EED);
    let mut disk = Disk::new(variant, "64M");
    let fs = disk.mount(&mut rng);
    let root = work_dir(&fs, "/work");
    fs.sync().unwrap();
    let (block_size, extents) = (disk.block_size(), disk.has_extents());
    let mut engine = Engine::new(label.clone(), seed, root, block_size, extents);
    engine.small_inodes = disk.has_small_inodes();
    engine.cluster_size = disk.cluster_size();
    drop(fs);
    let bounds = Bounds { bytes: 8 << 20, nodes: 250 };
    for round in 0..4 {
        for _ in 0..rng.random_range(50..300) {
            engine.step(bounds);
        }
        let crash = variant.has_journal() && rng.random_bool(0.6);
        if crash {
            disk.power_cut(&mut rng);
            engine.fs.crash();
        } else {
            engine.verify();
            close(&engine, &mut disk);
            disk.assert_clean(&format!("{label} round {round}"));
        }
        let fs = disk.mount(&mut rng);
        let root = fs.inode("/work").unwrap();
        if crash {
            engine.recovered(&fs, root);
        } else {
            engine.reopened(&fs, root);
        }
        drop(fs);
        engine.verify();
    }
    close(&engine, &mut disk);
    disk.assert_clean(&format!("{label} at the end"));
}

/// Unmounts.
fn close(engine: &Engine, disk: &mut Disk) {
    if let Err(e) = engine.fs.unmount() {
        engine.fail(&format!("unmount: {e}"));
    }
    let stats = engine.fs.stats();
    assert_eq!(
        stats.journal.overdrafts, 0,
        "{}: more blocks changed than credits asked for",
        engine.label
    );
    assert_eq!(stats.errors_seen, 0, "{}: corruption was found", engine.label);
    disk.unmounted();
}

impl Engine {
    /// Continues with the volume after a clean remount: references are gone, and unlinked files
    /// with them.
    fn reopened(&mut self, fs: &Arc<Ext4>, root: Inode) {
        self.held.clear();
        self.fs = Arc::clone(fs);
        self.root = root;
        self.drop_unnamed();
        self.all_is_durable();
    }
}

macro_rules! variants {
    ($($test:ident: $variant:expr;)*) => {
        $(#[test]
        fn $test() {
            for seed in seeds() {
                let limit = Duration::from_secs(120);
                let what = format!("{} seed {seed}", stringify!($test));
                watched(&what, limit, || run($variant, seed));
            }
        })*
    };
}

variants! {
    ext4: Variant::new("ext4", &["-t", "ext4", "-b", "4096", "-J", "size=4"]);
    ext4_1k: Variant::new("ext4 1k", &["-t", "ext4", "-b", "1024"]);
    ext4_2k: Variant::new("ext4 2k", &["-t", "ext4", "-b", "2048", "-J", "size=4"]);
    without_checksums: Variant::new("no metadata_csum", &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,uninit_bg"]);
    orphan_file: Variant::new("orphan_file", &["-t", "ext4", "-b", "1024", "-O", "orphan_file", "-J", "size=4"]);
    inline_data: Variant::new("inline_data", &["-t", "ext4", "-b", "4096", "-O", "inline_data", "-J", "size=4"]);
    inline_data_1k_512: Variant::new("inline_data 1k", &["-t", "ext4", "-b", "1024", "-I", "512", "-O", "inline_data"]);
    without_journal: Variant::new("no journal", &["-t", "ext4", "-b", "4096", "-O", "^has_journal"]);
    small_inodes: Variant::new("128-byte inodes", &["-t", "ext4", "-b", "4096", "-O", "^64bit,^extents", "-I", "128"]);
    ext3: Variant::new("ext3", &["-t", "ext3", "-b", "4096", "-J", "size=4"]);
    ext3_1k: Variant::new("ext3 1k", &["-t", "ext3", "-b", "1024"]);
    ext2: Variant::new("ext2", &["-t", "ext2", "-b", "4096"]);
    ext2_1k: Variant::new("ext2 1k", &["-t", "ext2", "-b", "1024"]);
    data_journal: Variant::new("data=journal", &["-t", "ext4", "-b", "4096", "-J", "size=4"]).with("data=journal");
    data_journal_1k: Variant::new("data=journal 1k", &["-t", "ext4", "-b", "1024", "-J", "size=4"]).with("data=journal");
    data_journal_ext3: Variant::new("data=journal ext3", &["-t", "ext3", "-b", "4096", "-J", "size=4"]).with("data=journal");
    data_writeback: Variant::new("data=writeback", &["-t", "ext4", "-b", "1024"]).with("data=writeback");
    async_commit: Variant::new("async commit", &["-t", "ext4", "-b", "4096"]).with("data=writeback,journal_async_commit");
    lazytime: Variant::new("lazytime", &["-t", "ext4", "-b", "1024"]).with("lazytime,strictatime,commit=1");
    nodelalloc: Variant::new("nodelalloc", &["-t", "ext4", "-b", "4096", "-J", "size=4"]).with("nodelalloc");
    small_caches: Variant::new("small caches", &["-t", "ext4", "-b", "1024", "-J", "size=4"])
        .with("cache_mb=4,dirty_mb=1,data_cache_mb=1,inode_cache=64");
    meta_bg: Variant::new("meta_bg", &["-t", "ext4", "-b", "1024", "-O", "meta_bg,^resize_inode"]);
    bigalloc: Variant::new("bigalloc", &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384", "-J", "size=4"]);
    bigalloc_1k: Variant::new("bigalloc 1k", &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "16384", "-J", "size=4"]);
    bigalloc_two_blocks: Variant::new("bigalloc 2 blocks", &["-t", "ext4", "-b", "1024", "-O", "bigalloc,^flex_bg,orphan_file", "-C", "2048", "-J", "size=4"]);
    bigalloc_large: Variant::new("bigalloc large", &["-t", "ext4", "-b", "1024", "-O", "bigalloc,inline_data", "-C", "65536", "-J", "size=1"]);
    bigalloc_data_journal: Variant::new("bigalloc data=journal", &["-t", "ext4", "-b", "1024", "-O", "bigalloc", "-C", "4096", "-J", "size=4"]).with("data=journal");
    bigalloc_nodelalloc: Variant::new("bigalloc nodelalloc", &["-t", "ext4", "-b", "1024", "-O", "bigalloc,^has_journal", "-C", "4096"]).with("nodelalloc");
    external_journal: Variant { name: "external journal", args: &["-t", "ext4"], options: "", external: true };
}
