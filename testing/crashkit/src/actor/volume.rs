//! What an actor does to the volume as a whole.

use extol::resize::{ResizeError, Target};
use extol::vfs::VolumeControl;
use extol::{FileSystem as _, FsError};

use super::{Actor, Done};

impl Actor {
    /// Changes mount options while the volume is mounted.
    pub fn remount(&mut self, options: &str) -> Done {
        let text = format!("remount with {options}");
        self.act(&text, |fs| Ok(fs.remount(options).map_err(|e| e.to_string())))?.transpose()?;
        self.history.quiet(text);
        Ok(())
    }

    /// Zeroes the next inode table that mkfs left as it was. False: there is none.
    pub fn zero_table(&mut self) -> Done<bool> {
        let group = self.act("zero an inode table", |fs| fs.init_itables_step())?.flatten();
        self.history.quiet(match group {
            Some(group) => format!("zero the inode table of group {group}"),
            None => "no inode table to zero".to_owned(),
        });
        Ok(group.is_some())
    }

    /// Moves everything that lies behind that many per cent of the volume in front of it. False:
    /// there is no room.
    pub fn vacate(&mut self, percent: u64) -> Done<bool> {
        let text = format!("move everything into the first {percent} %");
        let done = self.act(&text, |fs| {
            let blocks = fs.statfs()?.blocks;
            fs.vacate(blocks * percent / 100)
        })?;
        self.history.quiet(text);
        Ok(done.is_some())
    }

    /// Makes the volume so many blocks longer, as far as its device goes, unless another actor does
    /// so.
    pub fn grow(&mut self, blocks: u64) -> Done {
        let text = format!("grow by {blocks} blocks");
        self.act(&text, |fs| {
            let now = fs.stats();
            let bytes = (now.blocks + blocks) * u64::from(now.block_size);
            match VolumeControl::grow(&**fs, Some(bytes), None) {
                Ok(_) => Ok(()),
                // No other refusal is expected: the load must not do nothing. (Another actor may
                // have grown it meanwhile.)
                Err(e) if e.error == FsError::Busy => Ok(()),
                Err(e) if e.line.contains("device is too small") => Ok(()),
                Err(e) if e.line.contains("can only become larger") => Ok(()),
                Err(e) => Err(FsError::Io(e.line)),
            }
        })?;
        self.history.quiet(text);
        Ok(())
    }

    /// Makes the volume so many thousandths of what its device was at first, smaller or larger.
    /// False: what is in use does not fit.
    pub fn resize(&mut self, per_mille: u64) -> Done<bool> {
        let text = format!("resize to {per_mille} per mille");
        let device = self.device;
        let done = self.act(&text, |fs| {
            let blocks = device / u64::from(fs.block_size());
            let target = Target::Blocks(blocks * per_mille / 1000);
            let resized = fs.resize(target, &mut |_| true).map(Some);
            let resized = resized.or_else(|e| match e.cause() {
                ResizeError::TooSmall { .. } | ResizeError::NoRoom { .. } => Ok(None),
                ResizeError::Fs(e) => Err(e.clone()),
                e => Err(FsError::Io(e.to_string())),
            })?;
            Ok(resized)
        })?;
        let resized = done.flatten();
        self.history.quiet(text);
        // (A shrink closes the volume and opens it again.)
        if resized.is_some_and(|resized| resized.blocks < resized.before) {
            self.history.synced_all();
        }
        Ok(resized.is_some())
    }

    /// Gives all inodes behind that many per cent of the groups lower numbers. False: there is no
    /// room.
    pub fn renumber(&mut self, percent: u64) -> Done<bool> {
        let text = format!("all inodes into the first {percent} % of the groups");
        let done = self.act(&text, |fs| {
            let (groups, per_group) = fs.inode_groups();
            let limit = (groups * percent / 100).max(1) * per_group;
            fs.renumber(limit, &mut |_, _| true).map_err(|e| match e {
                ResizeError::Fs(e) => e,
                e if e.to_string().contains("are free in front") => FsError::NoSpace,
                e => FsError::corrupt(e.to_string()),
            })
        })?;
        self.history.quiet(text);
        Ok(done.is_some())
    }

    /// Moves a file into fewer pieces, if that can be.
    pub fn defragment(&mut self, path: &str) -> Done {
        let full = self.full(path);
        let text = format!("defragment {path}");
        self.act(&text, |fs| fs.defragment(fs.inode(&full)?.ino()))?;
        self.history.quiet(text);
        Ok(())
    }

    /// syncfs.
    pub fn syncfs(&mut self) -> Done {
        let done = self.act("syncfs", |fs| fs.sync())?;
        self.history.quiet("syncfs".to_owned());
        if done.is_some() {
            self.history.synced_all();
        }
        Ok(())
    }
}
