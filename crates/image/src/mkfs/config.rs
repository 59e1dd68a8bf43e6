//! Which features, block size, inode size and inode count a volume gets, before its size in groups
//! is known.
//!
//! The defaults are those of today's mke2fs and its configuration. A type (`ext2` … `ext4`) and
//! usage types (`small`, `news` …) each may set features, block size, inode size and bytes per
//! inode; a later one wins, the caller's options win over all. Without usage types the size
//! chooses: below 3 MiB `floppy`, below 512 MiB `small`, from 4 TiB `big`, from 16 TiB `huge`.

use super::features::{self, Features};
use super::options::{MkfsOptions, meant};
use super::summary::Notes;
use super::{Result, refuse};
use extol_ondisk::{Compat, Incompat, RoCompat, orphan_file};
use extol_vfs::Size;

/// Block sizes above this can be mounted by few machines.
const PAGE: u32 = 4096;

/// The usage types.
const USAGES: [&str; 11] = [
    "floppy",
    "small",
    "default",
    "big",
    "huge",
    "news",
    "largefile",
    "largefile4",
    "ext2",
    "ext3",
    "ext4",
];

/// What a usage type sets.
#[derive(Clone, Copy)]
struct Usage {
    block_size: Option<u32>,
    bytes_per_inode: u32,
}

fn usage(name: &str) -> Result<Option<Usage>> {
    let (block_size, bytes_per_inode) = match name {
        "default" | "ext2" | "ext3" | "ext4" => return Ok(None),
        "floppy" => (Some(1024), 8192),
        "small" => (Some(1024), 4096),
        "big" => (None, 32768),
        "huge" => (None, 65536),
        "news" => (None, 4096),
        "largefile" => (Some(PAGE), 1 << 20),
        "largefile4" => (Some(PAGE), 4 << 20),
        _ => {
            return refuse(format!(
                "unknown usage type '{name}'{}; known are {}",
                meant(name, USAGES),
                USAGES.join(", ")
            ));
        }
    };
    Ok(Some(Usage { block_size, bytes_per_inode }))
}

fn usage_by_size(bytes: u64) -> &'static str {
    const MIB: u64 = 1 << 20;
    match bytes / MIB {
        _ if bytes < 3 * MIB => "floppy",
        0..512 => "small",
        512..4_194_304 => "default",
        4_194_304..16_777_216 => "big",
        _ => "huge",
    }
}

/// Everything decided before the layout.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) features: Features,
    pub(crate) revision: u32,
    pub(crate) block_size: u32,
    /// The block size, unless the volume has bigalloc.
    pub(crate) cluster_size: u32,
    /// Blocks asked for; the layout may take fewer.
    pub(crate) blocks: u64,
    pub(crate) blocks_per_group: Option<u32>,
    pub(crate) log_groups_per_flex: u8,
    pub(crate) inode_size: u16,
    /// Inodes asked for; the layout rounds up.
    pub(crate) inodes: u64,
    pub(crate) reserved_percent: f64,
    pub(crate) desc_size: u16,
    /// Reserved descriptor blocks, if `resize=` says so.
    pub(crate) reserved_gdt: Option<u32>,
    /// Things the caller may want to know.
    pub(crate) notes: Notes,
}

