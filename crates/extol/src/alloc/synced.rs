//! Files that are synced as they grow: where each piece goes.
//!
//! The logs of databases, mailboxes, whatever appends a little and waits until it is durable. They
//! should stay in few extents, since fast commits carry only maps that lie in the inode, and those
//! have four; and each piece should find zeros on the medium, because then it needs one trip
//! (`zeroed.rs`). Many of them grow side by side, and most never become large.
//!
//! ```text
//!   piece   where                                                                    extent
//!   1       the stock of zeroed blocks, packed                                       1
//!   2       the stock, with some more ahead: small files get no further              2
//!   then    in place, while what lies behind is free                                 -
//!           else amid the largest free space, as far from everybody as can be        3, and if it must be 4
//! ```
//!
//! What lies behind stays free for long there: whoever else takes blocks begins at the front of a
//! group, and the next log halves the largest space that is left. (A log that took its place right
//! behind another's window would end that one's growth, and be ended by the next.) Files that do
//! not grow are packed, so little space is torn up by this.
//!
//! The window of such a file ([`super::window`]) goes on in place before it is empty, by the double
//! each time, and its front is zeroed in time: by the fsync of a piece that leaves little, whose
//! flush makes those zeros durable.
//!
//! Invariants: Z1 and Z2 of `zeroed.rs`.

use std::sync::Arc;

use extol_block::{BlockDevice, BlockNr};
use extol_vfs::Result;

use super::window::Window;
use super::{Allocator, Run, Shared};

/// Least blocks taken ahead with the second piece, of zeroed ones, and most: they are lost to
/// others, and perhaps for nothing.
const PACKED: (u32, u32) = (8, 32);
/// Least blocks of a first window elsewhere.
const FIRST: u32 = 32;
/// Least and most blocks zeroed at a time: 256 KiB with blocks of 4 KiB are a small part of a
/// flush.
const AHEAD: (u32, u32) = (8, 64);
/// A place amid free space has at least so many times the blocks of its window around it; the first
/// that is found counts.
const ROOMS: [u32; 3] = [64, 16, 4];

/// A piece of a file that is synced, whose map lies in its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Blocks.
    pub want: u32,
    /// Where it should begin.
    pub goal: BlockNr,
    /// Extents that the file has.
    pub extents: usize,
    /// It lies directly behind all that is mapped.
    pub appends: bool,
    /// It is worth zeroed blocks.
    pub small: bool,
}

/// What a piece may have of the stock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    most: u32,
    at: Option<BlockNr>,
}

impl Piece {
    /// Its file is small still, and may lie anywhere: it has an extent or two to spare, and took
    /// little ahead so far.
    fn is_packed(self, ahead: u32) -> bool {
        self.extents < 2 && ahead <= PACKED.1
    }

    /// Elsewhere only as long as the file is packed.
    fn share(self, packed: bool) -> Share {
        let at = (!packed).then_some(self.goal);
        let ahead = if self.appends && self.extents > 0 {
            self.want.saturating_mul(2).clamp(PACKED.0, PACKED.1)
        } else {
            0
        };
        Share { most: self.want.saturating_add(ahead), at }
    }

    /// The least that its window should hold.
    fn window(self, packed: bool) -> u32 {
        let least = if packed { PACKED.0 } else { FIRST };
        self.want.saturating_mul(2).max(least)
    }
}

impl Allocator {
    /// Blocks for a piece of a file that is being synced, at least one. The second part: they have
    /// zeros on the medium. As with [`take`](Self::take), the disk knows nothing of it.
    ///
    /// # Errors
    /// As for that.
    pub fn take_synced(&self, window: &mut Window, piece: Piece) -> Result<(Run, bool)> {
        self.shared.take_synced(window, piece)
    }

    /// Prepares the window of a growing file for its next pieces, which may have as many blocks as
    /// this one: goes on in place, and zeroes its front. Never call it with a handle open.
    ///
    /// # Errors
    /// If the device fails.
    pub fn prepare_window(
        &self,
        window: &mut Window,
        want: u32,
        dev: &dyn BlockDevice,
    ) -> extol_block::Result<()> {
        self.shared.prepare_window(window, want, dev)
    }
}

