//! The machine a report is about.

use serde::Serialize;

/// Bytes of memory that programs can get without swapping.
#[must_use]
pub fn free_memory() -> Option<u64> {
    kib(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")
}

/// A field of /proc/meminfo in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    field(text, name)?.split(' ').next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// What was measured on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// System and release.
    pub kernel: String,
    /// Processor model.
    pub processor: String,
    /// Processors that this process may use.
    pub processors: usize,
    /// Memory in bytes.
    pub memory: u64,
    /// How the requests of FUSE mounts come without an option that says otherwise: `io_uring` or
    /// `/dev/fuse`.
    pub requests: String,
    /// Load average of the last minute when the measurement began: more than a little spoils it.
    pub load: f64,
}

impl Machine {
    /// This one.
    #[must_use]
    pub fn this() -> Self {
        let uname = rustix::system::uname();
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self {
            kernel: format!(
                "{} {}",
                uname.sysname().to_string_lossy(),
                uname.release().to_string_lossy()
            ),
            processor: field(&read("/proc/cpuinfo"), "model name")
                .unwrap_or_else(|| "unknown".into()),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            memory: kib(&read("/proc/meminfo"), "MemTotal").unwrap_or(0),
            requests: match &*read("/sys/module/fuse/parameters/enable_uring") {
                "Y\n" => "io_uring".into(),
                _ => "/dev/fuse".into(),
            },
            load: read("/proc/loadavg")
                .split(' ')
                .next()
                .and_then(|t| t.parse().ok())
                .unwrap_or(0.0),
        }
    }

    /// One line.
    #[must_use]
    pub fn line(&self) -> String {
        format!(
            "{}, {} x {}, {:.1} GiB of memory, requests of FUSE by way of {}, load {:.2} at the \
                start",
            self.kernel,
            self.processors,
            self.processor,
            self.memory as f64 / f64::from(1u32 << 30),
            self.requests,
            self.load
        )
    }
}

/// The value of the first line `name : value`.
fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_kernel_s_files() {
        assert_eq!(
            field("a: 1\nmodel name\t: X 1\nmodel name\t: Y\n", "model name").as_deref(),
            Some("X 1")
        );
        assert_eq!(field("a: 1\n", "b"), None);
        let line = Machine::this().line();
        assert!(line.starts_with("Linux") && !line.contains('\n'), "{line}");
    }
}
