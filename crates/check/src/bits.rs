//! Bitmaps over blocks and clusters. The one of claims is shared by threads: claiming is one atomic
//! operation per 64 bits, so that of two claims the second is always seen.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A set of small numbers that several threads fill.
#[derive(Debug)]
pub(crate) struct Claimed {
    words: Vec<AtomicU64>,
    len: u64,
}

impl Claimed {
    pub(crate) fn new(len: u64) -> Self {
        let words = usize::try_from(len.div_ceil(64)).unwrap_or(usize::MAX);
        Self { words: (0..words).map(|_| AtomicU64::new(0)).collect(), len }
    }

    /// Claims one number; true if it was free. Numbers outside count as taken.
    pub(crate) fn claim(&self, n: u64) -> bool {
        n < self.len && self.claim_word(n / 64, 1 << (n % 64)) == 0
    }

    /// Claims `len` numbers from `from`; gives how many of them were taken already, and the first
    /// of those. Numbers outside are left out.
    pub(crate) fn claim_range(&self, from: u64, len: u64) -> (u64, Option<u64>) {
        let end = from.saturating_add(len).min(self.len);
        let (mut taken, mut first) = (0, None);
        let mut at = from;
        while at < end {
            let bits = (64 - at % 64).min(end - at);
            let mask = if bits == 64 { !0 } else { ((1u64 << bits) - 1) << (at % 64) };
            let hits = self.claim_word(at / 64, mask);
            if hits != 0 {
                taken += u64::from(hits.count_ones());
                first.get_or_insert(at - at % 64 + u64::from(hits.trailing_zeros()));
            }
            at += bits;
        }
        (taken, first)
    }

    /// Sets the bits of `mask` and gives those that were set before.
    fn claim_word(&self, word: u64, mask: u64) -> u64 {
        match usize::try_from(word).ok().and_then(|w| self.words.get(w)) {
            Some(word) => word.fetch_or(mask, Relaxed) & mask,
            None => mask,
        }
    }

    /// Copies bits `from..from + 8 * out.len()` as bytes; `from` is a multiple of 8.
    pub(crate) fn copy_bytes(&self, from: u64, out: &mut [u8]) {
        debug_assert_eq!(from % 8, 0);
        let mut byte = from / 8;
        let mut rest = out;
        while !rest.is_empty() {
            let word = usize::try_from(byte / 8).ok().and_then(|w| self.words.get(w));
            let bytes = word.map_or(0, |w| w.load(Relaxed)).to_le_bytes();
            let skip = (byte % 8) as usize;
            let n = (8 - skip).min(rest.len());
            let (now, later) = rest.split_at_mut(n);
            now.copy_from_slice(&bytes[skip..skip + n]);
            byte += n as u64;
            rest = later;
        }
    }
}

/// A set of block numbers.
#[derive(Debug, Default)]
pub(crate) struct Bits {
    words: Vec<u64>,
}

impl Bits {
    pub(crate) fn new(len: u64) -> Self {
        Self { words: vec![0; usize::try_from(len.div_ceil(64)).unwrap_or(usize::MAX)] }
    }

    pub(crate) fn get(&self, n: u64) -> bool {
        let word = usize::try_from(n / 64).ok().and_then(|w| self.words.get(w));
        word.is_some_and(|w| w >> (n % 64) & 1 == 1)
    }

    /// Adds a number; true if it was not there.
    pub(crate) fn set(&mut self, n: u64) -> bool {
        match usize::try_from(n / 64).ok().and_then(|w| self.words.get_mut(w)) {
            Some(word) => {
                let was = *word >> (n % 64) & 1 == 1;
                *word |= 1 << (n % 64);
                !was
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_agree_with_single_claims() {
        let (a, b) = (Claimed::new(1000), Claimed::new(1000));
        let mut x = 7u32;
        for _ in 0..200 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let (from, len) = (u64::from(x >> 8) % 1010, u64::from(x >> 20) % 150);
            let taken: Vec<u64> = (from..from + len).filter(|&n| n < 1000 && !b.claim(n)).collect();
            let wanted = (taken.len() as u64, taken.first().copied());
            assert_eq!(a.claim_range(from, len), wanted, "{from}+{len}");
        }
        let get = |c: &Claimed, n: u64| c.words[n as usize / 64].load(Relaxed) >> (n % 64) & 1 == 1;
        assert!((0..1000).all(|n| get(&a, n) == get(&b, n)));
        let mut bytes = [0; 21];
        a.copy_bytes(72, &mut bytes);
        for n in 0..168u64 {
            assert_eq!(bytes[n as usize / 8] >> (n % 8) & 1 == 1, get(&a, 72 + n));
        }
        assert_eq!(a.claim_range(u64::MAX - 3, 100), (0, None));
    }

    #[test]
    fn plain_bits() {
        let mut bits = Bits::new(70);
        assert!(bits.set(69) && !bits.set(69) && !bits.set(5000));
        assert!(bits.get(69) && !bits.get(68) && !bits.get(u64::MAX));
    }
}
