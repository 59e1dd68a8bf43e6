//! Crash states: a place in the tape, and what of the open writes reached the media.
//!
//! ```text
//!  w0 w1 w2 FLUSH w3 w4 w5 SETTLED 5 w6 w7 ✂
//!  └ all there ──┘ └ open: w3 w4 w6 w7; the durable write w5 is there ┘
//! ```
//!
//! A cut `c` is the moment in which the changes `0..c` had reached the device. A durable write that
//! did not end before is as open as any other. What was under way when a flush began stays open
//! behind it ([`Change::Flush`]).
//!
//! A state says what became of the open changes. Its name is short text, so that one line can
//! replay it:
//!
//! | name | what is there of the open changes |
//! |---|---|
//! | `none`, `all` | nothing; everything |
//! | `last` | the newest only |
//! | `but-N` | all without number N (counted from the oldest open one) |
//! | `mask-H` | those whose bit is set in the hexadecimal number H |
//! | `some-N` | a random choice, the Nth |
//! | `torn-N` | a random choice, with one or all of the chosen ones torn at sectors |
//! | `mixed-N` | a random choice in random order: of overlapping writes any may be the last |
//!
//! Random choices depend on seed, cut and N only.

use std::fmt;
use std::str::FromStr;

use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::media::{Media, SECTOR};
use crate::tape::{Change, Event};

/// What became of the open changes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    /// Nothing is there.
    None,
    /// Everything.
    All,
    /// The newest only.
    Last,
    /// All without this one.
    But(usize),
    /// Those whose bit is set.
    Mask(u64),
    /// A random choice.
    Some(u32),
    /// A random choice with torn writes.
    Torn(u32),
    /// A random choice in random order.
    Mixed(u32),
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::All => f.write_str("all"),
            Self::Last => f.write_str("last"),
            Self::But(n) => write!(f, "but-{n}"),
            Self::Mask(m) => write!(f, "mask-{m:x}"),
            Self::Some(n) => write!(f, "some-{n}"),
            Self::Torn(n) => write!(f, "torn-{n}"),
            Self::Mixed(n) => write!(f, "mixed-{n}"),
        }
    }
}

impl FromStr for Fate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "\"{text}\" is no state: none, all, last, but-N, mask-H, some-N, torn-N or mixed-N"
            )
        };
        let (kind, number) = text.split_once('-').unwrap_or((text, ""));
        let decimal = || number.parse::<u32>().map_err(|_| bad());
        Ok(match kind {
            "none" => Self::None,
            "all" => Self::All,
            "last" => Self::Last,
            "but" => Self::But(decimal()? as usize),
            "mask" => Self::Mask(u64::from_str_radix(number, 16).map_err(|_| bad())?),
            "some" => Self::Some(decimal()?),
            "torn" => Self::Torn(decimal()?),
            "mixed" => Self::Mixed(decimal()?),
            _ => return Err(bad()),
        })
    }
}

/// How many states are tried at a cut.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Every subset while so many changes are open.
    pub exhaustive: usize,
    /// Random choices beyond that.
    pub some: u32,
    /// States with torn writes.
    pub torn: u32,
    /// States with overlapping writes in random order, where any overlap.
    pub mixed: u32,
}

impl Effort {
    /// For a pull request.
    pub const QUICK: Self = Self { exhaustive: 3, some: 3, torn: 2, mixed: 1 };
    /// For a long campaign.
    pub const LONG: Self = Self { exhaustive: 6, some: 8, torn: 6, mixed: 2 };
}

/// One change that is not certain, or a durable write that is (and overrides older ones).
#[derive(Clone, Copy, Debug)]
struct Item {
    event: usize,
    certain: bool,
}

/// Walks along a tape and builds states.
#[derive(Debug)]
pub struct Cutter<'a> {
    events: &'a [Event],
    seed: u64,
    /// The changes that are certain because of a flush.
    durable: Media,
    /// The others: open ones, and durable writes between them. In order.
    window: Vec<Item>,
    cut: usize,
}

