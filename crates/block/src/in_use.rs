//! Which devices are open in this process.
//!
//! A file or a disk of the host is locked when it is opened. A device of the program's own is not:
//! two volumes on it would each write what they know, and lose what the other has acknowledged, and
//! a new volume would take the place of one that is in use. So one that is open for writing is open
//! once, whatever has opened it.
//!
//! Invariant
//! - CM-1: a device is in the list as often as it is open: a [`Claim`] is in it from its making to
//!   its drop, and is dropped behind the last write of its owner.

use std::io;

use extol_sync::plain::Mutex;

use crate::BlockDevice;

/// A device that is open.
#[derive(Debug)]
struct Open {
    /// Of the claim.
    nr: u64,
    /// What tells the device from others: its address, or that of the object that it shows.
    object: usize,
    writes: bool,
}

#[derive(Debug)]
struct List {
    newest: u64,
    open: Vec<Open>,
}

static LIST: Mutex<List> = Mutex::new(List { newest: 0, open: Vec::new() });

/// The device is open for writing in this process, or open at all where it was to be written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InUse;

impl std::fmt::Display for InUse {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the device is open in this process already: close its volume first")
    }
}

impl std::error::Error for InUse {}

impl From<InUse> for io::Error {
    fn from(error: InUse) -> Self {
        Self::new(io::ErrorKind::ResourceBusy, error)
    }
}

impl List {
    /// Fails if the device is open for writing, or open at all if this claim is to write.
    fn check(&self, nr: u64, object: usize, writes: bool) -> Result<(), InUse> {
        let is_other = |open: &Open| open.nr != nr && open.object == object;
        match self.open.iter().any(|open| is_other(open) && (writes || open.writes)) {
            true => Err(InUse),
            false => Ok(()),
        }
    }
}

/// A device is open in this process, until this is dropped.
#[derive(Debug)]
pub struct Claim(u64);

impl Claim {
    /// Takes the device, for writing or for reading alone.
    ///
    /// # Errors
    /// The device is open for writing, or open at all if this is to write.
    pub fn take(device: &dyn BlockDevice, writes: bool) -> Result<Self, InUse> {
        let object = device.object().unwrap_or_else(|| std::ptr::from_ref(device).addr());
        let mut list = LIST.lock();
        list.newest += 1;
        let nr = list.newest;
        list.check(nr, object, writes)?;
        list.open.push(Open { nr, object, writes });
        Ok(Self(nr))
    }

    /// Changes whether its owner writes.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub fn change(&self, writes: bool) -> Result<(), InUse> {
        let mut list = LIST.lock();
        let Some(at) = list.open.iter().position(|open| open.nr == self.0) else { return Ok(()) };
        list.check(self.0, list.open[at].object, writes)?;
        list.open[at].writes = writes;
        Ok(())
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        LIST.lock().open.retain(|open| open.nr != self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemDevice;

    #[test]
    fn a_writer_is_alone() {
        let (one, other) = (MemDevice::new(4096), MemDevice::new(4096));
        let reader = Claim::take(&one, false).unwrap();
        let second = Claim::take(&one, false).unwrap();
        assert_eq!(Claim::take(&one, true).unwrap_err(), InUse);
        assert_eq!(reader.change(true), Err(InUse));
        drop(second);
        reader.change(true).unwrap();
        assert_eq!(Claim::take(&one, false).unwrap_err(), InUse);
        Claim::take(&other, true).unwrap();
        drop(reader);
        Claim::take(&one, true).unwrap();
    }
}
