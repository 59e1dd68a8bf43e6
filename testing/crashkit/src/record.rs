//! Runs a load on a recorded volume.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use extol::{Ext4, FileSystem as _, OpenOptions};
use extol_block::SharedDevice;
use extol_jbd2::JournalStats;
#[cfg(feature = "planted-bugs")]
use extol_jbd2::planted;

use crate::actor::{Actor, Done, Place};
use crate::cuts::{Cutter, Fate};
use crate::media::Media;
use crate::model::{COMMON, Common, History, Moment};
use crate::tape::{Event, Pace, Tape};
use crate::variant::Variant;
use crate::workloads::{self, Workload};

/// A bug to plant into the file system while the load runs; see `extol_jbd2::planted`. Without the
/// feature `planted-bugs` there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Plant {
    /// The commit record is written without a flush of what it covers.
    #[cfg(feature = "planted-bugs")]
    CommitWithoutFlush,
    /// The tail moves before the home writes are durable.
    #[cfg(feature = "planted-bugs")]
    TailTooEarly,
    /// Freed blocks are handed out before the transaction that freed them is durable.
    #[cfg(feature = "planted-bugs")]
    ReuseBeforeCommit,
    /// Freed metadata blocks are not revoked.
    #[cfg(feature = "planted-bugs")]
    RevokeForgotten,
    /// Blocks are mapped before their data is written.
    #[cfg(feature = "planted-bugs")]
    MapBeforeWrite,
    /// The volume is marked as needing recovery too late.
    #[cfg(feature = "planted-bugs")]
    RecoveryFlagLate,
    /// A fast commit is written without a flush of the file data that it maps.
    #[cfg(feature = "planted-bugs")]
    FastWithoutFlush,
    /// The first fast commit of a transaction goes out without an empty one in front.
    #[cfg(feature = "planted-bugs")]
    FirstNotEmpty,
    /// The fast commits of a transaction stay in their area when it is durable.
    #[cfg(feature = "planted-bugs")]
    AreaNotCleared,
    /// The log wraps in front of the fast-commit area.
    #[cfg(feature = "planted-bugs")]
    LogWraps,
    /// Fast commits are written while the superblock still says that the log is empty.
    #[cfg(feature = "planted-bugs")]
    FastOnEmptyLog,
    /// A fast commit says only one of the names of an inode.
    #[cfg(feature = "planted-bugs")]
    NamesForgotten,
    /// A fast commit does not say that a name is gone.
    #[cfg(feature = "planted-bugs")]
    UnlinkForgotten,
    /// Data that was left to a fast commit is written behind its flush.
    #[cfg(feature = "planted-bugs")]
    DataLeftBehind,
    /// Data that was left to a full commit is written behind its record.
    #[cfg(feature = "planted-bugs")]
    DataBehindRecord,
    /// Data that was left to a fast commit goes out with its records although no checksum covers
    /// it.
    #[cfg(feature = "planted-bugs")]
    OrderedDataForgotten,
    /// FUA writes of a fast commit are ordinary ones.
    #[cfg(feature = "planted-bugs")]
    FuaNotDurable,
    /// A flush is believed to cover writes that returned while it ran.
    #[cfg(feature = "planted-bugs")]
    FlushCoversLater,
    /// What e2fsck writes back from memory does not go home before the first fast commit.
    #[cfg(feature = "planted-bugs")]
    PatchedNotHome,
    /// A moved block is mapped to its new place before it is copied.
    #[cfg(feature = "planted-bugs")]
    MapBeforeCopy,
    /// Nothing flushes the copy of a moved block before the transaction that maps it.
    #[cfg(feature = "planted-bugs")]
    CopyNotFlushed,
    /// New groups are added before what lies in them is durable.
    #[cfg(feature = "planted-bugs")]
    GroupsNotFlushed,
    /// The superblock of a larger volume goes home before the descriptors that it counts.
    #[cfg(feature = "planted-bugs")]
    SuperblockHomeFirst,
    /// The superblock of a smaller volume goes home beside blocks that it counts no more.
    #[cfg(feature = "planted-bugs")]
    CutHomeLate,
    /// The journal's inode names other map blocks before they are on the medium.
    #[cfg(feature = "planted-bugs")]
    JournalMapLate,
    /// Map blocks of the journal go home by the transaction whose inode names them.
    #[cfg(feature = "planted-bugs")]
    JournalMapLogged,
    /// The inode names a log before it is durable that this log is empty.
    #[cfg(feature = "planted-bugs")]
    LogSwitchNotFlushed,
    /// A disk image is cut before the smaller superblock is at home.
    #[cfg(feature = "planted-bugs")]
    DeviceCutEarly,
    /// What an operation uses is posted to quota files by the next one, in another transaction.
    #[cfg(feature = "planted-bugs")]
    UsageLate,
    /// A fast commit may hold an inode whose usage has changed.
    #[cfg(feature = "planted-bugs")]
    UsageInFastCommit,
    /// A fast commit may hold two spellings of one name.
    #[cfg(feature = "planted-bugs")]
    SpellingsInFastCommit,
    /// A fast commit may hold names of an encrypted directory.
    #[cfg(feature = "planted-bugs")]
    SecretsInFastCommit,
    /// A moved block of a quota file is mapped to its new place before it is copied.
    #[cfg(feature = "planted-bugs")]
    QuotaBlockLate,
}

