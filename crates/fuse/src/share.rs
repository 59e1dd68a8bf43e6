//! How much the kernel may have dirty for the mount: as much as for a disk, or less while somebody
//! waits for an fsync.
//!
//! The kernel writes back through one queue, first in, first out. For a program that writes without
//! pause it puts half a second's worth of requests into it at a time, and the pages of a small file
//! that is being fsynced stand behind all of them. The kernel has no other place for an urgent
//! request; but what may be dirty at all bounds the queue. So while somebody fsyncs, the share of
//! dirty memory is small, and a heavy writer waits in its own write(2) instead. As soon as nobody
//! fsyncs any more it is large again, because pages that wait in the kernel cost nothing, and of a
//! file that is deleted soon they are never written.
//!
//! | level | when | dirty at most |
//! |---|---|---|
//! | large | nobody has fsynced for [`HOLD`] | 40 % of what all file systems together may have |
//! | ready | somebody fsyncs | 32 MiB: a writer that begins now has no second's worth in the kernel before it is noticed |
//! | tight | somebody fsyncs, and much of another file is written back | as before |
//!
//! Not less than that when it gets tight: whoever dirties a page while more is dirty than may be
//! has to wait in the kernel, also the one with the small file, and the less there may be, the more
//! often the heavy writer overshoots. Instead, workers take the heavy writer's requests out of the
//! queue and let them wait for their turns here (the file system makes them), so that the small
//! ones behind them can be read: [`Share::is_busy`] says which requests those are.
//!
//! The level changes when a request shows that it should; without requests it does not matter.
//!
//! [`Policy`] decides, from what happens and when; [`Share`] acts. Only root may; others have a
//! small share all the time.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// A write-back request of a heavy writer has at least so many bytes.
const BULK: usize = 128 << 10;
/// A heavy writer has so many bytes written back in [`LATELY`] at least; less is no queue worth a
/// change.
const HEAVY: usize = 4 << 20;
const LATELY: Duration = Duration::from_secs(1);
/// How long an fsync counts: longer than the pause between two of a program that makes them again
/// and again.
const HOLD: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Level {
    #[default]
    Large,
    Ready,
    Tight,
}

impl Level {
    /// What the kernel is told: bytes, or percent.
    fn value(self) -> &'static str {
        match self {
            // FUSE has 1 without this.
            Self::Large => "40",
            // No more than workers can hold at a time, in requests of a mebibyte.
            Self::Ready | Self::Tight => "33554432",
        }
    }
}

/// Who writes much, and who waits.
#[derive(Debug, Default)]
struct Policy {
    level: Level,
    bulk: Option<Bulk>,
    /// The last fsyncs of two different files.
    syncs: [Option<(u64, Instant)>; 2],
}

/// Large requests of write-back.
#[derive(Debug)]
struct Bulk {
    /// Whose pages the last one held.
    node: u64,
    /// Since when the bytes are counted.
    since: Instant,
    bytes: usize,
    /// In the period before.
    before: usize,
}

impl Bulk {
    /// Begins the next period if this one is over.
    fn turn(&mut self, now: Instant) {
        let gone = now.saturating_duration_since(self.since);
        if gone >= LATELY {
            self.before = if gone < 2 * LATELY { self.bytes } else { 0 };
            self.bytes = 0;
            self.since = now;
        }
    }

    fn is_heavy(&self) -> bool {
        self.bytes.saturating_add(self.before) >= HEAVY
    }
}

impl Policy {
    /// Pages of `node` are written back. Gives the new level if it changes.
    fn written_back(&mut self, node: u64, bytes: usize, now: Instant) -> Option<Level> {
        if bytes >= BULK {
            let bulk = self.bulk.get_or_insert(Bulk { node, since: now, bytes: 0, before: 0 });
            bulk.turn(now);
            bulk.node = node;
            bulk.bytes = bulk.bytes.saturating_add(bytes);
        }
        self.change(now)
    }

