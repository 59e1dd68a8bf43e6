//! The volume becomes larger or smaller.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use extol_block::{BlockDevice, DeviceError, SharedDevice};
use extol_ondisk::Compat;
use extol_vfs::FsError;

use super::Ext4;
use super::reopen::for_a_mount;
use crate::error::{self, OpenError};
use crate::guard::mmp::HeldClaim;
use crate::maintenance;
use crate::mount::{self, Purpose, close, dry_run};
use crate::mounted::MountedFs;
use crate::ops::files;
use crate::options::MountOptions;
use crate::resize::{self, Aim, Minimum, Reached, ResizeError, ResizeProgress, Resized, Target};
use crate::superblock::read_superblock;

impl Ext4 {
    /// Makes the volume larger, while it may be in use. A disk image becomes longer with it; a disk
    /// must be large enough. Durable when this returns. A crash on the way leaves a sound volume
    /// of the old size or one in between; so does a `progress` that returns false.
    ///
    /// # Errors
    /// If the volume cannot have that size, the device cannot, or a write fails.
    pub fn grow(
        &self,
        target: Target,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Resized, ResizeError> {
        self.grow_as(resize::Growth::InUse, target, progress)
    }

    /// As that, for a volume that nothing else uses.
    fn grow_alone(
        &self,
        target: Target,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Resized, ResizeError> {
        let copy = self.fs().vol.geo.backup_bgs();
        let grown = self.grow_as(resize::Growth::Alone, target, progress);
        let old = Arc::clone(&self.fs());
        if grown.is_ok() && old.vol.geo.backup_bgs() != copy {
            self.open_again(&old, &|_| Ok(()))?;
        }
        grown
    }

    fn grow_as(
        &self,
        how: resize::Growth,
        target: Target,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Resized, ResizeError> {
        let fs = self.fs();
        fs.operations.add();
        let _open = fs.freeze_gate.enter()?;
        fs.check_writable()?;
        let dev = &*fs.vol.dev;
        let wished = wish(&fs, target);
        let blocks = resize::aim(&fs, wished)?;
        make_room(dev, blocks << fs.vol.geo.block_size.bits())?;
        let grown =
            resize::grow(&fs, how, blocks, progress).map(|grown| Resized { wished, ..grown });
        if let Err(ResizeError::Fs(e)) = &grown {
            let _ = fs.note(Err::<(), _>(e.clone()));
        }
        grown
    }

    /// As [`grow`](Self::grow), for a volume in use: for about `at_most`.
    pub(super) fn grow_in_use(
        &self,
        bytes: Option<u64>,
        at_most: Option<Duration>,
    ) -> Result<Resized, ResizeError> {
        let (blocks, size) = {
            let geo = &self.fs().vol.geo;
            (geo.blocks(), geo.block_size)
        };
        if bytes.is_some_and(|bytes| bytes >> size.bits() < blocks) {
            return Err(ResizeError::Refused(format!(
                "the volume has {blocks} blocks: while it is mounted it can only become larger"
            )));
        }
        let target = bytes.map_or(Target::Device, Target::Bytes);
        let began = Instant::now();
        self.grow(target, &mut |_| at_most.is_none_or(|most| began.elapsed() < most))
    }

    /// Makes the volume larger or smaller; nothing else may use it meanwhile. If it becomes
    /// smaller, what lies behind the new end moves, the volume is closed and opened again, and a
    /// disk image is cut; numbers of inodes may change. A crash on the way leaves a sound volume of
    /// the old or the new size; so does a `progress` that returns false. A disk image that a crash
    /// has left longer than its volume is cut when the same size is asked for again.
    ///
    /// # Errors
    /// As [`grow`](Self::grow), and if what is in use does not fit.
    pub fn resize(
        &self,
        target: Target,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Resized, ResizeError> {
        let (before, wished) = {
            let fs = self.fs();
            let (before, wished) = (fs.vol.geo.blocks(), wish(&fs, target));
            resize::clear_unused_journal(&fs)?;
            (before, wished)
        };
        let mut blocks = before;
        let resized = match target {
            Target::Minimum => self.shrink(Aim::Least, &mut blocks, progress),
            _ if wished < before => self.shrink(Aim::Blocks(wished), &mut blocks, progress),
            Target::Blocks(_) | Target::Bytes(_) if wished == before => {
                self.end_cut().map(|()| self.resized(before))
            }
            target => {
                let grown = self.grow_alone(target, progress);
                blocks = self.fs().vol.geo.blocks();
                grown
            }
        };
        resized.map_err(|error| {
            let error = match error {
                ResizeError::Fs(error) => ResizeError::Fs(self.fs().cause_of(error)),
                error => error,
            };
            match blocks == before {
                true => error,
                false => ResizeError::Partly { error: Box::new(error), before, blocks },
            }
        })
    }

    /// How small a volume can be: what [`Target::Minimum`] makes of it. Found by a resize in memory
    /// that copies no data; the device is only read.
    ///
    /// # Errors
    /// If the volume cannot be opened to write, or made smaller at all.
    pub fn minimum(
        device: &SharedDevice,
        options: &MountOptions,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Minimum, ResizeError> {
        let (device, options) = dry_run::in_memory_only(device, options)
            .map_err(|e| ResizeError::Refused(e.to_string()))?;
        let volume =
            Self::open(device, &options).map_err(|e| ResizeError::Refused(e.to_string()))?;
        volume.fs().measuring.store(true, Ordering::Relaxed);
        let is_unfinished =
            resize::has_unused_journal(&volume.fs())? || resize::has_old_copy(&volume.fs())?;
        resize::clear_unused_journal(&volume.fs())?;
        let resized = volume.shrink(Aim::Least, &mut 0, progress)?;
        let Resized { block_size, before, blocks, .. } = resized;
        volume.crash();
        Ok(Minimum { block_size, blocks: before, minimum: blocks.min(before), is_unfinished })
    }

    /// `reached` becomes the blocks that the volume has after each cut.
    fn shrink(
        &self,
        aim: Aim,
        reached: &mut u64,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Resized, ResizeError> {
        let before = self.fs().vol.geo.blocks();
        if self.needs_a_log(aim)? || resize::is_lent(&self.fs())? {
            resize::refuse_clusters(&self.fs())?;
            return self.shrink_with_lent_log(aim, reached, progress);
        }
        let has_copy = resize::has_second_copy(&self.fs());
        if resize::has_old_copy(&self.fs())? {
            self.end_cut()?;
        }
        loop {
            let step = self.shrink_step(aim, progress)?;
            let Some(step) = step.filter(|step| step.is_cut) else { break };
            *reached = step.blocks;
            self.open_cut()?;
            if matches!(aim, Aim::Blocks(wish) if step.blocks <= wish) {
                break;
            }
        }
        if has_copy && self.fs().vol.geo.blocks() < before {
            self.place_second_copy()?;
        }
        Ok(self.resized(before))
    }

    /// Groups have gone: the second copy of the superblock may have been in one of them.
    fn place_second_copy(&self) -> Result<(), ResizeError> {
        let old = Arc::clone(&self.fs());
        if maintenance::exclusively(&old, || resize::place_second_copy(&old))?? {
            self.open_again(&old, &|_| Ok(()))?;
            resize::finish(&self.fs())?;
        }
        Ok(())
    }

    /// True if the volume has no journal, and could be smaller.
    fn needs_a_log(&self, aim: Aim) -> Result<bool, ResizeError> {
        let fs = self.fs();
        if fs.vol.geo.compat().contains(Compat::HAS_JOURNAL) {
            return Ok(false);
        }
        fs.check_writable()?;
        let minimum = resize::least(&fs, 0)?;
        match aim {
            Aim::Blocks(blocks) if blocks < minimum => Err(ResizeError::TooSmall { minimum }),
            _ => Ok(true),
        }
    }

    /// As [`shrink`](Self::shrink), for a volume that gets a log for the time of it, or has got one
    /// from a run that was interrupted.
    fn shrink_with_lent_log(
        &self,
        aim: Aim,
        reached: &mut u64,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Resized, ResizeError> {
        let before = self.fs().vol.geo.blocks();
        if !self.fs().vol.journal.has_log() {
            let lent = self.lend_log(aim, progress);
            *reached = self.fs().vol.geo.blocks();
            match lent {
                Err(ResizeError::NoRoom { .. }) if aim == Aim::Least => {
                    return Ok(self.resized(before));
                }
                lent => lent?,
            }
        }
        let mut end = None;
        let done = self.shrink_to_lent_log(aim, (reached, &mut end), progress);
        if let Err(ResizeError::Fs(_)) = done {
            return done.map(|()| self.resized(before));
        }
        // (Nothing was reached: as before, if nothing has moved behind the log.)
        let Some(end) = end.map_or_else(|| resize::tail(&self.fs()), |end| Ok(Some(end)))? else {
            return done.and_then(|()| {
                Err(ResizeError::Refused(
                    "stopped: the volume has a journal until it is made smaller again".into(),
                ))
            });
        };
        self.take_log_back(end)?;
        *reached = end;
        done?;
        self.end_at(aim, before, progress)?;
        *reached = self.fs().vol.geo.blocks();
        Ok(self.resized(before))
    }

    /// Lends a log to the volume.
    fn lend_log(
        &self,
        aim: Aim,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<(), ResizeError> {
        if let Some(blocks) = resize::size_with_room(&self.fs())? {
            if !self.would_shrink(aim, progress)? {
                let what = "there is no room for a log";
                return Err(ResizeError::NoRoom { what, blocks: self.fs().vol.geo.blocks() });
            }
            self.grow(Target::Blocks(blocks), progress)?;
        }
        let old = Arc::clone(&self.fs());
        old.operations.add();
        self.open_again(&old, &resize::lend_log)
    }

    /// True if a copy of the volume in memory becomes smaller.
    fn would_shrink(
        &self,
        aim: Aim,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<bool, ResizeError> {
        let old = Arc::clone(&self.fs());
        if old.measuring.load(Ordering::Relaxed) {
            return Ok(true);
        }
        let before = old.vol.geo.blocks();
        files::sync_now(&old)??;
        old.vol.journal.checkpoint_all(&[]).map_err(error::journal)?;
        let options = for_a_mount(&old, old.options.lock().clone());
        let refused = |e: OpenError| ResizeError::Refused(e.line());
        let (device, options) = dry_run::in_memory_only(&self.device, &options).map_err(refused)?;
        let copy = Self::open(device, &options).map_err(refused)?;
        copy.fs().measuring.store(true, Ordering::Relaxed);
        let resized = copy.shrink(aim, &mut 0, progress);
        copy.crash();
        Ok(resized?.blocks < before)
    }

    /// Takes the log back, and ends the volume there.
    fn take_log_back(&self, end: u64) -> Result<(), ResizeError> {
        let old = Arc::clone(&self.fs());
        old.operations.add();
        maintenance::exclusively(&old, || resize::swallow(&old, end))??;
        self.open_again(&old, &|dev| resize::take_back(dev, end))?;
        self.cut_device()?;
        resize::finish(&self.fs())
    }

    /// Grows to a size that was asked for, if the log had no room between that and the end of the
    /// block group.
    fn end_at(
        &self,
        aim: Aim,
        before: u64,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<(), ResizeError> {
        let blocks = self.fs().vol.geo.blocks();
        match aim {
            Aim::Blocks(wish) if blocks < wish && wish <= before => {
                self.grow_alone(Target::Blocks(wish), progress).map(drop)
            }
            Aim::Blocks(wish) if blocks > wish && blocks < before => Err(ResizeError::NoRoom {
                what: "a log finds no room behind the end",
                blocks: wish,
            }),
            _ => Ok(()),
        }
    }

    /// Moves all that it can in front of the log. `end`: where the volume could end by now.
    fn shrink_to_lent_log(
        &self,
        aim: Aim,
        (reached, end): (&mut u64, &mut Option<u64>),
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<(), ResizeError> {
        while let Some(step) = self.shrink_step(aim, progress)? {
            if step.blocks < self.fs().vol.geo.blocks() {
                *end = Some(step.blocks);
            }
            if !step.is_cut {
                break;
            }
            self.open_cut()?;
            *reached = self.fs().vol.geo.blocks();
        }
        Ok(())
    }

    /// One cut, or what leads to it.
    fn shrink_step(
        &self,
        aim: Aim,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Option<Reached>, ResizeError> {
        let old = Arc::clone(&self.fs());
        old.operations.add();
        let shrunk = || resize::shrink(&old, aim, progress);
        let step = maintenance::exclusively(&old, shrunk)?;
        if let Err(ResizeError::Fs(e)) = &step {
            let _ = old.note(Err::<(), _>(e.clone()));
        }
        step
    }

    /// Opens the volume with the size that it has now, and ends the cut.
    fn open_cut(&self) -> Result<(), ResizeError> {
        let old = Arc::clone(&self.fs());
        self.open_again(&old, &|_| Ok(()))?;
        self.cut_device()?;
        resize::finish(&self.fs())
    }

    /// What may be left of a cut that a crash has interrupted.
    fn end_cut(&self) -> Result<(), ResizeError> {
        let fs = self.fs();
        fs.check_writable()?;
        self.cut_device()?;
        if resize::has_old_copy(&fs)? { resize::finish(&fs) } else { Ok(()) }
    }

    /// Cuts a disk image where the volume ends. The copies follow it: while they are old, it may be
    /// longer (`resize::has_old_copy`).
    fn cut_device(&self) -> Result<(), ResizeError> {
        let fs = self.fs();
        let (dev, bytes) = (&fs.vol.dev, fs.vol.geo.blocks() << fs.vol.geo.block_size.bits());
        match dev.set_size(bytes.next_multiple_of(dev.alignment() as u64)) {
            Err(e) if !e.is_unsupported() => Err(FsError::Io(e.to_string()).into()),
            _ => Ok(()),
        }
    }

    /// What there is, on a volume that became smaller.
    fn resized(&self, before: u64) -> Resized {
        let fs = self.fs();
        let blocks = fs.vol.geo.blocks();
        Resized {
            block_size: fs.vol.geo.block_size.bytes(),
            before,
            blocks,
            target: blocks,
            wished: blocks,
            device: fs.vol.dev.size(),
            went_to_meta_bg: false,
        }
    }

    /// Closes the volume, does something to it, and opens it as it is then.
    fn open_again(
        &self,
        old: &Arc<MountedFs>,
        change: &dyn Fn(&SharedDevice) -> Result<(), ResizeError>,
    ) -> Result<(), ResizeError> {
        let mut threads = self.threads.lock();
        let (Some(threads), Some(mut stopped)) = (&mut *threads, self.current.stop_all()) else {
            return Err(FsError::Busy.into());
        };
        // (With multi-mount protection a claim of one's own is waited for once.)
        let claim = threads.mmp.take();
        let closed = close::close(old, threads);
        let claim = match closed {
            Ok(()) => claim.map(HeldClaim::hand_over),
            Err(e) => {
                if let Some(claim) = claim {
                    claim.release();
                }
                return Err(e.into());
            }
        };
        let changed = change(&self.device);
        let options = self.options_again(old)?;
        let device = Arc::clone(&self.device);
        let opened = mount::open_claimed(Purpose::Use, device, &options, claim.as_ref());
        let (new, new_threads, _) =
            opened.map_err(|e| FsError::Io(format!("the volume cannot be opened again: {e}")))?;
        new.measuring.store(old.measuring.load(Ordering::Relaxed), Ordering::Relaxed);
        *threads = new_threads;
        stopped.replace(&new);
        changed
    }

    /// The options in force, for the volume as it is now.
    fn options_again(&self, old: &MountedFs) -> Result<MountOptions, ResizeError> {
        let mut options = for_a_mount(old, old.options.lock().clone());
        let sb = read_superblock(&*self.device, options.access.superblock)
            .map_err(|e| FsError::Io(e.line()))?;
        if !sb.feature_compat.contains(Compat::HAS_JOURNAL) {
            // (The volume may have had one.)
            options.journal.data_mode = None;
            options.journal.async_commit = false;
            options.journal.checksum = false;
            options.journal.async_checkpoint = None;
        }
        Ok(options)
    }
}

/// The blocks that the volume is to have.
fn wish(fs: &MountedFs, target: Target) -> u64 {
    let (dev, bits) = (&*fs.vol.dev, fs.vol.geo.block_size.bits());
    match target {
        Target::Blocks(blocks) => blocks,
        Target::Bytes(bytes) => bytes >> bits,
        Target::Device => dev.size_now().max(dev.size()) >> bits,
        Target::Minimum => 0,
    }
}

/// Makes sure that the device has so many bytes.
fn make_room(dev: &dyn BlockDevice, bytes: u64) -> Result<(), ResizeError> {
    if dev.size() >= bytes {
        return Ok(());
    }
    let whole = bytes.next_multiple_of(dev.alignment() as u64);
    dev.set_size(whole).map_err(|e: DeviceError| {
        if e.is_unsupported() {
            ResizeError::Refused(format!(
                "the device is too small: {bytes} bytes are needed, and {}",
                e.source
            ))
        } else {
            ResizeError::Fs(FsError::Io(e.to_string()))
        }
    })
}