impl Config {
    pub(crate) fn new(options: &MkfsOptions, device_bytes: u64) -> Result<Self> {
        let mut notes = Notes::default();
        let bytes = volume_bytes(options, device_bytes)?;
        let usages = usages(options, bytes)?;
        let revision = options.revision.unwrap_or(1);
        let (mut features, asked) = features::choose(options, revision)?;
        features::suit_system(&mut features, &asked, options)?;
        let block_size = block_size(options, &usages)?;
        let blocks = blocks(bytes, block_size, &mut features)?;
        features::settle(&mut features, &asked, options, &mut notes)?;
        let cluster_size = cluster_size(options, &features, block_size)?;
        let ratio = u64::from(cluster_size / block_size);
        let blocks = match blocks / ratio * ratio {
            0 => return too_small(bytes, block_size),
            blocks => blocks,
        };
        let journal_dev = features.incompat.contains(Incompat::JOURNAL_DEV);

        let inode_size = inode_size(options, &features, revision, block_size)?;
        let log_groups_per_flex = log_groups_per_flex(options, &features)?;
        check_blocks_per_group(options, block_size)?;
        let reserved_percent = reserved_percent(options, journal_dev)?;
        let desc_size = desc_size(options, &features, block_size)?;
        let (inodes, reserved_gdt) = if journal_dev {
            (0, None)
        } else {
            (
                inodes(
                    options,
                    &usages,
                    &features,
                    (block_size, cluster_size),
                    blocks,
                    inode_size,
                )?,
                reserved_gdt(options, blocks, block_size, desc_size)?,
            )
        };
        if reserved_gdt.is_some_and(|n| n > 0) {
            if revision == 0 {
                return refuse("growing (resize=) needs revision 1");
            }
            if cluster_size > block_size {
                return refuse("growing (resize=) and clusters (bigalloc) exclude each other");
            }
            features.compat.insert(Compat::RESIZE_INODE);
        }
        features::check_combinations(&features, inode_size)?;
        notes.warnings.extend(warning_about_stripe(options));
        if block_size > PAGE {
            notes.warnings.push(format!(
                "blocks of {block_size} bytes are larger than the pages of most machines \
                 ({PAGE}): they cannot be mounted there, and Extol can only read them"
            ));
        }
        Ok(Self {
            features,
            revision,
            block_size,
            cluster_size,
            blocks,
            blocks_per_group: options.blocks_per_group,
            log_groups_per_flex,
            inode_size,
            inodes,
            reserved_percent,
            desc_size,
            reserved_gdt,
            notes,
        })
    }
}

impl Config {
    /// What was asked for, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.blocks.saturating_mul(self.block_size.into())
    }
}

fn volume_bytes(options: &MkfsOptions, device_bytes: u64) -> Result<u64> {
    match options.size {
        Some(size) if size > device_bytes => refuse(format!(
            "a volume of {size} bytes does not fit: the device or image has {device_bytes} bytes"
        )),
        Some(size) => Ok(size),
        None => Ok(device_bytes / u64::from(PAGE) * u64::from(PAGE)),
    }
}

fn usages(options: &MkfsOptions, bytes: u64) -> Result<Vec<Usage>> {
    let names = options.usage.as_deref().unwrap_or_else(|| usage_by_size(bytes));
    let mut usages = Vec::new();
    for name in names.split(',').filter(|n| !n.is_empty()) {
        usages.extend(usage(name)?);
    }
    if options.creator_os.is_hurd()
        && let Some(last) = usages.last_mut()
    {
        last.block_size = Some(PAGE);
    }
    Ok(usages)
}

/// The number of blocks. A volume too large for the resize inode loses that feature.
fn blocks(bytes: u64, block_size: u32, features: &mut Features) -> Result<u64> {
    let blocks = bytes / u64::from(block_size);
    if blocks == 0 {
        return too_small(bytes, block_size);
    }
    if blocks > u64::from(u32::MAX) {
        if !features.incompat.contains(Incompat::BIT64) {
            return refuse(format!(
                "{blocks} blocks of {block_size} bytes need the 64bit feature or a larger block \
                 size"
            ));
        }
        features.compat.remove(Compat::RESIZE_INODE);
    }
    if blocks >> 48 != 0 {
        return refuse(format!("{blocks} blocks are more than ext4 can address"));
    }
    Ok(blocks)
}

/// The line for a volume without room for what each volume has.
pub(crate) fn too_small<T>(bytes: u64, block_size: u32) -> Result<T> {
    refuse(format!(
        "{bytes} bytes are too few for a volume with blocks of {block_size} bytes: give a larger \
         SIZE"
    ))
}

/// Most blocks of a cluster: as many as an extent has.
const MAX_RATIO: u32 = 32_768;

/// Bytes of a cluster: with bigalloc 16 blocks unless something else was asked for.
fn cluster_size(options: &MkfsOptions, features: &Features, block_size: u32) -> Result<u32> {
    let bigalloc = features.ro_compat.contains(RoCompat::BIGALLOC);
    let most = block_size.saturating_mul(MAX_RATIO).min(512 << 20);
    match options.cluster_size {
        Some(_) if !bigalloc => refuse("a cluster size (-C) needs the feature bigalloc"),
        None if !bigalloc => Ok(block_size),
        None => Ok(block_size * 16),
        Some(size) if size.is_power_of_two() && (2 * block_size..=most).contains(&size) => Ok(size),
        Some(size) => refuse(format!(
            "bad cluster size {size}: it must be a power of two from {} to {most}",
            2 * block_size
        )),
    }
}

