//! The one place where the superblock changes while the volume is open.
//!
//! The decoded superblock lives behind a lock; a change is made there and encoded into its block within the
//! caller's transaction. The lock comes after group locks and before buffers.

use std::sync::Arc;

use extol_journal::Handle;
use extol_ondisk::{Geometry, Superblock};
use extol_sync::rank::{Mutex, Rank};
use extol_vfs::{FsError, Result};

use crate::error;

/// The superblock of an open volume.
#[derive(Debug)]
pub(crate) struct SuperCell {
    sb: Mutex<Superblock, { Rank::Superblock as u8 }>,
    geo: Arc<Geometry>,
}

impl SuperCell {
    /// Of a superblock as it was read (after recovery of the journal).
    pub fn new(sb: Superblock, geo: &Geometry) -> Self {
        Self { sb: Mutex::new(sb), geo: Arc::new(geo.clone()) }
    }

    /// It was changed on the device while nothing was open for a change here.
    pub fn set(&self, sb: Superblock) {
        *self.sb.lock() = sb;
    }

    /// Looks at it.
    pub fn read<R>(&self, f: impl FnOnce(&Superblock) -> R) -> R {
        f(&self.sb.lock())
    }

    /// Changes it in memory and in its block (1 credit).
    pub fn update<R>(&self, h: &mut Handle, f: impl FnOnce(&mut Superblock) -> R) -> Result<R> {
        let (block, at) = self.geo.super_block();
        let mut sb = self.sb.lock();
        let buf = h.journal().read(block).map_err(error::journal)?;
        let mut changed = sb.clone();
        let result = f(&mut changed);
        let bytes = changed.encode();
        let fits = h
            .modify(&buf, |block| match block.get_mut(at..at + bytes.len()) {
                Some(slot) => {
                    slot.copy_from_slice(&bytes);
                    true
                }
                None => false,
            })
            .map_err(error::journal)?;
        if !fits {
            return Err(FsError::corrupt("the superblock does not fit into its block"));
        }
        *sb = changed;
        Ok(result)
    }
}
