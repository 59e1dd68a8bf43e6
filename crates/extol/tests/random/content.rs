//! The bytes of a file in the model: sparse, and cheap to copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};

/// The smallest block size: every block boundary is a boundary of chunks, too.
pub const CHUNK: u64 = 1024;

type Chunk = [u8; CHUNK as usize];

const ZEROS: Chunk = [0; CHUNK as usize];

/// Contents and size.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub size: u64,
    chunks: BTreeMap<u64, Arc<Chunk>>,
}

/// Bytes that only this seed has.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SmallRng::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

impl Content {
    /// Zeros.
    pub fn of_size(size: u64) -> Self {
        Self { size, ..Self::default() }
    }

    pub fn write(&mut self, at: u64, data: &[u8]) {
        let mut done = 0;
        while done < data.len() {
            let place = at + done as u64;
            let (nr, inside) = (place / CHUNK, (place % CHUNK) as usize);
            let k = (CHUNK as usize - inside).min(data.len() - done);
            let chunk = Arc::make_mut(self.chunks.entry(nr).or_insert_with(|| Arc::new(ZEROS)));
            chunk[inside..inside + k].copy_from_slice(&data[done..done + k]);
            done += k;
        }
        self.size = self.size.max(at + data.len() as u64);
    }

    /// Zeroes a range; the size stays.
    pub fn zero(&mut self, from: u64, to: u64) {
        let to = to.min(self.size);
        let nrs: Vec<u64> = match from < to {
            true => self.chunks.range(from / CHUNK..to.div_ceil(CHUNK)).map(|(n, _)| *n).collect(),
            false => return,
        };
        for nr in nrs {
            let start = nr * CHUNK;
            let (a, b) = (from.max(start), to.min(start + CHUNK));
            if (a, b) == (start, start + CHUNK) {
                self.chunks.remove(&nr);
            } else if let Some(chunk) = self.chunks.get_mut(&nr) {
                Arc::make_mut(chunk)[(a - start) as usize..(b - start) as usize].fill(0);
            }
        }
    }

    pub fn resize(&mut self, size: u64) {
        self.zero(size, self.size);
        self.chunks.split_off(&size.div_ceil(CHUNK));
        self.size = size;
    }

    /// Cuts out a range of whole chunks.
    pub fn collapse(&mut self, at: u64, len: u64) {
        let tail = self.chunks.split_off(&(at / CHUNK));
        let by = len / CHUNK;
        self.chunks.extend(
            tail.into_iter().filter_map(|(n, c)| (n >= at / CHUNK + by).then(|| (n - by, c))),
        );
        self.size -= len;
    }

    /// Inserts zeros.
    pub fn insert(&mut self, at: u64, len: u64) {
        let tail = self.chunks.split_off(&(at / CHUNK));
        self.chunks.extend(tail.into_iter().map(|(n, c)| (n + len / CHUNK, c)));
        self.size += len;
    }

    /// What a read gives.
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        let len = self.size.saturating_sub(at).min(len as u64) as usize;
        let mut bytes = vec![0; len];
        for nr in self.chunks_in(at, at + len as u64) {
            let start = nr * CHUNK;
            let (a, b) = (at.max(start), (at + len as u64).min(start + CHUNK));
            let chunk = self.chunk(nr);
            bytes[(a - at) as usize..(b - at) as usize]
                .copy_from_slice(&chunk[(a - start) as usize..(b - start) as usize]);
        }
        bytes
    }

    /// Numbers of the chunks that may hold something else than zeros.
    pub fn chunks_in(&self, from: u64, to: u64) -> Vec<u64> {
        if from >= to {
            return Vec::new();
        }
        self.chunks.range(from / CHUNK..to.div_ceil(CHUNK)).map(|(n, _)| *n).collect()
    }

    pub fn chunk(&self, nr: u64) -> &Chunk {
        self.chunks.get(&nr).map_or(&ZEROS, |c| c)
    }

    /// Bytes held by chunks.
    pub fn weight(&self) -> u64 {
        self.chunks.len() as u64 * CHUNK
    }
}

#[test]
fn content_is_a_file() {
    let mut plain = Vec::new();
    let mut content = Content::default();
    let mut rng = SmallRng::seed_from_u64(1);
    for seed in 0..500 {
        let at = (rng.next_u64() % 9000) as usize;
        let len = (rng.next_u64() % 5000) as usize;
        match seed % 5 {
            0 | 1 => {
                let data = pattern(seed, len);
                plain.resize(plain.len().max(at + len), 0);
                plain[at..at + len].copy_from_slice(&data);
                content.write(at as u64, &data);
            }
            2 => {
                plain.resize(at, 0);
                content.resize(at as u64);
            }
            3 => {
                let end = (at + len).min(plain.len());
                if at < end {
                    plain[at..end].fill(0);
                }
                content.zero(at as u64, (at + len) as u64);
            }
            _ => {
                let (at, len) = (at / 1024 * 1024, len / 1024 * 1024);
                if at + len < plain.len() && seed % 2 == 0 {
                    plain.drain(at..at + len);
                    content.collapse(at as u64, len as u64);
                } else if at < plain.len() {
                    plain.splice(at..at, std::iter::repeat_n(0, len));
                    content.insert(at as u64, len as u64);
                }
            }
        }
        assert_eq!(content.size, plain.len() as u64);
        assert!(content.read(0, 1 << 20) == plain);
    }
}
