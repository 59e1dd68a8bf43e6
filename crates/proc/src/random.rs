//! Random bytes of the kernel, and random numbers that cost no system call.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io;

use crate::sys;

/// Random bytes of the kernel. They are fit for keys.
///
/// # Errors
/// If the kernel has none.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    sys::random_bytes(&mut bytes)?;
    Ok(bytes)
}

/// A random number, for what must not repeat and need not be secret. It is a hash with keys of this
/// thread, which the kernel's random bytes are the seed of.
#[must_use]
pub fn random_number() -> u64 {
    // (Each state has other keys than the one before.)
    RandomState::new().build_hasher().finish()
}

/// Sixteen bytes, as [`random_number`] makes them.
#[must_use]
pub fn random_id() -> [u8; 16] {
    (u128::from(random_number()) << 64 | u128::from(random_number())).to_ne_bytes()
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

    #[test]
    fn bytes_of_the_kernel_fill_all_that_was_asked_for() {
        let bytes: [u8; 1000] = random().expect("random bytes");
        assert!(bytes.chunks(100).all(|part| part.iter().any(|byte| *byte != 0)));
        assert_ne!(random::<32>().expect("random bytes"), random::<32>().expect("random bytes"));
    }
}
