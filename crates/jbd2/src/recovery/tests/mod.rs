//! Recovery of logs that our own writers made: every variant, every odd case, every kind of damage.

mod damage;
mod fast_commits;
mod looks;
mod results;

use std::collections::BTreeMap;

use extol_block::{BlockDevice, BlockNr, BlockSize, DeviceOp, MemDevice};
use extol_devices::{Fault, FaultDevice, RecordingDevice};

use super::*;
use crate::format::{
    CommitBlock, CommitTime, DescriptorWriter, Features, Format, RevokeWriter, V1Sum, crc32c,
    escape,
};

const FS_BLOCKS: u64 = 8192;
const LOG_LEN: u32 = 1100;

/// One transaction of a test log.
#[derive(Clone, Default)]
struct Tx {
    blocks: Vec<(u64, Vec<u8>)>,
    revokes: Vec<u64>,
    time: u64,
}

/// A device with a file system's blocks and a log in two pieces.
struct Rig {
    device: MemDevice,
    map: LogMap,
    sb: JournalSuperblock,
    format: Format,
    head: u32,
    tid: Tid,
    /// Log blocks of each transaction, by what they hold.
    places: Vec<Vec<(u32, &'static str)>>,
}

impl Rig {
    fn new(compat: u32, incompat: u32, bs: u32) -> Self {
        let size = BlockSize::new(bs).unwrap();
        let device = MemDevice::new(FS_BLOCKS * u64::from(bs));
        let map =
            LogMap::from_extents(size, vec![(0, 5000, 600), (600, 3000, LOG_LEN - 600)]).unwrap();
        let features = Features { compat, incompat, ro_compat: 0 };
        let mut sb = JournalSuperblock::new(size, LOG_LEN, 1, features, [0xA5; 16]);
        sb.num_fc_blocks = 60;
        let format = sb.format().unwrap();
        Self { device, map, head: 1, tid: Tid(7), sb, format, places: Vec::new() }
    }

    fn bs(&self) -> usize {
        self.format.block_size.len()
    }

    /// Starts the log at `head` with `tid`.
    fn start(&mut self, head: u32, tid: u32) {
        (self.head, self.tid) = (head, Tid(tid));
        self.sb.start = head;
        self.sb.sequence = Tid(tid);
        self.write_superblock();
    }

    fn write_superblock(&self) {
        self.device.write_at(&self.sb.encode(), self.map.superblock_offset().unwrap()).unwrap();
    }

    fn put(&mut self, bytes: &[u8], what: &'static str) {
        self.device.write_at(bytes, self.map.device_offset(self.head).unwrap()).unwrap();
        self.places.last_mut().unwrap().push((self.head, what));
        self.head = if self.head + 1 == self.sb.log_end() { self.sb.first } else { self.head + 1 };
    }

    /// Everything but the commit block; gives the v1 sum.
    fn body(&mut self, tx: &Tx) -> V1Sum {
        let format = self.format;
        self.places.push(Vec::new());
        let mut records = tx.revokes.iter().peekable();
        while records.peek().is_some() {
            let mut w = RevokeWriter::new(&format, self.tid);
            while let Some(nr) = records.next_if(|_| !w.is_full()) {
                w.push(BlockNr(*nr)).unwrap();
            }
            self.put(&w.finish(), "revoke");
        }
        let mut sum = V1Sum::new();
        let mut blocks = tx.blocks.iter().peekable();
        while blocks.peek().is_some() {
            let mut w = DescriptorWriter::new(&format, self.tid);
            let mut copies = Vec::new();
            while let Some((nr, data)) = blocks.next_if(|_| !w.is_full()) {
                let escaped = escape(data);
                let copy = escaped.clone().unwrap_or_else(|| data.clone());
                w.push(BlockNr(*nr), &copy, escaped.is_some()).unwrap();
                copies.push(copy);
            }
            let descriptor = w.finish();
            sum.update(&descriptor);
            self.put(&descriptor, "descriptor");
            for copy in copies {
                sum.update(&copy);
                self.put(&copy, "copy");
            }
        }
        sum
    }

    fn commit(&mut self, tx: &Tx) {
        let sum = self.body(tx);
        let time = CommitTime { sec: tx.time, nsec: 5 };
        self.put(&CommitBlock::encode(&self.format, self.tid, time, sum), "commit");
        self.tid = self.tid.next();
    }

    fn recover(&self) -> Result<(Recovered, Overlay)> {
        recover_to_memory(
            &self.device,
            &self.map,
            &read_superblock(&self.device, &self.map)?,
            FS_BLOCKS,
        )
    }

    fn flip(&self, log_block: u32, bit: usize) {
        let at = self.map.device_offset(log_block).unwrap() + bit as u64 / 8;
        let mut byte = [0];
        self.device.read_at(&mut byte, at).unwrap();
        self.device.write_at(&[byte[0] ^ 1 << (bit % 8)], at).unwrap();
    }

    fn data(&self, seed: u64) -> Vec<u8> {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        (0..self.bs())
            .map(|_| {
                x ^= x << 13;
                x ^= x >> 7;
                x ^= x << 17;
                x as u8
            })
            .collect()
    }

    fn tx(&self, time: u64, blocks: &[u64]) -> Tx {
        let blocks = blocks.iter().map(|nr| (*nr, self.data(nr * 1000 + time))).collect();
        Tx { blocks, revokes: Vec::new(), time }
    }
}

fn contents(overlay: &Overlay, nrs: std::ops::Range<u64>) -> BTreeMap<u64, Vec<u8>> {
    nrs.filter_map(|nr| Some((nr, overlay.get(BlockNr(nr))?.to_vec()))).collect()
}

/// (compat, incompat) of every checksum version, with 32- and 64-bit numbers.
fn variants() -> Vec<(u32, u32)> {
    [(0, 0), (1, 0), (0, 0x8), (0, 0x10)]
        .iter()
        .flat_map(|(c, i)| [(*c, *i), (*c, i | 0x2)])
        .collect()
}

fn magic_block(rig: &Rig) -> Vec<u8> {
    let mut data = rig.data(99);
    data[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    data
}
