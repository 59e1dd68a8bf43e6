//! Volumes with clusters (bigalloc) become smaller, in one go and step by step.

use extol::vfs::{Fallocate, XattrSet};
use extol_testkit::{self as testkit, KernelMount, Need, require};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::minimum::{copy, fill, minimum, sums};
use super::*;

/// Options of mke2fs, and the volume in MiB.
const LAYOUTS: &[(&str, u64)] = &[
    ("-t ext4 -b 1024 -O bigalloc -C 4096 -g 2048 -J size=2 -N 2048", 64),
    ("-t ext4 -b 1024 -O bigalloc,^resize_inode -C 2048 -g 4096 -J size=2 -N 2048", 64),
    ("-t ext4 -b 1024 -O bigalloc,^flex_bg,^resize_inode -C 4096 -g 1024 -J size=1 -N 4096", 48),
    ("-t ext4 -b 1024 -O bigalloc,meta_bg,^resize_inode -C 16384 -g 512 -J size=2 -G 4", 64),
    ("-t ext4 -b 4096 -O bigalloc,orphan_file -C 16384 -g 2048 -J size=5 -N 2048", 160),
    ("-t ext4 -b 1024 -O bigalloc,sparse_super2 -C 2048 -g 2048 -J size=2 -N 2048", 48),
];

/// Holes and parts that were never written within clusters; what else takes clusters.
fn odd_things(fs: &Ext4, random: &mut SmallRng) {
    let dir = common::dir(fs, fs.root(), "odd");
    for nr in 0..12 {
        let ino = common::file(fs, dir, &format!("file{nr}"));
        fs.write(ino, 0, &contents(nr, 90_000)).unwrap();
        fs.fsync(ino, false).unwrap();
        for _ in 0..6 {
            let at = random.random_range(0..90) * 1024;
            let len = random.random_range(1..5) * 1024;
            fs.fallocate(ino, Fallocate::PunchHole, at, len).unwrap();
        }
        let keep = Fallocate::Allocate { keep_size: true };
        fs.fallocate(ino, keep, random.random_range(0..100) * 1024, 20_000).unwrap();
        if nr % 3 == 0 {
            fs.setxattr(ino, b"user.large", &[7; 700], XattrSet::Any).unwrap();
        }
    }
    fs.sync().unwrap();
}

fn odd_sums(fs: &Ext4) -> Vec<Vec<u8>> {
    let dir = fs.lookup(fs.root(), b"odd").unwrap().id.ino;
    let of = |nr: u64| {
        let attr = fs.lookup(dir, format!("file{nr}").as_bytes()).unwrap();
        let mut bytes = vec![0; attr.size as usize];
        assert_eq!(fs.read(attr.id.ino, 0, &mut bytes).unwrap(), bytes.len());
        bytes
    };
    (0..12).map(of).collect()
}

#[test]
fn volumes_with_clusters_become_as_small_as_may_be() {
    if !require(&[Need::Tool("e2fsck")]) {
        return;
    }
    let rounds = if std::env::var_os("EXTOL_LONG").is_some() { 6 } else { 1 };
    let only = std::env::var("EXTOL_ROW").ok();
    for seed in 0..rounds {
        for (layout, mib) in LAYOUTS {
            if only.as_ref().is_some_and(|only| !layout.contains(only.as_str())) {
                continue;
            }
            let what = format!("{layout}, seed {seed}");
            let mut random = SmallRng::seed_from_u64(seed);
            let args: Vec<&str> = layout.split(' ').collect();
            let image = Image::new(&format!("{mib}M"), &args);
            image.with(|fs| fill(fs, *mib, &mut random));
            image.with(|fs| odd_things(fs, &mut random));
            image.assert_clean(&what);
            let (before, odd) = (image.with(sums), image.with(odd_sums));
            let steps = copy(&image);
            let all = image.blocks();
            for eighths in [7, 5, 4, 3] {
                let wish = all * eighths / 8;
                let done = steps.with(|fs| fs.resize(Target::Blocks(wish), &mut |_| true));
                steps.assert_clean(&format!("{what}, {eighths} eighths"));
                match done {
                    Ok(done) => {
                        assert!(done.blocks <= wish && done.blocks > wish / 8 * 7, "{what}")
                    }
                    Err(e) => {
                        let text = e.to_string();
                        let expected =
                            ["at least", "finds no room"].iter().any(|w| text.contains(w));
                        assert!(eighths < 4 && expected, "{what}, {eighths} eighths: {e}");
                        break;
                    }
                }
            }
            let once = minimum(&image, &before, &format!("{what}, in one go"));
            let stepwise = minimum(&steps, &before, &format!("{what}, stepwise"));
            println!("{what}: {once} in one go, {stepwise} stepwise, of {all}");
            assert!(once < all / 2, "{what}: {once} of {all}");
            assert!(once.abs_diff(stepwise) * 50 <= once, "{what}: {once}, stepwise {stepwise}");
            for image in [&image, &steps] {
                assert_eq!(image.with(odd_sums), odd, "{what}");
            }
            used_by_linux(&image, &odd, &what);
        }
    }
}

/// Linux reads what was moved, and writes to it; then the volume is as large as before.
fn used_by_linux(image: &Image, odd: &[Vec<u8>], what: &str) {
    if !testkit::require(&[Need::Root, Need::Loop, Need::Kernel("ext4")]) {
        return;
    }
    let blocks = image.blocks();
    image.grow(blocks + blocks / 2);
    image.assert_clean(&format!("{what}, grown"));
    let scratch = testkit::Scratch::new();
    let dir = scratch.join("mount");
    std::fs::create_dir_all(&dir).unwrap();
    let mount = KernelMount::mount(&testkit::Image::existing(&image.path), &dir, &[]);
    for (nr, bytes) in odd.iter().enumerate() {
        let path = dir.join(format!("odd/file{nr}"));
        assert_eq!(&std::fs::read(&path).unwrap(), bytes, "{what}: {}", path.display());
        std::fs::write(&path, contents(nr as u64, 50_000)).unwrap();
    }
    std::fs::write(dir.join("new"), contents(1, 2_000_000)).unwrap();
    mount.unmount();
    image.assert_clean(&format!("{what}, after Linux"));
}
