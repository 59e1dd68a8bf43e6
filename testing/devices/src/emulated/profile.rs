//! What a medium is like: named profiles, and their text form.
//!
//! A profile is a list of numbers with a name. Its text form is `NAME` or `NAME:KEY=VALUE,...`: the
//! numbers of a named profile with some of them changed; `custom` is the profile where everything
//! is free. [`Profile`] prints itself in that form, complete, so a report says exactly what was
//! measured, for another to repeat.
//!
//! Where the numbers of the named profiles come from:
//!
//! - `sata`: data sheets of 3.5-inch disks of about 2008 (7200 rpm, 8.5 ms average seek, 8 MiB of
//!   cache, about 100 MB/s from the platter, 3 Gbit/s link, 32 tags). No FUA: Linux has it off for
//!   such disks.
//! - `raid`: an array behind a controller with a battery, about as fast as the Xserve array of the
//!   thread that brought adaptive fsync batching to ext3: a commit took it 8 ms with two threads
//!   (246 files/s) and 18 ms with 32 (1816 files/s), which gives a round trip of somewhat under a
//!   millisecond and 10 000 requests per second.
//! - `cloud`: a network disk of the middle class as providers specify them: 5000 requests/s, 200
//!   MB/s, half a millisecond of latency, a flush that waits for a second machine.
//! - `nvme`: a consumer's drive with a volatile cache and a fast flush.
//! - `ramdisk`: nothing added.

use super::parse;
use std::fmt;
use std::time::Duration;

/// Bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rate(pub(super) u64);

impl Rate {
    /// How long `bytes` take. The rate is never 0 (see [`Profile::from_text`]).
    pub(super) fn time(self, bytes: u64) -> Duration {
        let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(self.0.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A cap on requests: one per `interval`, but `burst` at once after a rest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Iops {
    pub(super) per_second: u32,
    pub(super) burst: u32,
}

impl Iops {
    pub(super) fn interval(self) -> Duration {
        Duration::from_secs(1) / self.per_second.max(1)
    }
}

/// Moving parts, with a cache before them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mechanics {
    /// Average seek over random distances.
    pub(super) seek: Duration,
    /// Rotations per minute.
    pub(super) rpm: u32,
    /// What one spindle reads or writes per second.
    pub(super) media: Rate,
    /// Disks in the array.
    pub(super) spindles: u32,
    /// Bytes of write cache.
    pub(super) cache: u64,
    /// The cache survives a loss of power, so a flush need not empty it.
    pub(super) protected: bool,
}

/// The timing of a medium, for [`EmulatedMedia`](super::EmulatedMedia).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Profile {
    /// First word of the text form.
    pub(super) name: &'static str,
    /// True if a number is not that of the named profile.
    pub(super) changed: bool,
    /// Added to every request; requests share it (they wait at the same time).
    pub(super) latency: Duration,
    /// The link: all data go through it, one after the other.
    pub(super) bandwidth: Option<Rate>,
    /// Requests that the medium takes at a time; more wait outside.
    pub(super) depth: u32,
    pub(super) iops: Option<Iops>,
    /// What a flush costs when there is nothing to write back.
    pub(super) flush: Duration,
    /// A durable write is one request. If not, it is a write and a flush.
    pub(super) native_fua: bool,
    pub(super) discard: bool,
    /// Zeroing moves no data.
    pub(super) fast_zero: bool,
    pub(super) mechanics: Option<Mechanics>,
}

/// Why a text is no profile: one line that says what to write instead.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct ProfileError(pub(super) String);

impl Profile {
    const NAMES: [&'static str; 6] = ["sata", "raid", "cloud", "nvme", "ramdisk", "custom"];

    /// Names that [`by_name`](Self::by_name) knows.
    #[must_use]
    pub fn names() -> &'static [&'static str] {
        &Self::NAMES
    }

