//! What a request makes of a superblock. Pure.

use std::path::PathBuf;

use extol_ondisk::checksum::FsSeed;
use extol_ondisk::features::Feature;
use extol_ondisk::quota::Kind;
use extol_ondisk::superblock::{State, SuperFlags};
use extol_ondisk::{Compat, Incompat, InodeNr, RoCompat, Superblock};

use super::{NewJournal, Request, ReservedBlocks, Result, features, read_only, refuse};
use crate::options::ErrorPolicy;

/// Seconds between two updates of multi-mount protection, if none are given.
const USUAL_MMP_INTERVAL: u16 = 5;

const CASEFOLD: Feature = Feature::Incompat(Incompat::CASEFOLD);
const CHECKSUMS: Feature = Feature::RoCompat(RoCompat::METADATA_CSUM);
const PROJECT: Feature = Feature::RoCompat(RoCompat::PROJECT);
pub(super) const JOURNAL: Feature = Feature::Compat(Compat::HAS_JOURNAL);

/// What a request makes of a volume.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The superblock that it gets.
    pub sb: Superblock,
    /// An orphan file is made, with so many blocks (0: the usual number).
    pub makes_orphan_file: Option<u32>,
    pub drops_orphan_file: bool,
    pub makes_journal: Option<NewJournal>,
    /// The journal is on this device from now on.
    pub journal_device: Option<PathBuf>,
    pub drops_journal: bool,
    pub makes_mmp: bool,
    /// The block of multi-mount protection that is not in use any more.
    pub drops_mmp: Option<u64>,
    pub drops_resize_inode: bool,
    /// Quota files that are made.
    pub makes_quotas: Vec<Kind>,
    /// Quota files that go.
    pub drops_quotas: Vec<Kind>,
    /// The descriptors get other checksums.
    pub descriptors: bool,
    /// Features that are switched off, on which no inode may depend.
    pub unneeded: Vec<Feature>,
    pub notes: Vec<String>,
}

impl Plan {
    /// Of a request for a volume with this superblock.
    ///
    /// # Errors
    /// What the superblock says against it.
    pub fn of(before: &Superblock, request: &Request) -> Result<Self> {
        let mut plan = Self {
            sb: before.clone(),
            makes_orphan_file: None,
            drops_orphan_file: false,
            makes_journal: None,
            journal_device: None,
            drops_journal: false,
            makes_mmp: false,
            drops_mmp: None,
            drops_resize_inode: false,
            makes_quotas: Vec::new(),
            drops_quotas: Vec::new(),
            descriptors: false,
            unneeded: Vec::new(),
            notes: Vec::new(),
        };
        numbers(&mut plan.sb, request)?;
        texts(&mut plan.sb, request)?;
        for (name, on) in &request.default_options {
            plan.sb.default_mount_opts.switch(name, *on);
        }
        if let Some(uuid) = request.uuid.filter(|uuid| *uuid != before.uuid) {
            plan.uuid(uuid)?;
        }
        encoding(before, request)?;
        let mut features = request.features.clone();
        features.extend(request.encoding.then_some((CASEFOLD, true)));
        features.extend(request.journal.as_ref().map(|_| (JOURNAL, true)));
        // (As tune2fs has it. The feature quota follows from the files.)
        let projects = request.quotas.iter().filter(|(kind, _)| *kind == Kind::Project);
        features.extend(projects.map(|(_, on)| (PROJECT, *on)));
        // A new journal comes first, and an old one goes last: other features need it.
        // What needs checksums of all metadata comes behind these.
        features.sort_by_key(|(feature, on)| match (*feature, on) {
            (JOURNAL, true) => 0,
            (CHECKSUMS, _) => 1,
            (JOURNAL, false) => 3,
            _ => 2,
        });
        for (feature, on) in features {
            if has(&plan.sb, feature) != on {
                plan.switch(feature, on)?;
            }
        }
        if let (Some(flags), true) = (request.encoding_flags, has(&plan.sb, CASEFOLD)) {
            plan.sb.encoding_flags = flags;
        }
        plan.journal(before, request)?;
        plan.mmp(request)?;
        plan.orphan_file(request)?;
        plan.quotas(before, &request.quotas)?;
        plan.checksums(before, request)?;
        // (The next opening frees the file, as one of the orphan list. That of a volume with errors
        // is not heeded.)
        if plan.drops_orphan_file && plan.sb.state.contains(State::ERROR) {
            return refuse(
                "feature orphan_file cannot be switched off on a volume that is to be checked: run \
                 e2fsck first, and leave out -E force_fsck",
            );
        }
        let reopened = plan.drops_orphan_file || plan.drops_journal;
        if reopened && read_only::is(&plan.sb) {
            return refuse(
                "nothing changes behind the mark read-only: first let journal and orphan file go",
            );
        }
        Ok(plan)
    }

