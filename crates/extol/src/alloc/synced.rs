//! Files synced as they grow: where each piece goes.
//!
//! Logs of databases and mailboxes append a little and wait until it is durable. They should stay
//! in few extents, since fast commits carry only maps that lie in the inode, which has four; and
//! each piece should find zeros on the medium, since it then needs one flush (`zeroed.rs`). Many
//! such files grow side by side, and most stay small.
//!
//! ```text
//!   piece   where                                                                  extent
//!   1       the pool of zeroed blocks, packed                                      1
//!   2       the pool, with a few blocks ahead: small files get no further          2
//!   then    in place, while the blocks behind are free                             -
//!           else in the middle of the largest free run                             3, 4 at worst
//! ```
//!
//! The blocks behind a place in the middle of a free run stay free for long: other requests begin
//! at the front of a group, and the next log halves the largest free run that is left. (A place
//! right behind another window ends the growth of both.) Files that do not grow are packed, so
//! little space is fragmented.
//!
//! The window of such a file ([`super::window`]) is extended in place before it is empty, by the
//! double each time. The fsync of a piece that leaves few zeroed blocks zeroes more, and its own
//! flush makes them durable. Invariants: ZB-1 and ZB-2 of `zeroed.rs`.

use std::sync::Arc;

use extol_block::{BlockDevice, BlockNr};
use extol_vfs::Result;

use super::window::Window;
use super::{Allocator, Run};

/// Least and most zeroed blocks taken ahead with the second piece. Other files cannot have them.
const PACKED: (u32, u32) = (8, 32);
/// Least blocks of a first window elsewhere.
const FIRST: u32 = 32;
/// Least and most blocks zeroed at a time. 256 KiB (with blocks of 4 KiB) take a small part of a
/// flush.
const AHEAD: (u32, u32) = (8, 64);
/// The free run around a new place has at least so many times the blocks of the window; tried in
/// this order.
const ROOMS: [u32; 3] = [64, 16, 4];

/// A piece of a file under fsync whose map lies in its inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    /// Blocks.
    pub want: u32,
    /// Where it should begin.
    pub goal: BlockNr,
    /// Extents of the file.
    pub extents: usize,
    /// It lies directly behind the last mapped block.
    pub appends: bool,
    /// It should have zeroed blocks.
    pub small: bool,
}

/// What a piece may take from the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Share {
    most: u32,
    at: Option<BlockNr>,
}

impl Piece {
    /// Its file is still small: it has two extents to spare, and took few blocks ahead.
    fn is_packed(self, ahead: u32) -> bool {
        self.extents < 2 && ahead <= PACKED.1
    }

    /// Only at its goal unless the file is packed.
    fn share(self, packed: bool) -> Share {
        let at = (!packed).then_some(self.goal);
        let ahead = if self.appends && self.extents > 0 {
            self.want.saturating_mul(2).clamp(PACKED.0, PACKED.1)
        } else {
            0
        };
        Share { most: self.want.saturating_add(ahead), at }
    }

    /// Least blocks of its window.
    fn window(self, packed: bool) -> u32 {
        let least = if packed { PACKED.0 } else { FIRST };
        self.want.saturating_mul(2).max(least)
    }
}

impl Allocator {
    /// Takes blocks for a piece of a file under fsync, at least one. The second part: they are
    /// zeroed blocks. As with [`take`](Self::take), only memory changes.
    ///
    /// # Errors
    /// As for that.
    pub fn take_synced(self: &Arc<Self>, window: &mut Window, piece: Piece) -> Result<(Run, bool)> {
        let want = piece.want.clamp(1, self.geo.blocks_per_group);
        let piece = Piece { want, ..piece };
        if let Some(cut) = window.cut(self, piece.goal, want, 1) {
            return Ok(cut);
        }
        let packed = piece.is_packed(window.ahead());
        if piece.small && self.geo.inside_cluster(piece.goal.0) == 0 {
            let Share { most, at } = piece.share(packed);
            if let Some(run) = self.take_zeroed(want, most, at, piece.goal) {
                let (first, rest) = self.cut_off(run, want);
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
        let (first, rest) = self.cut_off(run, want);
        window.keep(self, first, rest);
        Ok((first, false))
    }

    /// A new place with room to grow, for a file that cannot grow in place.
    fn take_apart(&self, goal: BlockNr, want: u32) -> Option<Run> {
        if self.is_tight() {
            return None;
        }
        let most = self.geo.blocks_per_group / 4;
        let rooms = ROOMS.iter().map(|times| want.saturating_mul(*times).min(most));
        rooms.filter(|room| *room >= want).find_map(|room| self.take_amid(goal, want, room))
    }

    /// Prepares the window of a growing file for next pieces of `want` blocks: extends it in place,
    /// and zeroes blocks at its front. To be called without a handle.
    ///
    /// # Errors
    /// If the device fails.
    pub fn prepare_window(
        &self,
        window: &mut Window,
        want: u32,
        dev: &dyn BlockDevice,
    ) -> extol_block::Result<()> {
        let Some(run) = window.run(self) else { return Ok(()) };
        let ahead = window.ahead();
        if run.len < (ahead / 2).max(want.saturating_mul(2)) && !self.is_tight() {
            self.extend_in_place(window, run);
        }
        let left = |run: Run| run.len - window.without_zeros(run).len;
        let enough = want.saturating_mul(2).max(AHEAD.0);
        let Some(run) = window.run(self).filter(|run| left(*run) < enough.min(run.len)) else {
            return Ok(());
        };
        debug_assert!(run.len > 0, "a window that holds nothing");
        // ZB-2.
        let gate = self.trim_gate.lock();
        let Some(run) = window.run(self) else { return Ok(()) };
        let part = window.without_zeros(run);
        let len = (ahead / 2).max(enough).clamp(AHEAD.0, AHEAD.1).min(part.len);
        let part = Run { len, ..part };
        let written = self.zero(dev, part);
        let write = self.journal.note_unordered_write();
        drop(gate);
        written?;
        window.zeroed(part.end(), write);
        Ok(())
    }

    /// Extends the window by the free blocks behind it.
    fn extend_in_place(&self, window: &mut Window, run: Run) {
        // (A run lies in one group.)
        if self.geo.group_of_block(run.end()) != self.geo.group_of_block(run.start) {
            return;
        }
        let want = window.ahead().max(1).next_multiple_of(self.geo.cluster_ratio);
        let Some(more) = self.take_at(run.end(), want) else { return };
        if window.extend(self, more) {
            window.plan_more(0, self.opts.max_window);
        } else {
            // It was emptied under pressure.
            self.give_back(more);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_the_pool() {
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