fn log_groups_per_flex(options: &MkfsOptions, features: &Features) -> Result<u8> {
    let flex_bg = features.incompat.contains(Incompat::FLEX_BG);
    match options.groups_per_flex {
        Some(_) if !flex_bg && !features.incompat.contains(Incompat::JOURNAL_DEV) => {
            refuse("groups per flexible group (-G) need the flex_bg feature")
        }
        Some(n) if n.is_power_of_two() => Ok(n.trailing_zeros() as u8),
        Some(n) => refuse(format!("bad size of a flexible group {n}: it must be a power of two")),
        None => Ok(if flex_bg { 4 } else { 0 }),
    }
}

fn check_blocks_per_group(options: &MkfsOptions, block_size: u32) -> Result<()> {
    match options.blocks_per_group {
        Some(n) if !n.is_multiple_of(8) || !(256..=block_size * 8).contains(&n) => refuse(format!(
            "bad number of blocks per group {n}: it must be a multiple of 8 from 256 to {}",
            block_size * 8
        )),
        _ => Ok(()),
    }
}

fn reserved_percent(options: &MkfsOptions, journal_dev: bool) -> Result<f64> {
    let percent = if journal_dev { 0.0 } else { options.reserved_percent.unwrap_or(5.0) };
    if !(0.0..=50.0).contains(&percent) {
        return refuse(format!("bad percentage of reserved blocks {percent}: it must be 0 to 50"));
    }
    Ok(percent)
}

fn warning_about_stripe(options: &MkfsOptions) -> Option<String> {
    let (stride, width) = (options.extended.stride, options.extended.stripe_width);
    (stride > 0 && !width.is_multiple_of(u32::from(stride)))
        .then(|| format!("stripe width {width} is no multiple of the stride {stride}"))
}

fn block_size(options: &MkfsOptions, usages: &[Usage]) -> Result<u32> {
    let sector = options.sector_size.unwrap_or(512).max(512);
    let Some(size) = options.block_size else {
        if let Some(journal) = &options.journal.device {
            // The log's blocks are the volume's.
            return super::journal::block_size_of_device(&*journal.device);
        }
        let by_usage = usages.iter().rev().find_map(|u| u.block_size).unwrap_or(4096);
        let size = by_usage.max(sector).max(options.least_block_size.unwrap_or(0));
        return check_block_size(size, sector, options);
    };
    check_block_size(size, sector, options)
}

fn check_block_size(size: u32, sector: u32, options: &MkfsOptions) -> Result<u32> {
    if !size.is_power_of_two() || !(1024..=65536).contains(&size) {
        return refuse(format!(
            "bad block size {size}: it must be a power of two from 1024 to 65536"
        ));
    }
    if size < sector {
        return refuse(format!("bad block size {size}: the device has sectors of {sector} bytes"));
    }
    if size > PAGE && !options.force {
        return refuse(format!(
            "blocks of {size} bytes cannot be mounted by most machines: use -F to insist"
        ));
    }
    Ok(size)
}

fn inode_size(
    options: &MkfsOptions,
    features: &Features,
    revision: u32,
    block_size: u32,
) -> Result<u16> {
    let size = match options.inode_size {
        None if revision == 0 || options.creator_os.is_hurd() => 128,
        None => 256,
        Some(size) => size,
    };
    if !size.is_power_of_two() || !(128..=block_size).contains(&size) {
        return refuse(format!(
            "bad inode size {size}: it must be a power of two from 128 to {block_size}"
        ));
    }
    if revision == 0 && size != 128 {
        return refuse("revision 0 has inodes of 128 bytes");
    }
    features::check_combinations(
        &Features { compat: Compat::empty(), ..*features },
        u16::try_from(size).unwrap_or(u16::MAX),
    )?;
    u16::try_from(size).or_else(|_| refuse(format!("bad inode size {size}: at most 32768")))
}

