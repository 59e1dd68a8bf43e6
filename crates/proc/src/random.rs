//! Random bytes of the kernel, and random numbers that cost no system call.
//!
//! A test that must do the same each time gives its thread a seed (feature `seeded-random`): then
//! all of them follow from it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;

use crate::sys;

/// Random bytes of the kernel. They are fit for keys.
///
/// # Errors
/// If the kernel has none.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    if !seeded::fill(&mut bytes) {
        sys::random_bytes(&mut bytes)?;
    }
    Ok(bytes)
}

/// A random number, for what must not repeat and need not be secret. It is a hash with keys of this
/// thread, which the kernel's random bytes are the seed of.
#[must_use]
pub fn random_number() -> u64 {
    let mut bytes = [0; 8];
    if seeded::fill(&mut bytes) {
        return u64::from_le_bytes(bytes);
    }
    // (Each state has other keys than the one before.)
    RandomState::new().build_hasher().finish()
}

/// Sixteen bytes, as [`random_number`] makes them.
#[must_use]
pub fn random_id() -> [u8; 16] {
    (u128::from(random_number()) << 64 | u128::from(random_number())).to_ne_bytes()
}

/// Gives this thread a seed from which its random bytes and numbers follow, or takes it away.
#[cfg(feature = "seeded-random")]
pub fn seed_random(seed: Option<u64>) {
    seeded::STATE.set(seed);
}

#[cfg(feature = "seeded-random")]
mod seeded {
    use std::cell::Cell;

    thread_local! {
        pub(super) static STATE: Cell<Option<u64>> = const { Cell::new(None) };
    }

    /// Fills a buffer by splitmix64; false if this thread has no seed.
    pub(super) fn fill(bytes: &mut [u8]) -> bool {
        let Some(mut state) = STATE.get() else { return false };
        for part in bytes.chunks_mut(8) {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            part.copy_from_slice(&(mixed ^ (mixed >> 31)).to_le_bytes()[..part.len()]);
        }
        STATE.set(Some(state));
        true
    }
}

#[cfg(not(feature = "seeded-random"))]
mod seeded {
    /// False: all randomness is the kernel's.
    pub(super) const fn fill(_: &mut [u8]) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn numbers_do_not_repeat_and_each_bit_changes() {
        let numbers: Vec<u64> = (0..1000).map(|_| random_number()).collect();
        assert_eq!(numbers.iter().collect::<HashSet<_>>().len(), numbers.len());
        let (all, any) = numbers.iter().fold((u64::MAX, 0), |(all, any), n| (all & n, any | n));
        assert_eq!((all, any), (0, u64::MAX));
        let other = std::thread::spawn(random_number).join().expect("thread");
        assert!(!numbers.contains(&other));
        assert_ne!(random_id(), random_id());
    }

    #[cfg(feature = "seeded-random")]
    #[test]
    fn a_seed_decides_for_its_thread_alone() {
        let some = |seed| {
            seed_random(seed);
            (random::<20>().expect("random bytes"), random_number(), random_id())
        };
        let first = some(Some(1));
        assert_eq!(some(Some(1)), first);
        assert_ne!(some(Some(2)), first);
        assert_ne!(some(None), some(None));
        seed_random(Some(1));
        let other = std::thread::spawn(random_number).join().expect("thread");
        assert_eq!(random::<20>().expect("random bytes"), first.0);
        assert_ne!(other, first.1);
        seed_random(None);
    }

    #[test]
    fn bytes_of_the_kernel_fill_all_that_was_asked_for() {
        let bytes: [u8; 1000] = random().expect("random bytes");
        assert!(bytes.chunks(100).all(|part| part.iter().any(|byte| *byte != 0)));
        assert_ne!(random::<32>().expect("random bytes"), random::<32>().expect("random bytes"));
    }
}