    /// One of the named profiles.
    #[must_use]
    pub fn by_name(name: &str) -> Option<Self> {
        let name = *Self::NAMES.iter().find(|known| **known == name)?;
        let free = Self {
            name,
            changed: false,
            latency: Duration::ZERO,
            bandwidth: None,
            depth: parse::MAX_DEPTH,
            iops: None,
            flush: Duration::ZERO,
            native_fua: true,
            discard: true,
            fast_zero: true,
            mechanics: None,
        };
        let micros = Duration::from_micros;
        let disk = Mechanics {
            seek: micros(8500),
            rpm: 7200,
            media: Rate(100_000_000),
            spindles: 1,
            cache: 8 << 20,
            protected: false,
        };
        Some(match name {
            "sata" => Self {
                latency: micros(100),
                bandwidth: Some(Rate(300_000_000)),
                depth: 32,
                flush: micros(1000),
                native_fua: false,
                discard: false,
                fast_zero: false,
                mechanics: Some(disk),
                ..free
            },
            "raid" => Self {
                latency: micros(800),
                bandwidth: Some(Rate(200_000_000)),
                depth: 64,
                iops: Some(Iops { per_second: 10_000, burst: 1 }),
                flush: micros(2000),
                native_fua: false,
                discard: false,
                fast_zero: false,
                mechanics: Some(Mechanics {
                    media: Rate(50_000_000),
                    spindles: 12,
                    cache: 512 << 20,
                    protected: true,
                    ..disk
                }),
                ..free
            },
            "cloud" => Self {
                latency: micros(500),
                bandwidth: Some(Rate(200_000_000)),
                depth: 64,
                iops: Some(Iops { per_second: 5000, burst: 50 }),
                flush: micros(1000),
                native_fua: false,
                fast_zero: false,
                ..free
            },
            "nvme" => Self {
                latency: micros(20),
                bandwidth: Some(Rate(2_000_000_000)),
                depth: 256,
                flush: micros(80),
                ..free
            },
            _ => free,
        })
    }

    /// Reads `NAME` or `NAME:KEY=VALUE,...` (`cloud`, `cloud:flush=2ms`,
    /// `custom:latency=200us,bandwidth=100M`).
    ///
    /// Keys: `latency`, `flush`, `seek` (times: `80us`, `1.5ms`, `0`), `bandwidth`, `media` (bytes
    /// per second: `100M` is 100 000 000), `depth`, `iops`, `burst`, `rpm`, `spindles` (numbers),
    /// `cache` (bytes: `8M` is 8 MiB), `protected`, `discard` (`on`, `off`), `fua` (`native`,
    /// `flush`), `zero` (`fast`, `write`). `seek`, or any other number of the moving parts, makes a
    /// disk of a medium that was none.
    ///
    /// # Errors
    /// If the name or a key is unknown or a value makes no sense.
    pub fn from_text(text: &str) -> Result<Self, ProfileError> {
        parse::profile(text)
    }

    /// The name alone, without what was changed.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Requests that the medium takes at a time.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// What a flush costs when the medium has nothing to write back.
    #[must_use]
    pub fn flush_cost(&self) -> Duration {
        self.flush
    }

    /// True if the medium has heads to move.
    #[must_use]
    pub fn is_rotational(&self) -> bool {
        self.mechanics.is_some()
    }

    /// True if the medium takes no time of its own at all.
    #[must_use]
    pub fn is_free(&self) -> bool {
        Self::by_name("ramdisk")
            .is_some_and(|free| Self { name: free.name, changed: false, ..self.clone() } == free)
    }

    /// All numbers as `key=value` words, whether they were changed or not.
    #[must_use]
    pub fn numbers(&self) -> String {
        parse::numbers(self)
    }
}

impl std::str::FromStr for Profile {
    type Err = ProfileError;

    fn from_str(text: &str) -> Result<Self, ProfileError> {
        Self::from_text(text)
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.changed {
            false => f.write_str(self.name),
            true => write!(f, "{}:{}", self.name, self.numbers()),
        }
    }
}
