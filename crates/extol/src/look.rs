//! Looks at the superblock on the device, for what other programs changed there.
//!
//! *Purpose.* `tune2fs` and `e2label` write the superblock of a mounted volume. What they change
//! is shown by statfs, the label, the tunables and the statistics. A device that is busy with
//! writes takes long to answer, so no request about files waits for a look:
//!
//! ```text
//!   statfs, label, tunables ──► answer from memory
//!              │ want_look
//!              ▼
//!   writeback thread, within a second: look ──► guard ──► device
//!                                        ╰────► superblock in memory, blocks kept for root
//! ```
//!
//! | look | made by | how often |
//! |---|---|---|
//! | wanted by a request | the writeback thread | once a second, at most |
//! | statistics (`extol stat`, metrics) | the request: it is asked for the state of the device | the same |
//! | before a change | the change ([`crate::guard`], GD-1): only a check right before the write keeps two writers apart | the same |
//! | after damage was found | the operation that found it (ES-6): what another writer did is no damage | each time |
//!
//! *Odd cases.* An idle volume is not looked at: a request that comes after a long time shows what
//! was known, and the next one, a second later, what the device has. A volume without background
//! threads is looked at by changes and statistics only.
//!
//! - LK-1: statfs, label and tunables read no device and wait for no lock that is held while one is
//!   read ([`MountedFs::want_look`], `SuperCell::update`).
//!
//! *Locking.* A look holds the guard's lock while it reads, and no lock of this crate outside of
//! it.

use crate::mounted::MountedFs;

impl MountedFs {
    /// Asks for a look by the writeback thread.
    pub fn want_look(&self) {
        if let Some(guard) = &self.guard {
            guard.want_look();
        }
    }

    /// Makes a look that a request asked for.
    pub fn look_if_wanted(&self) {
        if self.guard.as_ref().is_some_and(|guard| guard.take_wanted_look()) {
            self.look();
        }
    }

    /// Takes over what other programs changed up to a second ago, and stops the volume if one of
    /// them was another writer. Called without a handle and without the lock of a group.
    pub fn look(&self) {
        let Some(guard) = &self.guard else { return };
        guard.check_if_due();
        self.sb.take_over();
        self.vol.alloc.keep_for_root(self.sb.read(|sb| sb.r_blocks_count));
        self.heed_guard();
    }
}
