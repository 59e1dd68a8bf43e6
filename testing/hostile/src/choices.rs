//! Where the choices of a test come from: random numbers that are the same on every machine and
//! with every version of every crate, or the bytes of a fuzzer's input, so that it can steer them.

#[derive(Clone, Debug)]
enum Source {
    /// SplitMix64.
    Seed(u64),
    /// Input, the next byte last. When it is used up, every choice is the first.
    Bytes(Vec<u8>),
}

/// A sequence of choices.
#[derive(Clone, Debug)]
pub struct Choices(Source);

impl Choices {
    /// Random choices.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(Source::Seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5851_F42D_4C95_7F2D))
    }

    /// The choices that a fuzzer made.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(Source::Bytes(bytes.iter().rev().copied().collect()))
    }

    /// True if the bytes are used up (random choices never are).
    #[must_use]
    pub fn are_spent(&self) -> bool {
        matches!(&self.0, Source::Bytes(rest) if rest.is_empty())
    }

    fn take(rest: &mut Vec<u8>, n: usize) -> u64 {
        (0..n).fold(0, |v, i| v | u64::from(rest.pop().unwrap_or(0)) << (8 * i))
    }

    /// Any number. (Bytes: four of them, which fill both halves.)
    pub fn any(&mut self) -> u64 {
        match &mut self.0 {
            Source::Seed(state) => {
                *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
                let mut z = *state;
                z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
                z ^ (z >> 31)
            }
            Source::Bytes(rest) => Self::take(rest, 4) * 0x1_0000_0001,
        }
    }

    /// A number below `n` (0 if `n` is 0).
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 {
            return 0;
        }
        match &mut self.0 {
            Source::Seed(_) => (self.any() % n as u64) as usize,
            Source::Bytes(rest) => {
                let width = if n <= 1 << 8 {
                    1
                } else if n <= 1 << 16 {
                    2
                } else {
                    4
                };
                (Self::take(rest, width) % n as u64) as usize
            }
        }
    }

    /// True in one of `n` cases.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of several.
    ///
    /// # Panics
    /// If there are none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
