//! Several reads at a time.
//!
//! ```text
//!   each: lock, shared ──► memory and holes filled in, pieces on the device noted ──► unlock
//!   all:  the device reads the pieces, at the same time where it can
//!   each: lock, if nobody has it for writing ──► same version: done; else read once more, alone
//! ```
//!
//! No lock is held while the device works: a reader that held one while others of its batch are
//! waited for would make a writer of that file wait for the files of others, and two batches could
//! wait for each other's. So what was read counts only if nobody had the inode's lock for writing
//! since the blocks were looked up: then they belonged to the file all the time, and nobody wrote
//! them ([`Cell::version`], the rule of [`readahead`](crate::data::readahead), RA-1). If somebody had, or has
//! it now, the read is done in the ordinary way, which waits for its turn, and nothing of the first
//! attempt is left in its buffer.
//!
//! An error concerns one read: that of the device is the error of the read that has the piece; and
//! one that cannot even be planned is left to the ordinary way, which says why.

use std::ops::Range;

use extol_block::{BlockDevice as _, ScatteredRead};
use extol_vfs::{FsError, ReadDone, ReadJob};

use super::files;
use super::read_plan::Seen;
use crate::error;
use crate::mounted::MountedFs;

/// A read whose pieces are on their way.
struct Planned {
    seen: Seen,
    /// Bytes that will be there.
    count: usize,
    /// Its pieces, among those of all.
    pieces: Range<usize>,
}

/// Does them all; see [`FileSystem::read_many`](extol_vfs::FileSystem::read_many).
pub(crate) fn read_many(fs: &MountedFs, jobs: &mut [ReadJob<'_>], done: ReadDone<'_>) {
    let mut reads = Vec::with_capacity(jobs.len());
    let plans: Vec<Option<Planned>> =
        jobs.iter_mut().map(|job| plan(fs, job, &mut reads)).collect();
    // The read that has this piece and no other: it is told at once, if there is nothing else of it
    // in memory.
    let alone = |piece: usize| {
        let plans = plans.iter().enumerate().filter_map(|(job, plan)| Some((job, plan.as_ref()?)));
        plans.into_iter().find(|(_, plan)| plan.pieces == (piece..piece + 1))
    };
    let mut told: Vec<bool> = vec![false; plans.len()];
    let mut failed: Vec<Option<FsError>> = reads.iter().map(|_| None).collect();
    fs.vol.dev.read_scattered(&mut reads, &mut |i, result| {
        let result = result.map_err(error::device);
        if let Some((job, plan)) = alone(i)
            && result.as_ref().map_or(true, |bytes| bytes.len() == plan.count)
            && plan.seen.still_holds(fs)
        {
            told[job] = true;
            done(job, result);
        } else {
            failed[i] = result.err();
        }
    });
    drop(reads);
    for ((i, job), plan) in jobs.iter_mut().enumerate().zip(plans).filter(|((i, _), _)| !told[*i]) {
        let count = plan.filter(|plan| plan.seen.still_holds(fs)).map(|plan| {
            let error = failed.get_mut(plan.pieces).into_iter().flatten().find_map(Option::take);
            error.map_or(Ok(plan.count), Err)
        });
        let count = count.unwrap_or_else(|| files::read(fs, job.ino, job.offset, job.buf, None));
        done(i, count.map(|n| &job.buf[..n]));
    }
}

/// Fills in what needs no device, and adds the rest to `reads`. `None`: it is to be done in the
/// ordinary way.
fn plan<'b>(
    fs: &MountedFs,
    job: &'b mut ReadJob<'_>,
    reads: &mut Vec<ScatteredRead<'b>>,
) -> Option<Planned> {
    let first = reads.len();
    let planned = Seen::plan(fs, job.ino, job.offset, job.buf, &mut |offset, _, buf| {
        reads.push(ScatteredRead { offset, buf });
    });
    let Some((seen, count)) = planned else {
        reads.truncate(first);
        return None;
    };
    Some(Planned { seen, count, pieces: first..reads.len() })
}
