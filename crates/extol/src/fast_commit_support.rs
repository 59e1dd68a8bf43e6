//! Whether a mount has fast commits. Decided once the log and the options are known, before the log
//! becomes live.
//!
//! | the volume | `fast_commit` | neither option | `nofast_commit` |
//! |---|---|---|---|
//! | without the feature | refused: how to get it | off | off |
//! | `data=journal` | off, with a note | off, with a note | off |
//! | clusters of several blocks | off, with a note | off, with a note | off |
//! | log too short for the area | refused: how to get a longer one | off, with a note | off |
//! | has room | on | on | off, the area is kept |
//!
//! The area and the option are two things. A mount of a volume with the feature reserves the area
//! in the log, whatever the option: so the option can change while the volume is mounted, and the
//! log does not. There is no area only where it can never be used (`data=journal`, which no
//! remount changes, clusters, or no room).
//!
//! Volumes with clusters (bigalloc): what replays fast commits beside Extol, Linux and e2fsck,
//! counts blocks there where clusters are to be counted. So Extol replays them and writes none.

use extol_jbd2::format::{JournalSuperblock, MIN_LOG_BLOCKS};
use extol_ondisk::{Compat, RoCompat, Superblock};

use crate::options::DataMode;

/// What a mount has.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct FastCommits {
    /// The log has the area: its superblock carries the bit while it is live.
    pub area: bool,
    /// They are written.
    pub on: bool,
    /// A line for the user.
    pub note: Option<String>,
}

/// What stands in the way of the area.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Obstacle {
    /// The volume lacks the feature.
    NoFeature,
    /// There is no log (or the mount may not write it).
    NoLog,
    /// File data goes through the log.
    DataJournal,
    /// Clusters have several blocks (bigalloc).
    Clusters,
    /// A log of so many blocks has no room.
    Short(u32),
}

impl Obstacle {
    /// The first obstacle, if there is one.
    pub fn find(feature: bool, log: Option<&JournalSuperblock>, data: DataMode) -> Option<Self> {
        let Some(log) = log else { return Some(Self::NoLog) };
        if !feature {
            return Some(Self::NoFeature);
        }
        if data == DataMode::Journal {
            return Some(Self::DataJournal);
        }
        (!log.v2 || log.maxlen < Self::least_log(log)).then_some(Self::Short(log.maxlen))
    }

    /// The first obstacle of a volume.
    pub fn of(sb: &Superblock, log: Option<&JournalSuperblock>, data: DataMode) -> Option<Self> {
        let feature = sb.feature_compat.contains(Compat::FAST_COMMIT);
        Self::find(feature, log, data).or_else(|| has_clusters(sb).then_some(Self::Clusters))
    }

    /// Blocks that `log` must have. As Linux counts: what the area leaves must be a log by itself.
    pub fn least_log(log: &JournalSuperblock) -> u32 {
        let enough = MIN_LOG_BLOCKS.saturating_add(log.first.saturating_sub(1));
        enough.saturating_add(log.fc_blocks())
    }

    /// In a few words.
    pub fn short(&self) -> String {
        match self {
            Self::NoFeature => "the volume lacks the feature (extol tune -O fast_commit)".into(),
            Self::NoLog => "there is no journal that could be read".into(),
            Self::DataJournal => "data=journal".into(),
            Self::Clusters => "the volume has clusters (bigalloc)".into(),
            Self::Short(blocks) => format!("a journal of {blocks} blocks has no room for them"),
        }
    }

    /// The line for a user that asks for fast commits.
    pub fn line(&self) -> String {
        match self {
            Self::NoFeature => {
                "fast_commit: the volume does not have the feature; unmount it and run extol \
                 tune -O fast_commit"
                    .into()
            }
            Self::NoLog => "can't mount with fast_commit, fs mounted w/o journal".into(),
            Self::DataJournal => "data=journal disables fast commits".into(),
            Self::Clusters => "clusters (bigalloc) disable fast commits".into(),
            Self::Short(blocks) => format!(
                "fast_commit: a journal of {blocks} blocks has no room for fast commits; unmount, \
                 run extol tune -O ^has_journal, then extol tune -J size=16 -O fast_commit"
            ),
        }
    }
}

