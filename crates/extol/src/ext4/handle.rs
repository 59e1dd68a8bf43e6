//! What programs do with the handle beside the operations: open, close, remount, state and
//! switches.

use std::path::Path;
use std::sync::Arc;

use extol_block::open::{self, OpenName, Opened, Window};
use extol_block::{OpenOptions, SharedDevice};
use extol_vfs::{RemountError, Result};

use super::claim::{Claim, Closable};
use super::{Batch, Ext4};
use crate::error::OpenResult;
use crate::mount::{self, Purpose, close};
use crate::options::MountOptions;
use crate::remount;
use crate::services::lazy_init;
use crate::stats::Stats;

impl Ext4 {
    /// Opens a volume on any device. Recovers its journal and finishes orphans if needed. A device
    /// that is open for writing in this process, or open at all if this is to write, is busy; other
    /// processes are kept away by the locks of the device, if it has any.
    ///
    /// # Errors
    /// One line: not an ext4 volume, a feature that cannot be handled, a journal that cannot be
    /// recovered …
    pub fn open(device: SharedDevice, options: &MountOptions) -> OpenResult<Arc<Self>> {
        Ok(Arc::new(Self::opened(device, options)?))
    }

    fn opened(device: SharedDevice, options: &MountOptions) -> OpenResult<Self> {
        let claim = Claim::take(&device, !options.access.read_only)?;
        let (fs, threads, _) = mount::open(Purpose::Use, Arc::clone(&device), options)?;
        Ok(Self::new(device, &fs, threads, claim))
    }

    /// Opens a volume by the name that the commands take: a disk image, a block device, a
    /// partition of one (`disk.img:2`), a tag (`LABEL=data`), a qcow2 image (feature `formats`), an
    /// address (`nbd://host/export`, feature `network`). Refuses one that is mounted or open in
    /// another Extol.
    ///
    /// # Errors
    /// As [`open`](Self::open), and if the file cannot be opened, or has no such part.
    pub fn open_path(path: impl AsRef<Path>, options: &MountOptions) -> OpenResult<Arc<Self>> {
        let opened = open_device(path.as_ref(), options)?;
        let options = options.clone().for_opened(&opened);
        let closable = Arc::new(Closable::new(opened.device));
        let fs = Self::opened(closable.clone(), &options);
        let mut fs = fs.map_err(|error| error.of(path.as_ref()))?;
        fs.closable = Some(closable);
        Ok(Arc::new(fs))
    }

    /// Writes everything home, marks the volume clean, and closes the device if
    /// [`open_path`](Self::open_path) has opened it, also after an error. Afterwards changes fail
    /// with `ReadOnly`, and reads may fail. The second call does nothing and gives the result of
    /// the first. A mount of the volume by this process is to be ended before.
    ///
    /// # Errors
    /// If something could not be written; the volume then needs recovery, which the next mount
    /// does.
    pub fn unmount(&self) -> Result<()> {
        let mut slot = self.threads.lock();
        if let Some(mut threads) = slot.take() {
            let result = close::close(&self.fs(), &mut threads);
            drop(threads);
            self.give_up();
            return self.closed.get_or_init(|| result).clone();
        }
        self.closed.get().cloned().unwrap_or(Ok(()))
    }

