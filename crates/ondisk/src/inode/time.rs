//! Moments, as inodes store them.

/// A moment: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Time {
    /// Seconds, may be negative.
    pub sec: i64,
    /// Nanoseconds, 0..1_000_000_000.
    pub nsec: u32,
}

impl Time {
    /// Earliest second that can be stored (December 1901).
    pub const MIN_SEC: i64 = -(1 << 31);
    /// Latest second that can be stored with an extra word (May 2446).
    pub const MAX_SEC: i64 = (3 << 32) + (1 << 31) - 1;
    /// Latest second that can be stored without one (January 2038).
    pub const MAX_SEC_32: i64 = (1 << 31) - 1;

    /// From the seconds word and the extra word.
    #[must_use]
    pub fn from_words(sec: u32, extra: u32) -> Self {
        Self {
            sec: i64::from(sec as i32) + (i64::from(extra & 3) << 32),
            nsec: (extra >> 2).min(999_999_999),
        }
    }

    /// Seconds word and extra word of the nearest moment that can be stored.
    #[must_use]
    pub fn to_words(self) -> (u32, u32) {
        let sec = self.sec.clamp(Self::MIN_SEC, Self::MAX_SEC);
        let low = sec as u32;
        let epoch = ((sec - i64::from(low as i32)) >> 32) as u32 & 3;
        (low, epoch | self.nsec.min(999_999_999) << 2)
    }

    /// Seconds word of the nearest moment that can be stored without an extra word.
    #[must_use]
    pub fn to_word(self) -> u32 {
        self.sec.clamp(Self::MIN_SEC, Self::MAX_SEC_32) as u32
    }
}
