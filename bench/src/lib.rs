//! Benchmarks: loads that run on Extol and its peers in turn, and reports of what was measured.
//!
//! ```text
//!   workload/   what is done: fsmark, dbench, postmark, varmail, fsync-latency, metadata, seq, rand, untar, under their tools' names
//!   target/     what it is done to: a directory, an open volume in this process, the bare device
//!   contender/  who takes part: library, node, mount, kernel, fuse2fs, noop, raw, any directory; on which medium; what a run cost
//!   versus      contenders take turns; medians, ratios, latencies, cost per operation
//!   report/     what was measured as text, as JSON, as a page with pictures
//!   speed/      the targets, each beside its peers, and whether they are met
//!   noop/       what FUSE allows: a mount of a file system that does nothing
//!   medium/     an emulated medium for the kernel: a file under a mount, and a loop device on it
//!   seed/       the published tables and our columns beside them
//!   scale/      more and more files, a longer dirty log, a larger volume
//! ```
//!
//! Every figure is printed as it was measured, with its ratio to a peer. Each subject starts from a
//! fresh volume made with the same mke2fs arguments; the subjects take turns within a round, and
//! the median round counts, so that a change of the machine's mood hits all of them.

pub mod contender;
mod daemon;
mod machine;
pub mod medium;
pub mod noop;
mod programs;
pub mod report;
pub mod scale;
pub mod seed;
pub mod speed;
mod spread;
mod subject;
pub mod target;
pub mod versus;
pub mod workload;

pub use machine::Machine;
pub use programs::Programs;
pub use spread::Spread;
pub use subject::SubjectKind;

/// Why a benchmark could not run: one line.
#[derive(Debug)]
pub struct BenchError(pub String);

impl std::fmt::Display for BenchError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BenchError {}

/// Result of a benchmark.
pub type Result<T> = std::result::Result<T, BenchError>;