impl<'a> Cutter<'a> {
    /// At the beginning of a tape that started with `base`.
    #[must_use]
    pub fn new(base: Media, events: &'a [Event], seed: u64) -> Self {
        Self { events, seed, durable: base, window: Vec::new(), cut: 0 }
    }

    /// Number of cuts: one before each change, one behind the last.
    #[must_use]
    pub fn cuts(&self) -> usize {
        self.events.len() + 1
    }

    /// Goes forward to a cut.
    pub fn seek(&mut self, cut: usize) {
        debug_assert!(cut >= self.cut && cut <= self.events.len());
        for at in self.cut..cut {
            let device = self.events[at].device;
            match &self.events[at].change {
                Change::Flush { open } => {
                    let (events, durable) = (self.events, &mut self.durable);
                    self.window.retain(|item| {
                        let covered =
                            events[item.event].device == device && !open.contains(&item.event);
                        if covered {
                            durable.apply(&events[item.event]);
                        }
                        !covered
                    });
                }
                Change::Write { .. } => self.window.push(Item { event: at, certain: false }),
                Change::Settled { writes } => {
                    for item in self.window.iter_mut().filter(|item| writes.contains(&item.event)) {
                        item.certain = true;
                    }
                }
                Change::Zero { .. } | Change::Size(_) => {
                    self.window.push(Item { event: at, certain: false });
                }
            }
        }
        self.cut = cut;
    }

    /// The open changes, as numbers of events, oldest first.
    #[must_use]
    pub fn open(&self) -> Vec<usize> {
        self.window.iter().filter(|i| !i.certain).map(|i| i.event).collect()
    }

    /// The states to try here.
    #[must_use]
    pub fn fates(&self, effort: &Effort) -> Vec<Fate> {
        let open = self.open();
        let n = open.len();
        if n == 0 {
            return vec![Fate::None];
        }
        let mut fates = vec![Fate::None, Fate::All];
        if n <= effort.exhaustive {
            let last = (1u64 << n) - 1;
            fates.extend((1..last).map(Fate::Mask));
        } else {
            let mut rng = self.random(0, 0);
            fates.extend([Fate::Last, Fate::But(0), Fate::But(n - 1)]);
            let others = rng.random_range(0..n);
            fates.push(Fate::But(others));
            fates.extend((0..effort.some).map(Fate::Some));
            fates.dedup();
        }
        fates.extend((0..effort.torn).map(Fate::Torn));
        if self.overlaps(&open) {
            fates.extend((0..effort.mixed).map(Fate::Mixed));
        }
        fates
    }

    /// True if open writes overlap. A discard between them keeps its place: a device that let it
    /// overtake a later write to the same blocks would be of no use with any file system; and so
    /// does a length.
    fn overlaps(&self, open: &[usize]) -> bool {
        let mut ranges = Vec::new();
        for event in open.iter().map(|e| &self.events[*e]) {
            if matches!(event.change, Change::Zero { .. } | Change::Size(_)) {
                return false;
            }
            let (from, len) = range(&event.change);
            ranges.push((event.device, from, from + len));
        }
        ranges.sort_unstable();
        ranges.windows(2).any(|w| w[0].0 == w[1].0 && w[0].2 > w[1].1)
    }

    fn random(&self, kind: u64, nr: u32) -> SmallRng {
        let mixed = self.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (self.cut as u64) << 20;
        SmallRng::seed_from_u64(mixed ^ kind << 60 ^ u64::from(nr))
    }

