//! A transaction: the blocks that its handles changed, the blocks they revoked, and what runs when
//! it is durable.
//!
//! ```text
//!   Running ─ lock ─► Locked ─ no handle left ─► Writing ─ record durable ─► Durable
//!   handles join      handles wait               snapshots go to the log     waiters return
//!
//!   Durable ─ all home ─► Checkpointed: the tail may pass
//! ```
//!
//! Only the counters that `start` and `stop` need live here behind the journal's state lock
//! ([`Running`]); the lists have their own small locks because many handles add to them at the same
//! time.

use std::collections::HashSet;
use std::sync::Arc;

use extol_block::BlockNr;
use extol_sync::atomic::{AtomicBool, AtomicU32, Ordering};
use extol_sync::rank::{Mutex, Rank};

use crate::cache::Buf;
use crate::types::Tid;

pub(crate) type Callback = Box<dyn FnOnce(bool) + Send>;

/// A list with a small lock.
type List<T> = Mutex<T, { Rank::TransactionList as u8 }>;

/// The parts of a transaction that handles share.
pub(crate) struct Transaction {
    pub tid: Tid,
    /// Blocks changed, in order of their first change. May hold a block that was forgotten since
    /// (its buffer then no longer names this transaction) or, after that, twice.
    pub blocks: List<Vec<Arc<Buf>>>,
    pub revokes: List<HashSet<BlockNr>>,
    pub callbacks: List<Vec<Callback>>,
    /// Blocks now in `blocks`; read without the lock.
    pub dirty: AtomicU32,
    /// A fast commit counts on it: it must be committed in full, whatever it holds.
    pub has_fast: AtomicBool,
}

impl std::fmt::Debug for Transaction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Transaction({})", self.tid)
    }
}

impl Transaction {
    pub fn new(tid: Tid) -> Self {
        Self {
            tid,
            blocks: Mutex::default(),
            revokes: Mutex::default(),
            callbacks: Mutex::default(),
            dirty: AtomicU32::new(0),
            has_fast: AtomicBool::new(false),
        }
    }

    /// True if nothing would be written and no callback waits.
    pub fn is_empty(&self) -> bool {
        self.dirty.load(Ordering::Acquire) == 0
            && !self.has_fast.load(Ordering::Relaxed)
            && self.revokes.lock().is_empty()
            && self.callbacks.lock().is_empty()
    }

    /// Takes the snapshots that make up this transaction. No handle may be open.
    pub fn close(&self) -> Closed {
        let mut blocks = Vec::new();
        // Not in the head of the loop: the lock would be held all through it.
        let changed = std::mem::take(&mut *self.blocks.lock());
        for buf in changed {
            let mut state = buf.state.lock();
            if state.tx == Some(self.tid) {
                state.tx = None;
                state.pending += 1;
                if let Some(seal) = state.seal.take() {
                    let bytes: &mut Vec<u8> = Arc::make_mut(&mut state.data);
                    (seal.set)(bytes, buf.nr(), seal.seed);
                }
                let data = Arc::clone(&state.data);
                drop(state);
                blocks.push(Snapshot { buf, data });
            }
        }
        let mut revokes: Vec<BlockNr> =
            std::mem::take(&mut *self.revokes.lock()).into_iter().collect();
        revokes.sort_unstable();
        let callbacks = std::mem::take(&mut *self.callbacks.lock());
        Closed { tid: self.tid, blocks, revokes, callbacks }
    }
}

/// One block as it was when its transaction closed.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub buf: Arc<Buf>,
    pub data: Arc<Vec<u8>>,
}

/// A closed transaction: what the commit writes.
pub(crate) struct Closed {
    pub tid: Tid,
    pub blocks: Vec<Snapshot>,
    /// Ascending.
    pub revokes: Vec<BlockNr>,
    pub callbacks: Vec<Callback>,
}

/// The running transaction as the journal's state lock sees it.
#[derive(Debug)]
pub(crate) struct Running {
    pub tx: Arc<Transaction>,
    /// No new handle may join.
    pub locked: bool,
    /// Open handles.
    pub handles: u32,
    /// Blocks dirtied plus credits of open handles: what the log must have room for.
    pub credits: u32,
    /// Clock when it began.
    pub began_ns: u64,
    /// Handles that ever joined.
    pub joined: u64,
    /// When its commit was first asked for.
    pub requested_ns: Option<u64>,
    /// Durable requests that wait for it.
    pub waiting: u32,
    /// A leader has waited for others to join, or does.
    pub has_waited: bool,
}

impl Running {
    /// Transaction `tid` begins.
    pub fn new(tid: Tid, began_ns: u64) -> Self {
        Self {
            tx: Arc::new(Transaction::new(tid)),
            locked: false,
            handles: 0,
            credits: 0,
            began_ns,
            joined: 0,
            requested_ns: None,
            waiting: 0,
            has_waited: false,
        }
    }
}
