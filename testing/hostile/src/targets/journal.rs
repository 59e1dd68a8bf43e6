//! The journal: its blocks one by one, and recovery on a log of any blocks.

use std::collections::HashSet;

use extol_block::{BlockDevice, BlockNr, BlockSize, MemDevice};
use extol_devices::CountingDevice;
use extol_jbd2::format::{
    CommitBlock, CommitTime, DescriptorReader, Features, Format, Header, JournalSuperblock,
    RevokeReader, V1Sum, crc32c, escape, unescape,
};
use extol_jbd2::recovery::{read_superblock, recover_to_device, recover_to_memory, wipe};
use extol_jbd2::{JournalError, LogMap, Tid, inspect};
use extol_ondisk::fast_commit::{FcReader, FcRecord};

use crate::choices::Choices;

const BS: usize = 1024;
const UUID: [u8; 16] = *b"a uuid of a test";
/// Blocks of the log; a smaller one is refused.
const LOG: u32 = 1100;
/// The log lies here, and the file system ends here.
const LOG_START: u64 = 600;
const FS_BLOCKS: u64 = LOG_START + LOG as u64 + 100;
/// Blocks that an input may describe.
const MAX_BLOCKS: usize = 200;

fn size() -> BlockSize {
    BlockSize::new(BS as u32).expect("a block size")
}

/// (compat, incompat) of every checksum version, with 32- and 64-bit numbers, asynchronous and fast
/// commits.
const FEATURES: &[(u32, u32)] = &[
    (0, 1),
    (0, 0),
    (1, 1),
    (0, 0x9),
    (0, 0x11),
    (0, 3),
    (0, 0x13),
    (0, 0xB),
    (0, 0x15),
    (1, 7),
    (0, 0x31),
    (0, 0x21),
];

pub(super) fn format(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else { return };
    let (compat, incompat) = FEATURES[usize::from(*first) % FEATURES.len()];
    let format = Format::new(Features { compat, incompat, ro_compat: 0 }, size(), UUID);
    let mut block = rest.to_vec();
    let _ = (Header::decode(rest), CommitBlock::decode(rest), format.verify_tail(rest));
    for bytes in [rest, {
        block.resize(BS, 0);
        &block
    }] {
        assert!(DescriptorReader::new(&format, bytes).count() <= bytes.len() / 8);
        if let Some(records) = RevokeReader::new(&format, bytes) {
            assert!(records.count() <= bytes.len() / 4);
        }
        let mut tags = 0;
        let _ = FcReader::new().block(bytes, |at, _| {
            assert!(at < bytes.len());
            tags += 1;
            true
        });
        assert!(tags <= bytes.len() / 4 + 1);
    }
    if let Some(commit) = CommitBlock::decode(&block) {
        let _ = commit.verify(&format, &block, V1Sum::new());
    }
    if let Some(mut escaped) = escape(&block) {
        unescape(&mut escaped);
        assert_eq!(escaped, block);
    }
    // As a superblock.
    let sum_at = 0xFC..0x100;
    block[sum_at.clone()].fill(0);
    let sum = crc32c(!0, &block);
    block[sum_at].copy_from_slice(&sum.to_be_bytes());
    if let Ok(sb) = JournalSuperblock::decode(&block) {
        let _ = (sb.fc_blocks(), sb.log_end(), sb.fc_range(), sb.format(), sb.seed());
        assert!(JournalSuperblock::decode(&sb.encode()).is_ok_and(|again| again == sb));
        for len in [0, 1, u64::from(LOG), 1 << 40] {
            if sb.validate(size(), len).is_ok() {
                assert!(u64::from(sb.maxlen) <= len && sb.first >= 1 && sb.first < sb.log_end());
                assert!(sb.start == 0 || (sb.first..sb.log_end()).contains(&sb.start));
            }
        }
    }
}

/// A number near something that matters, or any.
fn number(choices: &mut Choices, near: u32) -> u32 {
    match choices.below(8) {
        0..5 => near,
        5 => near.wrapping_add(choices.below(8) as u32).wrapping_sub(4),
        6 => *choices.pick(&[0, 1, 2, LOG - 1, LOG, LOG + 1, u32::MAX, 1 << 31]),
        _ => choices.any() as u32,
    }
}

/// Writes blocks of a log, each like one that belongs there.
struct Writer<'a> {
    device: &'a MemDevice,
    format: Format,
    at: u32,
    tid: u32,
    sum: V1Sum,
}

