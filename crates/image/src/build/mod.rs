//! Builds a volume with files in it, without mounting anything: the layout of a file system that
//! was written once.
//!
//! ```text
//!  Source ─ list ─► Tree ─ needs ─► layout ─ data pass ─► metadata ─► superblock
//!                    │              (directories, links,   (directories, maps,
//!                    │               attributes)            inodes, bitmaps)
//!                    ╰─ measure: reads the data as well ─► the smallest size
//! ```
//!
//! The volume is mkfs's, with the same options: its plan is made with the tree's inodes in it. Then
//! each file gets its blocks in the order of the tree, in one piece where that is possible, while
//! its data is read and written. Metadata is written last, once, and blocks that would be zeros
//! never.
//!
//! - IB-2: a block of zeros is a hole, whatever the source's own holes are.
//! - IB-5: the tree of a file of fs-verity is made of what is on the volume, not of what the source
//!   gives when it is read again.
//! - IB-3: inode numbers and blocks of data ascend in the order of the tree.
//! - IB-4: the old superblock is wiped first, the new one is written last, behind a flush.
//!
//! IB-1 is in `digest.rs`.

mod digest;
mod dirs;
mod gaps;
mod layout;
mod maps;
mod measure;
mod needs;
mod pipeline;
#[cfg(test)]
mod tests;
mod verity;
mod write;
mod xattrs;

use crate::edits::{Edits, Owner};
use crate::error::{BuildError, Result, shown};
use crate::mkfs::config::Config;
use crate::mkfs::features::Features;
use crate::mkfs::inodes::lost_and_found_blocks;
use crate::mkfs::plan::{Contents, Plan};
use crate::mkfs::quota::Usage;
use crate::mkfs::{self, MkfsOptions, MkfsProgress, Stage, Summary};
use crate::source::Source;
use crate::tree::{Kind, Limits, NodeId, TimesId, Tree, TreeBuilder, XattrSetId};
use digest::Content;
use extol_block::BlockDevice;
use extol_ondisk::superblock::uuid_text;
use extol_ondisk::{Incompat, RoCompat, Time};
use layout::{Full, Layout};
use needs::Needs;
use pipeline::{DataRun, Sink};
use std::ops::{ControlFlow, Range};

pub use measure::{Measured, measure};

/// How large a volume is.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
#[non_exhaustive]
pub enum SizeWish {
    /// What the options of mkfs say, or the device.
    #[default]
    Given,
    /// As large as its files need, and so much more. Blocks have 4096 bytes then, nothing is
    /// reserved for root, the log is small, and there are as many inodes as files, if options do
    /// not say otherwise.
    AsNeeded(Free),
}

/// Space that is left free.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Free {
    /// In percent of what the files need.
    Percent(f64),
    /// In bytes.
    Bytes(u64),
}

/// How a volume is built.
#[derive(Clone, Debug, Default)]
pub struct BuildOptions {
    /// Options of mkfs. Of those that are random by default (UUID, hash seed) and the time, each
    /// that is not given comes from the files.
    pub mkfs: MkfsOptions,
    /// How large it is.
    pub size: SizeWish,
    /// What is changed of what the source says.
    pub edits: Edits,
    /// What the source may have at most.
    pub limits: Limits,
    /// Times of last access, of the last change of the inode and of creation are kept where the
    /// source states them. Without it they are those of the contents.
    pub keep_times: bool,
    /// Threads that read and write; 0: as many as suit the machine.
    pub threads: usize,
    /// The time of the making, in seconds since 1970. Default: that of the newest file.
    pub source_date_epoch: Option<u64>,
}

/// What is being done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BuildStage {
    /// Reading the files to see how large the volume must be (in bytes).
    Measure,
    /// Copying the files (in bytes).
    Data,
    /// Making the trees of files of fs-verity (in bytes of these).
    Verity,
    /// Writing directories and inodes (in files).
    Metadata,
    /// A stage of mkfs.
    Mkfs(Stage),
}

impl BuildStage {
    /// The stage of a pass over the data: without a device it only measures.
    fn of_data(device: Option<&dyn BlockDevice>) -> Self {
        if device.is_some() { Self::Data } else { Self::Measure }
    }
}

impl std::fmt::Display for BuildStage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Measure => f.write_str("measuring files"),
            Self::Data => f.write_str("copying files"),
            Self::Verity => f.write_str("hashing files"),
            Self::Metadata => f.write_str("writing directories and inodes"),
            Self::Mkfs(stage) => stage.fmt(f),
        }
    }
}

