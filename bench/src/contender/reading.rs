//! What a run cost: processor time, and what reached the device.

use std::path::Path;
use std::time::Duration;

use extol_devices::{DeviceStats, MediumStats};
use serde::Serialize;

/// What a device was asked to do so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct DeviceReading {
    /// Read requests.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Write requests.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes, and writes that had to be durable.
    pub flushes: u64,
}

impl From<DeviceStats> for DeviceReading {
    fn from(stats: DeviceStats) -> Self {
        Self {
            reads: stats.reads,
            read_bytes: stats.read_bytes,
            writes: stats.writes,
            write_bytes: stats.write_bytes,
            flushes: stats.flushes + stats.fua_writes,
        }
    }
}

impl DeviceReading {
    /// The kernel's counters of a block device (`/sys/block/NAME/stat`).
    pub(crate) fn of_node(node: &str) -> Option<Self> {
        let name = Path::new(node).canonicalize().ok()?;
        let name = name.file_name()?.to_str()?;
        let text = std::fs::read_to_string(format!("/sys/class/block/{name}/stat")).ok()?;
        Self::parse(&text)
    }

    /// Fields as in the kernel's `block/stat.rst`, sectors of 512 bytes. Flushes are fields 16 and
    /// 17, since Linux 5.5.
    fn parse(text: &str) -> Option<Self> {
        let fields: Vec<u64> = text.split_whitespace().map_while(|f| f.parse().ok()).collect();
        Some(Self {
            reads: *fields.first()?,
            read_bytes: fields.get(2)? * 512,
            writes: *fields.get(4)?,
            write_bytes: fields.get(6)? * 512,
            flushes: fields.get(15).copied().unwrap_or(0),
        })
    }

    fn since(self, before: Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(before.reads),
            read_bytes: self.read_bytes.saturating_sub(before.read_bytes),
            writes: self.writes.saturating_sub(before.writes),
            write_bytes: self.write_bytes.saturating_sub(before.write_bytes),
            flushes: self.flushes.saturating_sub(before.flushes),
        }
    }
}

/// Counters at a moment.
#[derive(Clone, Debug, Default)]
pub struct Reading {
    /// Processor time of this process.
    pub own_cpu: Duration,
    /// Processor time of the daemon that serves the mount.
    pub daemon_cpu: Option<Duration>,
    /// The device.
    pub device: Option<DeviceReading>,
    /// The emulated medium, if there is one.
    pub medium: Option<MediumStats>,
    /// Extol's state and counters (`extol stat --json`).
    pub stats: Option<serde_json::Value>,
    /// Committed transactions, where they are counted.
    pub transactions: Option<u64>,
    /// The kernel's fast commits, on volumes that have them.
    pub kernel_fast: Option<KernelFast>,
}

/// What was used between two readings.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cost {
    /// Processor time of this process and the daemon, in nanoseconds. Work that the kernel does in
    /// threads of its own (writing back, its journal) is not counted.
    pub cpu_ns: u64,
    /// What reached the device.
    pub device: Option<DeviceReading>,
    /// Transactions committed.
    pub transactions: Option<u64>,
    /// By how much an emulated medium came back late, as a part of the time that it should have
    /// taken. Above a few per cent the host is too slow for this medium.
    pub late: Option<f64>,
}

impl Reading {
    /// What was used since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Cost {
        let daemon = self
            .daemon_cpu
            .unwrap_or_default()
            .saturating_sub(before.daemon_cpu.unwrap_or_default());
        let cpu = self.own_cpu.saturating_sub(before.own_cpu) + daemon;
        Cost {
            cpu_ns: u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX),
            device: self.device.zip(before.device).map(|(now, then)| now.since(then)),
            transactions: self
                .transactions
                .zip(before.transactions)
                .map(|(now, then)| now.saturating_sub(then)),
            late: self.medium.zip(before.medium).and_then(|(now, then)| {
                let modelled = now.modelled.saturating_sub(then.modelled).as_secs_f64();
                let late = now.late.saturating_sub(then.late).as_secs_f64();
                (modelled > 0.0).then(|| late / modelled)
            }),
        }
    }

    /// A number of Extol's counters, by JSON pointer (`/journal/space_waits`).
    #[must_use]
    pub fn counter(&self, pointer: &str) -> Option<u64> {
        self.stats.as_ref()?.pointer(pointer)?.as_u64()
    }
}

