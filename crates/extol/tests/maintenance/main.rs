//! Requests about the whole volume: merged syncs and checkpoints, freeze and thaw, shutdown.
//!
//! | file | asks |
//! | --- | --- |
//! | `door` | a device that stops at a flush until the test goes on |
//! | `merge` | is one operation enough for many callers, and does each get what it asked for, whatever starts and stops? |
//! | `freeze` | is nothing written between freeze and thaw, and is a copy sound? |
//! | `log` | is the log empty after a checkpoint, and erased where that was wanted? what does a shutdown leave? |

#[path = "../common/mod.rs"]
mod common;
mod door;
mod freeze;
mod log;
mod merge;
