//! Many writes at a time, through io_uring.
//!
//! A ring is a pair of queues shared with the kernel: submission entries go in, completions come
//! out in any order. A [`Rings`] keeps up to [`MAX_RINGS`] of them for one device, made when first
//! needed; a caller that finds all in use does without. An idle ring is two mappings of a few KiB
//! and a descriptor.
//!
//! ```text
//!  jobs ──push─► submission queue ──submit─► kernel (owned) ──► completion queue ──reap─► outcomes
//!                at most DEPTH between push and reap
//! ```
//!
//! *Safety.* The kernel reads the buffers at any time between submit and completion, so
//! [`InFlight`] lives until the kernel owns no entry: its drop waits, also after an error or a
//! panic. A ring with entries that were pushed and not submitted still points at those buffers; it
//! is closed, never reused. (Only a submit call makes the kernel read the submission queue: the
//! ring has no polling thread.)
//!
//! *Not available* (old kernel, `kernel.io_uring_disabled`, a seccomp filter): the first attempt
//! shows it and no other is made. Short of descriptors or memory: the batch does without a ring.
//!
//! *Odd completions.* A short count is reported as it is. "Try again" and "this ring cannot" become
//! [`Outcome::NotDone`]: the caller makes the system call, which gives the real result. After a
//! failure nothing more is pushed.
//!
//! A thread waits for all its writes at once.

use crate::ScatteredWrite;
use extol_sync::plain::Mutex;
use io_uring::{IoUring, Probe, opcode, squeue, types};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// Most writes under way in one ring.
const DEPTH: usize = 64;
/// Most rings of one device.
pub(super) const MAX_RINGS: usize = 16;

/// The outcome of one write.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Not tried, or to be tried again.
    NotDone,
    /// So many bytes were written.
    Done(usize),
    /// It failed.
    Failed(io::Error),
}

/// The rings of one device.
#[derive(Default)]
pub(super) struct Rings {
    stock: Mutex<Stock>,
}

#[derive(Default)]
struct Stock {
    idle: Vec<IoUring>,
    /// Idle rings and those on loan.
    made: usize,
    /// The kernel allows none.
    refused: bool,
}

impl std::fmt::Debug for Rings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stock = self.stock.lock();
        f.debug_struct("Rings").field("made", &stock.made).field("refused", &stock.refused).finish()
    }
}

impl Rings {
    /// Does these writes to `file` and gives what became of each; `durable`: each is, once it is
    /// done. `None`: no ring to be had, nothing was done.
    pub(super) fn write(
        &self,
        file: &File,
        jobs: &[ScatteredWrite<'_>],
        durable: bool,
    ) -> Option<Vec<Outcome>> {
        let mut outcomes: Vec<Outcome> = jobs.iter().map(|_| Outcome::NotDone).collect();
        let mut loan = self.borrow()?;
        let jobs = Jobs { writes: jobs, durable };
        match run(loan.ring.as_mut()?, file, &jobs, &mut outcomes) {
            Ok(()) => loan.reusable = true,
            Err(e) if is_shortage(&e) => {}
            Err(_) => self.refuse(),
        }
        drop(loan);
        Some(outcomes)
    }

    /// True if no ring can be had.
    pub(super) fn refused(&self) -> bool {
        self.stock.lock().refused
    }

    /// Makes no use of rings from now on.
    pub(super) fn refuse(&self) {
        let mut stock = self.stock.lock();
        stock.refused = true;
        stock.made -= stock.idle.len();
        stock.idle.clear();
    }

    /// Number of rings that exist.
    #[cfg(test)]
    pub(super) fn made(&self) -> usize {
        self.stock.lock().made
    }

    fn borrow(&self) -> Option<Loan<'_>> {
        let mut stock = self.stock.lock();
        if stock.refused {
            return None;
        }
        let mut ring = stock.idle.pop();
        if ring.is_none() {
            if stock.made == MAX_RINGS {
                return None;
            }
            ring = match make() {
                Ok(ring) => Some(ring),
                Err(e) => {
                    stock.refused = !is_shortage(&e);
                    return None;
                }
            };
            stock.made += 1;
        }
        Some(Loan { rings: self, ring, reusable: false })
    }
}

/// A ring on loan. Goes back if it is reusable, else it is closed.
struct Loan<'a> {
    rings: &'a Rings,
    /// `None` only inside `drop`.
    ring: Option<IoUring>,
    reusable: bool,
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        let ring = self.ring.take().filter(|_| self.reusable);
        let mut stock = self.rings.stock.lock();
        match ring {
            Some(ring) if !stock.refused => stock.idle.push(ring),
            _ => stock.made -= 1,
        }
    }
}

/// True for errors that may pass.
fn is_shortage(e: &io::Error) -> bool {
    let passing = [libc::EAGAIN, libc::EBUSY, libc::ENOMEM, libc::EMFILE, libc::ENFILE];
    e.raw_os_error().is_some_and(|code| passing.contains(&code))
}

