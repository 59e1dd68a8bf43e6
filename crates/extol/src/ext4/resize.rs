//! The volume becomes larger or smaller.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use extol_block::{BlockDevice, DeviceError, SharedDevice};
use extol_vfs::FsError;

use super::Ext4;
use super::reopen::for_a_mount;
use crate::guard::mmp::HeldClaim;
use crate::maintenance;
use crate::mount::{self, Purpose, close, dry_run};
use crate::mounted::MountedFs;
use crate::options::MountOptions;
use crate::resize::{self, Aim, Minimum, ResizeError, ResizeProgress, Resized, Target};

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
            self.open_again(&old)?;
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
    /// the old or the new size; so does a `progress` that returns false.
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
            (fs.vol.geo.blocks(), wish(&fs, target))
        };
        let mut blocks = before;
        let resized = match target {
            Target::Minimum => self.shrink(Aim::Least, &mut blocks, progress),
            _ if wished < before => self.shrink(Aim::Blocks(wished), &mut blocks, progress),
            target => {
                let grown = self.grow_alone(target, progress);
                blocks = self.fs().vol.geo.blocks();
                grown
            }
        };
        resized.map_err(|error| match error {
            error if blocks == before => error,
            error => ResizeError::Partly { error: Box::new(error), before, blocks },
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
        let resized = volume.shrink(Aim::Least, &mut 0, progress)?;
        let Resized { block_size, before, blocks, .. } = resized;
        volume.crash();
        Ok(Minimum { block_size, blocks: before, minimum: blocks })
    }

    /// `reached` becomes the blocks that the volume has after each cut.
    fn shrink(
        &self,
        aim: Aim,
        reached: &mut u64,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Resized, ResizeError> {
        let before = self.fs().vol.geo.blocks();
        let has_copy = resize::has_second_copy(&self.fs());
        let done = loop {
            let step = self.shrink_step(aim, reached, progress)?;
            let wish = if let Aim::Blocks(blocks) = aim { blocks } else { 0 };
            if step.blocks >= step.before || step.blocks <= wish {
                break Resized { before, ..step };
            }
        };
        if has_copy && done.blocks < before {
            self.place_second_copy()?;
        }
        Ok(done)
    }

    /// Groups have gone: the second copy of the superblock may have been in one of them.
    fn place_second_copy(&self) -> Result<(), ResizeError> {
        let old = Arc::clone(&self.fs());
        if maintenance::exclusively(&old, || resize::place_second_copy(&old))?? {
            let new = self.open_again(&old)?;
            resize::finish(&new)?;
        }
        Ok(())
    }

    /// One cut.
    fn shrink_step(
        &self,
        aim: Aim,
        reached: &mut u64,
        progress: &mut dyn FnMut(ResizeProgress) -> bool,
    ) -> Result<Resized, ResizeError> {
        let old = Arc::clone(&self.fs());
        old.operations.add();
        let (before, bits) = (old.vol.geo.blocks(), old.vol.geo.block_size.bits());
        let shrunk = || resize::shrink(&old, aim, progress);
        let cut = maintenance::exclusively(&old, shrunk)?;
        if let Err(ResizeError::Fs(e)) = &cut {
            let _ = old.note(Err::<(), _>(e.clone()));
        }
        let blocks = cut?.unwrap_or(before);
        let mut resized = Resized {
            block_size: old.vol.geo.block_size.bytes(),
            before,
            blocks,
            target: blocks,
            wished: blocks,
            device: old.vol.dev.size(),
            went_to_meta_bg: false,
        };
        if resized.blocks >= before {
            return Ok(resized);
        }
        *reached = blocks;
        let new = self.open_again(&old)?;
        resize::finish(&new)?;
        let (dev, bytes) = (&new.vol.dev, resized.blocks << bits);
        match dev.set_size(bytes.next_multiple_of(dev.alignment() as u64)) {
            Err(e) if !e.is_unsupported() => return Err(FsError::Io(e.to_string()).into()),
            _ => resized.device = dev.size(),
        }
        Ok(resized)
    }

    /// Closes the volume and opens it with the size that it has.
    fn open_again(&self, old: &Arc<MountedFs>) -> Result<Arc<MountedFs>, ResizeError> {
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
        let options = for_a_mount(old, old.options.lock().clone());
        let device = Arc::clone(&self.device);
        let opened = mount::open_claimed(Purpose::Use, device, &options, claim.as_ref());
        let (new, new_threads, _) =
            opened.map_err(|e| FsError::Io(format!("the volume cannot be opened again: {e}")))?;
        new.measuring.store(old.measuring.load(Ordering::Relaxed), Ordering::Relaxed);
        *threads = new_threads;
        stopped.replace(&new);
        Ok(new)
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
