//! The features of a new volume: defaults, the caller's lists, and what does not go together.

use super::options::{FsType, MkfsOptions, meant};
use super::summary::Notes;
use super::{Result, refuse};
use extol_ondisk::features::Feature;
use extol_ondisk::{Compat, Incompat, RoCompat, quota};

/// A set of features, and which of them were asked for by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Features {
    pub(crate) compat: Compat,
    pub(crate) incompat: Incompat,
    pub(crate) ro_compat: RoCompat,
}

impl Features {
    /// Applies a list such as `extent,^has_journal`; collects the names that were switched on in
    /// `asked`.
    fn edit(&mut self, list: &str, asked: &mut Self) -> Result<()> {
        for word in list.split([',', ' ']).filter(|w| !w.is_empty()) {
            if word.eq_ignore_ascii_case("none") {
                *self = Self::default();
                continue;
            }
            let (on, name) = match word.strip_prefix(['^', '-']) {
                Some(name) => (false, name),
                None => (true, word.strip_prefix('+').unwrap_or(word)),
            };
            let Some(feature) = Feature::parse(&name.to_ascii_lowercase()) else {
                let known = Feature::names();
                return refuse(format!("unknown feature '{name}'{}", meant(name, known)));
            };
            if on {
                check_settable(feature, name)?;
            }
            for set in [&mut *self, asked] {
                match feature {
                    Feature::Compat(bit) => set.compat.set(bit, on),
                    Feature::Incompat(bit) => set.incompat.set(bit, on),
                    Feature::RoCompat(bit) => set.ro_compat.set(bit, on),
                }
            }
        }
        Ok(())
    }

    /// True if the lists name the journal, or what is nothing without one.
    pub(crate) fn name_journal(lists: &[String]) -> bool {
        let (mut features, mut asked) = (Self::default(), Self::default());
        let read = lists.iter().try_for_each(|list| features.edit(list, &mut asked));
        let named = Compat::HAS_JOURNAL | Compat::FAST_COMMIT | Compat::ORPHAN_FILE;
        read.is_ok() && asked.compat.intersects(named)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

const SETTABLE: Features = Features {
    compat: Compat::HAS_JOURNAL
        .union(Compat::RESIZE_INODE)
        .union(Compat::DIR_INDEX)
        .union(Compat::EXT_ATTR)
        .union(Compat::SPARSE_SUPER2)
        .union(Compat::FAST_COMMIT)
        .union(Compat::STABLE_INODES)
        .union(Compat::ORPHAN_FILE),
    incompat: Incompat::FILETYPE
        .union(Incompat::EXTENTS)
        .union(Incompat::JOURNAL_DEV)
        .union(Incompat::META_BG)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::MMP)
        .union(Incompat::BIT64)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD)
        .union(Incompat::LARGE_DIR),
    ro_compat: RoCompat::LARGE_FILE
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::SPARSE_SUPER)
        .union(RoCompat::UNINIT_BG)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::PROJECT)
        .union(RoCompat::QUOTA)
        .union(RoCompat::VERITY),
};

fn check_settable(feature: Feature, name: &str) -> Result<()> {
    let settable = match feature {
        Feature::Compat(bit) => SETTABLE.compat.contains(bit),
        Feature::Incompat(bit) => SETTABLE.incompat.contains(bit),
        Feature::RoCompat(bit) => SETTABLE.ro_compat.contains(bit),
    };
    if settable {
        return Ok(());
    }
    refuse(format!("feature '{name}' is not supported: this program cannot make such volumes"))
}

const BASE_FEATURES: &str = "sparse_super,large_file,filetype,resize_inode,dir_index,ext_attr";
const EXT4_FEATURES: &str = "has_journal,extent,huge_file,flex_bg,metadata_csum,\
    metadata_csum_seed,64bit,dir_nlink,extra_isize,orphan_file";

/// Default features edited by the caller's lists, and those that the caller asked for.
pub(crate) fn choose(options: &MkfsOptions, revision: u32) -> Result<(Features, Features)> {
    let (mut features, mut asked) = (Features::default(), Features::default());
    let mut ignored = Features::default();
    match revision {
        0 => {}
        1 => {
            features.edit(BASE_FEATURES, &mut ignored)?;
            match options.fs_type {
                FsType::Ext2 => {}
                FsType::Ext3 => features.edit("has_journal", &mut ignored)?,
                FsType::Ext4 => features.edit(EXT4_FEATURES, &mut ignored)?,
            }
            for usage in options.usage.as_deref().unwrap_or_default().split(',') {
                match usage {
                    "ext3" => features.edit("has_journal", &mut ignored)?,
                    "ext4" => features.edit(EXT4_FEATURES, &mut ignored)?,
                    _ => {}
                }
            }
        }
        _ => return refuse(format!("unknown revision {revision}: it must be 0 or 1")),
    }
    for list in &options.features {
        features.edit(list, &mut asked)?;
    }
    if revision == 0 && !features.is_empty() {
        return refuse("features need revision 1");
    }
    Ok((features, asked))
}

