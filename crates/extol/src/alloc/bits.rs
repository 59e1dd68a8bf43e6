//! A group's bits in memory, in machine words for searching. Each stands for a cluster, which is a
//! block unless the volume has bigalloc.
//!
//! A one means "not to be handed out". Bits behind the last real one are ones, so searches need no
//! special case for a short last group. On disk bit *n* is bit `n % 8` of byte `n / 8`:
//! little-endian words give the same order.

use extol_block::BlockNr;
use extol_ondisk::{Geometry, GroupNr};

use super::Run;

/// Bits of one group. `len` real bits; the rest of the last word is ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bits {
    words: Box<[u64]>,
    len: u32,
}

/// A run of bits: of clusters, in a block bitmap. (A [`Run`](super::Run) is one of blocks.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Span {
    pub start: u32,
    pub len: u32,
}

impl Span {
    pub fn end(self) -> u32 {
        self.start.saturating_add(self.len)
    }

    pub fn overlaps(self, other: Span) -> bool {
        self.start < other.end() && other.start < self.end()
    }
}

/// The clusters that a run of blocks touches, by group. A run outside the volume gives nothing for
/// the part outside.
pub(super) fn split(
    geo: &Geometry,
    start: BlockNr,
    len: u64,
) -> impl Iterator<Item = (GroupNr, Span)> + '_ {
    let end = start.0.saturating_add(len).min(geo.blocks());
    let mut at = start.0.max(geo.first_data_block);
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let group = geo.group_of_block(BlockNr(at));
        let first = geo.group_first_block(group).0;
        let stop = end.min(first + u64::from(geo.blocks_per_group));
        // Both are at most blocks_per_group, a u32.
        let from = (at - first) as u32 / geo.cluster_ratio;
        let to = ((stop - first) as u32).div_ceil(geo.cluster_ratio);
        at = stop;
        Some((group, Span { start: from, len: to - from }))
    })
}

/// The blocks of a span of clusters.
pub(super) fn run_of(geo: &Geometry, group: GroupNr, span: Span) -> Run {
    let first = geo.group_first_block(group);
    Run {
        start: first.plus(geo.cluster_blocks(u64::from(span.start))),
        len: span.len.saturating_mul(geo.cluster_ratio),
    }
}

