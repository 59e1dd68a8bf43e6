//! Requests about the whole volume: merged syncs and checkpoints, freeze and thaw, shutdown.
//!
//! | file | question |
//! | --- | --- |
//! | `stopped_flush` | a device that stops at a flush until the test goes on |
//! | `merge` | is one operation enough for many callers, and does each get what it asked for? |
//! | `freeze` | is nothing written between freeze and thaw, and is a copy sound? |
//! | `log` | is the log empty after a checkpoint, or erased? what does a shutdown leave? |

#[path = "../common/mod.rs"]
mod common;
mod freeze;
mod log;
mod merge;
mod stopped_flush;
