//! Times of inodes, and the counter of their changes.
//!
//! Programs find out by the change time whether a file has changed: NFS clients and servers, make,
//! rsync, backups. The coarse clock, from which time stamps come, moves a few hundred times a
//! second, so two changes within one tick would look like one. As in Linux (multigrain time
//! stamps), the first change after the change time was read has a later one, from the fine clock
//! if need be:
//!
//! ```text
//!   attributes are read ──► seen ──► change: later than the time that was read; not seen any more
//!                                    change: the coarse clock, until they are read
//! ```
//!
//! The clock ([`extol_task::Clock::wall_after`]) never goes back behind a fine time that it gave,
//! also for other files: a file that is changed later does not look older.
//!
//! The counter of changes in the inode (`i_version`) counts a change if the inode was read since
//! the last one that it counted, as Linux does. An inode that comes from the volume counts as read:
//! its attributes may have been read before.
//!
//! Locking: the mark is set with the lock of the inode held for reading, and taken away with it
//! held for a change, so no change falls between the two.
//!
//! Invariant
//! - TM-1: a change of an inode whose attributes were read has a later change time than those,
//!   unless the clock was set back, or inodes of 128 bytes hold whole seconds only.

use std::time::Duration;

use extol_ondisk::Time;
use extol_vfs::Timestamp;

use super::MountedFs;
use crate::inodes::InodeState;

impl MountedFs {
    /// The time now, as inodes store it.
    pub fn now(&self) -> Time {
        self.stored(self.clock.wall())
    }

    /// The time of a change of these inodes (TM-1).
    pub fn change_time<'a>(&self, changed: impl IntoIterator<Item = &'a InodeState>) -> Time {
        let seen = changed.into_iter().filter(|st| st.seen.is_set());
        let seen = seen.map(|st| st.node.raw.ctime).max();
        let Some(seen) = seen else { return self.now() };
        let sec = u64::try_from(seen.sec).unwrap_or(0);
        self.stored(self.clock.wall_after(Duration::new(sec, seen.nsec)))
    }

    fn stored(&self, now: Duration) -> Time {
        self.time(Timestamp { sec: now.as_secs().cast_signed(), nsec: now.subsec_nanos() })
    }

    /// A time as the volume's inodes can hold it: those of 128 bytes have 32 bits of seconds and no
    /// fraction.
    pub fn time(&self, t: Timestamp) -> Time {
        if self.vol.geo.inode_size <= 128 {
            return Time { sec: t.sec.clamp(i64::from(i32::MIN), i64::from(i32::MAX)), nsec: 0 };
        }
        time(t)
    }
}

/// From an inode's time.
pub(crate) fn timestamp(t: Time) -> Timestamp {
    Timestamp { sec: t.sec, nsec: t.nsec }
}

/// To an inode's time. At both ends of the range the fraction is dropped, as Linux does.
fn time(t: Timestamp) -> Time {
    if t.sec <= Time::MIN_SEC {
        Time { sec: Time::MIN_SEC, nsec: 0 }
    } else if t.sec >= Time::MAX_SEC {
        Time { sec: Time::MAX_SEC, nsec: 0 }
    } else {
        Time { sec: t.sec, nsec: t.nsec.min(999_999_999) }
    }
}
