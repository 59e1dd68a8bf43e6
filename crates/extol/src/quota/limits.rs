//! Whether limits let an id have more, by the rules of Linux.
//!
//! A hard limit is never exceeded. A soft limit may be exceeded for a time, which begins when it is
//! exceeded first, be it by what is promised only ([`Begun`]), and ends when usage is below it
//! again; after that time it is as hard as the hard one. What is done for root is not limited.
//! Usage that is above a limit already stays.

use extol_ondisk::quota::{Entry, LIMIT_UNIT};
use extol_vfs::{FsError, Result};

use super::usage::{Amount, Room};

/// Seconds that soft limits may be exceeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Grace {
    pub space: u32,
    pub inodes: u32,
}

/// One kind of usage with its limits.
#[derive(Clone, Copy)]
struct Measure {
    used: u64,
    hard: u64,
    soft: u64,
    /// When the soft limit becomes hard; 0: it is not exceeded.
    time: u64,
}

impl Measure {
    fn of_space(entry: &Entry, promised: Room) -> Self {
        Self {
            used: entry.space.saturating_add(promised.space),
            hard: entry.space_hard.saturating_mul(LIMIT_UNIT),
            soft: entry.space_soft.saturating_mul(LIMIT_UNIT),
            time: entry.space_time,
        }
    }

    fn of_inodes(entry: &Entry, promised: Room) -> Self {
        Self {
            used: entry.inodes.saturating_add(promised.inodes),
            hard: entry.inode_hard,
            soft: entry.inode_soft,
            time: entry.inode_time,
        }
    }

    fn is_above_soft(self) -> bool {
        self.soft != 0 && self.used > self.soft
    }

    /// How much more there may be now.
    fn left(self, now: u64) -> u64 {
        let up_to =
            |limit: u64| if limit == 0 { u64::MAX } else { limit.saturating_sub(self.used) };
        let expired = self.time != 0 && now >= self.time;
        up_to(self.hard).min(if expired { up_to(self.soft) } else { u64::MAX })
    }
}

/// When soft limits become hard that are exceeded with what is promised only; 0: there is none.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Begun {
    pub space: u64,
    pub inodes: u64,
}

impl Begun {
    /// The times of an entry.
    pub fn of(entry: &Entry) -> Self {
        Self { space: entry.space_time, inodes: entry.inode_time }
    }

    /// The entry with these times where it has none, and soft limits are exceeded.
    pub fn seen_in(self, mut entry: Entry, promised: Room) -> Entry {
        let time = |measure: Measure, begun| match measure.time {
            0 if measure.is_above_soft() => begun,
            time => time,
        };
        let space = time(Measure::of_space(&entry, promised), self.space);
        let inodes = time(Measure::of_inodes(&entry, promised), self.inodes);
        (entry.space_time, entry.inode_time) = (space, inodes);
        entry
    }
}

/// Err if a limit is in the way of more.
pub(super) fn check(entry: &Entry, promised: Room, more: Room, now: u64) -> Result<()> {
    let space = more.space == 0 || more.space <= Measure::of_space(entry, promised).left(now);
    let inodes = more.inodes == 0 || more.inodes <= Measure::of_inodes(entry, promised).left(now);
    if space && inodes { Ok(()) } else { Err(FsError::QuotaExceeded) }
}

/// Bytes that an id may have beside those that it uses or was promised.
pub(super) fn space_left(entry: &Entry, promised: Room, now: u64) -> u64 {
    Measure::of_space(entry, promised).left(now)
}

/// An amount was added: when the times of soft limits begin and end. `enforced`: now, and how long
/// they are, if limits are enforced.
pub(super) fn note_times(
    entry: &mut Entry,
    amount: Amount,
    promised: Room,
    enforced: Option<(u64, Grace)>,
) {
    let space = Measure::of_space(entry, promised);
    let inodes = Measure::of_inodes(entry, promised);
    let grace = |measure: Measure, grew: bool, shrank: bool, grace: fn(Grace) -> u32| match enforced
    {
        _ if shrank && measure.used <= measure.soft => 0,
        Some((now, times)) if grew && measure.is_above_soft() && measure.time == 0 => {
            now.saturating_add(grace(times).into())
        }
        _ => measure.time,
    };
    entry.space_time = grace(space, amount.space > 0, amount.space < 0, |times| times.space);
    entry.inode_time = grace(inodes, amount.inodes > 0, amount.inodes < 0, |times| times.inodes);
}

/// Limits were set: the times begin anew, or end.
pub(crate) fn begin_times(entry: &mut Entry, set: (bool, bool), now: u64, grace: Grace) {
    let begun = |measure: Measure, grace: u32| {
        if measure.is_above_soft() { now.saturating_add(grace.into()) } else { 0 }
    };
    if set.0 {
        entry.space_time = begun(Measure::of_space(entry, Room::default()), grace.space);
    }
    if set.1 {
        entry.inode_time = begun(Measure::of_inodes(entry, Room::default()), grace.inodes);
    }
}

