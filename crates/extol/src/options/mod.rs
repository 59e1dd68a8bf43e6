//! Mount options: the kernel's names and meanings, and a few of Extol's own. All of them are in
//! [`table()`].

mod parts;
mod table;
mod text;
mod word;

use std::time::Duration;

use extol_block::SharedDevice;

pub use crate::keys::Keys;
pub use parts::{
    AccessOptions, Atime, BackgroundOptions, CacheOptions, CheckpointOptions, DataMode,
    DataOptions, ErrorPolicy, InodeOptions, JournalOptions, QuotaOptions, SpaceOptions, Waiting,
};
pub use table::{OptionSpec, table};
pub(crate) use word::Word;

/// How to mount. `Default` is what `mount` does without options.
///
/// ```
/// use std::time::Duration;
///
/// use extol::MountOptions;
///
/// let options = MountOptions::default().commit_interval(Duration::from_secs(30));
/// // The same in the words of `mount -o`.
/// let parsed = MountOptions::parse("commit=30")?;
/// assert_eq!(options.journal.commit, parsed.journal.commit);
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// How the volume is opened, and what an error does to it.
    pub access: AccessOptions,
    /// How the journal works.
    pub journal: JournalOptions,
    /// Requests about the whole volume.
    pub checkpoint: CheckpointOptions,
    /// Times, owners and attributes of inodes.
    pub inodes: InodeOptions,
    /// Free space and the blocks kept for root.
    pub space: SpaceOptions,
    /// Whose limits are enforced.
    pub quota: QuotaOptions,
    /// How file data is written and read ahead.
    pub data: DataOptions,
    /// Bounds on what is kept in memory.
    pub cache: CacheOptions,
    /// What happens beside the operations.
    pub background: BackgroundOptions,
    /// Keys of encrypted files.
    pub keys: Keys,
}

/// What a remount may do with an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Remount {
    /// Takes effect at once.
    Live,
    /// May be repeated, not changed: a mount option of the opening.
    Fixed,
    /// As `Fixed`, with the kernel's words.
    FixedAs(&'static str),
    /// Refused, whatever it says.
    Never(&'static str),
    /// A change is ignored, with this line.
    Ignored(&'static str),
    /// Needs a log.
    NeedsLog,
    /// Takes effect at once, if the volume can have it.
    FastCommit,
}

/// The option with this name.
pub(crate) fn spec_of(name: &str) -> Option<&'static OptionSpec> {
    table().find(|spec| spec.names.contains(&name))
}

/// True for an option that a mount has for its whole life: a remount that changes it is refused.
#[must_use]
pub fn is_fixed(name: &str) -> bool {
    let rule = spec_of(name).map(|spec| spec.remount);
    matches!(rule, Some(Remount::Fixed | Remount::FixedAs(_) | Remount::Never(_)))
}

impl MountOptions {
    /// These options, read-only.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.access.read_only = true;
        self
    }

    /// These options, without background threads.
    #[must_use]
    pub fn without_threads(mut self) -> Self {
        self.background.threads = false;
        self
    }

    /// These options, with another time between two commits that nothing asks for (`commit=`).
    #[must_use]
    pub fn commit_interval(mut self, interval: Duration) -> Self {
        self.journal.commit = interval;
        self
    }

    /// These options, with or without fast commits. Without a choice there are some if the volume
    /// has the feature and room for them.
    #[must_use]
    pub fn fast_commits(mut self, on: bool) -> Self {
        self.journal.fast_commit = Some(on);
        self
    }

    /// These options, with another answer to an error (`errors=`).
    #[must_use]
    pub fn on_error(mut self, policy: ErrorPolicy) -> Self {
        self.access.errors = Some(policy);
        self
    }

    /// These options, with the open device of an external journal.
    #[must_use]
    pub fn with_journal(mut self, device: Option<SharedDevice>) -> Self {
        self.journal.device = device;
        self
    }

    /// Parses a comma-separated option list.
    ///
    /// # Errors
    /// One line that names the option that is unknown or has a bad value.
    pub fn parse(list: &str) -> Result<Self, String> {
        let mut options = Self::default();
        for option in list.split(',').filter(|o| !o.is_empty()) {
            let word = Word::new(option);
            if !options.set(word.name, word.value)? {
                return Err(format!("unknown mount option \"{option}\""));
            }
        }
        options.check()?;
        Ok(options)
    }

    /// Refuses options that do not go together. [`parse`](Self::parse) and the opening of a volume
    /// call it.
    ///
    /// # Errors
    /// One line that names them.
    pub fn check(&self) -> Result<(), String> {
        if self.checkpoint.disable && self.checkpoint.merge_given {
            return Err("checkpoint=merge cannot be used with checkpoint=disable".into());
        }
        if self.checkpoint.disable {
            return Err("checkpoint=disable is not supported: leave it out (every mount here can \
                        be recovered)"
                .into());
        }
        Ok(())
    }

    /// Applies one option. `Ok(false)`: it is unknown.
    ///
    /// # Errors
    /// One line about a bad or missing value.
    pub fn set(&mut self, name: &str, value: Option<&str>) -> Result<bool, String> {
        let word = Word { name, value };
        let Some(spec) = spec_of(name) else {
            return match table::ACCEPTED_WITH_VALUE.contains(&name) {
                true => Ok(true),
                false if table::ACCEPTED.contains(&name) => word.no_value().map(|()| true),
                false => Ok(false),
            };
        };
        // (A name that turns an option off has no value, whatever the option has.)
        if spec.value.is_empty() || name.starts_with("no") {
            word.no_value()?;
        }
        (spec.set)(self, word).map(|()| true)
    }
}

#[cfg(test)]
mod tests;