impl Writer<'_> {
    fn put(&mut self, block: &[u8]) {
        let at = (LOG_START + u64::from(self.at % LOG)) * BS as u64;
        self.device.write_at(block, at).expect("inside the device");
        self.at = self.at.wrapping_add(1);
    }

    fn header(&self, kind: u32) -> Vec<u8> {
        let mut block = vec![0; BS];
        block[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
        block[4..8].copy_from_slice(&kind.to_be_bytes());
        block[8..12].copy_from_slice(&self.tid.to_be_bytes());
        block
    }

    fn seal(&self, block: &mut [u8]) {
        if self.format.features.has_csum_v2_or_v3() {
            block[BS - 4..].fill(0);
            let sum = crc32c(self.format.seed, block);
            block[BS - 4..].copy_from_slice(&sum.to_be_bytes());
        }
    }

    fn home(&self, choices: &mut Choices) -> u64 {
        match choices.below(16) {
            0 => choices.any(),
            1 => LOG_START + choices.below(20) as u64,
            2 => FS_BLOCKS - 2 + choices.below(4) as u64,
            3 => 0,
            _ => 1 + choices.below(32) as u64,
        }
    }

    fn descriptor(&mut self, choices: &mut Choices) {
        let features = self.format.features;
        let (size, wide) = (features.tag_size(), features.is_64bit());
        let mut block = self.header(1);
        let mut copies = Vec::new();
        let wanted = 1 + choices.below(12);
        let mut at = 12;
        for i in 0..wanted {
            let home = self.home(choices);
            let odd = choices.below(32);
            let mut flags = if i == 0 { 0u16 } else { 2 };
            flags |= if i + 1 == wanted { 8 } else { 0 };
            flags ^= match odd {
                0 => 1,
                1 => 2,
                2 => 4,
                3 => 8,
                4 => choices.any() as u16,
                _ => 0,
            };
            if at + size + 16 + 4 > BS {
                break;
            }
            let copy = vec![choices.below(256) as u8; BS];
            let sum = crc32c(crc32c(self.format.seed, &self.tid.to_be_bytes()), &copy);
            let sum = if odd == 5 { !sum } else { sum };
            block[at..at + 4].copy_from_slice(&(home as u32).to_be_bytes());
            block[at + 6..at + 8].copy_from_slice(&flags.to_be_bytes());
            if wide {
                block[at + 8..at + 12].copy_from_slice(&((home >> 32) as u32).to_be_bytes());
            }
            if features.has_csum_v3() {
                block[at + 4..at + 8].copy_from_slice(&u32::from(flags).to_be_bytes());
                block[at + 12..at + 16].copy_from_slice(&sum.to_be_bytes());
            } else if features.has_csum_v2() {
                block[at + 4..at + 6].copy_from_slice(&(sum as u16).to_be_bytes());
            }
            at += size + if flags & 2 == 0 { 16 } else { 0 };
            copies.push(copy);
        }
        self.seal(&mut block);
        self.sum.update(&block);
        self.put(&block);
        for copy in copies {
            self.sum.update(&copy);
            self.put(&copy);
        }
    }

    fn revoke(&mut self, choices: &mut Choices) {
        let mut block = self.header(5);
        let size = self.format.features.revoke_record_size();
        let count = choices.below(40);
        for i in 0..count {
            let home = self.home(choices);
            let bytes = if size == 8 {
                home.to_be_bytes().to_vec()
            } else {
                (home as u32).to_be_bytes().to_vec()
            };
            block[16 + i * size..16 + (i + 1) * size].copy_from_slice(&bytes);
        }
        let end = number(choices, (16 + count * size) as u32);
        block[12..16].copy_from_slice(&end.to_be_bytes());
        self.seal(&mut block);
        self.put(&block);
    }

    fn block(&mut self, choices: &mut Choices) {
        match choices.below(12) {
            0..5 => self.descriptor(choices),
            5 | 6 => self.revoke(choices),
            7..10 => {
                let time = CommitTime { sec: 1000 + choices.below(4) as u64, nsec: 0 };
                let sum = std::mem::replace(&mut self.sum, V1Sum::new());
                let block = CommitBlock::encode(&self.format, Tid(self.tid), time, sum);
                self.put(&block);
                self.tid = self.tid.wrapping_add(1);
            }
            10 => {
                let kind = choices.below(8) as u32;
                let block = self.header(kind);
                self.put(&block);
            }
            _ => {
                self.tid = number(choices, self.tid);
                let skip = choices.below(4) as u32;
                self.at = self.at.wrapping_add(skip);
            }
        }
    }
}