    /// Builds a state.
    #[must_use]
    pub fn state(&self, fate: Fate) -> Media {
        let open = self.open();
        let n = open.len();
        let mut media = self.durable.snapshot();
        let mut kept = vec![false; n];
        let mut torn: Option<(usize, SmallRng)> = None;
        let mut order: Vec<usize> = (0..n).collect();
        let choose = |kept: &mut [bool], rng: &mut SmallRng| {
            let share = [0.15, 0.5, 0.85][rng.random_range(0..3)];
            kept.iter_mut().for_each(|k| *k = rng.random_bool(share));
        };
        match fate {
            Fate::None => {}
            Fate::All => kept.fill(true),
            Fate::Last => kept.iter_mut().rev().take(1).for_each(|k| *k = true),
            Fate::But(out) => kept.iter_mut().enumerate().for_each(|(i, k)| *k = i != out),
            Fate::Mask(mask) => {
                kept.iter_mut().enumerate().for_each(|(i, k)| *k = i < 64 && mask >> i & 1 == 1)
            }
            Fate::Some(nr) => choose(&mut kept, &mut self.random(1, nr)),
            Fate::Torn(nr) => {
                let mut rng = self.random(2, nr);
                choose(&mut kept, &mut rng);
                if n > 0 {
                    // The newest is the one that a power cut tears most likely.
                    let which = if rng.random_bool(0.5) { n - 1 } else { rng.random_range(0..n) };
                    kept[which] = true;
                    torn = Some((if rng.random_bool(0.7) { which } else { usize::MAX }, rng));
                }
            }
            Fate::Mixed(nr) => {
                let mut rng = self.random(3, nr);
                choose(&mut kept, &mut rng);
                order.shuffle(&mut rng);
            }
        }
        self.keep_lengths(&open, &mut kept);
        let mut apply = |media: &mut Media, i: usize| {
            let event = &self.events[open[i]];
            match &mut torn {
                _ if !kept[i] => {}
                Some((which, rng)) if *which == i || *which == usize::MAX => {
                    tear(media, event, rng)
                }
                _ => media.apply(event),
            }
        };
        if matches!(fate, Fate::Mixed(_)) {
            // What a durable write made certain is newer than every older write to the same place.
            let last_certain = self.window.iter().rposition(|i| i.certain);
            let older = last_certain
                .map_or(0, |at| self.window[..at].iter().filter(|i| !i.certain).count());
            order.sort_by_key(|i| *i >= older);
            for i in order.iter().filter(|i| **i < older) {
                apply(&mut media, *i);
            }
            for item in self.window.iter().filter(|i| i.certain) {
                media.apply(&self.events[item.event]);
            }
            for i in order.iter().filter(|i| **i >= older) {
                apply(&mut media, *i);
            }
            return media;
        }
        let mut next = 0;
        for item in &self.window {
            if item.certain {
                media.apply(&self.events[item.event]);
            } else {
                apply(&mut media, next);
                next += 1;
            }
        }
        media
    }

    /// What lies behind the end of a file that becomes shorter and longer is there only if all
    /// lengths from that one on are; and a length only if the older ones are.
    fn keep_lengths(&self, open: &[usize], kept: &mut [bool]) {
        for later in (0..open.len()).rev() {
            let Event { device, change } = &self.events[open[later]];
            let end = match change {
                Change::Size(_) => u64::MAX,
                change => range(change).0 + range(change).1,
            };
            for older in 0..later {
                let event = &self.events[open[older]];
                let Change::Size(bytes) = event.change else { continue };
                kept[older] |= kept[later] && event.device == *device && end > bytes;
            }
        }
    }

    /// What the open changes and the fate are, for messages.
    #[must_use]
    pub fn describe(&self) -> Vec<String> {
        let line = |(i, e): (usize, &usize)| {
            let event = &self.events[*e];
            let (offset, len) = range(&event.change);
            let what = match &event.change {
                Change::Write { .. } => "write",
                Change::Zero { .. } => "zero",
                Change::Size(_) => "length",
                Change::Flush { .. } => "flush",
                Change::Settled { .. } => "end of durable writes",
            };
            format!(
                "open {i}: change {e}, device {}, {what} of {len} bytes at {offset}",
                event.device
            )
        };
        self.open().iter().enumerate().map(line).collect()
    }
}