impl Shared {
    fn take_synced(self: &Arc<Self>, window: &mut Window, piece: Piece) -> Result<(Run, bool)> {
        let want = piece.want.clamp(1, self.geo.blocks_per_group);
        let piece = Piece { want, ..piece };
        if let Some(cut) = window.cut(self, piece.goal, want, 1) {
            return Ok(cut);
        }
        let packed = piece.is_packed(window.ahead());
        if piece.small {
            let Share { most, at } = piece.share(packed);
            if let Some(run) = self.take_zeroed(want, most, at, piece.goal) {
                let (first, rest) = run.split(want);
                window.empty();
                window.keep_zeroed(self, first, rest);
                return Ok((first, true));
            }
        }
        if !piece.appends || piece.extents == 0 {
            return self.take_for(window, piece.goal, want, 1).map(|run| (run, false));
        }
        window.empty();
        let limit = if self.is_tight() { 0 } else { self.opts.max_window };
        let most = want.saturating_add(window.plan_more(piece.window(packed), limit));
        let found = self.take_at(piece.goal, most);
        let apart = || (!packed).then(|| self.take_apart(piece.goal, most))?;
        let run = match found.or_else(apart) {
            Some(run) => run,
            None => self.take(piece.goal, most, 1)?,
        };
        let (first, rest) = run.split(want);
        window.keep(self, first, rest);
        Ok((first, false))
    }

    /// A place where a file that cannot go on in place may do so for long.
    fn take_apart(&self, goal: BlockNr, want: u32) -> Option<Run> {
        if self.is_tight() {
            return None;
        }
        let most = self.geo.blocks_per_group / 4;
        let rooms = ROOMS.iter().map(|times| want.saturating_mul(*times).min(most));
        rooms.filter(|room| *room >= want).find_map(|room| self.take_amid(goal, want, room))
    }

    fn prepare_window(
        &self,
        window: &mut Window,
        want: u32,
        dev: &dyn BlockDevice,
    ) -> extol_block::Result<()> {
        let Some(run) = window.run(self) else { return Ok(()) };
        let ahead = window.ahead();
        if run.len < (ahead / 2).max(want.saturating_mul(2)) && !self.is_tight() {
            self.go_on(window, run);
        }
        let left = |run: Run| run.len - window.without_zeros(run).len;
        let enough = want.saturating_mul(2).max(AHEAD.0);
        let Some(run) = window.run(self).filter(|run| left(*run) < enough.min(run.len)) else {
            return Ok(());
        };
        debug_assert!(run.len > 0, "a window that holds nothing");
        // Until the zeros are written nobody may empty the window.
        let gate = self.trim_gate.lock();
        let Some(run) = window.run(self) else { return Ok(()) };
        let part = window.without_zeros(run);
        let len = (ahead / 2).max(enough).clamp(AHEAD.0, AHEAD.1).min(part.len);
        let part = Run { len, ..part };
        let written = self.zero(dev, part);
        let write = self.journal.note_free_write();
        drop(gate);
        written?;
        window.zeroed(part.end(), write);
        Ok(())
    }

    /// The window takes what lies behind it, if that is free.
    fn go_on(&self, window: &mut Window, run: Run) {
        // (A run lies in one group.)
        if self.geo.group_of_block(run.end()) != self.geo.group_of_block(run.start) {
            return;
        }
        let Some(more) = self.take_at(run.end(), window.ahead().max(1)) else { return };
        if window.extend(self, more) {
            window.plan_more(0, self.opts.max_window);
        } else {
            // Somebody who had no space has emptied it.
            self.give_back(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_stock() {
        let piece = Piece { want: 1, goal: BlockNr(7), extents: 0, appends: true, small: true };
        assert_eq!(
            piece.share(true),
            Share { most: 1, at: None },
            "most files are never appended to"
        );
        let second = Piece { extents: 1, ..piece };
        assert_eq!(second.share(true), Share { most: 9, at: None });
        assert_eq!(Piece { want: 16, ..second }.share(true), Share { most: 48, at: None });
        assert_eq!(Piece { appends: false, ..second }.share(true), Share { most: 1, at: None });
        assert_eq!(second.share(false), Share { most: 9, at: Some(BlockNr(7)) });
        assert_eq!((piece.window(true), Piece { want: 49, ..piece }.window(false)), (8, 98));
        assert!(
            second.is_packed(32)
                && !second.is_packed(64)
                && !Piece { extents: 2, ..piece }.is_packed(0)
        );
    }
}
