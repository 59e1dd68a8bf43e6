//! Logs written with our encoders, recovered by e2fsck and shown by debugfs.

mod support;

use std::collections::BTreeMap;

use extol_block::{BlockDevice, BlockNr};
use extol_jbd2::Tid;
use extol_jbd2::format::{
    CommitBlock, CommitTime, DescriptorWriter, Features, Format, JournalSuperblock, RevokeWriter,
    V1Sum, escape,
};
use extol_testkit::{Image, Scratch, debugfs, require, run_ok, tool};
use support::{E2FSPROGS, Volume, assert_same_bytes, e2fsck_journal_only};

/// Writes transactions to the log of a volume.
struct Log<'v> {
    volume: &'v Volume,
    sb: JournalSuperblock,
    format: Format,
    head: u32,
    tid: Tid,
}

impl<'v> Log<'v> {
    fn start(volume: &'v Volume, compat: u32, incompat: u32, head: u32, tid: u32) -> Self {
        let mut sb = volume.superblock();
        sb.features = Features { compat, incompat, ro_compat: 0 };
        sb.checksum_type = if sb.features.has_csum_v2_or_v3() { 4 } else { 0 };
        (sb.start, sb.sequence) = (head, Tid(tid));
        volume.log().write_at(&sb.encode(), volume.map.superblock_offset().unwrap()).unwrap();
        let format = sb.format().unwrap();
        Self { volume, sb, format, head, tid: Tid(tid) }
    }

    fn put(&mut self, bytes: &[u8]) {
        let at = self.volume.map.device_offset(self.head).unwrap();
        self.volume.log().write_at(bytes, at).unwrap();
        self.head = if self.head + 1 == self.sb.log_end() { self.sb.first } else { self.head + 1 };
    }

    /// Gives the number of descriptors.
    fn transaction(&mut self, blocks: &BTreeMap<u64, Vec<u8>>, revokes: &[u64]) -> u32 {
        let format = self.format;
        let mut records = revokes.iter().peekable();
        while records.peek().is_some() {
            let mut w = RevokeWriter::new(&format, self.tid);
            while let Some(nr) = records.next_if(|_| !w.is_full()) {
                w.push(BlockNr(*nr)).unwrap();
            }
            self.put(&w.finish());
        }
        let mut sum = V1Sum::new();
        let mut descriptors = 0;
        let mut blocks = blocks.iter().peekable();
        while blocks.peek().is_some() {
            let mut w = DescriptorWriter::new(&format, self.tid);
            let mut copies = Vec::new();
            while let Some((nr, data)) = blocks.next_if(|_| !w.is_full()) {
                let escaped = escape(data);
                let copy = escaped.clone().unwrap_or_else(|| data.clone());
                w.push(BlockNr(*nr), &copy, escaped.is_some()).unwrap();
                copies.push(copy);
            }
            copies.insert(0, w.finish());
            for block in copies {
                sum.update(&block);
                self.put(&block);
            }
            descriptors += 1;
        }
        let time = CommitTime { sec: 1_700_000_000 + u64::from(self.tid.0), nsec: 0 };
        self.put(&CommitBlock::encode(&format, self.tid, time, sum));
        self.tid = self.tid.next();
        descriptors
    }
}

fn free_blocks(image: &Image, count: usize) -> Vec<u64> {
    let blocks: Vec<u64> = debugfs(image, &format!("ffb {count} 2500"))
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .collect();
    assert_eq!(blocks.len(), count);
    blocks
}

