//! Fast commits, the file system's side: what changed since the last commit, and which of it an
//! fsync needs.
//!
//! ```text
//!   operation ──► eligibility ──► handle ──(its end)──► Tracker (track): per transaction
//!                 what happened,                        images, ranges, names, what is ineligible
//!                 or why no record says it                    │
//!   fsync ──► journal ──► collect ──► closure ──► order ──────┴─► records, or the reason
//!                                                                 for a full commit
//! ```
//!
//! Recovery is the other direction: [`replay`] makes edits of records.
//!
//! The whole design, with the reasons: `docs/design/fast-commit.md`.

mod changes;
mod closure;
pub(crate) mod delta;
pub(crate) mod eligibility;
mod names;
mod order;
pub(crate) mod placeholder;
mod ranges;
pub(crate) mod reason;
pub(crate) mod replay;
mod room;
#[cfg(test)]
mod tests;
mod track;

use std::collections::{HashMap, HashSet};

use foldhash::fast::RandomState;

#[cfg(test)]
pub(crate) use closure::Collected;
pub(crate) use delta::{Delta, SyncTarget, note};
pub use reason::Reason;
pub(crate) use track::Tracker;

/// Tables that every operation comes by.
type Map<K, V> = HashMap<K, V, RandomState>;
type Set<K> = HashSet<K, RandomState>;