/// How far a stage is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuildProgress {
    /// What is being done.
    pub stage: BuildStage,
    /// How much of it is done.
    pub done: u64,
    /// How much there is to do.
    pub total: u64,
}

/// A volume that was built.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Built {
    /// The volume.
    pub volume: Summary,
    /// Files, the root directory and a lost+found of the source among them.
    pub files: u64,
    /// Bytes in all regular files, holes included.
    pub bytes: u64,
    /// Bytes of data that were written; in a dry run those that would be.
    pub data: u64,
    /// What was taken in another way than the source says, one line each.
    pub notes: Vec<String>,
}

/// Told of progress; it may stop the work.
pub type Progress<'a> = &'a mut dyn FnMut(BuildProgress) -> ControlFlow<()>;

/// Lists a source, and changes what the options say.
///
/// # Errors
/// What cannot be read or taken, limits.
pub fn list(source: &mut dyn Source, options: &BuildOptions) -> Result<Tree> {
    let mut tree = TreeBuilder::new(options.limits);
    source.scan(&mut tree)?;
    let root = tree.meta_mut(NodeId::ROOT);
    let extended = &options.mkfs.extended;
    root.mode = extended.root_perms.unwrap_or(root.mode);
    for id in tree.live() {
        let meta = tree.meta_mut(id);
        if !options.keep_times {
            meta.times = TimesId::NONE;
        }
        if extended.no_copy_xattrs {
            meta.xattrs = XattrSetId::NONE;
        }
    }
    if let Some(label) = &extended.root_selinux {
        let name: &[u8] = b"security.selinux";
        let mut set = tree.xattr_set(tree.node(NodeId::ROOT).meta.xattrs).clone();
        set.retain(|(other, _)| **other != *name);
        set.push((name.into(), [label, &b"\0"[..]].concat().into()));
        let set = tree.xattrs(set)?;
        tree.meta_mut(NodeId::ROOT).xattrs = set;
    }
    let (uid, gid) = extended.root_owner.unzip();
    options.edits.apply(&mut tree, Owner { uid, gid })?;
    Ok(tree.finish())
}

/// Builds a volume on `device` from all that a source has. All contents of the device are lost.
///
/// # Errors
/// Options that make no sense, a source that cannot be read or taken, a device that is too small or
/// fails. The device holds no file system then, if anything was written.
pub fn build(
    device: &dyn BlockDevice,
    source: &mut dyn Source,
    options: &BuildOptions,
    progress: Progress<'_>,
) -> Result<Built> {
    let tree = list(source, options)?;
    let measured = match options.size {
        SizeWish::Given => None,
        SizeWish::AsNeeded(_) => Some(measure(source, &tree, options, progress)?),
    };
    build_tree(device, source, &tree, measured.as_ref(), options, progress)
}

