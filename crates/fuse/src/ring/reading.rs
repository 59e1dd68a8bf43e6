//! READs that a thread of a queue has on their way itself.
//!
//! A READ that has to wait for the device keeps no thread: the file system says where the data lies
//! ([`plan_read`]), the thread's ring reads it into the memory of the entry, from where it goes to
//! the kernel, and the thread takes other requests meanwhile. So as many reads are on their way as
//! the kernel asks for, from one end of a file to the other or all over it, and what is done at the
//! same moment is submitted, and answered, with one system call.
//!
//! ```text
//!    ring ── READ ──► plan_read ─► pieces, read by the ring ─► all there, and the plan holds ──► commit ──► ring
//!                        │                                         │ no
//!                        ╰─ none: as any request                   ╰──► another thread does it in the ordinary way
//! ```
//!
//! Large READs are left to several threads: what they take is a copy each way, which one thread
//! makes for one at a time. (Read so, 1 GiB in memory came at 2,700 MB/s, by several threads at
//! 3,500.)
//!
//! Whatever goes wrong on the way (an error of the device, a writer of the file) is found out
//! again, and said, by the ordinary read.
//!
//! [`plan_read`]: extol_vfs::FileSystem::plan_read

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use extol_fuse_uring::{FIXED, MOST, PAYLOAD, Piece};
use extol_vfs::ReadPlan;

use super::exchange;
use super::work::Clerk;
use crate::abi::{IN_HEADER, op};
use crate::gather::Wanted;
use crate::wire::Request;
use crate::worker::LARGE;

/// Header and fixed fields of a READ.
const REQUEST: usize = IN_HEADER + 40;

/// The reads of a thread, by entry.
#[derive(Default)]
pub(super) struct Reading {
    begun: Vec<Option<Begun>>,
    /// Kept from read to read.
    pieces: Vec<Piece>,
}

struct Begun {
    unique: u64,
    plan: ReadPlan,
}

impl Reading {
    fn put(&mut self, entry: usize, begun: Begun) {
        if self.begun.len() <= entry {
            self.begun.resize_with(entry + 1, || None);
        }
        self.begun[entry] = Some(begun);
    }

    /// The pieces of a plan, as the ring wants them.
    fn pieces(&mut self, plan: &ReadPlan) -> &[Piece] {
        self.pieces.clear();
        self.pieces.extend(plan.pieces.iter().map(|p| Piece {
            offset: p.offset,
            at: p.at,
            len: p.len,
        }));
        &self.pieces
    }

    fn take(&mut self, entry: usize) -> Option<Begun> {
        self.begun.get_mut(entry)?.take()
    }
}

impl Clerk<'_> {
    /// Begins a READ, or answers it at once if no device is needed for it. False if it is to be
    /// done in the ordinary way: nothing has happened then.
    pub(super) fn begin_read(&mut self, entry: usize) -> io::Result<bool> {
        // Requests must go on coming to this thread.
        if self.ring.open() == 0 && self.ring.len() >= MOST {
            return Ok(false);
        }
        let shared = self.shared;
        let memory = self.ring.memory(entry);
        let mut request = [0; REQUEST];
        let (header, fixed) = request.split_at_mut(IN_HEADER);
        header.copy_from_slice(&memory[..IN_HEADER]);
        fixed.copy_from_slice(&memory[FIXED..FIXED + REQUEST - IN_HEADER]);
        let wanted =
            Request::parse(&request).and_then(|request| Wanted::of(&request, false, shared.root));
        let Some(Wanted { unique, ino, offset, size, .. }) =
            wanted.filter(|wanted| wanted.size < LARGE)
        else {
            return Ok(false);
        };
        let Some(buf) = memory.get_mut(PAYLOAD..).and_then(|room| room.get_mut(..size)) else {
            return Ok(false);
        };
        let planned = catch_unwind(AssertUnwindSafe(|| {
            let plan = shared.fs.plan_read(ino, offset, buf)?;
            (plan.count <= size).then_some(plan)
        }));
        let Ok(Some(plan)) = planned else { return Ok(false) };
        if plan.pieces.is_empty() {
            if !shared.fs.still_holds(&plan) {
                return Ok(false);
            }
            self.finish_read(entry, unique, plan.count)?;
            return Ok(true);
        }
        let Some(file) = shared.fs.reads_from() else { return Ok(false) };
        let pieces = self.reading.pieces(&plan);
        self.ring.read(entry, file, pieces)?;
        self.reading.put(entry, Begun { unique, plan });
        self.stay_open();
        Ok(true)
    }

    /// All pieces have been read, or could not be.
    pub(super) fn end_read(&mut self, entry: usize, good: bool) -> io::Result<()> {
        match self.reading.take(entry) {
            Some(Begun { unique, plan }) if good && self.shared.fs.still_holds(&plan) => {
                self.finish_read(entry, unique, plan.count)
            }
            _ => {
                self.leave(entry);
                Ok(())
            }
        }
    }

    fn finish_read(&mut self, entry: usize, unique: u64, count: usize) -> io::Result<()> {
        self.shared.counts.note(op::READ);
        self.seat.settle(false);
        let body = u32::try_from(count).map_err(io::Error::other)?;
        exchange::put_header(self.ring.memory(entry), unique, 0, body);
        self.ring.commit(entry, body)
    }
}
