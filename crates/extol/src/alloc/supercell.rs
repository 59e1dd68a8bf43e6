//! The one place where the superblock changes while the volume is open.
//!
//! The decoded superblock lives behind a lock; a change is made there and encoded into its block
//! within the caller's transaction. The lock comes after group locks and before buffers.
//!
//! Changes that another program made on the device ([`crate::guard`]) are merged before each
//! change, and by [`SuperCell::take_over`]. Nothing here reads the device for them.

use std::sync::Arc;

use extol_jbd2::Handle;
use extol_ondisk::shared_super::Bytes;
use extol_ondisk::{Geometry, Superblock};
use extol_sync::rank::{Mutex, Rank};
use extol_vfs::{FsError, Result};

use crate::error;
use crate::guard::Guard;

/// The superblock, decoded and as bytes.
#[derive(Debug)]
struct Held {
    sb: Superblock,
    bytes: Box<Bytes>,
}

/// The superblock of an open volume.
#[derive(Debug)]
pub(crate) struct SuperCell {
    held: Mutex<Held, { Rank::Superblock as u8 }>,
    geo: Arc<Geometry>,
    guard: Option<Arc<Guard>>,
}

impl SuperCell {
    /// From a superblock read after journal recovery.
    pub fn new(sb: Superblock, geo: &Geometry) -> Self {
        let bytes = Box::new(sb.encode());
        Self { held: Mutex::new(Held { sb, bytes }), geo: Arc::new(geo.clone()), guard: None }
    }

    /// Shares the superblock on the device with other programs from now on.
    pub fn guarded(self, guard: Option<Arc<Guard>>) -> Self {
        Self { guard, ..self }
    }

    /// Replaces it: it changed on the device while this mount had no change under way.
    pub fn set(&self, sb: Superblock) {
        let bytes = Box::new(sb.encode());
        *self.held.lock() = Held { sb, bytes };
    }

    /// Calls `f` with the superblock.
    pub fn read<R>(&self, f: impl FnOnce(&Superblock) -> R) -> R {
        f(&self.held.lock().sb)
    }

    /// Merges changes that another program made on the device, as the guard saw it last.
    pub fn take_over(&self) {
        if self.guard.is_some() {
            self.news(&mut self.held.lock());
        }
    }

    fn news(&self, held: &mut Held) {
        if self.guard.as_ref().is_some_and(|guard| guard.take_outside_change(&mut held.sb)) {
            *held.bytes = held.sb.encode();
        }
    }

    /// Changes it in memory and in its block (1 credit).
    pub fn update<R>(&self, h: &mut Handle, f: impl FnOnce(&mut Superblock) -> R) -> Result<R> {
        let (block, at) = self.geo.super_block();
        // Readers do not wait for the device, should the block not be in memory.
        let buf = h.journal().read(block).map_err(error::journal)?;
        let mut held = self.held.lock();
        self.news(&mut held);
        let mut changed = held.sb.clone();
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
        if let Some(guard) = &self.guard {
            guard.note_change(&held.bytes, &bytes);
        }
        *held = Held { sb: changed, bytes: Box::new(bytes) };
        Ok(result)
    }
}