    fn uuid(&mut self, uuid: [u8; 16]) -> Result<()> {
        let sb = &mut self.sb;
        if sb.feature_compat.contains(Compat::STABLE_INODES) {
            return refuse(
                "the UUID cannot change: the volume has stable_inodes, and encrypted contents \
                 may depend on it",
            );
        }
        let csum = sb.feature_ro_compat.contains(RoCompat::METADATA_CSUM);
        if !csum && sb.feature_incompat.contains(Incompat::EA_INODE) {
            return refuse(
                "the UUID cannot change: the volume has ea_inode, and the checksums of attribute \
                 values come from it: use tune2fs -U",
            );
        }
        if csum && !sb.feature_incompat.contains(Incompat::CSUM_SEED) {
            sb.checksum_seed = sb.fs_seed().0;
            sb.feature_incompat |= Incompat::CSUM_SEED;
            self.notes.push(
                "the volume has the feature metadata_csum_seed now: its checksums come from the \
                 old UUID (Linux 4.4 or later)"
                    .into(),
            );
        }
        self.descriptors = !csum && sb.feature_ro_compat.contains(RoCompat::UNINIT_BG);
        if self.descriptors && !sb.feature_compat.contains(Compat::HAS_JOURNAL) {
            return refuse(
                "the checksums of all descriptors hold the UUID, and without a journal they \
                 cannot change together: use tune2fs -U",
            );
        }
        sb.uuid = uuid;
        Ok(())
    }

