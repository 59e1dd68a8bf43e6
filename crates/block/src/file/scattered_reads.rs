//! Batches of reads.
//!
//! Reads of whole sectors into memory that the kernel takes go to a direct device together; all
//! others, and all of a buffered device (its reads are copies, which nobody else makes faster), go
//! the ordinary way afterwards. So do those that a ring has not done to the end. Each read has its
//! own result.

use super::transfer::read_all;
use super::uring::Outcome;
use super::{DirectIo, FileDevice};
use crate::aligned::BOUNCE_MAX;
use crate::{BlockDevice as _, DeviceError, DeviceOp, ReadDone, ScatteredRead};
use std::io::{self, IoSliceMut};

pub(super) fn read(device: &FileDevice, reads: &mut [ScatteredRead<'_>], done: ReadDone<'_>) {
    let mut left: Vec<bool> = vec![true; reads.len()];
    if let Some(direct) =
        device.direct.as_ref().filter(|_| reads.len() > 1 && !device.rings.refused())
    {
        let (places, mut jobs): (Vec<usize>, Vec<ScatteredRead<'_>>) = reads
            .iter_mut()
            .enumerate()
            .filter(|(_, read)| goes_as_it_is(device, direct, read))
            .map(|(i, read)| (i, ScatteredRead { offset: read.offset, buf: &mut *read.buf }))
            .unzip();
        // One alone has nothing to be at the same time with: the plain call is faster.
        if jobs.len() > 1 {
            device.rings.read(device.file(), &mut jobs, &mut |job, read, outcome| {
                let Some(result) = finish(device, direct, read, outcome).transpose() else {
                    return;
                };
                left[places[job]] = false;
                let (offset, len) = (read.offset, read.buf.len() as u64);
                let result = result.map_err(|e| DeviceError::new(DeviceOp::Read, offset, len, e));
                done(places[job], result.map(|()| &*read.buf));
            });
        }
    }
    for (i, read) in reads.iter_mut().enumerate().filter(|(i, _)| left[*i]) {
        let result = device.read_at(read.buf, read.offset);
        done(i, result.map(|()| &*read.buf));
    }
}

fn goes_as_it_is(device: &FileDevice, direct: &DirectIo, read: &ScatteredRead<'_>) -> bool {
    let len = read.buf.len() as u64;
    (1..=BOUNCE_MAX as u64).contains(&len)
        && direct.is_whole(read.offset, len)
        && direct.accepts(read.buf)
        && read.offset.checked_add(len).is_some_and(|end| end <= device.size)
}

/// Makes a read complete whose queued part ended like this. `None`: nothing of it is done.
fn finish(
    device: &FileDevice,
    direct: &DirectIo,
    job: &mut ScatteredRead<'_>,
    outcome: Outcome,
) -> io::Result<Option<()>> {
    let done = match outcome {
        Outcome::Failed(e) => return Err(e),
        Outcome::NotDone => return Ok(None),
        Outcome::Done(bytes) => bytes / direct.sector * direct.sector,
    };
    if let Some(rest) = job.buf.get_mut(done..).filter(|rest| !rest.is_empty()) {
        let at = job.offset + done as u64;
        read_all(device.file(), &mut [IoSliceMut::new(rest)], at, direct.sector)?;
    }
    Ok(Some(()))
}