    /// Somebody waits for the fsync of `node`. Gives the new level if it changes.
    fn syncs(&mut self, node: u64, now: Instant) -> Option<Level> {
        if self.syncs[0].is_some_and(|(last, _)| last != node) {
            self.syncs[1] = self.syncs[0];
        }
        self.syncs[0] = Some((node, now));
        self.change(now)
    }

    /// The heavy writer's node, if others wait because of it; else 0.
    fn busy(&self) -> u64 {
        self.bulk.as_ref().filter(|_| self.level == Level::Tight).map_or(0, |bulk| bulk.node)
    }

    fn change(&mut self, now: Instant) -> Option<Level> {
        let heavy = self.bulk.as_mut().and_then(|bulk| {
            bulk.turn(now);
            bulk.is_heavy().then_some(bulk.node)
        });
        let lately = |at: Instant| now.saturating_duration_since(at) < HOLD;
        let mut waiting =
            self.syncs.iter().flatten().filter(|(_, at)| lately(*at)).map(|(node, _)| *node);
        let level = match (waiting.next(), heavy) {
            (None, _) => Level::Large,
            (Some(node), Some(heavy)) if node != heavy || waiting.any(|node| node != heavy) => {
                Level::Tight
            }
            _ => Level::Ready,
        };
        (std::mem::replace(&mut self.level, level) != level).then_some(level)
    }
}

/// The mount's share of dirty memory.
#[derive(Debug, Default)]
pub(crate) struct Share {
    policy: Mutex<Policy>,
    knobs: OnceLock<Knobs>,
    /// The node of the heavy writer, while it is tight; else 0.
    busy: AtomicU64,
}

/// Files that set it.
#[derive(Debug)]
struct Knobs {
    bytes: File,
    percent: File,
}

impl Knobs {
    fn set(&self, level: Level) {
        let knob = if level == Level::Large { &self.percent } else { &self.bytes };
        // The kernel may refuse what is little on a machine with very much memory: then it stays as
        // it is.
        let _ = knob.write_at(level.value().as_bytes(), 0);
    }
}

impl Share {
    /// Sets the large share of a mount; `bdi` is its directory in sysfs. Best effort.
    pub(crate) fn enlarge(&self, bdi: &Path) {
        let open = |knob| File::options().write(true).open(bdi.join(knob));
        let Ok(percent) = open("max_ratio") else { return };
        let _ = percent.write_at(Level::Large.value().as_bytes(), 0);
        // (Linux has it since 6.2.)
        if let Ok(bytes) = open("max_bytes") {
            let _ = self.knobs.set(Knobs { bytes, percent });
        }
    }

    /// The kernel writes back pages of a file.
    pub(crate) fn written_back(&self, node: u64, bytes: usize) {
        self.note(|policy| policy.written_back(node, bytes, Instant::now()));
    }

    /// Somebody waits for the fsync of a file.
    pub(crate) fn syncs(&self, node: u64) {
        self.note(|policy| policy.syncs(node, Instant::now()));
    }

    fn note(&self, event: impl FnOnce(&mut Policy) -> Option<Level>) {
        let mut policy = self.policy.lock();
        if let (Some(level), Some(knobs)) = (event(&mut policy), self.knobs.get()) {
            knobs.set(level);
        }
        self.busy.store(policy.busy(), Ordering::Relaxed);
    }

