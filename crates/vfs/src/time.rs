//! Times of a file system as those of the system that programs run on.

use std::time::{Duration, SystemTime};

use crate::error::{FsError, Result};
use crate::types::{Attr, SetTime, Timestamp};

/// A point in time of the system, to the nanosecond. What 64 bits of seconds do not reach is their
/// first or last second.
impl From<SystemTime> for Timestamp {
    fn from(at: SystemTime) -> Self {
        let seconds = |of: Duration| i64::try_from(of.as_secs()).unwrap_or(i64::MAX);
        match at.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(since) => Self { sec: seconds(since), nsec: since.subsec_nanos() },
            Err(before) => match (seconds(before.duration()), before.duration().subsec_nanos()) {
                (sec, 0) => Self { sec: -sec, nsec: 0 },
                (sec, nsec) => Self { sec: -sec - 1, nsec: 1_000_000_000 - nsec },
            },
        }
    }
}

/// A moment, if the system has it: Windows counts from 1601.
impl TryFrom<Timestamp> for SystemTime {
    type Error = FsError;

    fn try_from(at: Timestamp) -> Result<Self> {
        let whole = Duration::from_secs(at.sec.unsigned_abs());
        let second = match at.sec {
            0.. => Self::UNIX_EPOCH.checked_add(whole),
            _ => Self::UNIX_EPOCH.checked_sub(whole),
        };
        let moment = second
            .and_then(|at_second| at_second.checked_add(Duration::from_nanos(u64::from(at.nsec))));
        moment.ok_or(FsError::Range)
    }
}

impl From<SystemTime> for SetTime {
    fn from(at: SystemTime) -> Self {
        Self::At(at.into())
    }
}

impl Attr {
    /// Last change of the contents.
    ///
    /// # Errors
    /// `Range` if the system has no such time.
    pub fn modified(&self) -> Result<SystemTime> {
        self.mtime.try_into()
    }

    /// Last access.
    ///
    /// # Errors
    /// As [`modified`](Self::modified).
    pub fn accessed(&self) -> Result<SystemTime> {
        self.atime.try_into()
    }

    /// Last change of the inode.
    ///
    /// # Errors
    /// As [`modified`](Self::modified).
    pub fn changed(&self) -> Result<SystemTime> {
        self.ctime.try_into()
    }

    /// Creation.
    ///
    /// # Errors
    /// `NotSupported` if the inode is too small to have it; as [`modified`](Self::modified).
    pub fn created(&self) -> Result<SystemTime> {
        if self.crtime == Timestamp::default() {
            return Err(FsError::NotSupported("the volume has no times of creation"));
        }
        self.crtime.try_into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{Creds, FileId, FileKind};

    #[test]
    fn times_of_the_system_and_back() {
        for (sec, nsec) in [(0, 0), (1, 5), (-1, 0), (-1, 999_999_999), (-2_147_483_648, 1)] {
            let at = Timestamp { sec, nsec };
            let system = SystemTime::try_from(at).unwrap();
            assert_eq!(Timestamp::from(system), at);
        }
        let half = SystemTime::UNIX_EPOCH - Duration::from_millis(1500);
        assert_eq!(Timestamp::from(half), Timestamp { sec: -2, nsec: 500_000_000 });
        assert_eq!(SetTime::from(half), SetTime::At(Timestamp { sec: -2, nsec: 500_000_000 }));
        for sec in [i64::MIN, i64::MAX] {
            // No panic, whatever a volume says.
            let _ = SystemTime::try_from(Timestamp { sec, nsec: 999_999_999 });
        }
        let id = FileId { ino: 12, generation: 0 };
        let now = Timestamp { sec: 1_600_000_000, nsec: 7 };
        let mut attr = Attr::fresh(id, FileKind::Regular, 0o644, Creds::default(), now);
        assert_eq!(attr.modified(), attr.accessed());
        assert_eq!(attr.created().map(Timestamp::from), Ok(now));
        attr.crtime = Timestamp::default();
        assert!(matches!(attr.created(), Err(FsError::NotSupported(_))));
    }
}
