//! A jbd2-compatible journal in user space. It knows blocks, never inodes.
//!
//! A file system changes metadata blocks through a [`Handle`] of the running transaction; the
//! commit writes the transaction to the log and makes it durable as one; the checkpoint later
//! writes the blocks home and lets the log's tail move on. After a crash, `recovery` replays what
//! is committed and not yet home. The bytes in the log are those of Linux's jbd2: [`mod@format`].
//!
//! ```text
//!   Handle ─► Transaction ─► commit ─► log ─► checkpoint ─► home
//!                 │            └ waiters (fsync) return here
//!                 └ Buf: copy-on-write snapshots (cache.rs)
//! ```
//!
//! Modules use only those above them here; `tests/layers.rs` checks that.
//!
//! | modules | what they are |
//! | --- | --- |
//! | `types`, `planted`, `order` | ids and errors, planted bugs, the rule about open handles |
//! | `format`, `log_map`, `home` | what is on the device |
//! | `recovery`, `inspect` | reading a log |
//! | `batching`, `space`, `stats`, `checkpoint/policy` | decisions and bookkeeping: no device |
//! | `fast/{area, data_checksum, source, queue, async_requests}` | the same, for fast commits |
//! | `cache`, `transaction`, `log` | blocks, what changes them, where they are logged |
//! | `checkpoint/{list, rounds}`, `journal/{writes, state}` | the parts of a journal |
//! | `journal`, `handle` | the journal, an operation's part in it |
//! | `fast`, `checkpoint`, `commit`, `services` | what it does |

pub mod batching;
mod cache;
mod checkpoint;
mod commit;
pub mod fast;
pub mod format;
mod handle;
mod home;
pub mod inspect;
mod journal;
mod log;
mod log_map;
pub mod order;
pub mod planted;
pub mod recovery;
mod services;
mod space;
mod stats;
#[cfg(test)]
mod test_rig;
mod transaction;
mod types;

pub use cache::{Buf, Seal};
pub use checkpoint::policy::FreeThreshold;
pub use handle::Handle;
pub use journal::{Batch, DeferredWrite, Journal, JournalConfig};
pub use log::{Erase, LogConfig};
pub use log_map::LogMap;
pub use services::Services;
pub use stats::{AsyncCheckpointStats, BatchingStats, JournalDistributions, JournalStats};
pub use types::{JournalError, Result, Tid};
