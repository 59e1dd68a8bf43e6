//! The mark in the superblock that says that the volume is in use.

use extol_block::BlockDevice;
use extol_ondisk::superblock::State;
use extol_ondisk::{Incompat, Superblock};
use extol_task::Clock;

use crate::error::OpenResult;
use crate::options::MountOptions;
use crate::superblock::write_superblock;

/// What a volume is opened for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// To be used: the superblock counts the mount and says when and where it was.
    Use,
    /// To be recovered, and closed at once.
    Recovery,
}

/// Makes "mounted" durable, before anything else is written.
pub(crate) fn mark_mounted(
    dev: &dyn BlockDevice,
    sb: &mut Superblock,
    options: &MountOptions,
    (purpose, has_log): (Purpose, bool),
    clock: &dyn Clock,
) -> OpenResult<()> {
    #[cfg(feature = "planted-bugs")]
    if has_log && extol_jbd2::planted::has(extol_jbd2::planted::Bug::RecoveryFlagLate) {
        sb.feature_incompat |= Incompat::NEEDS_RECOVERY;
        return Ok(());
    }
    if has_log {
        sb.feature_incompat |= Incompat::NEEDS_RECOVERY;
    } else {
        sb.state &= !State::VALID;
    }
    sb.wtime = clock.wall().as_secs();
    if purpose == Purpose::Recovery {
        return write_superblock(dev, sb);
    }
    sb.mtime = sb.wtime;
    sb.mnt_count = sb.mnt_count.saturating_add(1);
    if let Some(dir) = &options.access.mount_point {
        let mut path = [0; 64];
        for (to, from) in path.iter_mut().take(63).zip(dir.as_os_str().as_encoded_bytes()) {
            *to = *from;
        }
        sb.last_mounted = path;
    }
    write_superblock(dev, sb)
}
