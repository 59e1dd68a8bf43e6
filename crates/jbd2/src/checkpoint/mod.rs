//! Checkpoint: committed blocks go home, and the tail of the log follows.
//!
//! For every block, only its *newest committed* version waits to go home: when a transaction
//! commits a block again, the older transaction no longer needs it. A transaction whose count of
//! waiting blocks is zero is done, and the tail may pass it once the home writes are durable.
//!
//! ```text
//!   log      │ free │ T4 │ T5 │ T6 │ T7 │ committing │ free …
//!                    ▲                               ▲
//!                    tail                            head
//!   blocks   7→T5  9→T6  12→T6  40→T5  41→T7
//!
//!   round    7, 40 (what T5 and older need)  ─► home, sorted and merged, in batches
//!   flush    of the next commit, or our own  ─► 7 and 40 are durable
//!   tail     ─────────────────► T6           ─► the space of T4 and T5 is free
//! ```
//!
//! # What begins a run
//!
//! With the *synchronous* policy, a handle that finds no room in the log. It waits for half the log
//! to be written home, for a flush and for the tail.
//!
//! With the *asynchronous* one (`async_checkpoint=PERCENT`), the checkpoint's thread begins when a
//! commit leaves less than that part of the log free, and goes on until an eighth of the log more
//! is free, also when the load has stopped. It takes the snapshots that commits left in the list,
//! so it waits for no transaction and holds nothing that a handle needs. It writes what the oldest
//! transactions need, and leaves out blocks that the running or the committing transaction has
//! changed again: their next commit makes the write needless. It seldom flushes: the flush before
//! the next commit's record covers what was written home by then. If none comes within 25 ms, or
//! space gets tight, it flushes itself.
//!
//! A handle waits only if the log has no room for what it asks for; then it is served first. A
//! freeze, or a commit that overdrew, takes over between two batches. An abort ends it at the next
//! batch.
//!
//! Invariants
//! - CP-1: the superblock names a new tail only after a flush that began when the home writes had
//!   returned. Home writes are counted when they have returned (`Coverage::returned`); a flush
//!   remembers the count that it read before it began (`Writes::begun`), and covers so
//!   many once it has succeeded (`Writes::flushed`); only batches within that count are settled
//!   (`Journal::settle`), and only settled blocks let the tail pass. The space is used again only
//!   once the superblock is durable (`Journal::move_tail`).
//! - CP-2: a block revoked by a durable transaction is never written home afterwards: its entry is
//!   dropped, and a write in flight is waited for, before the freed block may be reused
//!   (`CheckpointList::committed`). A write that has returned needs no flush: it is older than any
//!   write of the block's next owner.
//! - CP-3: one checkpoint runs at a time, and a block is written in its newest version or not at
//!   all, so an older version never overtakes a newer one (the journal's `checkpointing` lock;
//!   `CheckpointList::take`).
//!
//! Locking: `checkpointing` is held for one batch, or one flush and the tail's move, never from one
//! to the next. The state lock and the list's lock are held for a look. No lock that a handle takes
//! is held during input or output.
//!
//! | file | part |
//! | --- | --- |
//! | `policy` | when, and how far: numbers in, decision out |
//! | `list` | which blocks wait, are being written, or are home |
//! | `rounds` | what the checkpoint is in the middle of |
//! | `step` | one turn: batch, flush, tail |
//! | `freeze` | everything home, log empty |

mod freeze;
pub(crate) mod list;
pub(crate) mod policy;
pub(crate) mod rounds;
pub(crate) mod step;