fn range(change: &Change) -> (u64, u64) {
    match change {
        Change::Write { offset, data } => (*offset, data.len() as u64),
        Change::Zero { offset, len } => (*offset, *len),
        Change::Size(bytes) => (0, *bytes),
        Change::Flush { .. } | Change::Settled { .. } => (0, 0),
    }
}

/// Where the superblock of the file system lies.
const SUPERBLOCK: std::ops::Range<u64> = 1024..2048;

/// Applies some sectors of a write. See the crate's page for why the superblock stays whole.
fn tear(media: &mut Media, event: &Event, rng: &mut SmallRng) {
    let Change::Write { offset, data } = &event.change else { return media.apply(event) };
    let end = offset + data.len() as u64;
    if event.device == 0 && *offset < SUPERBLOCK.end && end > SUPERBLOCK.start {
        return media.apply(event);
    }
    let pieces = (end.div_ceil(SECTOR) - offset / SECTOR) as usize;
    match rng.random_range(0..4) {
        0 => {
            let from = rng.random_range(0..=pieces);
            media.apply_pieces(event, |p| p < from);
        }
        1 => {
            let from = rng.random_range(0..=pieces);
            media.apply_pieces(event, |p| p >= from);
        }
        2 => {
            let out = rng.random_range(0..pieces.max(1));
            media.apply_pieces(event, |p| p != out);
        }
        _ => media.apply_pieces(event, |_| rng.random_bool(0.5)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extol_block::{BlockDevice as _, MemDevice};
    use std::collections::HashSet;

    fn write(device: usize, at: u64, byte: u8) -> Event {
        Event { device, change: Change::Write { offset: at, data: [byte; 512].into() } }
    }

    fn flush(device: usize) -> Event {
        Event { device, change: Change::Flush { open: Vec::new() } }
    }

    fn settled(device: usize, event: usize) -> Event {
        Event { device, change: Change::Settled { writes: event..event + 1 } }
    }

    fn media() -> Media {
        Media::new(vec![MemDevice::new(8 * 512), MemDevice::new(8 * 512)])
    }

    /// First byte of each sector of both devices.
    fn seen(media: &Media) -> Vec<u8> {
        media.devices().iter().flat_map(|d| d.to_bytes().into_iter().step_by(512)).collect()
    }

    #[test]
    fn flushes_cover_their_own_device_only() {
        let events = [
            write(0, 0, 1),
            write(1, 0, 2),
            flush(0),
            write(0, 512, 3),
            write(1, 512, 4),
            settled(1, 4),
        ];
        let mut cutter = Cutter::new(media(), &events, 1);
        cutter.seek(5);
        assert_eq!(cutter.open(), [1, 3, 4], "the durable write is under way");
        let none = seen(&cutter.state(Fate::None));
        assert_eq!((none[0], none[1], none[8], none[9]), (1, 0, 0, 0));
        let mask = seen(&cutter.state(Fate::Mask(0b101)));
        assert_eq!((mask[1], mask[8], mask[9]), (0, 2, 4));
        cutter.seek(6);
        assert_eq!(cutter.open(), [1, 3]);
        let none = seen(&cutter.state(Fate::None));
        assert_eq!((none[8], none[9]), (0, 4), "the durable write is there without the older one");
    }

    #[test]
    fn a_flush_says_nothing_about_what_was_under_way() {
        let during = Event { device: 0, change: Change::Flush { open: vec![1, 2] } };
        let events =
            [write(0, 0, 1), write(0, 512, 2), write(0, 1024, 3), during, settled(0, 2), flush(0)];
        let mut cutter = Cutter::new(media(), &events, 1);
        cutter.seek(4);
        assert_eq!(cutter.open(), [1, 2]);
        assert_eq!(seen(&cutter.state(Fate::None))[..3], [1, 0, 0]);
        cutter.seek(5);
        assert_eq!(
            seen(&cutter.state(Fate::None))[..3],
            [1, 0, 3],
            "it ended, and was a durable one"
        );
        cutter.seek(6);
        assert_eq!(seen(&cutter.state(Fate::None))[..3], [1, 2, 3]);
    }

    #[test]
    fn lengths_of_a_file_reach_the_medium_in_order() {
        let size = |bytes| Event { device: 0, change: Change::Size(bytes) };
        let events = [write(0, 0, 1), size(4 * 512), size(6 * 512), write(0, 5 * 512, 2)];
        let mut cutter = Cutter::new(media(), &events, 1);
        cutter.seek(4);
        let fates = cutter.fates(&Effort { exhaustive: 4, some: 0, torn: 0, mixed: 0 });
        let states: HashSet<(u64, u8, u8)> = fates
            .iter()
            .map(|fate| {
                let media = cutter.state(*fate);
                let seen = seen(&media);
                let len = media.devices()[0].size() / 512;
                (len, seen[0], if len > 5 { seen[5] } else { 0 })
            })
            .collect();
        let lengths = [(8, 0), (4, 0), (6, 0), (6, 2)];
        let all = lengths.map(|(len, last)| [(len, 0, last), (len, 1, last)]);
        assert_eq!(states, all.into_iter().flatten().collect());
    }

    #[test]
    fn small_windows_are_tried_in_full() {
        let events: Vec<_> = (0..3).map(|i| write(0, i * 512, 1)).collect();
        let mut cutter = Cutter::new(media(), &events, 1);
        cutter.seek(3);
        let fates = cutter.fates(&Effort { exhaustive: 3, some: 0, torn: 0, mixed: 0 });
        let states: HashSet<u128> = fates.iter().map(|f| cutter.state(*f).fingerprint()).collect();
        assert_eq!(states.len(), 8);
        let fates = cutter.fates(&Effort { exhaustive: 2, some: 0, torn: 0, mixed: 0 });
        for wanted in [Fate::None, Fate::All, Fate::Last, Fate::But(0), Fate::But(2)] {
            assert!(fates.contains(&wanted), "{fates:?}");
        }
    }

    #[test]
    fn any_overlapping_write_may_be_the_last_but_not_over_a_newer_durable_one() {
        let events = [write(0, 0, 1), write(0, 0, 2)];
        let mut cutter = Cutter::new(media(), &events, 1);
        cutter.seek(2);
        let results: HashSet<u8> =
            (0..200).map(|n| seen(&cutter.state(Fate::Mixed(n)))[0]).collect();
        assert_eq!(results, HashSet::from([0, 1, 2]));
        let events = [write(0, 0, 1), write(0, 0, 2), settled(0, 1), write(0, 0, 3)];
        let mut cutter = Cutter::new(media(), &events, 1);
        cutter.seek(4);
        let results: HashSet<u8> =
            (0..200).map(|n| seen(&cutter.state(Fate::Mixed(n)))[0]).collect();
        assert_eq!(results, HashSet::from([2, 3]));
        assert_eq!(seen(&cutter.state(Fate::Mask(1)))[0], 2);
    }

    #[test]
    fn torn_writes_leave_whole_sectors() {
        let big =
            Event { device: 0, change: Change::Write { offset: 2048, data: [5; 2048].into() } };
        let events = [big];
        let mut cutter = Cutter::new(media(), &events, 1);
        cutter.seek(1);
        let states: HashSet<Vec<u8>> =
            (0..300).map(|n| seen(&cutter.state(Fate::Torn(n)))).collect();
        assert!(states.len() >= 12, "{} of 16 ways", states.len());
    }

    #[test]
    fn names_of_states_read_back() {
        let all = [
            Fate::None,
            Fate::All,
            Fate::Last,
            Fate::But(3),
            Fate::Mask(0x1f),
            Fate::Some(2),
            Fate::Torn(9),
        ];
        for fate in all.into_iter().chain([Fate::Mixed(4)]) {
            assert_eq!(fate.to_string().parse(), Ok(fate));
        }
        assert!("mask-".parse::<Fate>().is_err() && "x".parse::<Fate>().is_err());
    }
}
