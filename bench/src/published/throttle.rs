//! Making one thread's device requests slow.
//!
//! | how | what it needs |
//! |---|---|
//! | [`Throttle::Cgroup`] | root, the blkio controller of cgroup v1 with BFQ: the published experiment. (cgroup v2 cannot give threads of one process different I/O weights.) |
//! | [`Throttle::Ionice`] | a device that BFQ schedules: I/O priorities of threads |
//! | [`Throttle::Model`] | nothing: a device decorator lets the marked thread wait after each of its requests |
//!
//! A weight is that of BFQ: 100 as a rule, less for a thread that is held back. In the model a
//! thread of weight W has its requests take 100 / W times as long, and at least 50 us more for each
//! 100 / W.

use std::cell::Cell;
use std::io::{IoSlice, IoSliceMut};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use extol_block::{BlockDevice, Result as DeviceResult, ScatteredWrite, SharedDevice};

use crate::subject::run;
use crate::{BenchError, Result};

/// How a thread is held back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Throttle {
    /// Two groups of the blkio controller, with BFQ on the device.
    Cgroup,
    /// I/O priorities of threads, with BFQ on the device.
    Ionice,
    /// Our own model.
    Model,
}

/// Where the blkio controller of cgroup v1 is usually mounted.
const BLKIO: &str = "/sys/fs/cgroup/blkio";

impl Throttle {
    /// Understands the text of the command line; `auto` takes the first that the machine has.
    ///
    /// # Errors
    /// One line that says what is possible.
    pub fn parse(text: &str) -> Result<Self> {
        match text {
            "cgroup" => Ok(Self::Cgroup),
            "ionice" => Ok(Self::Ionice),
            "model" => Ok(Self::Model),
            "auto" => Ok(if has_cgroup() { Self::Cgroup } else { Self::Model }),
            _ => Err(BenchError(format!(
                "unknown throttle \"{text}\": auto, cgroup, ionice or model"
            ))),
        }
    }

    /// What it is, for the report.
    #[must_use]
    pub fn describe(self) -> &'static str {
        match self {
            Self::Cgroup => "BFQ and two blkio cgroups (v1), strict_guarantees=1",
            Self::Ionice => "BFQ and I/O priorities of threads",
            Self::Model => "model: the throttled thread's requests take 100/weight times as long",
        }
    }

    /// True if requests must go through a block device of the kernel.
    pub(super) fn needs_node(self) -> bool {
        self != Self::Model
    }
}

fn has_cgroup() -> bool {
    Path::new(BLKIO).join("tasks").exists()
        && rustix::process::geteuid().is_root()
        && Path::new("/dev/loop-control").exists()
}

/// Puts the scheduler back that a block device had. (A loop device keeps its scheduler when it is
/// detached.)
struct Scheduler {
    file: PathBuf,
    before: String,
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _ = std::fs::write(&self.file, &self.before);
    }
}

/// Puts BFQ on a block device, until what is returned is dropped.
pub(super) fn use_bfq(node: &str) -> Result<Box<dyn Send>> {
    let name = Path::new(node).file_name().unwrap_or_default();
    let queue = Path::new("/sys/class/block").join(name).join("queue");
    let write = |file: &str, text: &str| {
        let path = queue.join(file);
        std::fs::write(&path, text)
            .map_err(|e| BenchError(format!("{}: {e}: this needs root and BFQ", path.display())))
    };
    let file = queue.join("scheduler");
    // "none [mq-deadline] bfq": the one in brackets is in use.
    let all = std::fs::read_to_string(&file).unwrap_or_default();
    let before = all.split(['[', ']']).nth(1).unwrap_or("none").to_owned();
    let scheduler = Scheduler { file, before };
    write("scheduler", "bfq")?;
    write("iosched/strict_guarantees", "1")?;
    Ok(Box::new(scheduler))
}

/// Two groups, removed when dropped (their threads must have ended).
pub(super) struct Groups {
    front: PathBuf,
    back: PathBuf,
}

impl Groups {
    /// One group of weight 100 and one of this weight.
    pub fn new(weight: u32) -> Result<Self> {
        let at = |name: &str| {
            Path::new(BLKIO).join(format!("extol-bench-{}-{name}", std::process::id()))
        };
        let groups = Self { front: at("front"), back: at("back") };
        for (dir, weight) in [(&groups.front, 100), (&groups.back, weight)] {
            let fail = |e: std::io::Error| BenchError(format!("{}: {e}", dir.display()));
            std::fs::create_dir(dir).map_err(fail)?;
            std::fs::write(dir.join("blkio.bfq.weight"), weight.to_string()).map_err(fail)?;
        }
        Ok(groups)
    }

    fn enter(dir: &Path) -> std::io::Result<()> {
        std::fs::write(dir.join("tasks"), rustix::thread::gettid().as_raw_nonzero().to_string())
    }
}

impl Drop for Groups {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.front);
        let _ = std::fs::remove_dir(&self.back);
    }
}