    /// True once writes are refused (mounted `ro`, or after an error).
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.fs().check_writable().is_err()
    }

    /// Begins a batch: all changes from here on become durable by its commit, together or not at
    /// all. No other thread may use the volume meanwhile, fsync and its like fail with `Busy`, and
    /// what a file held before must not be overwritten.
    ///
    /// # Errors
    /// `NoJournal` if there is none; if the volume is read-only or has a batch.
    pub fn begin_batch(&self) -> Result<Batch<'_>> {
        Batch::begin(self)
    }

    /// Stops at once, as a power cut would: nothing more is written, not even a mark. For tests and
    /// examples of recovery.
    pub fn crash(&self) {
        let threads = self.threads.lock().take();
        close::crash(&self.fs(), threads);
        self.give_up();
    }

    /// Others may have the device.
    fn give_up(&self) {
        if let Some(device) = &self.closable {
            device.close();
        }
        drop(self.claim.lock().take());
    }

    /// True if an error has stopped the volume: it is read-only until a remount with `rw`.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.fs().is_stopped()
    }

    /// Changes mount options while the volume is open: the same names as for
    /// [`MountOptions::parse`], on top of those in force. Gives lines that the user should see.
    /// `ro` writes everything home and marks the volume clean. `rw` on a volume that an error has
    /// stopped opens it again, as an unmount and a mount would: what was acknowledged is there,
    /// what was only in memory is lost.
    ///
    /// # Errors
    /// One line, if an option is unknown, has a bad value or cannot change, or `ro` or `rw` is not
    /// possible now. Nothing has changed then.
    pub fn remount(&self, list: &str) -> std::result::Result<Vec<String>, RemountError> {
        let mut threads = self.threads.lock();
        let Some(threads) = &mut *threads else {
            return Err(RemountError("the volume was closed".into()));
        };
        let will_write = !self.is_read_only() || list.split(',').any(|word| word.trim() == "rw");
        self.claims(will_write).map_err(|error| RemountError(error.line()))?;
        let done = match self.reopen(threads, list) {
            Some(reopened) => reopened,
            None => remount::remount(&self.fs(), threads, list),
        };
        let _ = self.claims(!self.is_read_only());
        done
    }

    /// Claims the device as one that is written, or only read.
    fn claims(&self, writes: bool) -> OpenResult<()> {
        self.claim.lock().as_ref().map_or(Ok(()), |claim| claim.change(writes))
    }

    /// Lines that the user should see about this mount: what it does not do, and why.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.fs().notes.clone()
    }

    /// Size of a block in bytes.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.fs().vol.geo.block_size.bytes()
    }

    /// Bytes of the device, of which the volume may be a part.
    #[must_use]
    pub fn device_bytes(&self) -> u64 {
        self.fs().vol.dev.size()
    }

    /// The mount options as `/proc/mounts` shows them: `ro` or `rw`, the rule for access times, and
    /// what differs from the defaults of this volume.
    #[must_use]
    pub fn mount_options(&self) -> String {
        self.fs().mount_options()
    }

    /// All mount options in force, one word each, as `/proc/fs/ext4/<device>/options` shows them.
    #[must_use]
    pub fn options(&self) -> Vec<String> {
        self.fs().all_options()
    }

    /// State and counters.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats::of(&self.fs())
    }

    /// One step of lazy inode-table initialisation, at once: the table of the next group that was
    /// never zeroed is zeroed now. Returns that group's number; `None` if there is none, if
    /// `noinit_itable` is set, or if the volume is frozen or read-only. With
    /// [`threads`](crate::options::BackgroundOptions::threads) a background thread does this; it
    /// may be asked for all the same.
    ///
    /// # Errors
    /// Damaged metadata, a failing device. Nothing more is zeroed during this mount then.
    pub fn init_itables_step(&self) -> Result<Option<u32>> {
        Ok(lazy_init::step(&self.fs())?.map(|group| group.0))
    }

    /// True if an error asked for the end of the process (`errors=panic`).
    #[must_use]
    pub fn panic_wanted(&self) -> bool {
        self.fs().error_state.panic_wanted()
    }

    /// Stops the volume if its device was cut. For a caller that asks every second: no change finds
    /// that on a volume that is idle. Does no I/O unless it was.
    pub fn check_device(&self) {
        let fs = self.fs();
        if let Some(guard) = &fs.guard {
            guard.check_sizes();
            fs.heed_guard();
        }
    }

    /// The first error of the volume or its device since it was opened: damaged metadata, or a
    /// failure after which it became read-only.
    #[must_use]
    pub fn first_error(&self) -> Option<String> {
        self.fs().error_state.first()
    }
}

/// Opens the device of a volume as the options say.
fn open_device(path: &Path, options: &MountOptions) -> OpenResult<Opened> {
    let how =
        if options.access.read_only { OpenOptions::read_only() } else { OpenOptions::read_write() };
    let name = OpenName::parse(path, Window::default())?;
    Ok(open::open(&name, &how.direct(options.direct()))?)
}
