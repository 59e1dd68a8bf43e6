//! The passes of a check, in their order, on a volume that can be opened.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use extol_ondisk::{Incompat, InodeNr, RoCompat};

use crate::claims::Claims;
use crate::error::Result;
use crate::inodes::{Dir, Inodes};
use crate::report::{Counts, Finding, Findings, Kind};
use crate::vol::Vol;
use crate::{
    CheckOptions, Pass, Progress, bitmaps, connect, dirs, inode, journal, mmp, open, orphans,
    owners, paths, quota, resize_inode, scan, work, xattr,
};

/// Directories that one thread takes at once.
const DIRS_PER_PIECE: usize = 64;
/// Below so many inodes (by the descriptors) a second thread costs more than it saves.
const FEW_INODES: u64 = 20_000;

/// Runs all passes and returns the counts of what they read.
pub(crate) fn run(
    vol: &Vol,
    opts: &CheckOptions,
    out: &mut Findings,
    progress: &mut dyn FnMut(Progress),
) -> Result<Counts> {
    let threads = threads(vol, opts);
    let mut passes = Passes { vol, threads, out, progress, counts: Counts::default() };
    let claims = Claims::new(vol, passes.out)?;
    mmp::check(vol, &claims, passes.out)?;
    let scan = passes.inodes(&claims)?;
    let names = passes.directories(&scan)?;
    passes.links(&scan, &names)?;
    let free_blocks = passes.bitmaps(&claims, &scan.inodes)?;
    let Passes { out, mut counts, .. } = passes;
    journal::check(vol, out)?;
    orphans::check(vol, out)?;
    resize_inode::check(vol, out)?;
    quota::check(vol, &scan.usage, out)?;
    counts.blocks_total = vol.geo.blocks();
    counts.blocks = vol.geo.blocks().saturating_sub(free_blocks);
    counts.inodes_total = u64::from(vol.geo.inodes());
    if opts.paths && out.errors() > 0 {
        owners::add(vol, &scan.inodes, out)?;
        paths::add(vol, &scan.inodes, &scan.dirs, out.list_mut())?;
    }
    Ok(counts)
}

/// A check under way.
struct Passes<'a> {
    vol: &'a Vol,
    threads: usize,
    out: &'a mut Findings,
    progress: &'a mut dyn FnMut(Progress),
    counts: Counts,
}

/// What pass 1 gives to the later ones.
struct Scan {
    inodes: Inodes,
    dirs: Vec<Dir>,
    shared: xattr::Shared,
    usage: quota::Usage,
}

