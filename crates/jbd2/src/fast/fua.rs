//! Whether the last write of a fast commit is durable by FUA or by a flush behind it (`fua=`).
//!
//! ```text
//!   flush    data ────┐                          FUA    data FUA ────┐
//!            records ─┴─ both done ── FLUSH ─┤          records FUA ─┴─ both done ─┤
//! ```
//!
//! FUA saves waking up between the writes and the flush, and leaves the rest of the medium's cache
//! alone. Where the medium knows no FUA, the kernel sends a flush behind each write instead: one
//! for both if they end together, else two. So it is the default only where the device says that it
//! has FUA, and that is decided when the journal is opened or the option changes.
//!
//! FUA makes the batch durable and nothing else. So it is used only while no other write waits for
//! a flush: no file data, nothing that a checkpoint wrote home (`Journal::may_use_fua`).

use extol_block::Fua;
use extol_sync::atomic::Ordering;
use serde::{Deserialize, Serialize};

use crate::journal::Journal;

/// The mount option `fua=`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FuaPolicy {
    /// Where the device says that it has FUA.
    #[default]
    Auto,
    /// Never: its FUA is not to be trusted.
    Never,
    /// Wherever each write can be made durable.
    Always,
}

impl FuaPolicy {
    /// All of them, as option values.
    pub const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("never", Self::Never), ("always", Self::Always)];

    /// The option value.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }

    /// True if fast commits on such a device become durable by FUA.
    fn uses(self, device: Fua) -> bool {
        match self {
            Self::Auto => device == Fua::Native,
            Self::Never => false,
            Self::Always => device != Fua::Flush,
        }
    }
}

impl Journal {
    /// Decides whether fast commits become durable by FUA.
    pub fn set_fua(&self, policy: FuaPolicy) {
        self.fast.by_fua.store(policy.uses(self.device.fua()), Ordering::Relaxed);
    }

    /// True if the next fast commit may become durable by FUA: no earlier write waits for a flush
    /// (FC-4: FUA would not cover it).
    pub(super) fn may_use_fua(&self) -> bool {
        self.fast.by_fua.load(Ordering::Relaxed) && !self.writes.are_dirty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_decides_unless_the_option_does() {
        let uses =
            |policy: FuaPolicy| [Fua::Flush, Fua::PerWrite, Fua::Native].map(|f| policy.uses(f));
        assert_eq!(uses(FuaPolicy::Auto), [false, false, true]);
        assert_eq!(uses(FuaPolicy::Never), [false; 3]);
        assert_eq!(uses(FuaPolicy::Always), [false, true, true]);
    }
}