fn desc_size(options: &MkfsOptions, features: &Features, block_size: u32) -> Result<u16> {
    let wide = features.incompat.contains(Incompat::BIT64);
    match options.extended.desc_size {
        None => Ok(if wide { 64 } else { 0 }),
        Some(_) if !wide => refuse("desc_size needs the 64bit feature"),
        Some(n)
            if n.is_power_of_two() && (64..=1024).contains(&n) && u32::from(n) <= block_size =>
        {
            Ok(n)
        }
        Some(n) => {
            refuse(format!("bad descriptor size {n}: it must be a power of two from 64 to 1024"))
        }
    }
}

fn inodes(
    options: &MkfsOptions,
    usages: &[Usage],
    features: &Features,
    (block_size, cluster_size): (u32, u32),
    blocks: u64,
    inode_size: u16,
) -> Result<u64> {
    const MAX: u64 = u32::MAX as u64;
    let bytes = blocks.saturating_mul(u64::from(block_size));
    let ratio = match options.bytes_per_inode {
        Some(n) if (1024..=64 << 20).contains(&n) => n,
        Some(n) => {
            return refuse(format!(
                "bad number of bytes per inode {n}: it must be 1024 to {}",
                64 << 20
            ));
        }
        None => usages.last().map_or(16384, |u| u.bytes_per_inode).max(cluster_size),
    };
    let inodes = match options.inodes {
        Some(0) => return refuse("bad number of inodes 0: it is less than 1"),
        Some(n) if n > MAX => return refuse(format!("{n} inodes are too many: at most {MAX}")),
        Some(n) => n,
        None => match bytes / u64::from(ratio) {
            n if n <= MAX => n,
            _ if features.incompat.contains(Incompat::BIT64) => MAX,
            n => return refuse(format!("{n} inodes are too many: raise the bytes per inode (-i)")),
        },
    };
    if inodes * u64::from(inode_size) >= bytes {
        return refuse(format!(
            "{inodes} inodes of {inode_size} bytes do not fit into {blocks} blocks: raise the \
             bytes per inode (-i) or lower the number of inodes (-N)"
        ));
    }
    Ok(inodes)
}

/// Descriptor blocks to reserve so that the volume can grow as far as `resize=` says.
fn reserved_gdt(
    options: &MkfsOptions,
    blocks: u64,
    block_size: u32,
    desc_size: u16,
) -> Result<Option<u32>> {
    let Some(target) = options.extended.resize else { return Ok(None) };
    let target = in_bytes(target, block_size)? / u64::from(block_size);
    if target <= blocks {
        return refuse(format!(
            "resize= must be more than the {blocks} blocks of the volume, not {target}"
        ));
    }
    let per_group = u64::from(options.blocks_per_group.unwrap_or(block_size * 8));
    let per_block = u64::from(block_size / u32::from(desc_size.max(32)));
    let needed = |n: u64| n.div_ceil(per_group).div_ceil(per_block);
    let reserved = needed(target) - needed(blocks);
    Ok(Some(u32::try_from(reserved).unwrap_or(u32::MAX).min(block_size / 4)))
}

/// Blocks of the orphan file by default, or as asked. Linux refuses larger ones.
pub(crate) fn orphan_file_blocks(
    options: &MkfsOptions,
    block_size: u32,
    blocks: u64,
) -> Result<u64> {
    let most = u64::from(orphan_file::MAX_BLOCKS).min((8 << 20) / u64::from(block_size));
    let Some(wanted) = options.extended.orphan_file_size else {
        let usual = match blocks {
            0..131_072 => 32,
            131_072..2_097_152 => blocks / 4096,
            _ => 512,
        };
        return Ok(usual.min(most));
    };
    let wanted = in_bytes(wanted, block_size)?.div_ceil(u64::from(block_size)).max(1);
    if wanted > most {
        return refuse(format!("an orphan file of {wanted} blocks is too large: at most {most}"));
    }
    Ok(wanted)
}

/// A size of which a plain number counts blocks.
pub(crate) fn in_bytes(size: Size, block_size: u32) -> Result<u64> {
    size.bytes(block_size.into()).or_else(|error| refuse(error.to_string()))
}
