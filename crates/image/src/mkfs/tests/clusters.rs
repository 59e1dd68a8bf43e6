//! Volumes with clusters: mke2fs chooses the same numbers, and e2fsck finds nothing.

use super::harness::{Lab, assert_clean, dump, have};

/// What both must choose. (Extol gives each of its own files clusters of their own, and makes no
/// resize inode there, so free counts differ.)
const SAME: [&str; 10] = [
    "Block count",
    "First block",
    "Block size",
    "Cluster size",
    "Blocks per group",
    "Clusters per group",
    "Inodes per group",
    "Inode count",
    "Reserved block count",
    "Total journal blocks",
];

#[test]
fn numbers_are_those_of_mke2fs() {
    if !["mke2fs", "e2fsck", "dumpe2fs"].iter().all(|p| have(p)) {
        return;
    }
    let lab = Lab::new();
    for (size, args) in [
        ("64M", "-O bigalloc,^resize_inode"),
        ("64M", "-b 1024 -O bigalloc,^resize_inode -C 2048"),
        ("300M", "-b 1024 -O bigalloc,^resize_inode -C 8192"),
        ("1G", "-b 4096 -O bigalloc,^resize_inode -C 65536"),
        ("900M", "-b 1024 -O bigalloc,^resize_inode,^flex_bg -C 4096"),
        ("200M", "-b 1024 -O bigalloc,^resize_inode,^has_journal -C 32768"),
        ("2G", "-b 2048 -O bigalloc,^resize_inode,mmp -C 8192 -m 3"),
        ("100001K", "-b 4096 -O bigalloc,^resize_inode,inline_data -C 16384"),
        ("20M", "-b 1024 -O bigalloc,^resize_inode -C 2048 -g 1024 -N 512"),
    ] {
        let what = format!("{size} {args}");
        let (ours, summary) = lab.ours(size, args).expect("mkfs");
        assert_clean(&ours, &what);
        let theirs = lab.theirs(size, args).expect("mke2fs");
        let (ours, theirs) = (dump(&ours), dump(&theirs));
        let lines = |dump: &[String]| -> Vec<String> {
            let same = |line: &&String| SAME.iter().any(|name| line.starts_with(name));
            dump.iter().filter(same).cloned().collect()
        };
        assert_eq!(lines(&ours), lines(&theirs), "{what}");
        let free = format!("Free blocks:              {}", summary.free_blocks);
        assert!(ours.contains(&free), "{what}: {free}");
    }
}