impl Plant {
    /// All of them, with their names on the command line.
    pub const ALL: &'static [(&'static str, Self)] = &[
        #[cfg(feature = "planted-bugs")]
        ("commit-without-flush", Self::CommitWithoutFlush),
        #[cfg(feature = "planted-bugs")]
        ("tail-too-early", Self::TailTooEarly),
        #[cfg(feature = "planted-bugs")]
        ("reuse-before-commit", Self::ReuseBeforeCommit),
        #[cfg(feature = "planted-bugs")]
        ("revoke-forgotten", Self::RevokeForgotten),
        #[cfg(feature = "planted-bugs")]
        ("map-before-write", Self::MapBeforeWrite),
        #[cfg(feature = "planted-bugs")]
        ("recovery-flag-late", Self::RecoveryFlagLate),
        #[cfg(feature = "planted-bugs")]
        ("fast-without-flush", Self::FastWithoutFlush),
        #[cfg(feature = "planted-bugs")]
        ("first-not-empty", Self::FirstNotEmpty),
        #[cfg(feature = "planted-bugs")]
        ("area-not-cleared", Self::AreaNotCleared),
        #[cfg(feature = "planted-bugs")]
        ("log-wraps", Self::LogWraps),
        #[cfg(feature = "planted-bugs")]
        ("fast-on-empty-log", Self::FastOnEmptyLog),
        #[cfg(feature = "planted-bugs")]
        ("names-forgotten", Self::NamesForgotten),
        #[cfg(feature = "planted-bugs")]
        ("unlink-forgotten", Self::UnlinkForgotten),
        #[cfg(feature = "planted-bugs")]
        ("data-left-behind", Self::DataLeftBehind),
        #[cfg(feature = "planted-bugs")]
        ("data-behind-record", Self::DataBehindRecord),
        #[cfg(feature = "planted-bugs")]
        ("ordered-data-forgotten", Self::OrderedDataForgotten),
        #[cfg(feature = "planted-bugs")]
        ("fua-not-durable", Self::FuaNotDurable),
        #[cfg(feature = "planted-bugs")]
        ("flush-covers-later", Self::FlushCoversLater),
        #[cfg(feature = "planted-bugs")]
        ("patched-not-home", Self::PatchedNotHome),
        #[cfg(feature = "planted-bugs")]
        ("map-before-copy", Self::MapBeforeCopy),
        #[cfg(feature = "planted-bugs")]
        ("copy-not-flushed", Self::CopyNotFlushed),
        #[cfg(feature = "planted-bugs")]
        ("groups-not-flushed", Self::GroupsNotFlushed),
        #[cfg(feature = "planted-bugs")]
        ("superblock-home-first", Self::SuperblockHomeFirst),
        #[cfg(feature = "planted-bugs")]
        ("cut-home-late", Self::CutHomeLate),
        #[cfg(feature = "planted-bugs")]
        ("journal-map-late", Self::JournalMapLate),
        #[cfg(feature = "planted-bugs")]
        ("journal-map-logged", Self::JournalMapLogged),
        #[cfg(feature = "planted-bugs")]
        ("log-switch-not-flushed", Self::LogSwitchNotFlushed),
        #[cfg(feature = "planted-bugs")]
        ("device-cut-early", Self::DeviceCutEarly),
        #[cfg(feature = "planted-bugs")]
        ("usage-late", Self::UsageLate),
        #[cfg(feature = "planted-bugs")]
        ("usage-in-fast-commit", Self::UsageInFastCommit),
        #[cfg(feature = "planted-bugs")]
        ("spellings-in-fast-commit", Self::SpellingsInFastCommit),
        #[cfg(feature = "planted-bugs")]
        ("secrets-in-fast-commit", Self::SecretsInFastCommit),
        #[cfg(feature = "planted-bugs")]
        ("quota-block-late", Self::QuotaBlockLate),
    ];

    /// The bug of this name.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(n, _)| *n == name).map(|(_, plant)| *plant)
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, plant)| *plant == self).map_or("", |(name, _)| *name)
    }

    /// Plants it into this thread, or none.
    fn set(_plant: Option<Self>) {
        #[cfg(feature = "planted-bugs")]
        planted::set(_plant.map(|plant| match plant {
            Self::CommitWithoutFlush => planted::Bug::CommitWithoutFlush,
            Self::TailTooEarly => planted::Bug::TailTooEarly,
            Self::ReuseBeforeCommit => planted::Bug::ReuseBeforeCommit,
            Self::RevokeForgotten => planted::Bug::RevokeForgotten,
            Self::MapBeforeWrite => planted::Bug::MapBeforeWrite,
            Self::RecoveryFlagLate => planted::Bug::RecoveryFlagLate,
            Self::FastWithoutFlush => planted::Bug::FastWithoutFlush,
            Self::FirstNotEmpty => planted::Bug::FirstNotEmpty,
            Self::AreaNotCleared => planted::Bug::AreaNotCleared,
            Self::LogWraps => planted::Bug::LogWraps,
            Self::FastOnEmptyLog => planted::Bug::FastOnEmptyLog,
            Self::NamesForgotten => planted::Bug::NamesForgotten,
            Self::UnlinkForgotten => planted::Bug::UnlinkForgotten,
            Self::DataLeftBehind => planted::Bug::DataLeftBehind,
            Self::DataBehindRecord => planted::Bug::DataBehindRecord,
            Self::OrderedDataForgotten => planted::Bug::OrderedDataForgotten,
            Self::FuaNotDurable => planted::Bug::FuaNotDurable,
            Self::FlushCoversLater => planted::Bug::FlushCoversLater,
            Self::PatchedNotHome => planted::Bug::PatchedNotHome,
            Self::MapBeforeCopy => planted::Bug::MapBeforeCopy,
            Self::CopyNotFlushed => planted::Bug::CopyNotFlushed,
            Self::GroupsNotFlushed => planted::Bug::GroupsNotFlushed,
            Self::SuperblockHomeFirst => planted::Bug::SuperblockHomeFirst,
            Self::CutHomeLate => planted::Bug::CutHomeLate,
            Self::JournalMapLate => planted::Bug::JournalMapLate,
            Self::JournalMapLogged => planted::Bug::JournalMapLogged,
            Self::LogSwitchNotFlushed => planted::Bug::LogSwitchNotFlushed,
            Self::DeviceCutEarly => planted::Bug::DeviceCutEarly,
            Self::UsageLate => planted::Bug::UsageLate,
            Self::UsageInFastCommit => planted::Bug::UsageInFastCommit,
            Self::SpellingsInFastCommit => planted::Bug::SpellingsInFastCommit,
            Self::SecretsInFastCommit => planted::Bug::SecretsInFastCommit,
            Self::QuotaBlockLate => planted::Bug::QuotaBlockLate,
        }));
    }
}