    fn switch(&mut self, feature: Feature, on: bool) -> Result<()> {
        if let Some(why) = features::why_not(feature, on) {
            let way = if on { "on" } else { "off" };
            return refuse(format!("feature {} cannot be switched {way}: {why}", feature.name()));
        }
        let sb = &mut self.sb;
        match (feature, on) {
            (Feature::Incompat(Incompat::CSUM_SEED), true) => {
                if !sb.feature_ro_compat.contains(RoCompat::METADATA_CSUM) {
                    return refuse("feature metadata_csum_seed needs metadata_csum");
                }
                sb.checksum_seed = sb.fs_seed().0;
            }
            (Feature::Incompat(Incompat::CSUM_SEED), false) => {
                if sb.checksum_seed != FsSeed::from_uuid(&sb.uuid).0 {
                    return refuse(
                        "feature metadata_csum_seed cannot be switched off: the checksums come \
                         from another UUID (tune2fs can write all of them anew)",
                    );
                }
                sb.checksum_seed = 0;
            }
            (CHECKSUMS, _) => self.switch_checksums(on)?,
            (Feature::RoCompat(RoCompat::UNINIT_BG), true)
                if sb.feature_ro_compat.contains(RoCompat::METADATA_CSUM) =>
            {
                self.notes.push("metadata_csum is more than uninit_bg: that stays off".into());
                return Ok(());
            }
            (Feature::Incompat(Incompat::FILETYPE), _) => {
                self.needs_fsck("entries of directories have types, or have none, as before");
            }
            (Feature::RoCompat(RoCompat::SPARSE_SUPER), true) => {
                self.needs_fsck("it frees the copies of the superblock that are too many");
            }
            (Feature::Incompat(Incompat::ENCRYPT), true) => {
                sb.encrypt_algos = Superblock::USUAL_ENCRYPTION;
            }
            (Feature::Compat(Compat::FAST_COMMIT | Compat::ORPHAN_FILE), true)
                if !sb.feature_compat.contains(Compat::HAS_JOURNAL) =>
            {
                return refuse("features fast_commit and orphan_file need a journal");
            }
            (JOURNAL, true) => {
                self.makes_journal = Some(NewJournal::default());
            }
            (JOURNAL, false) => self.drops_journal = true,
            (Feature::Incompat(Incompat::MMP), _) | (Feature::Compat(Compat::RESIZE_INODE), _)
                if !sb.feature_compat.contains(Compat::HAS_JOURNAL) =>
            {
                return refuse(
                    "features mmp and resize_inode change together with bitmaps, and without a \
                     journal a crash in between would damage the volume: give it one (-j)",
                );
            }
            (Feature::Incompat(Incompat::MMP), true) => self.makes_mmp = true,
            (Feature::Incompat(Incompat::MMP), false) => {
                self.drops_mmp = Some(sb.mmp_block);
                (sb.mmp_block, sb.mmp_update_interval) = (0, 0);
            }
            (Feature::Compat(Compat::RESIZE_INODE), false) => {
                self.drops_resize_inode = true;
                sb.reserved_gdt_blocks = 0;
            }
            (Feature::Compat(Compat::DIR_INDEX), true) => index(sb),
            (CASEFOLD, true) => (sb.encoding, sb.encoding_flags) = (Superblock::UTF8_12_1, 0),
            (CASEFOLD, false) => {
                (sb.encoding, sb.encoding_flags) = (0, 0);
                self.unneeded.push(feature);
            }
            (Feature::RoCompat(RoCompat::PROJECT | RoCompat::EXTRA_ISIZE), true)
                if sb.inode_size <= 128 || sb.rev_level == 0 =>
            {
                return refuse(
                    "inodes of 128 bytes are too small for project and extra_isize: make a new \
                     volume",
                );
            }
            (Feature::RoCompat(RoCompat::PROJECT), true) => self.notes.push(
                "Linux mounts a volume with the feature project read-write only if it is built \
                 with quota support"
                    .into(),
            ),
            (
                Feature::RoCompat(RoCompat::LARGE_FILE | RoCompat::HUGE_FILE | RoCompat::DIR_NLINK)
                | Feature::Compat(Compat::DIR_INDEX),
                false,
            ) => self.unneeded.push(feature),
            _ => {}
        }
        self.refuse_old_revision(true)?;
        match feature {
            Feature::Compat(bit) => self.sb.feature_compat.set(bit, on),
            Feature::Incompat(bit) => self.sb.feature_incompat.set(bit, on),
            Feature::RoCompat(bit) => self.sb.feature_ro_compat.set(bit, on),
        }
        if feature == Feature::Compat(Compat::ORPHAN_FILE) {
            self.drops_orphan_file = !on;
            self.makes_orphan_file = on.then_some(0);
            if !on {
                self.sb.orphan_file_inum = 0;
                self.sb.feature_ro_compat.remove(RoCompat::ORPHAN_PRESENT);
            }
        }
        Ok(())
    }

    pub fn refuse_old_revision(&self, needs_features: bool) -> Result<()> {
        if needs_features && self.sb.rev_level == 0 {
            return refuse("the volume has revision 0, which has no features: make a new one");
        }
        Ok(())
    }

