//! Benchmarks: loads that run on Extol and its peers in turn, and reports of what was measured.
//!
//! ```text
//!   workload/   loads, under the names of the tools that they come from
//!   target/     what a load runs on: a directory, a volume in this process, the bare device
//!   contender/  a file system on a medium, fresh for each run; what a run cost
//!   programs    the builds of the extol command that take part
//!   versus      contenders take turns; medians, ratios, latencies, cost per operation
//!   report/     what was measured as text, as JSON, as a page with pictures
//!   speed/      the targets, each beside its peers, and whether they are met
//!   nfs/        a client of NFS as a target, and an export for it
//!   noop/       what FUSE allows: a mount of a file system that does nothing
//!   medium/     an emulated medium for the kernel: a file under a mount, and a loop device on it
//!   published/  the published tables, and the same measured here beside them
//!   images/     images made of directories, beside mke2fs -d and others
//!   scale/      more and more files, a longer dirty log, a larger volume
//! ```
//!
//! Every figure is printed as it was measured, with its ratio to a peer. Each subject starts from a
//! fresh volume made with the same mke2fs arguments; the subjects take turns within a round, and
//! the median round counts, so that a machine that gets slower meanwhile slows all of them.

pub mod contender;
mod daemon;
pub mod images;
mod machine;
pub mod medium;
pub mod nfs;
pub mod noop;
mod programs;
pub mod published;
pub mod report;
pub mod scale;
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