/// Builds a volume from a listed source. `measured` has the size, if that is as the files need.
/// With `dry_run` in the options of mkfs it reads everything and writes nothing.
///
/// # Errors
/// As [`build`].
pub fn build_tree(
    device: &dyn BlockDevice,
    source: &dyn Source,
    tree: &Tree,
    measured: Option<&Measured>,
    options: &BuildOptions,
    progress: Progress<'_>,
) -> Result<Built> {
    if options.mkfs.only_superblocks {
        return Err(BuildError::Refused("-S writes no files: leave out -S or -d".into()));
    }
    let tested = mkfs::tested(device, &options.mkfs, &mut |p: MkfsProgress| {
        let stage = BuildStage::Mkfs(p.stage);
        let _ = progress(BuildProgress { stage, done: p.done, total: p.total });
    })?;
    let options = &BuildOptions { mkfs: tested, ..options.clone() };
    let wanted = wanted(options, tree, measured.map(|m| m.bytes));
    let size = wanted.size.unwrap_or_else(|| device.size());
    let too_small = |block_len| match measure::smallest(source, tree, options, block_len) {
        Ok(needed) => BuildError::TooSmall { size, needed },
        Err(error) => error,
    };
    let given = options.mkfs.inodes;
    let prepared = Prepared::new(wanted.clone(), tree, device.size(), given);
    let Prepared { mkfs, plan, needs, content } = match prepared {
        // Inodes for all files may not fit into a volume that options alone allow.
        Err(BuildError::Refused(_)) if given.is_none() => {
            match Config::new(&wanted, device.size()) {
                Ok(config) if config.inodes < tree.len() as u64 => {
                    return Err(too_small(config.block_size));
                }
                _ => prepared?,
            }
        }
        prepared => prepared?,
    };
    let block_len = plan.geo.block_size.bytes();
    let geo = plan.geo.clone();
    let layout = match lay_out(&plan, tree, &needs) {
        Ok(layout) => layout,
        Err(Full) => return Err(too_small(block_len)),
    };
    let told = &mut |p: MkfsProgress| {
        // mkfs's stages are short: only the passes over files can be stopped.
        let _ = progress(BuildProgress {
            stage: BuildStage::Mkfs(p.stage),
            done: p.done,
            total: p.total,
        });
    };
    // A dry run reads everything, so that what it says is what a build does.
    let target = (!mkfs.dry_run).then_some(device);
    let out = match target {
        Some(device) => Some(mkfs::write::begin(&plan, device, &mkfs, told)?),
        None => None,
    };
    let mut placing = Placing { layout, tree, content, geo: &geo, full: false };
    let threads = threads(options.threads);
    let passed =
        pipeline::run(tree, source, geo.block_len(), threads, &mut placing, target, progress);
    let Placing { layout, mut content, full, .. } = placing;
    if full {
        return Err(too_small(block_len));
    }
    let data = passed?;
    if let Some(measured) = measured
        && measured.content != content.uuid()
    {
        return Err(BuildError::Changed { entry: "the source".into() });
    }

    content.volume(&plan.sb);
    // The same plan with the UUID that was not known before.
    let mkfs = match mkfs.uuid {
        Some(_) => MkfsOptions { uuid: Some(uuid_text(&plan.sb.uuid)), ..mkfs },
        None => MkfsOptions { uuid: Some(uuid_text(&content.uuid())), ..mkfs },
    };
    let config = Config::new(&mkfs, device.size())?;
    let owners = owners(&config, tree);
    let mut plan = Plan::new(&mkfs, config, Contents::Files(&owners))?;
    plan.space = layout.space().clone();
    plan.last_inode = needs.last_inode();
    count_directories(&mut plan, tree, &needs);
    plan.count_free();
    let Some(mut out) = out else {
        return Ok(built(tree, &needs, Summary::of_plan(&plan), data));
    };
    out.bytes += data + verity::write(device, tree, &layout, &geo, progress)?;
    write_metadata(&mut plan, &mut out, tree, &needs, &layout, &mkfs, progress)?;
    Ok(built(tree, &needs, Summary::of_plan(&plan), data))
}

fn built(tree: &Tree, needs: &Needs, volume: Summary, data: u64) -> Built {
    let (notes, more) = tree.notes();
    let mut notes: Vec<String> =
        notes.iter().map(|note| format!("{}: {}", note.entry, note.what)).collect();
    if more > 0 {
        notes.push(format!("{more} more entries were taken in another way than the source says"));
    }
    notes.extend(needs.notes.iter().cloned());
    notes.extend(clamped(tree, volume.inode_size));
    Built { volume, files: tree.len() as u64, bytes: bytes(tree), data, notes }
}

/// What is to be said of times that an inode of this size cannot hold.
fn clamped(tree: &Tree, inode_size: u16) -> Option<String> {
    let (last, until) = match inode_size {
        128 => (i64::from(i32::MAX), "2038-01-19"),
        _ => (Time::MAX_SEC, "2446-05-10"),
    };
    let fits = |sec: i64| (Time::MIN_SEC..=last).contains(&sec);
    let mut all = tree.nodes().filter(|(_, node)| !fits(node.meta.mtime.sec)).map(|(id, _)| id);
    let first = all.next()?;
    let others = match all.count() {
        0 => String::new(),
        more => format!(" (and of {more} more)"),
    };
    Some(format!(
        "{}: its time{others} is not between 1901-12-13 and {until}: the nearest one is taken",
        shown(&tree.path(first))
    ))
}

/// Bytes in all regular files.
fn bytes(tree: &Tree) -> u64 {
    let sizes = tree.nodes().map(|(_, node)| match node.kind {
        Kind::File { size, .. } => size,
        _ => 0,
    });
    sizes.fold(0, u64::saturating_add)
}

/// Threads for a pass over data: some of them wait for the medium.
fn threads(asked: usize) -> usize {
    /// Each has a buffer.
    const MOST: usize = 8;
    match asked {
        0 => std::thread::available_parallelism().map_or(4, |n| n.get().clamp(4, MOST)),
        n => n.min(MOST),
    }
}

