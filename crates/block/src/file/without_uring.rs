//! In place of `uring.rs` in a build without the feature `io-uring`: there are no rings, and every
//! write is a call of its own.

use crate::ScatteredWrite;
use std::fs::File;
use std::io;

/// The outcome of one write through a ring.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Not tried.
    NotDone,
    /// So many bytes were written.
    #[expect(dead_code, reason = "there are no rings")]
    Done(usize),
    /// It failed.
    #[expect(dead_code, reason = "there are no rings")]
    Failed(io::Error),
}

/// The rings of one device: none.
#[derive(Default, Debug)]
pub(super) struct Rings {}

impl Rings {
    /// No ring is to be had.
    #[expect(clippy::unused_self, reason = "as with rings")]
    pub(super) fn write(
        &self,
        _file: &File,
        _jobs: &[ScatteredWrite<'_>],
        _durable: bool,
    ) -> Option<Vec<Outcome>> {
        None
    }

    /// No ring can be had.
    #[expect(clippy::unused_self, reason = "as with rings")]
    pub(super) fn refused(&self) -> bool {
        true
    }
}
