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
        std::fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let comm = std::fs::read_to_string(entry.path().join("comm")).ok()?;
            comm.starts_with(&wanted).then_some(Self::Other(pid))
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
        let text = std::fs::read_to_string(self.file("status")).ok()?;
        Some(Memory { resident: kib(&text, "VmRSS:")?, peak: kib(&text, "VmHWM:")? })
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
            let text = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split_whitespace().next()?.parse::<u64>().ok()
        });
        Duration::from_nanos(times.sum())
    }
}

fn kib(text: &str, key: &str) -> Option<u64> {
    let rest = text.lines().find_map(|line| line.strip_prefix(key))?;
    Some(rest.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_status() {
        let text = "Name:\tx\nVmHWM:\t  2048 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!(
            (kib(text, "VmRSS:"), kib(text, "VmHWM:"), kib(text, "VmX:")),
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
