//! The block size of a volume.

/// The block size of a volume: a power of two from 1024 to 65536 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSize(u32);

impl BlockSize {
    /// `None` unless `bytes` is a power of two in 1024..=65536.
    #[must_use]
    pub fn new(bytes: u32) -> Option<Self> {
        ((1024..=65536).contains(&bytes) && bytes.is_power_of_two()).then_some(Self(bytes))
    }

    /// The size in bytes.
    #[must_use]
    pub fn bytes(self) -> u32 {
        self.0
    }

    /// The size in bytes, as `usize`.
    #[must_use]
    pub fn len(self) -> usize {
        self.0 as usize
    }

    /// False: no block size is zero.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }

    /// log2 of the size.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0.trailing_zeros()
    }
}
