//! The contents of the devices, with a fingerprint that follows every change.
//!
//! The fingerprint is the exclusive or of one hash per sector, over number and contents, so a
//! change costs only its own sectors. Two states with one fingerprint are taken for the same state
//! (128 bits; a sector of zeros counts as nothing, so sparse contents cost nothing).

use extol_block::{BlockDevice as _, MemDevice};

use crate::tape::{Change, Event};

/// Bytes that a medium writes all or nothing.
pub const SECTOR: u64 = 512;

/// Contents of the volume's device and, if there is one, of the journal's.
#[derive(Debug)]
pub struct Media {
    devices: Vec<MemDevice>,
    hash: u128,
}

impl Media {
    /// Takes the fingerprint of whole devices.
    #[must_use]
    pub fn new(devices: Vec<MemDevice>) -> Self {
        let mut hash = 0;
        for (nr, device) in devices.iter().enumerate() {
            hash ^= size_hash(nr, device.size());
            let mut bytes = device.to_bytes();
            bytes.resize(bytes.len().next_multiple_of(SECTOR as usize), 0);
            for (sector, data) in (0u64..).zip(bytes.chunks(SECTOR as usize)) {
                hash ^= sector_hash(nr, sector, data);
            }
        }
        Self { devices, hash }
    }

    /// A cheap copy.
    #[must_use]
    pub fn snapshot(&self) -> Self {
        Self { devices: self.devices.iter().map(MemDevice::snapshot).collect(), hash: self.hash }
    }

    /// The same bytes have the same fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> u128 {
        self.hash
    }

    /// The devices: the volume first.
    #[must_use]
    pub fn into_devices(self) -> Vec<MemDevice> {
        self.devices
    }

    /// Copies of the devices.
    #[must_use]
    pub fn devices(&self) -> Vec<MemDevice> {
        self.devices.iter().map(MemDevice::snapshot).collect()
    }

    /// Applies a change as a whole.
    pub fn apply(&mut self, event: &Event) {
        self.apply_pieces(event, |_| true);
    }

    /// Applies those sectors of a change that `keep` names. Zeroed ranges go as a whole.
    pub fn apply_pieces(&mut self, event: &Event, mut keep: impl FnMut(usize) -> bool) {
        match &event.change {
            Change::Flush { .. } | Change::Settled { .. } => {}
            Change::Size(bytes) => self.set_size(event.device, *bytes),
            Change::Zero { offset, len } => {
                if keep(0) {
                    let zeros = vec![0; *len as usize];
                    self.write(event.device, *offset, &zeros);
                }
            }
            Change::Write { offset, data } => {
                // Runs of kept sectors go in one piece.
                let mut run: Option<usize> = None;
                let mut at = 0;
                for piece in 0.. {
                    let kept = at < data.len() && keep(piece);
                    match (kept, run) {
                        (true, None) => run = Some(at),
                        (false, Some(start)) => {
                            self.write(event.device, offset + start as u64, &data[start..at]);
                            run = None;
                        }
                        _ => {}
                    }
                    if at >= data.len() {
                        break;
                    }
                    let here = offset + at as u64;
                    at = data.len().min(at + (SECTOR - here % SECTOR) as usize);
                }
            }
        }
    }

    /// What is cut off counts as zeros from then on, and the size itself is a part of the hash.
    fn set_size(&mut self, nr: usize, bytes: u64) {
        let old = self.devices[nr].size();
        if bytes < old {
            self.write(nr, bytes, &vec![0; (old - bytes) as usize]);
        }
        self.hash ^= size_hash(nr, old) ^ size_hash(nr, bytes);
        let done = self.devices[nr].set_size(bytes);
        debug_assert!(done.is_ok());
    }

    /// What lies behind the end of a device goes nowhere: a write may get there before the length
    /// that it needs.
    fn write(&mut self, nr: usize, offset: u64, data: &[u8]) {
        let device = &self.devices[nr];
        let room = device.size().saturating_sub(offset);
        let data = &data[..data.len().min(usize::try_from(room).unwrap_or(usize::MAX))];
        if data.is_empty() {
            return;
        }
        let first = offset / SECTOR;
        let end = (offset + data.len() as u64).div_ceil(SECTOR);
        let mut bytes = vec![0; ((end - first) * SECTOR) as usize];
        let inside = bytes.len().min((device.size() - first * SECTOR) as usize);
        let read = device.read_at(&mut bytes[..inside], first * SECTOR);
        debug_assert!(read.is_ok());
        let digest = |bytes: &[u8]| {
            (first..)
                .zip(bytes.chunks(SECTOR as usize))
                .fold(0, |sum, (s, b)| sum ^ sector_hash(nr, s, b))
        };
        self.hash ^= digest(&bytes);
        let at = (offset - first * SECTOR) as usize;
        bytes[at..at + data.len()].copy_from_slice(data);
        self.hash ^= digest(&bytes);
        let written = device.write_at(data, offset);
        debug_assert!(written.is_ok());
    }
}