    fn journal(&mut self, before: &Superblock, request: &Request) -> Result<()> {
        let has = |sb: &Superblock| sb.feature_compat.contains(Compat::HAS_JOURNAL);
        if request.journal.is_some() && request.features.contains(&(JOURNAL, false)) {
            return refuse(
                "-J makes a journal and -O ^has_journal takes it away: give one of the two",
            );
        }
        match &request.journal {
            Some(_) if has(before) => {
                return refuse(
                    "the volume has a journal already: take it away first (-O ^has_journal)",
                );
            }
            wish if self.makes_journal.is_some() => {
                self.makes_journal = Some(wish.clone().unwrap_or_default());
            }
            _ => {}
        }
        if let Some(wish) = self.makes_journal.take_if(|wish| wish.device.is_some()) {
            return self.external(request, wish);
        }
        if !self.drops_journal {
            return Ok(());
        }
        if ![0, InodeNr::JOURNAL.0].contains(&before.journal_inum) {
            return refuse("the journal is not in inode 8: use tune2fs -O ^has_journal");
        }
        if self.sb.state.contains(State::ERROR) {
            return refuse(
                "the journal cannot go from a volume that is to be checked: run e2fsck first, and \
                 leave out -E force_fsck",
            );
        }
        if self.sb.feature_compat.contains(Compat::ORPHAN_FILE) {
            return refuse(
                "the orphan file needs the journal: let both go (-O ^has_journal,^orphan_file)",
            );
        }
        if self.sb.feature_compat.contains(Compat::FAST_COMMIT) {
            self.sb.feature_compat.remove(Compat::FAST_COMMIT);
            self.notes.push("fast_commit goes with the journal".into());
        }
        Ok(())
    }

    /// A journal device is all that such a request is about.
    fn external(&mut self, request: &Request, wish: NewJournal) -> Result<()> {
        let device = wish.device.clone();
        if wish != (NewJournal { device: device.clone(), ..NewJournal::default() }) {
            return refuse("-J device= goes alone: the device has its size, and its place");
        }
        let mut rest = request.clone();
        rest.journal = None;
        rest.features.retain(|feature| *feature != (JOURNAL, true));
        if !rest.is_empty() {
            return refuse("-J device= goes alone: ask for the rest behind it");
        }
        self.journal_device = device;
        Ok(())
    }

    fn mmp(&mut self, request: &Request) -> Result<()> {
        let sb = &mut self.sb;
        if !sb.feature_incompat.contains(Incompat::MMP) {
            if request.mmp_interval.is_some() {
                return refuse(
                    "the volume has no multi-mount protection: mmp_update_interval= is for it \
                     (-O mmp)",
                );
            }
            return Ok(());
        }
        if let Some(interval) = request.mmp_interval {
            sb.mmp_update_interval = interval;
        }
        if self.makes_mmp && sb.mmp_update_interval == 0 {
            sb.mmp_update_interval = USUAL_MMP_INTERVAL;
        }
        Ok(())
    }

    fn orphan_file(&mut self, request: &Request) -> Result<()> {
        if let Some(size) = request.orphan_file_size {
            let Some(blocks) = &mut self.makes_orphan_file else {
                return refuse(
                    "orphan_file_size= is for an orphan file that is made: it takes -O orphan_file \
                     and a volume that has none",
                );
            };
            let bytes = u64::from(self.sb.block_bytes());
            let wish = match size.bytes(bytes) {
                Ok(wish) => wish.div_ceil(bytes).max(1),
                Err(error) => return refuse(error.to_string()),
            };
            *blocks = u32::try_from(wish).unwrap_or(u32::MAX);
        }
        if self.descriptors && self.makes_orphan_file.is_some() {
            return refuse("change the UUID and the feature orphan_file one after the other");
        }
        Ok(())
    }
}

/// Refuses an encoding for names that have one, as tune2fs does.
fn encoding(before: &Superblock, request: &Request) -> Result<()> {
    if request.encoding_flags.is_some() && !request.encoding {
        return refuse("encoding_flags= is given together with encoding=utf8");
    }
    if request.encoding && request.features.contains(&(CASEFOLD, false)) {
        return refuse("encoding= asks for casefold and -O ^casefold takes it away: give one");
    }
    if request.encoding && has(before, CASEFOLD) {
        return refuse("the volume has casefold: the encoding of names that are there stays");
    }
    Ok(())
}

/// True if the superblock has the feature.
fn has(sb: &Superblock, feature: Feature) -> bool {
    match feature {
        Feature::Compat(bit) => sb.feature_compat.contains(bit),
        Feature::Incompat(bit) => sb.feature_incompat.contains(bit),
        Feature::RoCompat(bit) => sb.feature_ro_compat.contains(bit),
    }
}

