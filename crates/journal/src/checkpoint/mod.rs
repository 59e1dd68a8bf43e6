//! Checkpoint: committed blocks go home, and the tail of the log follows.
//!
//! For every block, only its *newest committed* version waits to go home: when a transaction commits a block again,
//! the older transaction no longer needs it. A transaction whose count of waiting blocks is zero is done, and the
//! tail may pass it once the home writes are durable.
//!
//! ```text
//!   transactions   T4: 0 left   T5: 2 left   T6: 3 left           blocks  7→T5  9→T6  12→T6  40→T5  41→T6
//!                  └ done: tail may move to T5
//! ```
//!
//! Invariants
//! - K1: the superblock names a new tail only after a flush that followed the home writes (`crate::journal`).
//! - K2: a block revoked by a durable transaction is never written home afterwards: its entry is dropped, and a
//!   write in flight is waited for, before the freed block may be reused (`CheckpointList::committed`).
//! - K3: one checkpoint runs at a time, so an older version never overtakes a newer one (the journal's
//!   `checkpointing` lock).

mod freeze;
mod list;
pub(crate) mod policy;
mod step;

pub(crate) use list::CheckpointList;
pub(crate) use step::CheckpointService;