/// A ring that knows how to write, or the reason why there is none.
pub(super) fn make() -> io::Result<IoUring> {
    // The submitting thread also waits, so completions need no interrupt (Linux 5.19).
    let ring = IoUring::builder().setup_coop_taskrun().build(DEPTH as u32);
    let ring = ring.or_else(|_| IoUring::new(DEPTH as u32))?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    if probe.is_supported(opcode::Writev::CODE) && ring.params().is_feature_nodrop() {
        Ok(ring)
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// Pushes, submits and reaps until all jobs have ended or one failed, and notes the outcome of each
/// that has ended. `Err`: the ring is unusable.
fn run(
    ring: &mut IoUring,
    file: &File,
    jobs: &Jobs<'_>,
    outcomes: &mut [Outcome],
) -> io::Result<()> {
    let mut flight = InFlight::new(ring);
    let mut failed = false;
    let mut waiting = 0..jobs.writes.len();
    loop {
        while !failed && flight.pushed - flight.reaped < DEPTH {
            let Some(i) = waiting.next() else { break };
            flight.push(file, jobs, i)?;
        }
        let out = flight.pushed - flight.reaped;
        if out == 0 {
            return Ok(());
        }
        // While there is more to push, half a queue at a time keeps the device busy with few system
        // calls.
        let all = failed || waiting.is_empty();
        let wanted = if all { out } else { out.div_ceil(2) };
        let result = flight.ring.submit_and_wait(wanted).map(drop).or_else(|e| match e.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(e),
        });
        match &result {
            Ok(()) => flight.reap(),
            Err(_) => flight.drain(),
        }
        for (i, code) in flight.codes.drain(..) {
            let outcome = Outcome::of(code);
            failed |= matches!(outcome, Outcome::Failed(_));
            if let Some(place) = outcomes.get_mut(i as usize) {
                *place = outcome;
            }
        }
        result?;
    }
}

impl Outcome {
    /// From the code of a completion.
    fn of(code: i32) -> Self {
        match usize::try_from(code) {
            Ok(bytes) => Self::Done(bytes),
            Err(_) => match code.saturating_neg() {
                libc::EAGAIN | libc::EINTR | libc::ECANCELED | libc::EINVAL | libc::EOPNOTSUPP => {
                    Self::NotDone
                }
                code => Self::Failed(io::Error::from_raw_os_error(code)),
            },
        }
    }
}

/// The writes of one call, borrowed until all have ended.
struct Jobs<'a> {
    writes: &'a [ScatteredWrite<'a>],
    /// Each is durable once it has ended.
    durable: bool,
}

impl Jobs<'_> {
    /// The entry of job `i`.
    fn entry(&self, file: &File, i: usize) -> Option<squeue::Entry> {
        let job = self.writes.get(i)?;
        // `IoSlice` has the layout of `iovec`; the caller passes at most `MAX_BUFFERS`.
        let entry = opcode::Writev::new(
            types::Fd(file.as_raw_fd()),
            job.bufs.as_ptr().cast(),
            job.bufs.len() as u32,
        );
        let flags = if self.durable { libc::RWF_DSYNC } else { 0 };
        Some(entry.offset(job.offset).rw_flags(flags).build().user_data(i as u64))
    }
}

/// The entries of one call. Dropping it waits until the kernel owns none.
struct InFlight<'a> {
    ring: &'a mut IoUring,
    pushed: usize,
    reaped: usize,
    /// Which jobs have completed, and with which code, since this was last looked at.
    codes: Vec<(u64, i32)>,
}

impl<'a> InFlight<'a> {
    fn new(ring: &'a mut IoUring) -> Self {
        Self { ring, pushed: 0, reaped: 0, codes: Vec::new() }
    }

    /// Puts job `i` into the submission queue, once. `jobs` and `file` must outlive this value.
    fn push(&mut self, file: &File, jobs: &Jobs<'_>, i: usize) -> io::Result<()> {
        let entry = jobs.entry(file, i).ok_or_else(|| io::Error::other("no such job"))?;
        // SAFETY: the kernel may read the iovecs and the bytes they name from the next submit until
        // the completion of this entry. The caller of `run` has borrowed them, unchanged. `run`
        // owns this value, whose drop waits for every completion, so the borrow covers that time.
        // Entries that are never submitted are never looked at: their ring is closed (`Loan`,
        // `Rings::run`). The descriptor is open as long as `file`.
        #[allow(unsafe_code)]
        unsafe { self.ring.submission().push(&entry) }
            .map_err(|_| io::Error::other("the queue is full"))?;
        self.pushed += 1;
        Ok(())
    }

    /// Takes what has completed.
    fn reap(&mut self) {
        for done in self.ring.completion() {
            self.reaped += 1;
            self.codes.push((done.user_data(), done.result()));
        }
    }

    /// Entries that the kernel has taken and not completed.
    fn owned(&mut self) -> usize {
        let unsubmitted = self.ring.submission().len();
        self.pushed - self.reaped - unsubmitted
    }

