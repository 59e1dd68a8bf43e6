//! The readahead window of a sequential reader. Pure.
//!
//! ```text
//!   offset         here             ahead            offset, here: the read under way
//!     |────read─────|═══requested════|──new──|       ahead: end of what was requested
//!                    ◄──────── size ────────►
//! ```
//!
//! A read is sequential if it begins where the last one ended (the first one: at offset 0). Each
//! time half of the window is used up it doubles, up to the limit of the mount, and the new part is
//! requested: the device reads while the other half is consumed.
//!
//! Requests of one reader may overtake each other, if several are under way. So one that begins in
//! what was requested is sequential, too, and one that comes late, from as far back as a window, is
//! let be. Any other read closes the window.

use std::ops::Range;

/// The first window. Smaller ones make more requests than they save.
const FIRST: u64 = 128 << 10;

/// The window of one open file.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Where the last read ended.
    next: u64,
    /// End of what was requested.
    ahead: u64,
    /// 0: no window.
    size: u64,
}

/// What a read does about the window.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    /// Drops the requested pieces: the read is not sequential.
    Drop,
    /// Enough is requested.
    Nothing,
    /// Requests this range, too.
    Request(Range<u64>),
}

impl Window {
    /// A read of `len` bytes at `offset` of a file of `end` bytes; `most`: the largest window.
    pub(super) fn read(&mut self, offset: u64, len: u64, end: u64, most: u64) -> Plan {
        let here = offset.saturating_add(len);
        if here <= self.next && self.next - here < self.size && most > 0 {
            return Plan::Nothing;
        }
        let overtakes = self.size > 0 && (self.next..self.ahead).contains(&offset);
        let goes_on = offset == self.next || overtakes;
        self.next = here;
        if !goes_on || most == 0 {
            (self.size, self.ahead) = (0, 0);
            return Plan::Drop;
        }
        if self.size > 0 && self.ahead.saturating_sub(here) > self.size / 2 {
            return Plan::Nothing;
        }
        self.size =
            if self.size == 0 { len.saturating_mul(2).max(FIRST) } else { 2 * self.size }.min(most);
        let from = self.ahead.max(here);
        let to = here.saturating_add(self.size).min(end);
        if from >= to {
            return Plan::Nothing;
        }
        self.ahead = to;
        Plan::Request(from..to)
    }

    /// The requested pieces were dropped; the reader may go on.
    pub(super) fn pieces_dropped(&mut self) {
        self.ahead = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const END: u64 = 1 << 40;

    fn requested(
        window: &mut Window,
        reads: impl IntoIterator<Item = u64>,
        len: u64,
    ) -> Vec<Range<u64>> {
        let plans = reads.into_iter().map(|at| window.read(at, len, END, 4 * MIB));
        plans
            .filter_map(|plan| if let Plan::Request(range) = plan { Some(range) } else { None })
            .collect()
    }

    #[test]
    fn the_window_doubles_for_a_sequential_reader() {
        let mut window = Window::default();
        let ranges = requested(&mut window, (0..64).map(|n| n * MIB), MIB);
        assert_eq!(
            ranges[..4],
            [MIB..3 * MIB, 3 * MIB..6 * MIB, 6 * MIB..8 * MIB, 8 * MIB..10 * MIB]
        );
        assert!(ranges.windows(2).all(|two| two[0].end == two[1].start), "without gaps");
        let mut window = Window::default();
        let ranges = requested(&mut window, (0..1024).map(|n| n * 4 * KIB), 4 * KIB);
        assert_eq!(ranges[0], 4 * KIB..132 * KIB);
        assert_eq!(ranges[1], 132 * KIB..68 * KIB + 256 * KIB);
        assert!(ranges.len() < 16, "{}", ranges.len());
        assert!(ranges.iter().all(|range| range.end - range.start <= 4 * MIB));
    }

    #[test]
    fn nothing_is_requested_behind_the_end_or_for_random_reads() {
        let mut window = Window::default();
        assert_eq!(window.read(0, 4096, 4096, MIB), Plan::Nothing);
        assert_eq!(window.read(4096, 4096, 10_000, MIB), Plan::Request(8192..10_000));
        assert_eq!(window.read(8192, 4096, 10_000, MIB), Plan::Nothing);
        assert_eq!(window.read(1 << 20, 4096, END, MIB), Plan::Drop, "elsewhere");
        let here = (1 << 20) + 4096;
        assert_eq!(
            window.read(here, 4096, END, MIB),
            Plan::Request(here + 4096..here + 4096 + FIRST),
            "and on"
        );
        assert_eq!(window.read(0, 4096, END, MIB), Plan::Drop);
        assert_eq!(window.read(1 << 30, 4096, END, MIB), Plan::Drop, "random");
        assert_eq!(Window::default().read(0, 4096, END, 0), Plan::Drop, "switched off");
        let mut window = Window::default();
        assert_eq!(window.read(0, u64::MAX, END, MIB), Plan::Nothing, "no overflow");
        assert_eq!(window.read(u64::MAX, u64::MAX, END, MIB), Plan::Nothing);
    }

    #[test]
    fn requests_that_overtake_each_other_are_sequential() {
        let mut window = Window::default();
        let order = [0, 1, 3, 2, 5, 4, 6, 8, 9, 7, 10, 11];
        let ranges = requested(&mut window, order.map(|n| n * MIB), MIB);
        assert!(ranges.windows(2).all(|two| two[0].end == two[1].start), "{ranges:?}");
        assert!(ranges.last().expect("some").end > 12 * MIB, "{ranges:?}");
        assert_eq!(window.read(0, MIB, END, 4 * MIB), Plan::Drop, "not late, but read again");
    }

    #[test]
    fn dropped_pieces_are_requested_again() {
        let mut window = Window::default();
        assert_eq!(window.read(0, MIB, END, 4 * MIB), Plan::Request(MIB..3 * MIB));
        window.pieces_dropped();
        assert_eq!(window.read(MIB, MIB, END, 4 * MIB), Plan::Request(2 * MIB..6 * MIB));
    }
}