/// Options of mkfs with everything in them that does not come from the clock or at random.
fn wanted(options: &BuildOptions, tree: &Tree, size: Option<u64>) -> MkfsOptions {
    // Room for the transaction of a growth with as many reserved descriptor blocks as there can be.
    const SMALL_LOG: u32 = 4352;
    let mut mkfs = options.mkfs.clone();
    let newest = tree.nodes().map(|(_, node)| node.meta.mtime.sec).max().unwrap_or_default();
    let now = options.source_date_epoch.or(mkfs.now);
    mkfs.now = Some(now.unwrap_or(u64::try_from(newest).unwrap_or_default()));
    mkfs.signed_hash = Some(true);
    mkfs.journal.required |= Features::name_journal(&mkfs.features);
    if tree.nodes().any(|(_, node)| matches!(node.kind, Kind::File { size, .. } if size >> 31 != 0))
    {
        mkfs.features.push("large_file".into());
    }
    if tree.nodes().any(|(_, node)| node.meta.verity) {
        mkfs.features.push("verity".into());
    }
    if let SizeWish::AsNeeded(free) = options.size {
        mkfs.size = size.or(mkfs.size);
        mkfs.journal.most_blocks = Some(SMALL_LOG);
        mkfs.reserved_percent.get_or_insert(0.0);
        if mkfs.bytes_per_inode.is_none() {
            let inodes = inodes_with(free, tree.len() as u64);
            mkfs.inodes.get_or_insert(inodes);
        }
        let chosen = mkfs.usage.is_some()
            || mkfs.least_block_size.is_some()
            || mkfs.journal.device.is_some();
        if !chosen {
            mkfs.block_size.get_or_insert(4096);
        }
    }
    mkfs
}

/// As many bytes of free space as mkfs gives an inode for.
const INODE_PER: u64 = 16384;

/// Inodes for so many files, and for those that fit into the free space.
fn inodes_with(free: Free, files: u64) -> u64 {
    let used = files + 16;
    used.saturating_add(match free {
        Free::Percent(percent) => (used as f64 * percent / 100.0) as u64,
        Free::Bytes(bytes) => bytes / INODE_PER,
    })
}

/// Everything that is decided before the first block of a file is placed.
struct Prepared {
    mkfs: MkfsOptions,
    plan: Plan,
    needs: Needs,
    content: Content,
}

impl Prepared {
    /// `given`: the number of inodes that the caller asked for.
    fn new(
        mut mkfs: MkfsOptions,
        tree: &Tree,
        device_bytes: u64,
        given: Option<u64>,
    ) -> Result<Self> {
        let content = seed(&mut mkfs, tree, device_bytes)?;
        let plan = plan(&mut mkfs, tree, device_bytes, given)?;
        let needs = Needs::new(tree, &plan)?;
        Ok(Self { mkfs, plan, needs, content })
    }
}

/// Decides the hash seed; gives what the UUID will come from.
fn seed(mkfs: &mut MkfsOptions, tree: &Tree, device_bytes: u64) -> Result<Content> {
    let mut config = Config::new(mkfs, device_bytes)?;
    if config.features.incompat.contains(Incompat::JOURNAL_DEV) {
        return Err(BuildError::Refused("a journal device cannot hold files".into()));
    }
    let extents = config.features.incompat.contains(Incompat::EXTENTS);
    verity::check(tree, extents, config.block_size)?;
    let sb = mkfs::plan::new_superblock(mkfs, &mut config)?;
    let content = Content::new(tree, &sb);
    mkfs.extended.hash_seed.get_or_insert(content.uuid());
    Ok(content)
}

/// Those whose usage quota files will have.
fn owners(config: &Config, tree: &Tree) -> Usage {
    match config.features.ro_compat.contains(RoCompat::QUOTA) {
        true => needs::owners(tree),
        false => Usage::default(),
    }
}

