//! The cost of each operation, counted exactly and compared with a table (`costs.txt`).
//!
//! *Purpose.* A measurement of time needs a quiet machine and says little about a tenth. Counts
//! need neither: an operation that reads the device once more than it did, or takes one more lock,
//! does so each time and on every machine. `tests/costs.rs` fails on every number that differs from
//! the table, up or down, so that a change of costs is made on purpose, with its reason.
//!
//! ```text
//!   tests/costs.rs ─► strace ─► extol-costs DIR          (one thread, one row after the other)
//!        │               │         │
//!        │               │         ├─ front/library  calls of programs     ╮
//!        │               │         ├─ front/fuse     requests of /dev/fuse ├─► Ext4 ─► device
//!        │               │         ╰─ front/nfs      calls of NFSv3        ╯    counted ─╯
//!        │               ╰─ trace.rs: system calls between two marks
//!        ╰─ table.rs: the rows beside those of costs.txt
//! ```
//!
//! | column | counted by |
//! |---|---|
//! | system calls | strace, between the marks around an operation ([`trace`]) |
//! | reads, writes, bytes, durable writes, flushes | `CountingDevice` over the image |
//! | locks | debug builds of `extol-sync` ([`locks_taken`](extol_sync::plain::locks_taken)) |
//! | allocations | the allocator of the program `extol-costs` |
//!
//! *Nothing else runs.* The volume has no background threads and a clock of its own, which stands
//! still during an operation. In the rows "a second later" it moves on before each operation, so
//! that all that is done once a second is done each time. No request comes through a kernel: FUSE's
//! and NFS's are bytes that this process makes, so a system call of the table is one on the image.
//! The calls that carry requests and replies (a read and a write of `/dev/fuse`, or of a
//! connection) are not in the table.
//!
//! *Left out* are calls whose number is not the operation's: memory of the process, which the
//! allocations count better, and waits of threads ([`trace::LEFT_OUT`]).

#[cfg(debug_assertions)]
pub mod count;
pub mod front;
#[cfg(debug_assertions)]
pub mod rows;
pub mod table;
pub mod trace;