fn data(bs: usize, seed: u64, magic: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        (0..bs as u64).map(|i| (i.wrapping_mul(seed * 2 + 1) >> 3) as u8).collect();
    if magic {
        bytes[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    }
    bytes
}

/// e2fsck recovers one copy, we the other.
fn both_recover(image: &Image, expected: &BTreeMap<u64, Vec<u8>>, what: &str) {
    run_ok(tool("debugfs").args(["-w", "-R", "feature needs_recovery"]).arg(&image.path));
    let theirs = image.copy_as("theirs");
    e2fsck_journal_only(&theirs);
    let volume = Volume::open(image);
    let recovered = volume.recover().unwrap_or_else(|e| panic!("{what}: {e}"));
    assert_eq!(recovered.replayed_blocks as usize, expected.len(), "{what}");
    let bs = volume.map.block_size().len();
    for (nr, data) in expected {
        assert!(theirs.read_at(nr * bs as u64, bs) == *data, "{what}: e2fsck has block {nr} wrong");
        assert!(image.read_at(nr * bs as u64, bs) == *data, "{what}: we have block {nr} wrong");
    }
    let sequence = volume.superblock().sequence;
    let map = volume.map.clone();
    drop(volume);
    assert_same_bytes(image, &theirs, &map, what);
    assert_eq!(sequence, Volume::open(&theirs).superblock().sequence, "{what}");
    theirs.remove();
}

#[test]
fn every_variant() {
    if !require(&E2FSPROGS) {
        return;
    }
    let scratch = Scratch::new();
    for bs in [1024usize, 2048, 4096, 65536] {
        let size = 6_000 * bs as u64;
        let args =
            ["-t", "ext4", "-b", &bs.to_string(), "-J", &format!("size={}", (1024 * bs) >> 20)];
        let fresh = Image::mke2fs(scratch.path(), "fresh.img", size, &args);
        let free = free_blocks(&fresh, 700);
        // The largest images only once: what the variants change does not depend on the block size.
        let sums: &[(u32, u32)] =
            if bs > 4096 { &[(0, 0x10)] } else { &[(0, 0), (1, 0), (0, 0x8), (0, 0x10), (1, 0x4)] };
        for &(compat, incompat) in sums {
            for wide in [0, 0x2] {
                let what =
                    format!("block size {bs}, compat {compat:#x}, incompat {:#x}", incompat | wide);
                let image = fresh.copy_as("work.img");
                let volume = Volume::open(&image);
                // Wraps, and the last descriptor of the first transaction stands in the last log
                // block or near it.
                let mut log =
                    Log::start(&volume, compat, incompat | wide | 1, 1024 - 300, 0xFFFF_FFFE);
                let mut expected: BTreeMap<u64, Vec<u8>> =
                    free.iter().map(|nr| (*nr, data(bs, *nr, nr % 7 == 0))).collect();
                log.transaction(&expected, &[]);
                let second =
                    BTreeMap::from([(free[0], data(bs, 1, true)), (free[1], data(bs, 2, false))]);
                let records: Vec<u64> = free[2..300].to_vec();
                log.transaction(&second, &records);
                let third = BTreeMap::from([(free[5], data(bs, 3, false))]);
                log.transaction(&third, &[]);
                expected.retain(|nr, _| !records.contains(nr));
                expected.extend(second);
                expected.extend(third);
                drop(volume);
                both_recover(&image, &expected, &what);
                image.remove();
            }
        }
        fresh.remove();
    }
}

#[test]
fn descriptors_close_where_linux_closes_them() {
    if !require(&E2FSPROGS) {
        return;
    }
    let scratch = Scratch::new();
    let fresh = Image::mke2fs(
        scratch.path(),
        "fresh.img",
        40 << 20,
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    );
    let free = free_blocks(&fresh, 507);
    for (count, v3, plain) in [(253, 1, 1), (254, 2, 1), (506, 2, 1), (507, 3, 2)] {
        for (incompat, descriptors) in [(0x12, v3), (0, plain)] {
            let image = fresh.copy_as("work.img");
            let volume = Volume::open(&image);
            let mut log = Log::start(&volume, 0, incompat, 1, 2);
            let blocks: BTreeMap<u64, Vec<u8>> =
                free[..count].iter().map(|nr| (*nr, data(4096, *nr, false))).collect();
            assert_eq!(log.transaction(&blocks, &[]), descriptors, "{count} blocks, {incompat:#x}");
            drop(volume);
            both_recover(&image, &blocks, &format!("{count} blocks, {incompat:#x}"));
            image.remove();
        }
    }
}

#[test]
fn full_revoke_blocks() {
    if !require(&E2FSPROGS) {
        return;
    }
    let scratch = Scratch::new();
    let image = Image::mke2fs(
        scratch.path(),
        "revoke.img",
        40 << 20,
        &["-t", "ext4", "-b", "4096", "-J", "size=4"],
    );
    let free = free_blocks(&image, 511);
    let volume = Volume::open(&image);
    let mut log = Log::start(&volume, 0, 0x13, 1, 2);
    let blocks: BTreeMap<u64, Vec<u8>> =
        free.iter().map(|nr| (*nr, data(4096, *nr, false))).collect();
    log.transaction(&blocks, &[]);
    let before = log.head;
    // 509 records fill the first block, one goes to the second; the last block is not revoked.
    log.transaction(&BTreeMap::new(), &free[..510]);
    assert_eq!(log.head - before, 3);
    drop(volume);
    let last = BTreeMap::from([(free[510], blocks[&free[510]].clone())]);
    both_recover(&image, &last, "510 records");
}

#[test]
fn debugfs_lists_every_transaction() {
    if !require(&E2FSPROGS) {
        return;
    }
    let scratch = Scratch::new();
    for incompat in [0x13, 0x1] {
        let image = Image::mke2fs(
            scratch.path(),
            "dump.img",
            40 << 20,
            &["-t", "ext4", "-b", "1024", "-J", "size=1"],
        );
        let free = free_blocks(&image, 70);
        let volume = Volume::open(&image);
        let mut log = Log::start(&volume, 0, incompat, 1000, 40);
        for i in 0..4 {
            let blocks = free.iter().map(|nr| (*nr, data(1024, nr + i, i == 2))).collect();
            log.transaction(&blocks, if i == 3 { &free[..5] } else { &[] });
        }
        let descriptors = free.len().div_ceil(DescriptorWriter::capacity(&log.format) as usize);
        drop(volume);
        let dump = debugfs(&image, "logdump -a");
        for tid in 40..44 {
            for (kind, count) in
                [("type 1 (descriptor block)", descriptors), ("type 2 (commit block)", 1)]
            {
                let line = format!("Found expected sequence {tid}, {kind}");
                assert_eq!(dump.matches(&line).count(), count, "{line}:\n{dump}");
            }
        }
        assert_eq!(dump.matches("type 5 (revoke table)").count(), 1, "{dump}");
        assert_eq!(dump.matches(" logged at journal block ").count(), 4 * 70, "{dump}");
        assert!(!dump.to_lowercase().contains("error"), "{dump}");
        image.remove();
    }
}