fn size_hash(device: usize, bytes: u64) -> u128 {
    sector_hash(device, u64::MAX >> 8, &bytes.to_le_bytes())
}

fn sector_hash(device: usize, sector: u64, data: &[u8]) -> u128 {
    if data.iter().all(|b| *b == 0) {
        return 0;
    }
    let (mut a, mut b) = (sector ^ (device as u64) << 60, 0x9E37_79B9_7F4A_7C15_u64);
    for word in data.chunks(8) {
        let mut bytes = [0; 8];
        bytes[..word.len()].copy_from_slice(word);
        let word = u64::from_le_bytes(bytes);
        a = (a ^ word).wrapping_mul(0xFF51_AFD7_ED55_8CCD).rotate_left(29);
        b = (b.rotate_left(17) ^ word).wrapping_mul(0xC4CE_B9FE_1A85_EC53) ^ a >> 31;
    }
    u128::from(a ^ a >> 32) << 64 | u128::from(b ^ b >> 29)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(device: usize, offset: u64, data: Vec<u8>) -> Event {
        Event { device, change: Change::Write { offset, data: data.into() } }
    }

    #[test]
    fn the_fingerprint_follows_the_bytes() {
        let start =
            || Media::new(vec![MemDevice::from_bytes(&[7; 10_000]), MemDevice::new(10_000)]);
        let (mut one, mut two) = (start(), start());
        assert_eq!(one.fingerprint(), two.fingerprint());
        one.apply(&write(0, 700, vec![1; 3000]));
        assert_ne!(one.fingerprint(), two.fingerprint());
        two.apply(&write(0, 700, vec![2; 3000]));
        assert_ne!(one.fingerprint(), two.fingerprint());
        two.apply(&write(0, 700, vec![1; 3000]));
        assert_eq!(one.fingerprint(), two.fingerprint(), "the way there does not matter");
        one.apply(&write(1, 9_990, vec![3; 10]));
        two.apply(&write(0, 9_990, vec![3; 10]));
        assert_ne!(one.fingerprint(), two.fingerprint(), "devices are told apart");
        assert_eq!(one.fingerprint(), Media::new(one.devices()).fingerprint());
    }

    #[test]
    fn the_length_is_a_part_of_the_state() {
        let size = |bytes| Event { device: 0, change: Change::Size(bytes) };
        let start = || Media::new(vec![MemDevice::from_bytes(&[7; 10_000])]);
        let mut media = start();
        media.apply(&size(5000));
        assert_eq!(media.devices()[0].to_bytes(), [7; 5000]);
        assert_eq!(media.fingerprint(), Media::new(media.devices()).fingerprint());
        let short = media.fingerprint();
        media.apply(&size(10_000));
        assert_ne!(media.fingerprint(), short, "zeros behind the end are no end");
        assert_eq!(media.devices()[0].to_bytes()[5000..], [0; 5000]);
        assert_eq!(media.fingerprint(), Media::new(media.devices()).fingerprint());
        assert_ne!(media.fingerprint(), start().fingerprint());
    }

    #[test]
    fn writes_tear_at_sectors_of_the_device() {
        let mut media = Media::new(vec![MemDevice::new(8192)]);
        media.apply_pieces(&write(0, 256, vec![1; 2048]), |piece| piece % 2 == 1);
        let bytes = media.devices()[0].to_bytes();
        let seen: Vec<u8> =
            [256, 511, 512, 1023, 1024, 1536, 2047, 2048, 2303].map(|o| bytes[o]).into();
        assert_eq!(seen, [0, 0, 1, 1, 0, 1, 1, 0, 0]);
        media.apply(&Event { device: 0, change: Change::Zero { offset: 0, len: 8192 } });
        assert_eq!(media.fingerprint(), Media::new(vec![MemDevice::new(8192)]).fingerprint());
    }
}
