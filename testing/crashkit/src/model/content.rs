//! The bytes of a file. Versions share the chunks in which they are equal.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

const CHUNK: usize = 4096;

/// The bytes of a file.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Content {
    len: usize,
    /// Whole chunks; the bytes behind the end are zeros.
    chunks: Vec<Arc<Vec<u8>>>,
}

impl Content {
    /// These bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let mut content = Self::default();
        content.write(0, bytes);
        content
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The byte there; `None` behind the end.
    #[must_use]
    pub fn byte(&self, at: usize) -> Option<u8> {
        if at >= self.len {
            return None;
        }
        self.chunks.get(at / CHUNK).map(|c| c[at % CHUNK])
    }

    /// True if `bytes` are what stands at `at`, and all of it lies before the end.
    #[must_use]
    pub fn has(&self, at: usize, bytes: &[u8]) -> bool {
        if at + bytes.len() > self.len {
            return false;
        }
        let mut rest = bytes;
        let mut at = at;
        while !rest.is_empty() {
            let inside = at % CHUNK;
            let n = rest.len().min(CHUNK - inside);
            if self.chunks[at / CHUNK][inside..inside + n] != rest[..n] {
                return false;
            }
            rest = &rest[n..];
            at += n;
        }
        true
    }

    /// Writes bytes, growing as needed.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.resize(self.len.max(at + bytes.len()));
        let mut rest = bytes;
        let mut at = at;
        while !rest.is_empty() {
            let inside = at % CHUNK;
            let n = rest.len().min(CHUNK - inside);
            Arc::make_mut(&mut self.chunks[at / CHUNK])[inside..inside + n]
                .copy_from_slice(&rest[..n]);
            rest = &rest[n..];
            at += n;
        }
    }

    /// Cuts, or adds zeros.
    pub fn resize(&mut self, len: usize) {
        if len < self.len {
            let end = self.len.min(len.next_multiple_of(CHUNK));
            if end > len {
                self.write(len, &vec![0; end - len]);
            }
        }
        self.len = len;
        self.chunks.resize_with(len.div_ceil(CHUNK), || Arc::new(vec![0; CHUNK]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_independent() {
        let mut new = Content::of(&[1; 10_000]);
        let old = new.clone();
        new.write(4000, &[2; 200]);
        assert!(old.has(4000, &[1; 200]) && new.has(4000, &[2; 200]) && !new.has(3999, &[2; 2]));
        assert!(Arc::ptr_eq(&old.chunks[2], &new.chunks[2]));
        new.resize(4100);
        new.resize(9000);
        assert_eq!(
            (new.byte(4099), new.byte(4100), new.byte(8999), new.byte(9000)),
            (Some(2), Some(0), Some(0), None)
        );
        assert!(!new.has(8999, &[0; 2]), "behind the end is nothing");
        let mut sparse = Content::default();
        sparse.write(5000, &[3]);
        assert!(sparse.has(0, &[0; 5000]) && sparse.len() == 5001);
    }
}
