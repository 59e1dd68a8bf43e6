//! What the load did, and what must be there after a crash. Knows nothing of how a file system
//! works inside.
//!
//! - [`Tree`]: names and what they stand for, after each operation.
//! - [`Content`]: the bytes of a file, after each operation that changed them.
//! - [`History`]: all trees, all versions of all contents, all syncs of one actor.
//! - [`verify`]: compares what a recovered volume shows with the history, see there for the rules.
//! - `closure`: the rules for names where fast commits are on.
//! - [`Common`]: a file that all actors write.

mod closure;
mod common;
mod content;
mod history;
mod tree;
mod verify;

pub use common::{Common, PATH as COMMON};
pub use content::Content;
pub use history::{History, Zeros};
pub use tree::{Id, Kind, Line, Tree};
pub use verify::{Moment, Rules, verify};