impl Passes<'_> {
    /// Does pieces `0..count` of a pass and reports its progress.
    fn pieces<T: Send>(
        &mut self,
        pass: Pass,
        count: usize,
        work: &(dyn Fn(usize) -> Result<T> + Sync),
    ) -> Result<Vec<T>> {
        work::pieces(self.threads, count, work, &mut |done| {
            (self.progress)(Progress::new(pass, done as u64, count as u64));
        })
    }

    /// Pass 1.
    fn inodes(&mut self, claims: &Claims) -> Result<Scan> {
        let (vol, max, groups) = (self.vol, self.out.max(), self.vol.geo.groups() as usize);
        let shared = Mutex::new(xattr::Shared::default());
        let check = inode::InodeCheck { vol, claims, shared: &shared, low_dtime: low_dtime(vol) };
        let scanned = self.pieces(Pass::Inodes, groups, &|g| scan::group(&check, g as u32, max))?;
        let (mut infos, mut dirs) = (Vec::with_capacity(scanned.len()), Vec::new());
        let mut usage = quota::Usage::default();
        let (mut large_file, mut large_dir) = (None, None);
        for group in scanned {
            infos.push(group.infos);
            dirs.extend(group.dirs);
            self.out.append(group.out);
            add(&mut self.counts, &group.counts);
            usage.add(group.usage);
            large_file = large_file.or(group.large_file);
            large_dir = large_dir.or(group.large_dir);
        }
        let shared = shared.into_inner().unwrap_or_else(PoisonError::into_inner);
        shared.finish(self.out);
        features(vol, large_file, large_dir, self.out);
        let inodes = Inodes::new(vol.geo.inodes_per_group, infos);
        if let Some(root) = inodes.get(InodeNr::ROOT.0) {
            root.parent.store(InodeNr::ROOT.0, Relaxed);
        }
        Ok(Scan { inodes, dirs, shared, usage })
    }

    /// Pass 2.
    fn directories(&mut self, scan: &Scan) -> Result<Vec<dirs::Read>> {
        let (vol, max) = (self.vol, self.out.max());
        let pieces: Vec<&[Dir]> = scan.dirs.chunks(DIRS_PER_PIECE).collect();
        let read = |n: usize| -> Result<Vec<dirs::Read>> {
            let piece = pieces.get(n).copied().unwrap_or_default();
            let policies = &scan.shared.policies;
            piece.iter().map(|dir| dirs::read(vol, &scan.inodes, policies, dir, max)).collect()
        };
        let read = self.pieces(Pass::Directories, pieces.len(), &read)?;
        let mut read: Vec<dirs::Read> = read.into_iter().flatten().collect();
        for dir in &mut read {
            self.counts.names += dir.names;
            self.out.append(std::mem::replace(&mut dir.out, Findings::new(0)));
        }
        Ok(read)
    }

    /// Passes 3 and 4.
    fn links(&mut self, scan: &Scan, names: &[dirs::Read]) -> Result<()> {
        (self.progress)(Progress::new(Pass::Links, 0, 1));
        connect::directories(&scan.inodes, names, self.out);
        connect::links(self.vol, &scan.inodes, &scan.shared.value_refs, self.out)?;
        (self.progress)(Progress::new(Pass::Links, 1, 1));
        Ok(())
    }

    /// Pass 5; returns the free blocks by the bitmaps.
    fn bitmaps(&mut self, claims: &Claims, inodes: &Inodes) -> Result<u64> {
        let (vol, max, groups) = (self.vol, self.out.max(), self.vol.geo.groups() as usize);
        let uninit = bitmaps::uninit_metadata(vol);
        let compared = self.pieces(Pass::Bitmaps, groups, &|g| {
            let mut own = Findings::new(max);
            let free = bitmaps::group(vol, claims, &uninit, inodes, g as u32, &mut own)?;
            Ok((free, own))
        })?;
        let (mut free_blocks, mut free_inodes) = (0, 0);
        for (free, own) in compared {
            free_blocks += free.clusters * u64::from(vol.geo.cluster_ratio);
            free_inodes += free.inodes;
            self.out.append(own);
        }
        open::totals(vol, free_blocks, free_inodes, self.out);
        Ok(free_blocks)
    }
}

/// Features that files need.
fn features(vol: &Vol, large_file: Option<u32>, large_dir: Option<u32>, out: &mut Findings) {
    if let Some(ino) = large_file
        && !vol.ro_compat(RoCompat::LARGE_FILE)
    {
        let what = "a file of 2 GiB and more, but the feature large_file is not set";
        out.push(Finding::error(Kind::FeatureMissing, what).inode(ino));
    }
    if let Some(ino) = large_dir
        && !vol.incompat(Incompat::LARGE_DIR)
    {
        let what = "a directory of 2 GiB and more, but the feature large_dir is not set";
        out.push(Finding::error(Kind::FeatureMissing, what).inode(ino));
    }
}

/// Deletion times that are inode numbers can only be told from times if the clock was right.
fn low_dtime(vol: &Vol) -> bool {
    // The low words, as e2fsck takes them.
    [vol.sb.wtime, vol.sb.mtime, vol.sb.mkfs_time]
        .iter()
        .map(|time| time & 0xFFFF_FFFF)
        .all(|time| time == 0 || time >= u64::from(vol.geo.inodes()))
}

fn threads(vol: &Vol, opts: &CheckOptions) -> usize {
    if opts.threads != 0 {
        return opts.threads.min(64);
    }
    let used: u64 = (0..vol.geo.groups()).map(|group| u64::from(vol.scanned_inodes(group))).sum();
    if used < FEW_INODES {
        return 1;
    }
    std::thread::available_parallelism().map_or(1, usize::from).min(2)
}

fn add(to: &mut Counts, more: &Counts) {
    to.inodes += more.inodes;
    to.directories += more.directories;
    to.files += more.files;
    to.symlinks += more.symlinks;
    to.specials += more.specials;
    to.orphans += more.orphans;
}
