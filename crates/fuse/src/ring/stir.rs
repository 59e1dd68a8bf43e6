//! Stirring a queue: a request that is made on its processor, by another process, so that the queue
//! goes on (see [`super`]).
//!
//! ```text
//!   stir ── "3 stat … /mnt" ──► pipe ──► helper (xargs) ──► taskset -c 3 stat /mnt ── GETATTR ──► queue 3
//! ```
//!
//! Not by a thread of this process: one that waits for the mount would keep the rings' memory
//! mapped, and with it the rings, the device and the mount, if the daemon were killed in that
//! moment; and it cannot be killed while it waits.
//!
//! Nor by a process that is made when it is needed. On its way to its program it closes what it has
//! inherited, and if this process has files of its own mount open, that writes them back and waits
//! for it: for the very queue that is to be stirred. So there is a helper from before the mount has
//! answered anything, with nothing of it open, which starts the processes.
//!
//! A process that gives its rights away may not have a helper that runs whatever it is told; it has
//! one of its own make, which makes requests to this mount and nothing else
//! ([`Confinement::stir`]).
//!
//! Where the helper's programs are missing a process is made when it is needed all the same, and
//! where there is no `stat` a thread does it.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, StatxFlags, statx};
use rustix::thread::CpuSet;

use super::processor::Seat;
use crate::config::Confinement;
use crate::mount::is_installed;

/// What the helper is told for one stir behind the processor's number, without the directory.
/// GETATTR, whatever the kernel remembers: nothing that it could have to wait for (a statfs hears
/// what is forgotten first).
const WORDS: [&str; 3] = ["stat", "--cached=never", "--"];

/// A mount's.
#[derive(Debug, Default)]
pub(super) struct Stirrer {
    confinement: Option<Arc<dyn Confinement>>,
    helper: Mutex<Option<Helper>>,
}

#[derive(Debug)]
struct Helper {
    words: ChildStdin,
    process: Child,
}

impl Stirrer {
    /// With a helper, if there can be one.
    pub(super) fn start(confinement: Option<&Arc<dyn Confinement>>) -> Self {
        if confinement.is_some() {
            return Self { confinement: confinement.cloned(), helper: Mutex::default() };
        }
        let there = ["xargs", "taskset", WORDS[0]].into_iter().all(is_installed);
        Self { confinement: None, helper: Mutex::new(there.then(helper).and_then(Result::ok)) }
    }

    /// Makes a request to `dir`, of a mount, on a processor, without waiting for the answer.
    pub(super) fn stir(&self, dir: &Path, number: usize, all: &CpuSet) {
        if self.confinement.as_ref().is_some_and(|confinement| confinement.stir(number)) {
            return;
        }
        let mut helper = self.helper.lock();
        if let Some(Helper { words, .. }) = &mut *helper
            && words.write_all(&order(dir, number)).is_ok()
        {
            return;
        }
        drop(helper.take());
        drop(helper);
        let (dir, all) = (dir.to_owned(), *all);
        // Where there is no thread to be had, the next request of that processor does it.
        let _ = thread::Builder::new().name("fuse-stir".into()).spawn(move || {
            let _ = Seat::take(number, &all);
            let mut stat = Command::new(WORDS[0]);
            stat.args(&WORDS[1..]).arg(&dir);
            let done =
                stat.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
            if !done.is_ok_and(|status| status.success()) {
                let _ = statx(CWD, &dir, AtFlags::STATX_FORCE_SYNC, StatxFlags::BASIC_STATS);
            }
        });
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // (Where this does not come to run it ends with its input. What it has started may still
        // wait for the mount.)
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Starts the helper: it reads five words at a time, ended by NUL, starts what they say and does
/// not wait for it.
fn helper() -> io::Result<Helper> {
    let mut command = Command::new("xargs");
    command.args(["-0", "-P", "0", "-n", "5", "taskset", "-c"]);
    // Signals of a terminal are not for it, and it keeps no directory in use.
    command.process_group(0).current_dir("/");
    let mut process =
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let words = process.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    Ok(Helper { words, process })
}

fn order(dir: &Path, number: usize) -> Vec<u8> {
    let mut order = number.to_string().into_bytes();
    for word in WORDS {
        order.push(0);
        order.extend_from_slice(word.as_bytes());
    }
    order.push(0);
    order.extend_from_slice(dir.as_os_str().as_encoded_bytes());
    order.push(0);
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::{Duration, Instant};

    #[test]
    fn an_order_is_five_words() {
        assert_eq!(order(Path::new("/mnt/a b"), 12), b"12\0stat\0--cached=never\0--\0/mnt/a b\0");
    }

    /// The helper does what it is told at once, and not only when more is said. (A new name for
    /// `stat` shows that.)
    #[test]
    fn the_helper_does_not_wait() {
        let stirrer = Stirrer::start(None);
        let mut helper = stirrer.helper.lock();
        let Some(Helper { words, .. }) = &mut *helper else {
            println!("SKIP: xargs, taskset or stat is missing");
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        for round in 0..3 {
            let name = dir.path().join(format!("made{round}"));
            let order = format!("0\0touch\0-c\0--\0{0}\x000\0touch\0-a\0--\0{0}\0", name.display());
            words.write_all(order.as_bytes()).unwrap();
            let deadline = Instant::now() + Duration::from_secs(20);
            while fs::metadata(&name).is_err() {
                assert!(Instant::now() < deadline, "round {round}");
                thread::sleep(Duration::from_millis(1));
            }
        }
    }
}