/// A run: what the devices were asked to do, and what was promised.
#[derive(Debug)]
pub struct Recording {
    /// The contents before.
    pub base: Media,
    /// Every change.
    pub events: Vec<Event>,
    /// First cut that is tried: with several actors, behind the making of their directories.
    pub first_cut: usize,
    /// One per actor.
    pub histories: Vec<History>,
    /// The journal's counters at the end.
    pub journal: JournalStats,
}

impl Recording {
    /// Runs a load on an empty volume, to the end and the clean unmount. With an even seed the
    /// volume has a past: it was used, crashed, was recovered and emptied.
    ///
    /// # Errors
    /// If the file system refused what it must do.
    pub fn of(
        workload: &dyn Workload,
        variant: &Variant,
        seed: u64,
        rounds: usize,
        plant: Option<Plant>,
    ) -> Done<Self> {
        let base = if seed.is_multiple_of(2) { aged(variant, seed)? } else { variant.make()? };
        Self::on(base, workload, variant, seed, rounds, plant)
    }

    fn on(
        base: Media,
        workload: &dyn Workload,
        variant: &Variant,
        seed: u64,
        rounds: usize,
        plant: Option<Plant>,
    ) -> Done<Self> {
        let count = workload.actors();
        let tape = Tape::with_pace(
            base.devices(),
            if count > 1 { pace(seed) } else { None },
            variant.is_image,
        );
        let options = variant.load_options(variant.external.then(|| tape.device(1)), count > 1)?;
        Plant::set(plant);
        let result = (|| -> Done<(usize, Vec<History>, JournalStats)> {
            let fs = Ext4::open(tape.device(0), &options).map_err(|e| e.to_string())?;
            let text = |e: extol::FsError| e.to_string();
            let special = variant.is_encrypted() || variant.has_spellings();
            let place = |nr: usize| match (count, workload.share()) {
                (1, _) if special => Place::Own("home".to_owned()),
                (1, _) => Place::Volume,
                (_, false) => Place::Own(format!("t{nr}")),
                (_, true) => Place::Shared("shared".to_owned(), format!("{nr}-")),
            };
            let places: Vec<Place> = (0..count).map(place).collect();
            let dirs: BTreeSet<&str> =
                places.iter().map(Place::dir).filter(|dir| !dir.is_empty()).collect();
            for dir in dirs {
                fs.create_dir(dir).map_err(text)?;
                variant.prepare(&fs, dir)?;
            }
            let common = |nr| workload.has_common().then_some(Common { nr, of: count });
            if let Some(common) = common(0) {
                let file = fs
                    .open_file(COMMON, OpenOptions::new().write(true).create_new(true))
                    .map_err(text)?;
                // All of it a hole, or all of it there.
                if seed.is_multiple_of(2) {
                    file.set_len(common.size() as u64).map_err(text)?;
                } else {
                    file.write_all_at(&vec![0; common.size()], 0).map_err(text)?;
                }
            }
            let mut first_cut = 0;
            if count > 1 || special {
                fs.sync().map_err(text)?;
                first_cut = tape.position();
            }
            let actors: Vec<Actor> = (0..)
                .zip(places)
                .map(|(nr, at)| Actor::new(&fs, &tape, nr, at, common(nr), seed))
                .map(|actor| actor.that_respells(variant.has_spellings()))
                .collect();
            let work = |mut actor: Actor| {
                Plant::set(plant);
                workload.run(&mut actor, rounds).map(|()| actor.into_history())
            };
            let histories: Vec<History> = if count == 1 {
                actors.into_iter().map(work).collect::<Done<_>>()?
            } else {
                std::thread::scope(|scope| {
                    let threads: Vec<_> =
                        actors.into_iter().map(|a| scope.spawn(move || work(a))).collect();
                    let ended = threads
                        .into_iter()
                        .map(|t| t.join().unwrap_or_else(|_| Err("a panic".into())));
                    ended.collect::<Done<_>>()
                })?
            };
            fs.unmount().map_err(text)?;
            Ok((first_cut, histories, fs.stats().journal))
        })();
        Plant::set(None);
        let (first_cut, mut histories, journal) = result?;
        let (events, notes) = tape.finish();
        History::finish(&mut histories, &notes);
        Ok(Self { base, events, first_cut, histories, journal })
    }

