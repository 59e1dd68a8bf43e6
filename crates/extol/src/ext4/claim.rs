//! Which devices are open in this process, and the device of a volume that is closed with it.
//!
//! A file or a disk of the host is locked when it is opened. A device of the program's own is not:
//! two volumes on it would each write what they know, and lose what the other has acknowledged. So
//! one that is open for writing is open once.
//!
//! A handle may outlive its volume: open files keep it. The device that [`Ext4::open_path`] has
//! opened must not stay locked for that long, so the volume has it through a [`Closable`], which
//! gives it up when the volume is closed.
//!
//! Invariant
//! - CM-1: a device is in the list as often as it is open: a [`Claim`] is in it from its making to
//!   its drop, and is dropped behind the last write of the volume (`Ext4::unmount`).
//!
//! [`Ext4::open_path`]: super::Ext4::open_path

use std::io;
use std::sync::Arc;

use extol_block::{BlockDevice, DeviceError, DeviceOp, Result as DeviceResult, SharedDevice};
use extol_sync::plain::{Mutex, RwLock};

use crate::error::{OpenError, OpenResult};

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

impl List {
    /// Fails if the device is open for writing, or open at all if this claim is to write.
    fn check(&self, nr: u64, object: usize, writes: bool) -> OpenResult<()> {
        let is_other = |open: &Open| open.nr != nr && open.object == object;
        match self.open.iter().any(|open| is_other(open) && (writes || open.writes)) {
            true => Err(OpenError::busy("the device is open in this process already")),
            false => Ok(()),
        }
    }
}

/// A device is open in this process.
#[derive(Debug)]
pub(super) struct Claim(u64);

impl Claim {
    /// Fails if the device is open for writing, or open at all if this is to write.
    pub fn take(device: &SharedDevice, writes: bool) -> OpenResult<Self> {
        let object = device.object().unwrap_or_else(|| Arc::as_ptr(device).addr());
        let mut list = LIST.lock();
        list.newest += 1;
        let nr = list.newest;
        list.check(nr, object, writes)?;
        list.open.push(Open { nr, object, writes });
        Ok(Self(nr))
    }

    /// Changes whether it writes; fails as [`take`](Self::take).
    pub fn change(&self, writes: bool) -> OpenResult<()> {
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

/// A device that is given up when its volume is closed.
#[derive(Debug)]
pub(super) struct Closable(RwLock<SharedDevice>);

impl Closable {
    pub fn new(device: SharedDevice) -> Self {
        Self(RwLock::new(device))
    }

    /// Gives the device up. It is closed when requests that are under way have ended.
    pub fn close(&self) {
        let mut device = self.0.write();
        *device = Arc::new(Closed { size: device.size() });
    }

    fn device(&self) -> SharedDevice {
        Arc::clone(&self.0.read())
    }
}

impl BlockDevice for Closable {
    extol_block::pass_on!(me => me.device(); shape, abilities, reads, writes, ends, length);
}

/// What is left of it.
#[derive(Debug)]
struct Closed {
    size: u64,
}

impl Closed {
    fn refuse<T>(op: DeviceOp, offset: u64, len: u64) -> DeviceResult<T> {
        Err(DeviceError::new(op, offset, len, io::Error::other("the volume is closed")))
    }
}

impl BlockDevice for Closed {
    fn size(&self) -> u64 {
        self.size
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn make_writable(&self) -> DeviceResult<()> {
        Self::refuse(DeviceOp::Open, 0, 0)
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> DeviceResult<()> {
        Self::refuse(DeviceOp::Read, offset, buf.len() as u64)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> DeviceResult<()> {
        Self::refuse(DeviceOp::Write, offset, buf.len() as u64)
    }

    fn flush(&self) -> DeviceResult<()> {
        Self::refuse(DeviceOp::Flush, 0, 0)
    }
}