/// Usage was corrected: times begin where a soft limit is exceeded and there is none, or end.
pub(crate) fn correct_times(entry: &mut Entry, now: u64, grace: Grace) {
    let none = Room::default();
    let begin = |measure: Measure| !measure.is_above_soft() || measure.time == 0;
    let set = (begin(Measure::of_space(entry, none)), begin(Measure::of_inodes(entry, none)));
    begin_times(entry, set, now, grace);
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Grace = Grace { space: 100, inodes: 200 };
    const NONE: Room = Room { space: 0, inodes: 0 };

    fn space(more: u64) -> Room {
        Room { space: more, inodes: 0 }
    }

    fn inodes(more: u64) -> Room {
        Room { space: 0, inodes: more }
    }

    #[test]
    fn a_hard_limit_is_reached_and_not_exceeded() {
        let entry =
            Entry { space: 9 << 10, space_hard: 10, inodes: 4, inode_hard: 5, ..Entry::new(1) };
        assert_eq!(check(&entry, NONE, space(1024), 7), Ok(()));
        assert_eq!(check(&entry, NONE, space(1025), 7), Err(FsError::QuotaExceeded));
        assert_eq!(check(&entry, space(1024), space(1), 7), Err(FsError::QuotaExceeded));
        assert_eq!(check(&entry, NONE, inodes(1), 7), Ok(()));
        assert_eq!(check(&entry, inodes(1), inodes(1), 7), Err(FsError::QuotaExceeded));
        assert_eq!(space_left(&entry, space(24), 7), 1000);
        assert_eq!(check(&Entry::new(1), NONE, space(u64::MAX), 7), Ok(()), "no limit");
        let above = Entry { space: 11 << 10, ..entry };
        assert_eq!(check(&above, NONE, inodes(1), 7), Ok(()), "nothing more of it is asked for");
        assert_eq!(space_left(&above, NONE, 7), 0);
    }

    #[test]
    fn a_soft_limit_is_hard_after_its_time() {
        let mut entry = Entry { space: 10 << 10, space_soft: 10, ..Entry::new(1) };
        assert_eq!(check(&entry, NONE, space(5000), 7), Ok(()));
        entry.space += 5000;
        note_times(&mut entry, Amount { space: 5000, inodes: 0 }, NONE, Some((7, GRACE)));
        assert_eq!((entry.space_time, entry.inode_time), (107, 0));
        assert_eq!(check(&entry, NONE, space(1), 106), Ok(()));
        assert_eq!(check(&entry, NONE, space(1), 107), Err(FsError::QuotaExceeded));
        // More does not prolong it, and less that is still too much does not end it.
        note_times(&mut entry, Amount { space: 1, inodes: 0 }, NONE, Some((50, GRACE)));
        note_times(&mut entry, Amount { space: -1, inodes: 0 }, NONE, Some((50, GRACE)));
        assert_eq!(entry.space_time, 107);
        entry.space = 10 << 10;
        note_times(&mut entry, Amount { space: -5000, inodes: 0 }, space(1), None);
        assert_eq!(entry.space_time, 107, "a promise counts");
        note_times(&mut entry, Amount { space: -5000, inodes: 0 }, NONE, None);
        assert_eq!(entry.space_time, 0);
    }

    #[test]
    fn a_time_that_began_with_a_promise_is_that_of_the_entry() {
        let begun = Begun { space: 50, inodes: 60 };
        let entry = Entry { space: 9 << 10, space_soft: 10, inodes: 3, ..Entry::new(1) };
        let seen = |entry: Entry, promised| Begun::of(&begun.seen_in(entry, promised));
        assert_eq!(seen(entry, space(1024)), Begun::default(), "it is not exceeded");
        assert_eq!(seen(entry, space(1025)), Begun { space: 50, inodes: 0 });
        let with_time = Entry { space_time: 40, inode_soft: 2, ..entry };
        assert_eq!(seen(with_time, space(1025)), Begun { space: 40, inodes: 60 });
        let expired = begun.seen_in(entry, space(2048));
        assert_eq!(check(&expired, space(2048), space(1), 49), Ok(()));
        assert_eq!(check(&expired, space(2048), space(1), 50), Err(FsError::QuotaExceeded));
    }

    #[test]
    fn times_begin_only_where_limits_are_enforced() {
        let mut entry = Entry { inodes: 3, inode_soft: 2, ..Entry::new(1) };
        note_times(&mut entry, Amount { space: 0, inodes: 1 }, NONE, None);
        assert_eq!(entry.inode_time, 0);
        note_times(&mut entry, Amount { space: 0, inodes: 1 }, NONE, Some((7, GRACE)));
        assert_eq!(entry.inode_time, 207);
        begin_times(&mut entry, (true, false), 9, GRACE);
        assert_eq!((entry.space_time, entry.inode_time), (0, 207));
        begin_times(&mut entry, (true, true), 9, GRACE);
        assert_eq!((entry.space_time, entry.inode_time), (0, 209));
    }
}
