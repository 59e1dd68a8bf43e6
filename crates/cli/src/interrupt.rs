//! SIGINT, SIGTERM, SIGHUP and SIGQUIT end a command that makes something without leaving it half
//! made, and one that has changed the terminal without leaving it so.
//!
//! The first signal is noted, and the command ends at its next step: it takes away what is not
//! whole and closes the volume. A signal that comes [`ONE`] later, or still later, ends the process
//! at once; those before belong to the first (timeout(1) sends its signal to the process, and then
//! to the group of the process). The exit code is 128 and the number of the signal, as of a process
//! that the signal ends itself. (Commands that make nothing do not come here: the signal ends them.
//! `umount` and `check`, which may take long, end at once and say so: [`exit_on_signals`].)
//!
//! A signal that the process was told to ignore (nohup(1), a background job of a script) stays
//! ignored.
//!
//! A mount receives its signals in a thread (`signals.rs`), and notes them here ([`note`]).

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, OnceLock};
use std::time::{Duration, Instant};

use extol_block::{BlockDevice, DeviceError, DeviceOp, Result as DeviceResult};
use extol_cli_common::{Failure, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// The signals that end a process in order.
pub const ENDING: [i32; 4] = [SIGTERM, SIGINT, SIGHUP, SIGQUIT];

/// Signals that come within this time are one interrupt.
const ONE: Duration = Duration::from_secs(1);

/// The signal that came; 0: none.
static SIGNAL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// From now on signals are noted.
pub fn catch() -> Result<()> {
    static CAUGHT: AtomicBool = AtomicBool::new(false);
    if CAUGHT.swap(true, Ordering::SeqCst) {
        return Ok(());
    }
    let fail = |error| Failure::system(format_args!("cannot wait for signals: {error}"));
    let again = Arc::new(AtomicBool::new(false));
    let mut signals = Signals::new(heeded()).map_err(fail)?;
    for signal in heeded() {
        let number = usize::try_from(signal).unwrap_or(0);
        flag::register_conditional_default(signal, Arc::clone(&again))
            .and_then(|_| flag::register_usize(signal, Arc::clone(&SIGNAL), number))
            .map_err(fail)?;
    }
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            // (It may have come before the handler above was there.)
            note(signal);
            std::thread::sleep(ONE);
            again.store(true, Ordering::SeqCst);
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop).map_err(fail)
}

/// The signals that are not ignored.
fn heeded() -> impl Iterator<Item = i32> {
    let ignored = ignored();
    let bit = |signal: i32| u32::try_from(signal).unwrap_or(1).saturating_sub(1);
    ENDING.into_iter().filter(move |signal| ignored >> bit(*signal) & 1 == 0)
}

/// From now on the first signal ends the process at once, with a line that says so. `before` runs
/// before that. (What fails because of it has to [`give_way`].)
pub fn exit_on_signals(before: fn()) -> Result<()> {
    let fail = |error| Failure::system(format_args!("cannot wait for signals: {error}"));
    let mut signals = Signals::new(heeded()).map_err(fail)?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            note(signal);
            before();
            let failure = Failure::interrupted(signal);
            if std::io::stderr().is_terminal() {
                // A progress bar may stand there.
                let _ = std::io::stderr().write_all(b"\r\x1b[K");
            }
            failure.report();
            std::process::exit(failure.code.into());
        }
    };
    std::thread::Builder::new().name("signals".into()).spawn(wait).map(drop).map_err(fail)
}

/// What a signal is to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Noted {
    First,
    /// It belongs to the first.
    Same,
    Again,
}

/// Notes a signal. The first stays the one that counts.
pub fn note(signal: i32) -> Noted {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let number = usize::try_from(signal).unwrap_or(0);
    let since = FIRST.get_or_init(Instant::now).elapsed();
    match SIGNAL.compare_exchange(0, number, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Noted::First,
        Err(_) if since < ONE => Noted::Same,
        Err(_) => Noted::Again,
    }
}

/// The signals that are ignored, one bit each.
fn ignored() -> u64 {
    let status = extol_proc::read("/proc/self/status").unwrap_or_default();
    let mask = extol_proc::field(&status, "SigIgn").unwrap_or_default();
    let digit = |byte: &u8| char::from(*byte).to_digit(16).map(u64::from);
    mask.iter().filter_map(digit).fold(0, |mask, digit| mask << 4 | digit)
}

/// True if a signal came.
pub fn came() -> bool {
    SIGNAL.load(Ordering::SeqCst) != 0
}

/// Returns if no signal came. After one the thread that received it ends the process, and this one
/// must not end it another way before.
pub fn give_way() {
    while came() {
        std::thread::park();
    }
}

/// How the command ends if a signal came.
pub fn check() -> Result<()> {
    match i32::try_from(SIGNAL.load(Ordering::SeqCst)) {
        Ok(0) => Ok(()),
        signal => Err(Failure::interrupted(signal.unwrap_or(SIGINT))),
    }
}

/// A signal is the ordinary end of what runs: what fails behind it has a reason of its own.
static IS_ORDINARY: AtomicBool = AtomicBool::new(false);

/// A daemon has served, and a signal may have ended that.
pub fn has_served() {
    IS_ORDINARY.store(true, Ordering::SeqCst);
}

/// The outcome of a command: after a signal, what failed has failed because of it.
pub fn explain(outcome: Result<()>) -> Result<()> {
    if IS_ORDINARY.load(Ordering::SeqCst) {
        return outcome;
    }
    outcome.or_else(|failure| check().and(Err(failure)))
}

/// A device on which every change fails once a signal came. (Reads are short.)
#[derive(Debug)]
pub struct Interruptible<D> {
    inner: D,
}

impl<D: BlockDevice> Interruptible<D> {
    pub fn new(inner: D) -> Self {
        Self { inner }
    }

    fn go(&self, offset: u64) -> DeviceResult<()> {
        if came() {
            let why = std::io::Error::from(std::io::ErrorKind::Interrupted);
            return Err(DeviceError::new(DeviceOp::Write, offset, 0, why));
        }
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Interruptible<D> {
    extol_block::pass_on!(shape, abilities, reads);

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.go(offset)?;
        self.inner.write_at(buf, offset)
    }

    fn write_vectored_at(&self, bufs: &[std::io::IoSlice<'_>], offset: u64) -> DeviceResult<()> {
        self.go(offset)?;
        self.inner.write_vectored_at(bufs, offset)
    }

    fn write_scattered(&self, writes: &[extol_block::ScatteredWrite<'_>]) -> DeviceResult<()> {
        self.go(0)?;
        self.inner.write_scattered(writes)
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.go(offset)?;
        self.inner.write_fua(buf, offset)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.go(0)?;
        self.inner.flush()
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.go(offset)?;
        self.inner.discard(offset, len)
    }

    fn zero_range(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.go(offset)?;
        self.inner.zero_range(offset, len)
    }

    fn set_size(&self, bytes: u64) -> DeviceResult<()> {
        self.go(0)?;
        self.inner.set_size(bytes)
    }
}