    /// How each history sees a cut.
    #[must_use]
    pub fn moments(&self, cut: usize) -> Vec<Moment> {
        let moment = |h: &History| Moment { begun: h.begun(cut), promised: h.promised(cut) };
        self.histories.iter().map(moment).collect()
    }
}

/// How long requests take with that seed, if threads are to meet: nothing, all a little, some of
/// them much.
fn pace(seed: u64) -> Option<Pace> {
    let all = Pace { one_of: 2, at_most: Duration::from_micros(200) };
    let some = Pace { one_of: 8, at_most: Duration::from_millis(2) };
    [None, Some(all), Some(some)][(seed % 3) as usize]
}

/// An empty volume with a past: it was used, crashed, was recovered, and everything on it was
/// removed. Its log is full of transactions of that life, and its free blocks of directories and
/// data.
fn aged(variant: &Variant, seed: u64) -> Done<Media> {
    let load = workloads::by_name("sync-mix").ok_or("no load to age a volume with")?;
    let rounds = 150 + seed as usize % 97;
    let life = Recording::on(variant.make()?, &*load, variant, !seed, rounds, None)?;
    let mut cutter = Cutter::new(life.base.snapshot(), &life.events, seed);
    cutter.seek(life.events.len() * 3 / 4);
    let devices: Vec<Arc<_>> =
        cutter.state(Fate::Some(0)).into_devices().into_iter().map(Arc::new).collect();
    let journal = devices.get(1).map(|d| Arc::clone(d) as SharedDevice);
    let volume = devices.first().ok_or("no device")?;
    let fs = Ext4::open(Arc::clone(volume) as SharedDevice, &variant.recovery_options(journal))
        .map_err(|e| format!("aging a volume: {e}"))?;
    let fail = |e: extol::FsError| format!("aging a volume: {e}");
    let names: Vec<_> = fs.read_dir("/").map_err(fail)?.collect::<Result<_, _>>().map_err(fail)?;
    for name in names.iter().filter(|n| n.file_name() != "lost+found") {
        fs.remove_dir_all(name.path()).map_err(fail)?;
    }
    drop(names);
    fs.unmount().map_err(fail)?;
    Ok(Media::new(devices.iter().map(|d| d.snapshot()).collect()))
}
