//! Whether a server that is reached again has the storage of before.
//!
//! The start of the volume, where file systems keep what tells them apart, is compared with what it
//! may hold: what was there and what was written since the last flush, of which the server may have
//! lost any part. Each byte must be one of these.
//!
//! Invariants
//! - ID-1: `versions` has the content of each byte that the server may have: a change is entered
//!   before it is sent, and an older content goes only when a newer one is durable.
//! - ID-2: where that is not known (a discard, a change that was refused) nothing is compared, for
//!   good.

use std::ops::Range;

/// Bytes that are compared, at least.
pub(crate) const COMPARED: u64 = 4096;
/// With more versions a flush is due.
pub(crate) const MOST_VERSIONS: usize = 64;

/// What the start of a volume may hold.
#[derive(Debug)]
pub(crate) struct Identity {
    /// Where it is in the export.
    at: u64,
    /// One behind the other; all of the same length.
    versions: Vec<Vec<u8>>,
    /// How many versions were dropped, so that each has a number.
    dropped: u64,
    /// Changes that were sent and have no reply.
    pending: usize,
    is_known: bool,
}

impl Identity {
    /// With the content that was read when the first connection was made.
    pub fn new(at: u64, content: Vec<u8>) -> Self {
        Self { at, versions: vec![content], dropped: 0, pending: 0, is_known: true }
    }

    /// What is compared.
    pub fn range(&self) -> Range<u64> {
        self.at..self.at + self.newest().len() as u64
    }

    /// True if a change of a range matters here.
    pub fn touches(&self, range: &Range<u64>) -> bool {
        let own = self.range();
        self.is_known && !range.is_empty() && range.start < own.end && range.end > own.start
    }

    /// True if a flush is due.
    pub fn is_full(&self) -> bool {
        self.versions.len() > MOST_VERSIONS
    }

    /// Bytes that go out to an offset; to be called before, and `acknowledged` or `unsure` later.
    pub fn sent(&mut self, offset: u64, bytes: impl Iterator<Item = u8>) {
        let mut next = self.newest().clone();
        let count = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let places = next.iter_mut().skip(count(offset.saturating_sub(self.at)));
        let bytes = bytes.skip(count(self.at.saturating_sub(offset)));
        places.zip(bytes).for_each(|(place, byte)| *place = byte);
        if next != *self.newest() {
            self.versions.push(next);
        }
        self.pending += 1;
    }

    /// A change was carried out; for good if `is_durable`.
    pub fn acknowledged(&mut self, range: &Range<u64>, is_durable: bool) {
        self.pending = self.pending.saturating_sub(1);
        if !is_durable || self.pending > 0 {
            return;
        }
        let own = self.range();
        let inside = |at: u64| (at.clamp(own.start, own.end) - own.start) as usize;
        let place = inside(range.start)..inside(range.end);
        let newest = self.newest()[place.clone()].to_vec();
        for version in &mut self.versions {
            version[place.clone()].copy_from_slice(&newest);
        }
        self.versions.dedup();
    }

    /// What a range holds is not known any more.
    pub fn unsure(&mut self) {
        self.is_known = false;
        self.versions.truncate(1);
    }

    /// The number of the version that a flush makes durable which begins now.
    pub fn begin_flush(&self) -> Option<u64> {
        (self.pending == 0).then_some(self.dropped + self.versions.len() as u64 - 1)
    }

    /// A flush has ended.
    pub fn end_flush(&mut self, begun: Option<u64>) {
        let Some(number) = begun else { return };
        let older = number.saturating_sub(self.dropped).min(self.versions.len() as u64 - 1);
        self.versions.drain(..older as usize);
        self.dropped += older;
    }

    /// True if the start may hold this.
    pub fn may_be(&self, content: &[u8]) -> bool {
        let mut bytes = content.iter().enumerate();
        let is_one = |(at, byte): (usize, &u8)| {
            self.versions.iter().any(|version| version.get(at) == Some(byte))
        };
        !self.is_known || (content.len() == self.newest().len() && bytes.all(is_one))
    }

    fn newest(&self) -> &Vec<u8> {
        &self.versions[self.versions.len() - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(identity: &mut Identity, offset: u64, bytes: &[u8]) {
        identity.sent(offset, bytes.iter().copied());
        identity.acknowledged(&(offset..offset + bytes.len() as u64), false);
    }

    #[test]
    fn what_no_flush_covers_may_be_there_or_not_byte_by_byte() {
        let mut identity = Identity::new(0, b"aaaa".to_vec());
        write(&mut identity, 1, b"bb");
        write(&mut identity, 2, b"cc");
        for content in [b"aaaa", b"abba", b"abcc", b"aaba", b"aaac"] {
            assert!(identity.may_be(content), "{content:?}");
        }
        for content in [b"baaa", b"acaa", b"abbb"] {
            assert!(!identity.may_be(content), "{content:?}");
        }
        assert!(!identity.may_be(b"aaa"), "another length");
    }

    #[test]
    fn a_flush_leaves_what_was_written_since_it_began() {
        let mut identity = Identity::new(0, b"aa".to_vec());
        write(&mut identity, 0, b"b");
        let begun = identity.begin_flush();
        write(&mut identity, 1, b"c");
        identity.end_flush(begun);
        assert!(!identity.may_be(b"aa"), "the flush covers the first");
        assert!(identity.may_be(b"ba") && identity.may_be(b"bc"));
        let begun = identity.begin_flush();
        identity.end_flush(begun);
        assert!(identity.may_be(b"bc") && !identity.may_be(b"ba"));
    }

    #[test]
    fn a_flush_beside_a_change_without_a_reply_drops_nothing() {
        let mut identity = Identity::new(0, b"aa".to_vec());
        identity.sent(0, b"b".iter().copied());
        let begun = identity.begin_flush();
        identity.acknowledged(&(0..1), false);
        identity.end_flush(begun);
        assert!(identity.may_be(b"aa") && identity.may_be(b"ba"));
    }

    #[test]
    fn a_durable_write_covers_its_own_bytes_alone() {
        let mut identity = Identity::new(0, b"aa".to_vec());
        write(&mut identity, 0, b"b");
        identity.sent(1, b"c".iter().copied());
        identity.acknowledged(&(1..2), true);
        assert!(identity.may_be(b"ac") && identity.may_be(b"bc"));
        assert!(!identity.may_be(b"aa") && !identity.may_be(b"ba"));
    }

    #[test]
    fn changes_that_reach_over_both_ends_count_inside() {
        let mut identity = Identity::new(10, b"aaaa".to_vec());
        assert!(!identity.touches(&(0..10)) && !identity.touches(&(14..20)));
        assert!(identity.touches(&(0..11)) && identity.touches(&(13..14)));
        write(&mut identity, 8, b"bcde");
        assert!(identity.may_be(b"deaa") && identity.may_be(b"aaaa") && !identity.may_be(b"bcaa"));
        identity.sent(12, b"fghi".iter().copied());
        identity.acknowledged(&(12..16), true);
        assert!(identity.may_be(b"defg") && identity.may_be(b"aafg") && !identity.may_be(b"deaa"));
    }

    #[test]
    fn what_is_not_known_is_not_compared() {
        let mut identity = Identity::new(0, b"aa".to_vec());
        identity.unsure();
        assert!(identity.may_be(b"xy"));
        assert!(!identity.touches(&(0..2)));
    }
}