/// The plan of a volume with inodes for all files. `given`: as many as the caller asked for.
fn plan(
    mkfs: &mut MkfsOptions,
    tree: &Tree,
    device_bytes: u64,
    given: Option<u64>,
) -> Result<Plan> {
    loop {
        let config = Config::new(mkfs, device_bytes)?;
        let asked = config.inodes;
        let owners = owners(&config, tree);
        let plan = Plan::new(mkfs, config, Contents::Files(&owners))?;
        let needed = match plan.geo.incompat().contains(Incompat::EA_INODE) {
            true => Needs::new(tree, &plan)?.last_inode(),
            false => needs::Numbers::new(tree, plan.first_file())?.last(),
        };
        if plan.geo.inodes() >= needed {
            return Ok(plan);
        }
        if let Some(given) = given {
            return Err(BuildError::Refused(format!(
                "{given} inodes are too few for these files: {needed} are needed (-N)"
            )));
        }
        // The layout rounds, and cuts off a last group that is too small: a little more is asked
        // for until it holds.
        let more = u64::from(needed - plan.geo.inodes()).max(u64::from(needed) / 64);
        mkfs.inodes = Some(asked.max(u64::from(plan.geo.inodes())) + more);
    }
}

fn lay_out(plan: &Plan, tree: &Tree, needs: &Needs) -> std::result::Result<Layout, Full> {
    let made = match needs.numbers.lost_and_found() {
        Some(_) => 0,
        None => lost_and_found_blocks(&plan.geo),
    };
    Layout::new(&plan.geo, plan.space.clone(), tree, needs, made)
}

fn count_directories(plan: &mut Plan, tree: &Tree, needs: &Needs) {
    if needs.numbers.lost_and_found().is_none() {
        plan.add_directory(mkfs::inodes::LOST_AND_FOUND);
    }
    for (id, _) in tree.nodes().filter(|(_, node)| node.kind.is_dir()) {
        plan.add_directory(needs.numbers.ino(id));
    }
}

fn write_metadata(
    plan: &mut Plan,
    out: &mut mkfs::write::Output<'_>,
    tree: &Tree,
    needs: &Needs,
    layout: &Layout,
    options: &MkfsOptions,
    progress: Progress<'_>,
) -> Result<()> {
    let total = tree.len() as u64;
    let mut stopped = None;
    let mut told = |p: MkfsProgress| {
        let stage = BuildStage::Mkfs(p.stage);
        let _ = progress(BuildProgress { stage, done: p.done, total: p.total });
    };
    let tables = |plan: &mut Plan, out: &mut mkfs::write::Output<'_>| {
        let sealed = write::Sealed { tree, needs, layout, plan };
        let written = sealed.write(out).map(|usage| plan.quotas.usage = usage);
        written.map_err(|error| match error {
            BuildError::Device(error) => mkfs::MkfsError::Device(error),
            error => {
                let why = error.to_string();
                stopped = Some(error);
                mkfs::MkfsError::Refused(why)
            }
        })
    };
    let ended = mkfs::write::end(plan, out, options, tables, &mut told);
    let _ = progress(BuildProgress { stage: BuildStage::Metadata, done: total, total });
    match (ended, stopped) {
        (Err(_), Some(error)) => Err(error),
        (ended, _) => Ok(ended?),
    }
}

/// Gives the data of files its places.
#[derive(Debug)]
struct Placing<'a> {
    layout: Layout,
    tree: &'a Tree,
    content: Content,
    geo: &'a extol_ondisk::Geometry,
    /// The volume was too small.
    full: bool,
}

impl Placing<'_> {
    fn full(&mut self) -> BuildError {
        self.full = true;
        BuildError::Refused("the volume is too small for its files".into())
    }
}

impl Sink for Placing<'_> {
    fn begin(&mut self, id: NodeId, size: u64) -> Result<()> {
        let behind = verity::behind(self.tree, id, self.geo).map_or(0, |(_, len)| len);
        self.layout.begin(size.div_ceil(self.geo.block_len() as u64) + u64::from(behind));
        Ok(())
    }

    fn data(&mut self, id: NodeId, run: DataRun, put: &mut dyn FnMut(Range<u64>)) -> Result<()> {
        self.content.data(id, run);
        self.layout.add(run.block, run.len, put).map_err(|Full| self.full())
    }

    fn end(&mut self, id: NodeId) -> Result<()> {
        if let Some((block, len)) = verity::behind(self.tree, id, self.geo) {
            self.layout.add(block, len, |_| {}).map_err(|Full| self.full())?;
        }
        self.layout.end(id).map_err(|Full| self.full())?;
        let sectors = self.layout.blocks(id).taken(self.geo) * (self.geo.block_len() as u64 / 512);
        if sectors >> 32 != 0 && !self.geo.ro_compat.contains(RoCompat::HUGE_FILE) {
            return Err(BuildError::entry(
                &self.tree.path(id),
                "its size needs the feature huge_file",
            ));
        }
        Ok(())
    }
}
