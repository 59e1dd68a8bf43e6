//! Work with keys that leaves none of them on the stack.
//!
//! A value that moves is copied: a schedule of round keys lies in the frame of the function that
//! makes it, and in that of its caller, before it is in its place on the heap. Nothing overwrites
//! those copies when the value is dropped. So work with keys runs below a frame of its own, and
//! the stack below that frame is overwritten afterwards.

use std::hint::black_box;

use zeroize::Zeroize;

/// Words of stack that are overwritten after keys were derived, and ciphers made of them.
pub(crate) const DERIVE: usize = 4096;
/// Words of stack that are overwritten after data was encrypted.
pub(crate) const ENCRYPT: usize = 1024;

/// Does `work`, and overwrites `WORDS` words of the stack that it used. Secrets in the result must
/// be on the heap.
pub(crate) fn wiped<const WORDS: usize, T>(work: impl FnOnce() -> T) -> T {
    let done = below(work);
    wipe::<WORDS>();
    done
}

#[inline(never)]
fn below<T>(work: impl FnOnce() -> T) -> T {
    work()
}

#[inline(never)]
fn wipe<const WORDS: usize>() {
    let mut stack = [0_u64; WORDS];
    stack.zeroize();
    black_box(&stack);
}