/// What indexes of directories need.
fn index(sb: &mut Superblock) {
    if sb.def_hash_version == 0 {
        sb.def_hash_version = 1;
    }
    if sb.hash_seed == [0; 4] {
        sb.hash_seed = std::array::from_fn(|_| extol_proc::random_number() as u32);
    }
    if !sb.flags.intersects(SuperFlags::SIGNED_HASH | SuperFlags::UNSIGNED_HASH) {
        sb.flags |= SuperFlags::SIGNED_HASH;
    }
}

fn numbers(sb: &mut Superblock, request: &Request) -> Result<()> {
    fn set<T>(to: &mut T, from: Option<T>) {
        if let Some(value) = from {
            *to = value;
        }
    }
    set(
        &mut sb.errors,
        request.errors.map(|errors| match errors {
            ErrorPolicy::Continue => 1,
            ErrorPolicy::RemountRo => 2,
            ErrorPolicy::Panic => 3,
        }),
    );
    set(&mut sb.def_resuid, request.reserved_uid);
    set(&mut sb.def_resgid, request.reserved_gid);
    set(&mut sb.mnt_count, request.mounts);
    // As tune2fs: 0 means never, which is -1 on the disk.
    let most = request.most_mounts.map(|most| if most <= 0 { -1 } else { most });
    set(&mut sb.max_mnt_count, most.map(i16::cast_unsigned));
    set(&mut sb.checkinterval, request.check_interval);
    set(&mut sb.lastcheck, request.last_check);
    set(&mut sb.raid_stride, request.stride);
    set(&mut sb.raid_stripe_width, request.stripe_width);
    set(&mut sb.def_hash_version, request.hash);
    if let Some(on) = request.test_fs {
        sb.flags.set(SuperFlags::TEST_FILESYS, on);
    }
    if request.force_check {
        sb.state |= State::ERROR;
    }
    reserved(sb, request.reserved)
}

fn reserved(sb: &mut Superblock, wish: Option<ReservedBlocks>) -> Result<()> {
    let blocks = match wish {
        None => return Ok(()),
        Some(ReservedBlocks::Count(blocks)) => blocks,
        Some(ReservedBlocks::Percent(percent)) => (percent * sb.blocks_count as f64 / 100.0) as u64,
    };
    if blocks > sb.blocks_count / 2 {
        return refuse(format!(
            "{blocks} blocks cannot be reserved: at most half of all, which is {}",
            sb.blocks_count / 2
        ));
    }
    sb.r_blocks_count = blocks;
    Ok(())
}

fn texts(sb: &mut Superblock, request: &Request) -> Result<()> {
    fn set(to: &mut [u8], most: usize, text: Option<&[u8]>, what: &str) -> Result<()> {
        let Some(text) = text else { return Ok(()) };
        if text.len() > most {
            return refuse(format!("{what} has {} bytes: at most {most}", text.len()));
        }
        if text.contains(&0) {
            return refuse(format!("{what} has a zero byte in it"));
        }
        to.fill(0);
        to.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        Ok(())
    }
    set(&mut sb.volume_name, 16, request.label.as_deref(), "the label")?;
    set(&mut sb.last_mounted, 64, request.last_mounted.as_deref(), "the directory")?;
    set(&mut sb.mount_opts, 63, request.mount_options.as_deref(), "the text of mount_opts=")
}

/// Puts what is planned into a superblock that may have other counts by now than `before`, on which
/// the plan rests.
pub(super) fn take_over(now: &mut Superblock, before: &Superblock, planned: &Superblock) {
    let mut sb = planned.clone();
    sb.free_blocks_count = now.free_blocks_count;
    sb.free_inodes_count = now.free_inodes_count;
    sb.kbytes_written = now.kbytes_written;
    if now.last_orphan != before.last_orphan {
        sb.last_orphan = now.last_orphan;
    }
    *now = sb;
}