/// Leaves out what the Hurd does not know; what was asked for is an error.
pub(crate) fn suit_system(
    features: &mut Features,
    asked: &Features,
    options: &MkfsOptions,
) -> Result<()> {
    if !options.creator_os.is_hurd() {
        return Ok(());
    }
    let incompat = Incompat::FILETYPE | Incompat::EA_INODE | Incompat::CSUM_SEED;
    let ro_compat = RoCompat::HUGE_FILE | RoCompat::METADATA_CSUM;
    let both = (asked.incompat & incompat, asked.ro_compat & ro_compat);
    if let Some(name) = both.0.names().iter().chain(&both.1.names()).next() {
        return refuse(format!("the Hurd does not know the feature {name}: leave it out"));
    }
    features.incompat.remove(incompat);
    features.ro_compat.remove(ro_compat);
    Ok(())
}

/// Resolves what depends on something else: what only came with the defaults gives way silently,
/// what was asked for is an error.
pub(crate) fn settle(
    features: &mut Features,
    asked: &Features,
    options: &MkfsOptions,
    notes: &mut Notes,
) -> Result<()> {
    let wants_journal = options.journal.size_mib.is_some()
        || options.journal.device.is_some()
        || options.journal.device_path.is_some();
    if features.incompat.contains(Incompat::JOURNAL_DEV) {
        if wants_journal {
            return refuse("a journal device cannot have a journal of its own");
        }
        features.compat = Compat::empty();
        features.incompat = Incompat::JOURNAL_DEV;
        features.ro_compat &= RoCompat::METADATA_CSUM;
        return Ok(());
    }
    if options.extended.encoding.is_some() {
        features.incompat.insert(Incompat::CASEFOLD);
    }
    if options.extended.strict_encoding && !features.incompat.contains(Incompat::CASEFOLD) {
        return refuse("encoding_flags needs the feature casefold");
    }
    if !options.extended.quota_types.is_empty() {
        if !features.ro_compat.contains(RoCompat::QUOTA) {
            return refuse("quotatype needs the feature quota");
        }
        if options.extended.quota_types.contains(&quota::Kind::Project) {
            features.ro_compat.insert(RoCompat::PROJECT);
        }
    }
    if wants_journal {
        features.compat.insert(Compat::HAS_JOURNAL);
    }
    if options.journal.device_path.is_some() && options.journal.device.is_none() {
        return refuse("the journal device was named but not opened");
    }
    if !features.compat.contains(Compat::HAS_JOURNAL) {
        for bit in [Compat::ORPHAN_FILE, Compat::FAST_COMMIT] {
            if features.compat.contains(bit) && asked.compat.contains(bit) {
                return refuse(format!("feature {} needs a journal", bit.names().concat()));
            }
            features.compat.remove(bit);
        }
    }
    if features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        features.ro_compat.remove(RoCompat::UNINIT_BG);
    } else if features.incompat.contains(Incompat::CSUM_SEED) {
        if asked.incompat.contains(Incompat::CSUM_SEED) {
            return refuse("feature metadata_csum_seed needs metadata_csum");
        }
        features.incompat.remove(Incompat::CSUM_SEED);
    }
    if features.ro_compat.contains(RoCompat::BIGALLOC) {
        if !features.incompat.contains(Incompat::EXTENTS) {
            return refuse("feature bigalloc needs extent");
        }
        if asked.compat.contains(Compat::RESIZE_INODE) {
            return refuse("features bigalloc and resize_inode are not made together");
        }
        features.compat.remove(Compat::RESIZE_INODE);
    }
    if features.incompat.contains(Incompat::BIT64) && !features.incompat.contains(Incompat::EXTENTS)
    {
        if asked.incompat.contains(Incompat::BIT64) {
            return refuse("feature 64bit needs extent");
        }
        features.incompat.remove(Incompat::BIT64);
        notes.notes.push("64bit left out: it needs extent".into());
    }
    Ok(())
}

pub(crate) fn check_combinations(features: &Features, inode_size: u16) -> Result<()> {
    let resize = features.compat.contains(Compat::RESIZE_INODE);
    if resize && features.incompat.contains(Incompat::META_BG) {
        return refuse("features resize_inode and meta_bg exclude each other: add ^resize_inode");
    }
    if resize && !features.ro_compat.contains(RoCompat::SPARSE_SUPER) {
        return refuse("feature resize_inode needs sparse_super: add ^resize_inode");
    }
    if inode_size == 128 {
        if features.incompat.contains(Incompat::INLINE_DATA) {
            return refuse("inodes of 128 bytes are too small for inline_data");
        }
        if features.ro_compat.contains(RoCompat::PROJECT) {
            return refuse("inodes of 128 bytes are too small for project");
        }
    }
    Ok(())
}