/// Recovery to memory and to the device see the same; looking at a log never fails on what recovery
/// takes; the number of reads is bounded by the size of the log.
pub(super) fn log(input: &[u8]) {
    let mut choices = Choices::from_bytes(input);
    let (compat, incompat) = *choices.pick(FEATURES);
    let features = Features { compat, incompat, ro_compat: 0 };
    let device = MemDevice::new(FS_BLOCKS * BS as u64);
    let mut sb = JournalSuperblock::new(size(), LOG, 1, features, UUID);
    let first = *choices.pick(&[1, 1, 2, LOG - 30]);
    sb.maxlen = number(&mut choices, LOG);
    sb.first = number(&mut choices, if first == 2 { 2 } else { 1 });
    sb.start = number(&mut choices, first);
    let tid = *choices.pick(&[1, 1, 1000, u32::MAX - 1]);
    sb.sequence = Tid(number(&mut choices, tid));
    sb.num_fc_blocks = number(&mut choices, 0);
    sb.errno = -i32::from(choices.one_in(8));
    let super_at = LOG_START * BS as u64;
    device.write_at(&sb.encode(), super_at).expect("inside the device");
    let format = Format::new(features, size(), UUID);
    let mut writer =
        Writer { device: &device, format, at: sb.start, tid: sb.sequence.0, sum: V1Sum::new() };
    for _ in 0..MAX_BLOCKS {
        if choices.are_spent() {
            break;
        }
        writer.block(&mut choices);
    }
    device.write_at(&sb.encode(), super_at).expect("inside the device");
    run(&device);
}

fn run(device: &MemDevice) {
    let map = LogMap::from_extents(size(), vec![(0, LOG_START, LOG)]).expect("a map");
    let sb = read_superblock(device, &map).expect("its checksum is right");
    let counted = CountingDevice::new(device.snapshot());
    let memory = recover_to_memory(&counted, &map, &sb, FS_BLOCKS);
    // Scan, revocations and replay look at each block of the log at most a few times.
    let reads = counted.stats();
    assert!(reads.reads <= 6 * u64::from(LOG), "{} reads", reads.reads);
    assert_eq!(reads.writes, 0);

    let target = device.snapshot();
    let mut own = sb.clone();
    let recovered = recover_to_device(&target, &target, &map, &mut own, FS_BLOCKS);
    match (&memory, &recovered) {
        (Ok((a, overlay)), Ok(b)) => {
            assert_eq!(
                (a.end_tid, a.replayed_blocks, a.revoke_hits),
                (b.end_tid, b.replayed_blocks, b.revoke_hits)
            );
            let mut changed = HashSet::new();
            for nr in 0..FS_BLOCKS {
                let mut bytes = vec![0; BS];
                target.read_at(&mut bytes, nr * BS as u64).expect("read");
                if let Some(block) = overlay.get(BlockNr(nr)) {
                    assert!(**block == bytes, "block {nr} differs");
                    changed.insert(nr);
                }
            }
            assert_eq!(changed.len(), overlay.len(), "a block outside of the volume");
            assert!(
                changed.iter().all(|nr| !map.contains(BlockNr(*nr))),
                "the log replays into itself"
            );
            // Once is enough.
            let again = read_superblock(&target, &map).expect("a superblock");
            assert_eq!(again.start, if b.fast_commits.is_some() { again.first } else { 0 });
            let mut records = 0;
            if let Some(fast) = b.fast_commits {
                let count = |_: FcRecord<&[u8]>| {
                    records += 1;
                    Ok::<(), JournalError>(())
                };
                fast.each(&target, &map, &again, count).expect("as a moment ago");
                assert_eq!(records, fast.records);
            }
            assert!(
                recover_to_device(&target, &target, &map, &mut again.clone(), FS_BLOCKS)
                    .is_ok_and(|r| r.replayed_blocks == 0)
            );
        }
        (Err(_), Err(_)) => {}
        (a, b) => panic!("in memory {:?}, on the device {b:?}", a.as_ref().map(|a| &a.0)),
    }
    let counted = CountingDevice::new(device.snapshot());
    let report = inspect::inspect(&counted, &map, FS_BLOCKS).expect("the superblock is readable");
    assert!(counted.stats().reads <= 12 * u64::from(LOG), "{} reads", counted.stats().reads);
    assert_eq!(
        report.recovery.refused.is_some(),
        memory.is_err() && sb.start != 0 || sb.validate(size(), u64::from(LOG)).is_err()
    );
    if let (Ok((r, overlay)), true) = (&memory, sb.start != 0) {
        assert_eq!(report.recovery.transactions, r.replayed_transactions);
        assert_eq!(report.recovery.blocks as usize, overlay.len());
    }
    let wiped = device.snapshot();
    let _ = wipe(&wiped, &map, &mut sb.clone());
}