impl DeviceReading {
    fn plus(self, other: Self) -> Self {
        Self {
            reads: self.reads + other.reads,
            read_bytes: self.read_bytes + other.read_bytes,
            writes: self.writes + other.writes,
            write_bytes: self.write_bytes + other.write_bytes,
            flushes: self.flushes + other.flushes,
        }
    }
}

impl Cost {
    /// Of two parts of a run.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            cpu_ns: self.cpu_ns + other.cpu_ns,
            device: self.device.zip(other.device).map(|(a, b)| a.plus(b)),
            transactions: self.transactions.zip(other.transactions).map(|(a, b)| a + b),
            late: self.late.zip(other.late).map(|(a, b)| a.max(b)).or(self.late).or(other.late),
        }
    }
}

/// Processor time of this process, all threads.
pub(super) fn own_cpu() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(t.tv_sec).unwrap_or(0), u32::try_from(t.tv_nsec).unwrap_or(0))
}

/// Processor time of another process, all threads.
pub(super) fn cpu_of(pid: u32) -> Option<Duration> {
    // utime and stime.
    let process = extol_proc::Process(pid);
    let ticks = |field| extol_proc::number::<u64>(&process.stat_field(field)?);
    let both = ticks(14)? + ticks(15)?;
    Some(Duration::from_secs_f64(both as f64 / rustix::param::clock_ticks_per_second() as f64))
}

/// Transactions that the kernel's journal on a device has committed
/// (`/proc/fs/jbd2/NAME-INODE/info`).
pub(super) fn kernel_transactions(node: &str) -> Option<u64> {
    let name = Path::new(node).file_name()?.to_str()?;
    let dirs = std::fs::read_dir("/proc/fs/jbd2").ok()?;
    let dir = dirs.flatten().find(|d| {
        let found = d.file_name();
        found
            .to_str()
            .is_some_and(|f| f == name || f.strip_prefix(name).is_some_and(|r| r.starts_with('-')))
    })?;
    let text = std::fs::read_to_string(dir.path().join("info")).ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// Fast commits that the kernel's ext4 has made (`/proc/fs/ext4/NAME/fc_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct KernelFast {
    /// Fast commits.
    pub commits: u64,
    /// Full commits instead.
    pub ineligible: u64,
    /// Blocks in them.
    pub blocks: u64,
}

impl KernelFast {
    pub(super) fn of_node(node: &str) -> Option<Self> {
        let name = Path::new(node).file_name()?.to_str()?;
        Self::parse(&std::fs::read_to_string(format!("/proc/fs/ext4/{name}/fc_info")).ok()?)
    }

    /// Lines `NUMBER NAME`.
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| {
                let (number, rest) = line.trim().split_once(' ')?;
                (rest == name).then(|| number.parse().ok())?
            })
        };
        Some(Self {
            commits: field("commits")?,
            ineligible: field("ineligible")?,
            blocks: field("numblks")?,
        })
    }

    /// What was added since `before`.
    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            commits: self.commits.saturating_sub(before.commits),
            ineligible: self.ineligible.saturating_sub(before.ineligible),
            blocks: self.blocks.saturating_sub(before.blocks),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_s_texts() {
        let text = "  1 0 16 3  10 2 800 5 0 4 8  1 0 8 1  7 9\n";
        let want = DeviceReading {
            reads: 1,
            read_bytes: 8192,
            writes: 10,
            write_bytes: 409_600,
            flushes: 7,
        };
        assert_eq!(DeviceReading::parse(text), Some(want));
        assert_eq!(DeviceReading::parse("1 2"), None);
        assert!(cpu_of(std::process::id()).is_some() && cpu_of(u32::MAX).is_none());
        let text = "fc stats:\n12 commits\n3 ineligible\n40 numblks\n7us avg_commit_time\n\
            Ineligible reasons:\n\"Xattr\":\t1\n";
        let want = KernelFast { commits: 12, ineligible: 3, blocks: 40 };
        assert_eq!(KernelFast::parse(text), Some(want));
        assert_eq!(want.since(KernelFast { commits: 2, ineligible: 3, blocks: 50 }).blocks, 0);
    }

    #[test]
    fn costs_are_differences() {
        let reading = |cpu, flushes| Reading {
            own_cpu: Duration::from_nanos(cpu),
            device: Some(DeviceReading { flushes, ..DeviceReading::default() }),
            ..Reading::default()
        };
        let cost = reading(500, 9).since(&reading(200, 4));
        assert_eq!((cost.cpu_ns, cost.device.unwrap().flushes, cost.transactions), (300, 5, None));
        assert!(own_cpu() > Duration::ZERO);
        assert!(cpu_of(std::process::id()).is_some());
    }
}
