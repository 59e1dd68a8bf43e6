//! Volumes with clusters (bigalloc) grow in turn under Linux, on a mount, and under Extol. (Only
//! root of a whole machine may grow a mounted volume: Linux is that of the guest.)

use std::fmt::Write as _;

use extol_guest::Guest;
use extol_testkit::{self as testkit, Need};

use super::*;

/// Options of mke2fs, bytes of a block, and of a group.
const LAYOUTS: &[(&str, u64, u64)] = &[
    ("-t ext4 -b 1024 -O bigalloc -C 4096 -N 512 -g 2048 -E resize=200000", 1024, 8 << 20),
    ("-t ext4 -b 1024 -O bigalloc,^resize_inode,meta_bg -C 2048 -N 512 -g 2048", 1024, 4 << 20),
    ("-t ext4 -b 4096 -O bigalloc -C 16384 -N 512 -g 2048 -E resize=400000", 4096, 32 << 20),
];

/// Groups at each size.
const SIZES: [u64; 5] = [3, 5, 18, 22, 35];

#[test]
fn linux_and_extol_make_volumes_with_clusters_larger_in_turn() {
    if !testkit::require(&[Need::Guest, Need::Tool("e2fsck")]) {
        return;
    }
    let [by_both, alone] = [(), ()].map(|()| {
        let make = |(layout, _, group): &(&str, u64, u64)| {
            let args: Vec<&str> = layout.split(' ').collect();
            Image::new(&format!("{}k", (SIZES[0] * group) >> 10), &args)
        };
        LAYOUTS.iter().map(make).collect::<Vec<_>>()
    });
    by_both.iter().chain(&alone).for_each(|image| image.with(|fs| fill_some(fs, 8)));
    for (step, groups) in SIZES.iter().enumerate().skip(1) {
        let in_guest = step % 2 == 1;
        if in_guest {
            by_linux(&by_both, *groups, step);
        }
        for ((layout, size, group), (both, alone)) in LAYOUTS.iter().zip(by_both.iter().zip(&alone))
        {
            let blocks = groups * group / size;
            if !in_guest {
                both.grow(blocks);
            }
            alone.grow(blocks);
            let what = format!("{layout}, {groups} groups");
            for image in [both, alone] {
                image.assert_clean(&what);
                assert_eq!(image.blocks(), blocks, "{what}");
            }
            assert_eq!(both.number("Inode count"), alone.number("Inode count"), "{what}");
            // (Linux has made a file in each of its steps.)
            let files = step.div_ceil(2) as u64;
            assert_eq!(both.number("Free inodes") + files, alone.number("Free inodes"), "{what}");
        }
    }
    for ((layout, ..), image) in LAYOUTS.iter().zip(&by_both) {
        image.with(|fs| {
            assert_some(fs, 8, layout);
            let free = fs.statfs().unwrap();
            let written = fill_up(fs);
            let half = free.blocks_available * u64::from(free.block_size) / 2;
            assert!(written > half, "{layout}: {written} of {half}");
        });
        image.assert_clean(&format!("{layout}, full"));
    }
}

/// Makes the volumes larger on mounts, and writes a file into each.
fn by_linux(images: &[Image], groups: u64, step: usize) {
    let mut guest = Guest::new();
    let mut script = "set -e\n".to_owned();
    for ((image, (_, size, group)), drive) in images.iter().zip(LAYOUTS).zip('a'..) {
        let file = std::fs::OpenOptions::new().write(true).open(&image.path).unwrap();
        file.set_len(groups * group).unwrap();
        guest = guest.drive(&image.path);
        let blocks = groups * group / size;
        writeln!(
            script,
            "mount -t ext4 /dev/vd{drive} /mnt
             resize2fs /dev/vd{drive} {blocks} >/tmp/said 2>&1 || {{ cat /tmp/said; exit 1; }}
             head -c 300000 /dev/urandom >/mnt/linux{step}
             umount /mnt"
        )
        .unwrap();
    }
    let report = guest.run(&script);
    assert_eq!(report.lines(), Vec::<&str>::new(), "{}", report.output);
}
