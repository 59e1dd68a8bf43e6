//! Benchmarks: loads that run on Extol and its peers in turn, and reports of what was measured.
//!
//! ```text
//!   workload/   what is done: fsmark, postmark, varmail, fsync-latency, under their tools' parameter names
//!   target/     what it is done to: a directory, an open volume in this process
//!   metadata    names and inodes through a mount, beside kernel ext4 and fuse2fs on the same loop device
//! ```
//!
//! Every figure is printed as it was measured, with its ratio to a peer. Each subject starts from a fresh volume made
//! with the same mke2fs arguments; the subjects take turns within a round, and the median round counts, so that a change
//! of the machine's mood hits all of them.

mod metadata;
mod subject;
pub mod target;
pub mod workload;

pub use metadata::{MetadataBench, PhaseResult, Report};
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
