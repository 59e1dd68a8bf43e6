//! How far to read ahead of somebody who reads on: numbers in, decision out.
//!
//! ```text
//!   offset         here             ahead            offset, here: the read that is being made
//!     |────read─────|═══asked for════|──new──|       ahead: how far was asked for until now
//!                    ◄──────── size ────────►
//! ```
//!
//! A read goes on if it begins where the last one ended; the first one, at offset 0. Each time half
//! of the window is used up, it doubles and is asked for again, so what is ahead is on its way
//! while the other half is being read. Any other read ends it.

use std::ops::Range;

/// The first window; smaller ones would be more requests for the device than they save.
const FIRST: u64 = 128 << 10;

/// The window of one open file.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// Where the last read ended.
    next: u64,
    /// What was asked for ends here.
    ahead: u64,
    /// 0: no window.
    size: u64,
}

/// What to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Plan {
    /// The reader is elsewhere: what was read ahead is of no use.
    Forget,
    /// There is enough.
    Enough,
    /// This range, too.
    Ask(Range<u64>),
}

impl Window {
    /// Somebody reads `len` bytes at `offset` of a file of `end` bytes; `most`: the largest window.
    pub(super) fn read(&mut self, offset: u64, len: u64, end: u64, most: u64) -> Plan {
        let here = offset.saturating_add(len);
        let goes_on = offset == self.next;
        self.next = here;
        if !goes_on || most == 0 {
            (self.size, self.ahead) = (0, 0);
            return Plan::Forget;
        }
        if self.size > 0 && self.ahead.saturating_sub(here) > self.size / 2 {
            return Plan::Enough;
        }
        self.size =
            if self.size == 0 { len.saturating_mul(2).max(FIRST) } else { 2 * self.size }.min(most);
        let from = self.ahead.max(here);
        let to = here.saturating_add(self.size).min(end);
        if from >= to {
            return Plan::Enough;
        }
        self.ahead = to;
        Plan::Ask(from..to)
    }

    /// What was asked for is gone; the reader goes on where it was.
    pub(super) fn lost(&mut self) {
        self.ahead = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const END: u64 = 1 << 40;

    fn asked(
        window: &mut Window,
        reads: impl IntoIterator<Item = u64>,
        len: u64,
    ) -> Vec<Range<u64>> {
        let plans = reads.into_iter().map(|at| window.read(at, len, END, 4 * MIB));
        plans
            .filter_map(|plan| if let Plan::Ask(range) = plan { Some(range) } else { None })
            .collect()
    }

    #[test]
    fn doubles_while_somebody_reads_on_and_stays_in_front() {
        let mut window = Window::default();
        let ranges = asked(&mut window, (0..64).map(|n| n * MIB), MIB);
        assert_eq!(
            ranges[..4],
            [MIB..3 * MIB, 3 * MIB..6 * MIB, 6 * MIB..8 * MIB, 8 * MIB..10 * MIB]
        );
        assert!(ranges.windows(2).all(|two| two[0].end == two[1].start), "without gaps");
        let mut window = Window::default();
        let ranges = asked(&mut window, (0..1024).map(|n| n * 4 * KIB), 4 * KIB);
        assert_eq!(ranges[0], 4 * KIB..132 * KIB);
        assert_eq!(ranges[1], 132 * KIB..68 * KIB + 256 * KIB);
        assert!(ranges.len() < 16, "{}", ranges.len());
        assert!(ranges.iter().all(|range| range.end - range.start <= 4 * MIB));
    }

    #[test]
    fn nothing_is_asked_for_behind_the_end_or_elsewhere() {
        let mut window = Window::default();
        assert_eq!(window.read(0, 4096, 4096, MIB), Plan::Enough);
        assert_eq!(window.read(4096, 4096, 10_000, MIB), Plan::Ask(8192..10_000));
        assert_eq!(window.read(8192, 4096, 10_000, MIB), Plan::Enough);
        assert_eq!(window.read(8192, 4096, END, MIB), Plan::Forget, "read again");
        assert_eq!(
            window.read(12_288, 4096, END, MIB),
            Plan::Ask(16_384..16_384 + FIRST),
            "and on"
        );
        assert_eq!(window.read(0, 4096, END, MIB), Plan::Forget);
        assert_eq!(window.read(1 << 30, 4096, END, MIB), Plan::Forget, "random");
        assert_eq!(Window::default().read(0, 4096, END, 0), Plan::Forget, "switched off");
        let mut window = Window::default();
        assert_eq!(window.read(0, u64::MAX, END, MIB), Plan::Enough, "no overflow");
        assert_eq!(window.read(u64::MAX, u64::MAX, END, MIB), Plan::Enough);
    }

    #[test]
    fn what_is_lost_is_asked_for_again() {
        let mut window = Window::default();
        assert_eq!(window.read(0, MIB, END, 4 * MIB), Plan::Ask(MIB..3 * MIB));
        window.lost();
        assert_eq!(window.read(MIB, MIB, END, 4 * MIB), Plan::Ask(2 * MIB..6 * MIB));
    }
}