    /// Waits until the kernel owns no entry. Submits nothing.
    fn drain(&mut self) {
        loop {
            self.reap();
            let owned = self.owned();
            if owned == 0 {
                return;
            }
            const GETEVENTS: u32 = 1;
            // SAFETY: submits nothing and passes no pointer; the kernel only waits.
            #[allow(unsafe_code)]
            let result = unsafe {
                self.ring.submitter().enter::<libc::sigset_t>(0, owned as u32, GETEVENTS, None)
            };
            if result.is_err() {
                // Completions arrive without help; returning before they do would be unsound.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.drain();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::IoSlice;
    use std::os::unix::fs::FileExt;

    /// A ring, or a line that says why not.
    fn ring() -> Option<IoUring> {
        make().inspect_err(|e| println!("SKIP: no io_uring here ({e})")).ok()
    }

    fn jobs<'a>(bufs: &'a [[IoSlice<'a>; 1]]) -> Vec<ScatteredWrite<'a>> {
        (0u64..).zip(bufs).map(|(i, bufs)| ScatteredWrite { offset: i * 8192, bufs }).collect()
    }

    #[test]
    fn more_jobs_than_a_queue_holds() {
        if ring().is_none() {
            return;
        }
        let file = tempfile::tempfile().expect("file");
        let memory: Vec<Vec<u8>> = (0..300u16).map(|i| vec![i as u8; 4096]).collect();
        let bufs: Vec<_> = memory.iter().map(|m| [IoSlice::new(m)]).collect();
        let rings = Rings::default();
        for round in 0..2 {
            let outcomes = rings.write(&file, &jobs(&bufs), round > 0).expect("ring");
            assert!(outcomes.iter().all(|o| matches!(o, Outcome::Done(4096))), "{outcomes:?}");
        }
        assert_eq!((rings.made(), rings.refused()), (1, false));
        for (i, expected) in memory.iter().enumerate() {
            let mut back = vec![0; 4096];
            file.read_exact_at(&mut back, i as u64 * 8192).expect("read");
            assert_eq!(back, *expected);
        }
    }

    #[test]
    fn failures_are_reported_and_the_ring_lives_on() {
        if ring().is_none() {
            return;
        }
        let rings = Rings::default();
        let bytes = vec![1; 4096];
        let bufs: Vec<_> = (0..300).map(|_| [IoSlice::new(&bytes)]).collect();
        let full = File::options().write(true).open("/dev/full").expect("open");
        let read_only = File::open("/dev/null").expect("open");
        for (file, code) in [(&full, libc::ENOSPC), (&read_only, libc::EBADF)] {
            let outcomes = rings.write(file, &jobs(&bufs), false).expect("ring");
            assert!(
                matches!(&outcomes[0], Outcome::Failed(e) if e.raw_os_error() == Some(code)),
                "{outcomes:?}"
            );
            assert!(
                matches!(outcomes[299], Outcome::NotDone),
                "nothing more is tried after a failure"
            );
            assert_eq!((rings.made(), rings.refused()), (1, false));
        }
        rings.refuse();
        assert!(rings.write(&full, &jobs(&bufs), false).is_none());
        assert_eq!(rings.made(), 0);
    }

    #[test]
    fn a_panic_waits_for_the_kernel() {
        let Some(mut ring) = ring() else { return };
        let file = tempfile::tempfile().expect("file");
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let memory: Vec<Vec<u8>> = (0..DEPTH).map(|i| vec![i as u8 + 1; 4096]).collect();
            let bufs: Vec<_> = memory.iter().map(|m| [IoSlice::new(m)]).collect();
            let jobs = jobs(&bufs);
            let mut flight = InFlight::new(&mut ring);
            let jobs = Jobs { writes: &jobs, durable: false };
            for i in 0..DEPTH / 2 {
                flight.push(&file, &jobs, i).expect("push");
            }
            flight.ring.submit().expect("submit");
            for i in DEPTH / 2..DEPTH {
                flight.push(&file, &jobs, i).expect("push");
            }
            panic!("on purpose");
        }));
        assert!(result.is_err());
        assert_eq!(ring.submission().len(), DEPTH / 2, "nothing was submitted on the way out");
        drop(ring);
        assert_eq!(file.metadata().expect("stat").len(), (DEPTH as u64 / 2 - 1) * 8192 + 4096);
        for i in 0..DEPTH / 2 {
            let mut back = vec![0; 4096];
            file.read_exact_at(&mut back, i as u64 * 8192).expect("read");
            assert_eq!(back, vec![i as u8 + 1; 4096], "submitted, so done");
        }
    }

    #[test]
    fn no_more_rings_than_allowed() {
        if ring().is_none() {
            return;
        }
        let rings = Rings::default();
        let mut loans: Vec<_> = (0..MAX_RINGS).map(|_| rings.borrow().expect("ring")).collect();
        assert!(rings.borrow().is_none());
        loans[0].reusable = true;
        drop(loans);
        assert_eq!(
            (rings.made(), rings.stock.lock().idle.len()),
            (1, 1),
            "only the sound one is kept"
        );
        let loan = rings.borrow().expect("ring");
        rings.refuse();
        assert_eq!(rings.made(), 1, "on loan");
        drop(loan);
        assert_eq!(rings.made(), 0);
    }
}
