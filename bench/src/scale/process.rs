//! What the kernel says about a process: memory and processor time.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// A process that is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Process {
    /// This one.
    Own,
    /// Another one, such as the daemon of a mount.
    Other(u32),
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Memory {
    /// Resident now (`VmRSS`).
    pub resident: u64,
    /// Most that was resident (`VmHWM`).
    pub peak: u64,
}

impl Process {
    /// The kernel's thread that commits the journal of a device (`jbd2/NAME-INODE`). What else the
    /// kernel does in threads that serve all mounts (writing back, a loop device's requests) is
    /// not counted.
    pub fn jbd2(device: &str) -> Option<Self> {
        let name = Path::new(device).file_name()?.to_str()?;
        let wanted = format!("jbd2/{name}-");
        extol_proc::processes().into_iter().find_map(|process| {
            let name = process.name()?;
            let is_it = name.as_encoded_bytes().starts_with(wanted.as_bytes());
            is_it.then_some(Self::Other(process.0))
        })
    }

    fn file(self, name: &str) -> PathBuf {
        match self {
            Self::Own => format!("/proc/self/{name}"),
            Self::Other(pid) => format!("/proc/{pid}/{name}"),
        }
        .into()
    }

    /// Its memory; `None` if it is gone.
    pub fn memory(self) -> Option<Memory> {
        let status = std::fs::read(self.file("status")).ok()?;
        Some(Memory { resident: kib(&status, "VmRSS")?, peak: kib(&status, "VmHWM")? })
    }

    /// Forgets the peak so far, where that is allowed.
    pub fn reset_peak(self) {
        let _ = std::fs::write(self.file("clear_refs"), "5");
    }

    /// Processor time of all its threads that live, in nanoseconds' resolution
    /// (`task/*/schedstat`).
    pub fn cpu(self) -> Duration {
        if self == Self::Own {
            let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
            return Duration::new(t.tv_sec.unsigned_abs(), t.tv_nsec.unsigned_abs() as u32);
        }
        let tasks = std::fs::read_dir(self.file("task")).into_iter().flatten().flatten();
        let times = tasks.filter_map(|task| {
            let times = extol_proc::read(task.path().join("schedstat"))?;
            extol_proc::number::<u64>(extol_proc::words(&times).next()?)
        });
        Duration::from_nanos(times.sum())
    }
}

fn kib(status: &[u8], key: &str) -> Option<u64> {
    let value = extol_proc::words(extol_proc::field(status, key)?).next()?;
    Some(extol_proc::number::<u64>(value)? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_status() {
        let text = b"Name:\tx\xff\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!(
            (kib(text, "VmRSS"), kib(text, "VmHWM"), kib(text, "VmX")),
            (Some(1 << 20), Some(2 << 20), None)
        );
    }

    #[test]
    fn this_process_is_seen_from_inside_and_from_outside() {
        let other = Process::Other(std::process::id());
        let memory = other.memory().expect("alive");
        assert!(memory.resident > 1 << 20 && memory.peak >= memory.resident / 2);
        assert!(
            Process::Own.memory().is_some()
                && other.cpu() > Duration::ZERO
                && Process::Own.cpu() > Duration::ZERO
        );
        assert_eq!(Process::Other(u32::MAX).memory(), None);
    }
}