/// True if clusters have several blocks.
pub(crate) fn has_clusters(sb: &Superblock) -> bool {
    sb.feature_ro_compat.contains(RoCompat::BIGALLOC) && sb.log_cluster_size > sb.log_block_size
}

/// Decides. `asked` is the option, if it was given.
///
/// # Errors
/// One line: it was asked for and cannot be.
pub(crate) fn decide(
    obstacle: Option<&Obstacle>,
    asked: Option<bool>,
) -> Result<FastCommits, String> {
    let off = |note| Ok(FastCommits { area: false, on: false, note });
    match (obstacle, asked) {
        (None, asked) => Ok(FastCommits { area: true, on: asked.unwrap_or(true), note: None }),
        (Some(Obstacle::NoFeature | Obstacle::NoLog), None | Some(false))
        | (Some(_), Some(false)) => off(None),
        (Some(why @ (Obstacle::DataJournal | Obstacle::Clusters)), _) => off(Some(why.line())),
        (Some(Obstacle::Short(blocks)), None) => off(Some(format!(
            "a journal of {blocks} blocks has no room for fast commits: they are off"
        ))),
        (Some(why), Some(true)) => Err(why.line()),
    }
}

#[cfg(test)]
mod tests {
    use extol_block::BlockSize;
    use extol_jbd2::format::Features;

    use super::*;

    fn log(blocks: u32, area: u32) -> JournalSuperblock {
        let bs = BlockSize::new(4096).expect("size");
        let mut log = JournalSuperblock::new(bs, blocks, 1, Features::default(), [1; 16]);
        log.num_fc_blocks = area;
        log
    }

    fn ask(
        feature: bool,
        log: Option<&JournalSuperblock>,
        data: DataMode,
        asked: Option<bool>,
    ) -> Result<FastCommits, String> {
        decide(Obstacle::find(feature, log, data).as_ref(), asked)
    }

    #[test]
    fn on_where_the_volume_has_it() {
        let log = log(4160, 64);
        for (asked, on) in [(None, true), (Some(true), true), (Some(false), false)] {
            let is = ask(true, Some(&log), DataMode::Ordered, asked).expect("decided");
            assert_eq!(is, FastCommits { area: true, on, note: None }, "{asked:?}");
        }
    }

    #[test]
    fn never_half() {
        let fits = log(1024 + 256, 0);
        assert!(ask(true, Some(&fits), DataMode::Ordered, None).expect("fits").area);
        let short = log(1024 + 255, 0);
        let is = ask(true, Some(&short), DataMode::Ordered, None).expect("off");
        assert!(!is.area && !is.on && is.note.expect("says so").contains("1279 blocks"));
        let line = ask(true, Some(&short), DataMode::Ordered, Some(true)).expect_err("refused");
        assert!(line.contains("extol tune -J size=") && !line.contains('\n'), "{line}");
        assert_eq!(
            ask(true, Some(&short), DataMode::Ordered, Some(false)),
            Ok(FastCommits::default())
        );
    }

    #[test]
    fn not_with_data_in_the_log() {
        let log = log(4160, 64);
        for asked in [None, Some(true)] {
            let is = ask(true, Some(&log), DataMode::Journal, asked).expect("off");
            assert!(!is.area && !is.on);
            assert_eq!(is.note.as_deref(), Some("data=journal disables fast commits"));
        }
        assert_eq!(
            ask(true, Some(&log), DataMode::Journal, Some(false)),
            Ok(FastCommits::default())
        );
    }

    #[test]
    fn a_volume_without_it_says_how_to_get_it() {
        let log = log(4160, 64);
        for asked in [None, Some(false)] {
            assert_eq!(
                ask(false, Some(&log), DataMode::Ordered, asked),
                Ok(FastCommits::default())
            );
            assert_eq!(ask(true, None, DataMode::Ordered, asked), Ok(FastCommits::default()));
        }
        let line = ask(false, Some(&log), DataMode::Ordered, Some(true)).expect_err("refused");
        assert!(line.contains("extol tune -O fast_commit") && !line.contains('\n'), "{line}");
        let line = ask(true, None, DataMode::Ordered, Some(true)).expect_err("refused");
        assert!(line.contains("w/o journal"), "{line}");
    }
}
