//! What a client keeps of the changes that it makes, for a server that is reached again.

use std::io::IoSlice;
use std::ops::Range;

use extol_sync::Mutex;

use crate::connection::Part;
use crate::identity::Identity;
use crate::scatter::pieces;
use crate::unflushed::{Content, Flush, Unflushed};
use crate::wire::{Command, RequestFlags};

/// Most bytes of memory for what no flush has covered. With more the client flushes by itself.
const MOST_UNFLUSHED: u64 = 64 << 20;

/// A flush that was begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun(Option<Flush>, Option<u64>);

/// Nothing is kept where connections are not made again.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    /// What the server may lose, if it has a flush.
    pub unflushed: Option<Mutex<Unflushed>>,
    /// What the start of the export may hold.
    pub identity: Option<Mutex<Identity>>,
}

impl Kept {
    /// Notes changes that are about to be sent.
    pub fn sent(&self, parts: &[Part], bufs: &[IoSlice<'_>]) {
        let Some(identity) = &self.identity else { return };
        for part in parts {
            let mut identity = identity.lock();
            if !identity.touches(&range(part)) {
                continue;
            }
            match part.command {
                Command::Write => {
                    let pieces = pieces(bufs, part.place, part.len as usize);
                    let bytes = pieces.iter().flat_map(|piece| piece.iter().copied());
                    identity.sent(part.offset, bytes);
                }
                Command::WriteZeroes => {
                    identity.sent(part.offset, std::iter::repeat_n(0, part.len as usize));
                }
                _ => identity.unsure(),
            }
        }
    }

    /// Notes what the server has acknowledged.
    pub fn acknowledged(&self, parts: &[Part], bufs: &[IoSlice<'_>]) {
        for part in parts {
            let is_durable = part.flags.contains(RequestFlags::FUA) || self.unflushed.is_none();
            if let Some(unflushed) = &self.unflushed {
                let copy = match part.command {
                    Command::Write if !is_durable => {
                        Some(joined(&pieces(bufs, part.place, part.len as usize)))
                    }
                    _ => None,
                };
                let mut unflushed = unflushed.lock();
                match (part.command, copy) {
                    (_, Some(bytes)) => unflushed.written(part.offset, bytes.into()),
                    (Command::WriteZeroes, None) => unflushed.zeroed(range(part)),
                    _ => unflushed.forget(&range(part)),
                }
            }
            self.of_identity(part, |identity| identity.acknowledged(&range(part), is_durable));
        }
    }

    /// Notes that some of the changes were refused, perhaps in part.
    pub fn refused(&self, parts: &[Part]) {
        for part in parts {
            self.of_identity(part, Identity::unsure);
        }
    }

    fn of_identity(&self, part: &Part, note: impl FnOnce(&mut Identity)) {
        if let Some(identity) = &self.identity {
            let mut identity = identity.lock();
            if identity.touches(&range(part)) {
                note(&mut identity);
            }
        }
    }

    /// Begins a flush.
    pub fn begin_flush(&self) -> Begun {
        let flush = self.unflushed.as_ref().map(|log| log.lock().begin_flush());
        Begun(flush, self.identity.as_ref().and_then(|identity| identity.lock().begin_flush()))
    }

    /// A flush was acknowledged.
    pub fn end_flush(&self, Begun(flush, version): Begun) {
        if let (Some(log), Some(flush)) = (&self.unflushed, flush) {
            log.lock().end_flush(flush);
        }
        if let Some(identity) = &self.identity {
            identity.lock().end_flush(version);
        }
    }

    /// True if a flush is due, to make room.
    pub fn is_full(&self) -> bool {
        self.unflushed.as_ref().is_some_and(|log| log.lock().bytes() > MOST_UNFLUSHED)
            || self.identity.as_ref().is_some_and(|identity| identity.lock().is_full())
    }

    /// True if nothing is kept that the server may lose.
    pub fn is_empty(&self) -> bool {
        self.unflushed.as_ref().is_none_or(|log| log.lock().bytes() == 0)
    }

    /// What is to be written again.
    pub fn all(&self) -> Vec<(Range<u64>, Content)> {
        self.unflushed.as_ref().map(|log| log.lock().all()).unwrap_or_default()
    }
}

fn range(part: &Part) -> Range<u64> {
    part.offset..part.offset + u64::from(part.len)
}

fn joined(pieces: &[IoSlice<'_>]) -> Vec<u8> {
    pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
}