    /// True for requests that wait while large ones of write-back take turns: these, and others of
    /// the node of whose data they are, because who has the turn has its lock, too.
    pub(crate) fn is_busy(&self, node: u64, bytes: usize) -> bool {
        let busy = self.busy.load(Ordering::Relaxed);
        busy != 0 && (busy == node || bytes >= BULK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[test]
    fn tight_while_a_writer_and_fsyncs_meet() {
        let (mut policy, start) = (Policy::default(), Instant::now());
        assert_eq!(policy.syncs(5, start), Some(Level::Ready), "nobody else writes");
        assert_eq!(policy.written_back(9, 3 * MIB, at(start, 1)), None);
        assert_eq!(
            policy.written_back(9, MIB, at(start, 2)),
            Some(Level::Tight),
            "before the next fsync"
        );
        assert_eq!(policy.syncs(5, at(start, 200)), None, "it is tight already");
        assert_eq!(
            policy.written_back(9, 9 * MIB, at(start, 2100)),
            None,
            "the last fsync was at 200"
        );
        assert_eq!(policy.written_back(9, MIB, at(start, 2200)), Some(Level::Large));
        assert_eq!(policy.written_back(9, MIB, at(start, 2300)), None, "it is large already");
        assert_eq!(policy.syncs(5, at(start, 2400)), Some(Level::Tight), "and again");
        assert_eq!(policy.syncs(5, at(start, 4400)), Some(Level::Ready), "the writer has ended");
    }

    #[test]
    fn the_writer_itself_may_fsync() {
        let (mut policy, start) = (Policy::default(), Instant::now());
        assert_eq!(policy.written_back(9, 100 * MIB, start), None);
        assert_eq!(policy.syncs(9, at(start, 100)), Some(Level::Ready));
        assert_eq!(policy.syncs(5, at(start, 200)), Some(Level::Tight), "and somebody else");
        assert_eq!(policy.syncs(9, at(start, 300)), None, "who is not forgotten");
        assert_eq!(policy.syncs(9, at(start, 400)), None, "however often the writer does");
    }

    #[test]
    fn small_or_old_writes_do_not_count() {
        let (mut policy, start) = (Policy::default(), Instant::now());
        for i in 0..4000 {
            policy.written_back(9, 4096, at(start, i / 10));
        }
        assert_eq!(policy.syncs(5, at(start, 400)), Some(Level::Ready), "small files");
        assert_eq!(policy.written_back(9, 3 * MIB, at(start, 400)), None, "too little");
        assert_eq!(policy.syncs(5, at(start, 2400)), None);
        assert_eq!(
            policy.written_back(9, 3 * MIB, at(start, 2410)),
            None,
            "the other 3 MiB are too long ago"
        );
        assert_eq!(
            policy.written_back(9, MIB, at(start, 3410)),
            Some(Level::Tight),
            "in two periods"
        );
    }

    /// Without them (another user's mount, an older kernel) workers still let requests wait for
    /// their turns.
    #[test]
    fn a_heavy_writer_is_known_without_knobs() {
        let share = Share::default();
        share.written_back(9, 100 * MIB);
        assert!(!share.is_busy(9, MIB), "nobody waits");
        share.syncs(5);
        assert!(share.is_busy(9, 100));
    }

    #[test]
    fn the_knobs_are_turned() {
        let dir = tempfile::tempdir().unwrap();
        let share = Share::default();
        for knob in ["max_bytes", "max_ratio"] {
            std::fs::write(dir.path().join(knob), "").unwrap();
        }
        share.enlarge(dir.path());
        let read = |knob| std::fs::read_to_string(dir.path().join(knob)).unwrap();
        assert_eq!((read("max_bytes").as_str(), read("max_ratio").as_str()), ("", "40"));
        share.syncs(5);
        assert_eq!(read("max_bytes"), "33554432");
        assert!(!share.is_busy(9, MIB), "not yet");
        std::fs::write(dir.path().join("max_bytes"), "").unwrap();
        share.written_back(9, 100 * MIB);
        assert_eq!(read("max_bytes"), "33554432");
        assert!(share.is_busy(9, 100) && share.is_busy(5, BULK) && !share.is_busy(5, 4096));
        share.written_back(10, MIB);
        assert!(share.is_busy(10, 100) && !share.is_busy(9, 100), "its next file");
        std::fs::write(dir.path().join("max_ratio"), "").unwrap();
        share.policy.lock().syncs = [None; 2];
        share.written_back(9, 1);
        assert_eq!(read("max_ratio"), "40");
        assert!(!share.is_busy(9, MIB) && !share.is_busy(0, MIB));
    }
}