impl Bits {
    /// `len` zeros.
    pub fn zeros(len: u32) -> Self {
        let mut words = vec![0u64; len.div_ceil(64) as usize].into_boxed_slice();
        if let Some(last) = words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last = !0 << (len % 64);
        }
        Self { words, len }
    }

    /// From on-disk bytes. Bits that the bytes do not have are ones.
    pub fn from_bytes(bytes: &[u8], len: u32) -> Self {
        let mut bits = Self::zeros(len);
        for (i, word) in bits.words.iter_mut().enumerate() {
            let mut raw = [0xFF; 8];
            let have = bytes.get(i * 8..).unwrap_or_default();
            let n = have.len().min(8);
            raw[..n].copy_from_slice(&have[..n]);
            *word |= u64::from_le_bytes(raw);
        }
        bits
    }

    /// Gets more real bits, all ones.
    pub fn lengthen(&mut self, len: u32) {
        if len > self.len {
            let mut words = std::mem::take(&mut self.words).into_vec();
            words.resize(len.div_ceil(64) as usize, !0);
            (self.words, self.len) = (words.into(), len);
        }
    }

    /// Real bits.
    pub fn len(&self) -> u32 {
        self.len
    }

    fn word(&self, i: usize) -> u64 {
        self.words.get(i).copied().unwrap_or(!0)
    }

    /// The bit; true behind the end.
    pub fn test(&self, bit: u32) -> bool {
        self.word((bit / 64) as usize) >> (bit % 64) & 1 != 0
    }

    /// First one at or after `from` in the bits xor `flip`; `len` if there is none.
    fn seek(&self, from: u32, flip: u64) -> u32 {
        if from >= self.len {
            return self.len;
        }
        let first = (from / 64) as usize;
        let mut word = (self.word(first) ^ flip) & (!0 << (from % 64));
        for i in first..self.words.len() {
            if i > first {
                word = self.word(i) ^ flip;
            }
            if word != 0 {
                return (i as u32 * 64 + word.trailing_zeros()).min(self.len);
            }
        }
        self.len
    }

    /// First zero at or after `from`.
    pub fn next_zero(&self, from: u32) -> Option<u32> {
        let at = self.seek(from, !0);
        (at < self.len).then_some(at)
    }

    /// First one at or after `from`; the end if there is none.
    pub fn next_one(&self, from: u32) -> u32 {
        self.seek(from, 0)
    }

    /// The next run of zeros at or after `from`, cut at `to`.
    pub fn next_run(&self, from: u32, to: u32) -> Option<Span> {
        let start = self.next_zero(from).filter(|&s| s < to)?;
        let end = self.next_one(start).min(to);
        Some(Span { start, len: end - start })
    }

    /// Length of the run of zeros that begins at `bit`, no more than `max`.
    pub fn run_at(&self, bit: u32, max: u32) -> u32 {
        if self.test(bit) {
            return 0;
        }
        // Only look as far as wanted: runs may be long and this is the hot path of appends.
        let stop = bit.saturating_add(max).min(self.len);
        let mut at = bit;
        while at < stop {
            let word = self.word((at / 64) as usize) >> (at % 64);
            let zeros = word.trailing_zeros().min(64 - at % 64);
            at += zeros;
            if word != 0 {
                break;
            }
        }
        at.min(stop) - bit
    }

    /// First run of at least `want` zeros that begins in `from..to`; else the longest run seen
    /// there.
    pub fn find(&self, from: u32, to: u32, want: u32) -> Result<Span, Span> {
        let mut best = Span::default();
        let mut at = from;
        while let Some(start) = self.next_zero(at).filter(|&s| s < to) {
            let end = self.next_one(start);
            let run = Span { start, len: end - start };
            if run.len >= want {
                return Ok(run);
            }
            if run.len > best.len {
                best = run;
            }
            at = end;
        }
        Err(best)
    }

    /// The longest run of zeros.
    pub fn largest(&self) -> Span {
        self.find(0, self.len, u32::MAX).unwrap_or_else(|run| run)
    }

    /// Length of the run of zeros around `span` (which is zeros).
    pub fn run_around(&self, span: Span) -> u32 {
        let mut start = span.start;
        while start > 0 {
            let at = start - 1;
            let shift = 63 - at % 64;
            let word = self.word((at / 64) as usize) << shift;
            let zeros = word.leading_zeros().min(at % 64 + 1);
            start -= zeros;
            if word != 0 {
                break;
            }
        }
        self.next_one(span.end()).max(span.end()) - start
    }

    fn each_word(&mut self, span: Span, mut f: impl FnMut(&mut u64, u64)) {
        let end = span.end().min(self.len);
        let mut at = span.start;
        while at < end {
            let n = (64 - at % 64).min(end - at);
            let mask = (!0 >> (64 - n)) << (at % 64);
            if let Some(word) = self.words.get_mut((at / 64) as usize) {
                f(word, mask);
            }
            at += n;
        }
    }

    /// Sets a range (cut at the end).
    pub fn set(&mut self, span: Span) {
        self.each_word(span, |word, mask| *word |= mask);
    }

    /// Clears a range (cut at the end).
    pub fn clear(&mut self, span: Span) {
        self.each_word(span, |word, mask| *word &= !mask);
    }

    /// True if the range lies inside and is all ones.
    pub fn all_set(&self, span: Span) -> bool {
        span.end() <= self.len && self.next_zero(span.start).is_none_or(|z| z >= span.end())
    }

    /// True if the range lies inside and is all zeros.
    pub fn all_clear(&self, span: Span) -> bool {
        span.end() <= self.len && self.next_one(span.start) >= span.end()
    }

    /// Number of zeros.
    pub fn count_zeros(&self) -> u32 {
        self.words.iter().map(|w| w.count_zeros()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(len: u32, busy: &[u32]) -> Bits {
        let mut bits = Bits::zeros(len);
        for &b in busy {
            bits.set(Span { start: b, len: 1 });
        }
        bits
    }

    #[test]
    fn padding_is_busy() {
        let bits = Bits::zeros(70);
        assert_eq!(bits.count_zeros(), 70);
        assert!(bits.test(70) && bits.test(127) && bits.test(100_000));
        assert_eq!(bits.next_zero(69), Some(69));
        assert_eq!(bits.next_zero(70), None);
        assert_eq!(bits.largest(), Span { start: 0, len: 70 });
        assert_eq!(Bits::from_bytes(&[0], 16).count_zeros(), 8, "missing bytes count as ones");
    }

    #[test]
    fn runs_across_words() {
        let bits = naive(200, &[3, 60, 61, 130]);
        assert_eq!(bits.find(0, 200, 4), Ok(Span { start: 4, len: 56 }));
        assert_eq!(bits.find(5, 200, 60), Ok(Span { start: 62, len: 68 }));
        assert_eq!(bits.find(0, 200, 69), Ok(Span { start: 131, len: 69 }));
        assert_eq!(bits.find(0, 200, 70), Err(Span { start: 131, len: 69 }));
        assert_eq!(
            bits.find(0, 131, 69),
            Err(Span { start: 62, len: 68 }),
            "the next run begins behind the limit"
        );
        assert_eq!(bits.run_at(62, 1000), 68);
        assert_eq!(bits.run_at(62, 5), 5);
        assert_eq!(bits.run_at(60, 5), 0);
        assert_eq!(bits.run_at(131, 1000), 69);
        assert_eq!(bits.run_around(Span { start: 100, len: 3 }), 68);
        assert_eq!(bits.run_around(Span { start: 0, len: 1 }), 3);
        assert_eq!(bits.run_around(Span { start: 199, len: 1 }), 69);
        assert_eq!(bits.next_run(61, 70), Some(Span { start: 62, len: 8 }));
    }

    #[test]
    fn ranges() {
        let mut bits = Bits::zeros(300);
        bits.set(Span { start: 10, len: 200 });
        assert!(bits.all_set(Span { start: 10, len: 200 }));
        assert!(!bits.all_set(Span { start: 9, len: 3 }));
        assert!(!bits.all_set(Span { start: 290, len: 20 }), "past the end");
        bits.clear(Span { start: 63, len: 66 });
        assert!(bits.all_clear(Span { start: 63, len: 66 }));
        assert_eq!(bits.count_zeros(), 300 - 200 + 66);
        bits.set(Span { start: 299, len: 1 });
        assert!(bits.test(299));
    }

    #[test]
    fn longer_bits_keep_what_they_had() {
        let mut bits = naive(70, &[0, 5, 69]);
        bits.lengthen(60);
        assert_eq!(bits, naive(70, &[0, 5, 69]), "never shorter");
        bits.lengthen(200);
        assert_eq!((bits.len(), bits.count_zeros()), (200, 67));
        assert!([0, 5, 69, 70, 199, 200].iter().all(|bit| bits.test(*bit)));
        bits.clear(Span { start: 70, len: 130 });
        assert_eq!(bits, naive(200, &[0, 5, 69]));
    }

    #[test]
    fn bytes_and_words_agree() {
        let mut bytes = vec![0u8; 32];
        let mut bits = Bits::zeros(256);
        let mut seed = 7u32;
        for _ in 0..200 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let start = seed >> 8 & 0xFF;
            let span = Span { start, len: (seed >> 20 & 0x3F).min(256 - start) };
            if seed >> 31 == 1 {
                extol_ondisk::bitmap::set_range(&mut bytes, span.start, span.end());
                bits.set(span);
            } else {
                extol_ondisk::bitmap::clear_range(&mut bytes, span.start, span.end());
                bits.clear(span);
            }
            assert_eq!(Bits::from_bytes(&bytes, 256), bits);
            assert_eq!(bits.count_zeros(), extol_ondisk::bitmap::count_zeros(&bytes, 256));
        }
    }
}