/// The throttle at work, for one weight.
pub(super) enum Active {
    Groups(Groups),
    Ionice(u32),
    Model(u32),
}

impl Active {
    pub fn new(throttle: Throttle, weight: u32) -> Result<Self> {
        Ok(match throttle {
            Throttle::Cgroup => Self::Groups(Groups::new(weight)?),
            Throttle::Ionice => Self::Ionice(weight),
            Throttle::Model => Self::Model(weight),
        })
    }

    /// The calling thread is one of those in front.
    pub fn enter_front(&self) -> std::io::Result<()> {
        match self {
            Self::Groups(groups) => Groups::enter(&groups.front),
            Self::Ionice(_) | Self::Model(_) => Ok(()),
        }
    }

    /// The calling thread is the one that is held back.
    pub fn enter_back(&self) -> std::io::Result<()> {
        match self {
            Self::Groups(groups) => Groups::enter(&groups.back),
            Self::Ionice(weight) => {
                let tid = rustix::thread::gettid().as_raw_nonzero().to_string();
                let mut words = priority(*weight).to_vec();
                words.extend(["-p", &tid]);
                run("ionice", &words).map(drop).map_err(|e| std::io::Error::other(e.0))
            }
            Self::Model(weight) => {
                FACTOR.set(100.0 / f64::from((*weight).max(1)));
                Ok(())
            }
        }
    }
}

/// The nearest I/O priority: best effort 4 (the usual) to 7, then idle.
fn priority(weight: u32) -> &'static [&'static str] {
    match weight {
        100.. => &["-c2", "-n4"],
        50.. => &["-c2", "-n6"],
        10.. => &["-c2", "-n7"],
        _ => &["-c3"],
    }
}

thread_local! {
    static FACTOR: Cell<f64> = const { Cell::new(1.0) };
}

/// The least that a request counts as.
const LEAST: Duration = Duration::from_micros(50);

/// Lets threads with a factor wait after each request.
#[derive(Debug)]
pub(super) struct Slowed(pub SharedDevice);

impl Slowed {
    fn slow(&self, request: impl FnOnce(&SharedDevice) -> DeviceResult<()>) -> DeviceResult<()> {
        let began = Instant::now();
        request(&self.0)?;
        let factor = FACTOR.get();
        if factor > 1.0 {
            std::thread::sleep(began.elapsed().max(LEAST).mul_f64(factor - 1.0));
        }
        Ok(())
    }
}

impl BlockDevice for Slowed {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn alignment(&self) -> usize {
        self.0.alignment()
    }

    fn is_read_only(&self) -> bool {
        self.0.is_read_only()
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        self.slow(|d| d.read_at(buf, offset))
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.slow(|d| d.write_at(buf, offset))
    }

    fn read_vectored_at(&self, bufs: &mut [IoSliceMut<'_>], offset: u64) -> DeviceResult<()> {
        self.slow(|d| d.read_vectored_at(bufs, offset))
    }

    fn write_vectored_at(&self, bufs: &[IoSlice<'_>], offset: u64) -> DeviceResult<()> {
        self.slow(|d| d.write_vectored_at(bufs, offset))
    }

    fn write_scattered(&self, writes: &[ScatteredWrite<'_>]) -> DeviceResult<()> {
        self.slow(|d| d.write_scattered(writes))
    }

    fn write_fua(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.slow(|d| d.write_fua(buf, offset))
    }

    fn write_mark(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        self.0.write_mark(buf, offset)
    }

    fn flush(&self) -> DeviceResult<()> {
        self.slow(|d| d.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.slow(|d| d.discard(offset, len))
    }

    fn discard_zeroes(&self) -> bool {
        self.0.discard_zeroes()
    }

    fn zero_range(&self, offset: u64, len: u64) -> DeviceResult<()> {
        self.slow(|d| d.zero_range(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use extol_block::MemDevice;

    use super::*;

    #[test]
    fn only_the_marked_thread_waits() {
        let device = Slowed(Arc::new(MemDevice::new(1 << 20)));
        let marked = Active::new(Throttle::Model, 1).unwrap();
        let waited = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                marked.enter_back().unwrap();
                let began = Instant::now();
                device.write_at(&[1; 100], 0).unwrap();
                began.elapsed()
            });
            thread.join().unwrap()
        });
        assert!(waited >= LEAST * 99, "{waited:?}");
        assert_eq!(FACTOR.get(), 1.0, "this thread has no mark");
        let mut back = [0; 100];
        device.read_at(&mut back, 0).unwrap();
        assert_eq!(back, [1; 100]);
    }

    #[test]
    fn names_and_priorities() {
        assert_eq!(Throttle::parse("ionice").unwrap(), Throttle::Ionice);
        assert!(Throttle::parse("auto").is_ok());
        assert!(Throttle::parse("x").unwrap_err().0.contains("model"));
        assert_eq!([100, 60, 20, 1].map(|w| priority(w)[0]), ["-c2", "-c2", "-c2", "-c3"]);
    }
}
