//! Buffers for requests and replies in which file data begins on a page boundary.
//!
//! Data follows a header: 80 bytes in a WRITE, 16 in the reply to a READ. A device with direct I/O
//! needs aligned memory and would have to copy other data. So the data is aligned, and the header
//! ends where the page begins.
//!
//! ```text
//!   |·············|header|data ···
//!                        ^ a page boundary, `lead` bytes after the start of the bytes
//! ```
//!
//! The bytes are a part of a vector that is never resized, so they stay where they are.

use std::ops::{Deref, DerefMut};

/// What direct I/O wants of memory, at the most.
const PAGE: usize = 4096;

/// Memory that was used by a request or reply of this size is large enough to free.
pub(crate) const LARGE: usize = 128 << 10;

/// Bytes of which the one at a certain place begins a page.
#[derive(Debug)]
pub(crate) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    len: usize,
}

impl Buffer {
    /// `len` zero bytes; the one at `lead` begins a page.
    pub(crate) fn new(len: usize, lead: usize) -> Self {
        let memory = vec![0; len + PAGE];
        let data = memory.as_ptr().addr() + lead;
        Self { start: data.next_multiple_of(PAGE) - data, memory, len }
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_behind_the_lead_begins_a_page() {
        for lead in [0, 16, 80, 4096, 5000] {
            for len in [lead + 1, lead + 4096, lead + (1 << 20)] {
                let mut buffer = Buffer::new(len, lead);
                assert_eq!(
                    (buffer.len(), buffer[lead..].as_ptr().addr() % PAGE),
                    (len, 0),
                    "{lead} {len}"
                );
                buffer.fill(1);
            }
        }
    }
}
