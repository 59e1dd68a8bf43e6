//! What a server has acknowledged and may still lose: changes since the last flush.
//!
//! Of each byte only the last acknowledged content is kept. So writing all of it again brings a
//! server that has lost any part of it to where it was, in whatever order, and undoes nothing: a
//! byte that was made durable since (by FUA) is not in here any more.
//!
//! Invariants
//! - NB-4: what is kept is what every byte has to hold whose last acknowledged change no flush
//!   covers. A flush covers what was acknowledged before it began ([`Unflushed::begin_flush`]).

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The last content of a range.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Content {
    /// These bytes of it.
    Bytes(Arc<[u8]>, Range<usize>),
    /// Zeros.
    Zeros,
}

#[derive(Clone, Debug)]
struct Kept {
    end: u64,
    content: Content,
    /// The flush that covers it is of this number or a later one.
    flush: u64,
}

/// A flush that was begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flush(u64);

/// All changes that no flush has covered.
#[derive(Debug, Default)]
pub(crate) struct Unflushed {
    kept: BTreeMap<u64, Kept>,
    next_flush: u64,
    bytes: u64,
}

impl Unflushed {
    /// Notes bytes that were acknowledged.
    pub fn written(&mut self, offset: u64, bytes: Arc<[u8]>) {
        let len = bytes.len();
        self.put(offset..offset + len as u64, Content::Bytes(bytes, 0..len));
    }

    /// Notes zeros that were acknowledged.
    pub fn zeroed(&mut self, range: Range<u64>) {
        self.put(range, Content::Zeros);
    }

    /// Forgets a range: it is durable, or its content has no value.
    pub fn forget(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        let first = self.kept.range(..range.start).next_back().map(|(start, _)| *start);
        let first = first.filter(|start| self.kept[start].end > range.start);
        let inside = self.kept.range(range.clone()).map(|(start, _)| *start);
        let touched: Vec<u64> = first.into_iter().chain(inside).collect();
        for start in touched {
            let Some(kept) = self.kept.remove(&start) else { continue };
            self.bytes -= cost(&kept.content);
            if start < range.start {
                self.insert(start..range.start, part(&kept, start, start..range.start), kept.flush);
            }
            if kept.end > range.end {
                self.insert(
                    range.end..kept.end,
                    part(&kept, start, range.end..kept.end),
                    kept.flush,
                );
            }
        }
    }

    /// Begins a flush.
    pub fn begin_flush(&mut self) -> Flush {
        self.next_flush += 1;
        Flush(self.next_flush - 1)
    }

    /// The flush was acknowledged: what it covers is durable.
    pub fn end_flush(&mut self, flush: Flush) {
        let bytes = &mut self.bytes;
        self.kept.retain(|_, kept| {
            let stays = kept.flush > flush.0;
            if !stays {
                *bytes -= cost(&kept.content);
            }
            stays
        });
    }

    /// Bytes of memory.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All that is to be written again.
    pub fn all(&self) -> Vec<(Range<u64>, Content)> {
        self.kept.iter().map(|(start, kept)| (*start..kept.end, kept.content.clone())).collect()
    }

    fn put(&mut self, range: Range<u64>, content: Content) {
        self.forget(&range);
        if !range.is_empty() {
            self.insert(range, content, self.next_flush);
        }
    }

    fn insert(&mut self, range: Range<u64>, content: Content, flush: u64) {
        self.bytes += cost(&content);
        self.kept.insert(range.start, Kept { end: range.end, content, flush });
    }
}

/// A part of what is kept from `start` on.
fn part(kept: &Kept, start: u64, part: Range<u64>) -> Content {
    match &kept.content {
        Content::Zeros => Content::Zeros,
        Content::Bytes(bytes, range) => {
            let at = |offset: u64| range.start + (offset - start) as usize;
            Content::Bytes(bytes.clone(), at(part.start)..at(part.end))
        }
    }
}

/// What an entry takes, with its place in the map.
fn cost(content: &Content) -> u64 {
    64 + match content {
        Content::Bytes(_, range) => range.len() as u64,
        Content::Zeros => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZE: usize = 64;

    #[derive(Clone, Debug)]
    enum Step {
        Write(u64, usize, u8),
        Zero(u64, usize),
        Forget(u64, usize),
        BeginFlush,
        EndFlush,
    }

    fn step() -> impl Strategy<Value = Step> {
        let range = (0..SIZE as u64, 0..20usize);
        prop_oneof![
            4 => (range.clone(), 1..255u8).prop_map(|((at, len), byte)| Step::Write(at, len, byte)),
            1 => range.clone().prop_map(|(at, len)| Step::Zero(at, len)),
            1 => range.prop_map(|(at, len)| Step::Forget(at, len)),
            1 => Just(Step::BeginFlush),
            1 => Just(Step::EndFlush),
        ]
    }

    proptest! {
        /// NB-4, byte by byte: a model has the last content of each byte and the flush that it
        /// waits for.
        #[test]
        fn what_is_kept_is_the_last_content_that_no_flush_covers(
            steps in proptest::collection::vec(step(), 0..60),
        ) {
            let mut log = Unflushed::default();
            let mut model: Vec<Option<(u8, u64)>> = vec![None; SIZE];
            let (mut flush, mut begun) = (0, Vec::new());
            for step in steps {
                let cut = |at: u64, len: usize| at..(at + len as u64).min(SIZE as u64);
                let fill = |model: &mut Vec<Option<(u8, u64)>>, range: &Range<u64>, to| {
                    model[range.start as usize..range.end as usize].fill(to);
                };
                match step {
                    Step::Write(at, len, byte) => {
                        let range = cut(at, len);
                        fill(&mut model, &range, Some((byte, flush)));
                        log.written(at, vec![byte; (range.end - at) as usize].into());
                    }
                    Step::Zero(at, len) => {
                        fill(&mut model, &cut(at, len), Some((0, flush)));
                        log.zeroed(cut(at, len));
                    }
                    Step::Forget(at, len) => {
                        fill(&mut model, &cut(at, len), None);
                        log.forget(&cut(at, len));
                    }
                    Step::BeginFlush => {
                        begun.push((flush, log.begin_flush()));
                        flush += 1;
                    }
                    Step::EndFlush => if let Some((covers, flush)) = begun.pop() {
                        log.end_flush(flush);
                        for byte in &mut model {
                            *byte = byte.filter(|(_, waits)| *waits > covers);
                        }
                    }
                }
                let mut found = vec![None; SIZE];
                for (range, content) in log.all() {
                    for at in range.clone() {
                        let byte = match &content {
                            Content::Zeros => 0,
                            Content::Bytes(bytes, part) => {
                                bytes[part.clone()][(at - range.start) as usize]
                            }
                        };
                        prop_assert!(found[at as usize].replace(byte).is_none(), "kept twice");
                    }
                }
                let expected: Vec<_> = model.iter().map(|b| b.map(|(byte, _)| byte)).collect();
                prop_assert_eq!(found, expected);
                prop_assert_eq!(log.bytes() == 0, log.all().is_empty());
            }
        }
    }
}
