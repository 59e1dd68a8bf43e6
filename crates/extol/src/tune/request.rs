//! What is to be changed, and the words for it, as tune2fs(8) takes them.

use std::path::PathBuf;

use extol_ondisk::Superblock;
use extol_ondisk::features::Feature;
use extol_ondisk::quota::Kind;
use extol_ondisk::superblock::DefaultMountOpts;
use extol_vfs::{Size, bytes_text, nearest, number};

use super::words::{EXTENDED, JOURNAL, QUOTAS};
use super::{Result, TuneError, refuse};
use crate::options::ErrorPolicy;

/// Most seconds between two updates of multi-mount protection.
const MOST_MMP_INTERVAL: u16 = 300;

/// Blocks that only root may take.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum ReservedBlocks {
    /// So many.
    Count(u64),
    /// A part of all, in percent.
    Percent(f64),
}

/// How a new journal is to be.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct NewJournal {
    /// Size in MiB, without the area for fast commits.
    pub size_mib: Option<u32>,
    /// Size of the area for fast commits in KiB.
    pub fast_commit_kib: Option<u32>,
    /// Where it is to lie: a plain number is one of a block.
    pub location: Option<Size>,
    /// A device of its own, made as one for a journal (`mkfs -O journal_dev`), or an image of one.
    pub device: Option<PathBuf>,
}

/// Changes of a volume; what is `None` or empty stays as it is.
#[derive(Clone, PartialEq, Debug, Default)]
#[non_exhaustive]
pub struct Request {
    /// The label, at most 16 bytes ([`cut`](Self::cut)).
    pub label: Option<Vec<u8>>,
    /// Where the volume was last mounted, at most 64 bytes ([`cut`](Self::cut)).
    pub last_mounted: Option<Vec<u8>>,
    /// The UUID.
    pub uuid: Option<[u8; 16]>,
    /// What an error does.
    pub errors: Option<ErrorPolicy>,
    /// Blocks that only root may take.
    pub reserved: Option<ReservedBlocks>,
    /// The user that may take them, too.
    pub reserved_uid: Option<u16>,
    /// The group that may take them, too.
    pub reserved_gid: Option<u16>,
    /// Mounts since the last check.
    pub mounts: Option<u16>,
    /// Mounts after which to check; not positive: never.
    pub most_mounts: Option<i16>,
    /// Seconds between two checks; 0: never.
    pub check_interval: Option<u32>,
    /// When the last check was, in seconds since 1970.
    pub last_check: Option<u64>,
    /// Blocks that are written to one disk of a RAID.
    pub stride: Option<u16>,
    /// Blocks of a full stripe of a RAID.
    pub stripe_width: Option<u32>,
    /// The hash of new directories: 0 legacy, 1 half_md4, 2 tea.
    pub hash: Option<u8>,
    /// Mount options as text, at most 63 bytes.
    pub mount_options: Option<Vec<u8>>,
    /// Seconds between two updates of multi-mount protection; 0: the usual ones.
    pub mmp_interval: Option<u16>,
    /// The next e2fsck checks the volume.
    pub force_check: bool,
    /// The volume is one for tests of file systems.
    pub test_fs: Option<bool>,
    /// The size of an orphan file that is to be made; a plain number counts blocks.
    pub orphan_file_size: Option<Size>,
    /// A journal is made, and how it is to be.
    pub journal: Option<NewJournal>,
    /// No host has the volume, whatever its block of multi-mount protection says. Nothing else is
    /// asked for then.
    pub clear_mmp: bool,
    /// Names can be folded as UTF-8: asks for casefold.
    pub encoding: bool,
    /// Flags of the encoding. They are given together with it.
    pub encoding_flags: Option<u16>,
    pub(super) features: Vec<(Feature, bool)>,
    pub(super) quotas: Vec<(Kind, bool)>,
    pub(super) default_options: Vec<(&'static str, bool)>,
}

/// A word without the `^` or `-` that stands for "not".
fn switched(word: &str) -> (&str, bool) {
    match word.strip_prefix(['^', '-']) {
        Some(name) => (name, false),
        None => (word.strip_prefix('+').unwrap_or(word), true),
    }
}

/// The end of a line about an unknown word.
fn meant<'k>(word: &str, known: impl IntoIterator<Item = &'k str>) -> String {
    let near = nearest(word, known);
    near.map(|near| format!(": did you mean \"{near}\"?")).unwrap_or_default()
}

fn about(name: &str, error: impl std::fmt::Display) -> TuneError {
    TuneError::Refused(format!("option {name}: {error}"))
}

fn count<T>(name: &str, text: &str, most: T) -> Result<T>
where
    T: Copy + From<u8> + Into<u64> + TryFrom<u64>,
{
    number::count(text, T::from(0)..=most).map_err(|error| about(name, error))
}

impl Request {
    /// True if nothing is to be changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// True if damage of the volume could spread: it is to be checked before.
    #[must_use]
    pub fn may_spread_damage(&self) -> bool {
        self.uuid.is_some()
            || !self.features.is_empty()
            || !self.quotas.is_empty()
            || self.encoding
            || self.journal.is_some()
    }

    /// Cuts a label and a directory of the last mount that are too long, as tune2fs and mkfs do; a
    /// line about each.
    pub fn cut(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        for (text, most, what) in
            [(&mut self.label, 16, "label"), (&mut self.last_mounted, 64, "directory of -M")]
        {
            if let Some(text) = text.as_mut().filter(|text| text.len() > most) {
                text.truncate(most);
                let kept = bytes_text(text);
                lines.push(format!(
                    "the {what} is longer than {most} bytes and was cut to '{kept}'"
                ));
            }
        }
        lines
    }

    /// Takes a list of features, each switched off by a `^` before it.
    ///
    /// # Errors
    /// A feature that is not known. (One that cannot be switched is refused only if the volume does
    /// not have it as asked for already.)
    pub fn set_features(&mut self, list: &str) -> Result<()> {
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (name, on) = switched(word);
            let Some(feature) = Feature::parse(&name.to_ascii_lowercase()) else {
                return refuse(format!(
                    "unknown feature '{name}'{}",
                    meant(name, Feature::names())
                ));
            };
            self.features.retain(|(other, _)| *other != feature);
            self.features.push((feature, on));
        }
        Ok(())
    }

    /// Takes a list of quota files that come (`usrquota`, `grpquota`, `prjquota`), or go by a `^`
    /// before the word. The feature is there as long as a file is; `prjquota` brings the feature
    /// project, which goes with it.
    ///
    /// # Errors
    /// A word that is not known.
    pub fn set_quotas(&mut self, list: &str) -> Result<()> {
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (name, on) = switched(word);
            let kind = match name {
                "usrquota" => Kind::User,
                "grpquota" => Kind::Group,
                "prjquota" => Kind::Project,
                _ => {
                    return refuse(format!(
                        "unknown kind of quota '{name}'{}",
                        meant(name, QUOTAS.iter().copied())
                    ));
                }
            };
            self.quotas.retain(|(other, _)| *other != kind);
            self.quotas.push((kind, on));
        }
        Ok(())
    }

    /// Takes a list of options for a journal that is made.
    ///
    /// # Errors
    /// A word that is not known, or a bad value.
    pub fn set_journal(&mut self, list: &str) -> Result<()> {
        let journal = self.journal.get_or_insert_default();
        for word in list.split(',').filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if value.is_empty() && JOURNAL.iter().any(|known| known.strip_suffix('=') == Some(name))
            {
                return Err(about(name, format_args!("it needs a value: {name}=…")));
            }
            let in_units = |unit: u64| -> Result<u32> {
                let size: Size = value.parse().map_err(|error| about(name, error))?;
                let bytes = size.bytes(unit).map_err(|error| about(name, error))?;
                let units = u32::try_from(bytes / unit).ok().filter(|units| *units > 0);
                units.ok_or_else(|| {
                    about(name, format_args!("\"{value}\" is not from 1 to {}", u32::MAX))
                })
            };
            match name {
                "size" => journal.size_mib = Some(in_units(1 << 20)?),
                "fast_commit_size" => journal.fast_commit_kib = Some(in_units(1 << 10)?),
                "location" => {
                    journal.location = Some(value.parse().map_err(|error| about(name, error))?);
                }
                "device" => journal.device = Some(value.into()),
                _ => {
                    return refuse(format!(
                        "unknown journal option '{name}'{}",
                        meant(name, JOURNAL.iter().copied())
                    ));
                }
            }
        }
        Ok(())
    }

    /// Takes a list of mount options that hold by default, each switched off by a `^` before it.
    ///
    /// # Errors
    /// A word that is not known.
    pub fn set_default_options(&mut self, list: &str) -> Result<()> {
        for word in list.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (name, on) = switched(word);
            let Some(known) = DefaultMountOpts::words().find(|known| *known == name) else {
                return refuse(format!(
                    "unknown default mount option '{name}'{}",
                    meant(name, DefaultMountOpts::words())
                ));
            };
            self.default_options.push((known, on));
        }
        Ok(())
    }

    /// Takes a list of extended options.
    ///
    /// # Errors
    /// A word that is not known, or a bad value.
    pub fn set_extended(&mut self, list: &str) -> Result<()> {
        let mut words = list.split(',').filter(|word| !word.is_empty());
        while let Some(word) = words.next() {
            let (name, value) = word.split_once('=').map_or((word, None), |(n, v)| (n, Some(v)));
            if name == "mount_opts" {
                // The value is a list itself: it is the rest.
                let value =
                    value.ok_or_else(|| about(name, "it needs a value: mount_opts=LIST"))?;
                let rest: Vec<_> = std::iter::once(value).chain(words.by_ref()).collect();
                if let Some(word) = rest.iter().skip(1).find(|word| is_extended(word)) {
                    let why = format_args!(
                        "it takes all that follows it, and \"{word}\" is an extended option: put \
                         that before mount_opts=, or give another -E"
                    );
                    return Err(about(name, why));
                }
                self.mount_options = Some(rest.join(",").into_bytes());
                continue;
            }
            self.set_one(name, value)?;
        }
        Ok(())
    }

    fn set_one(&mut self, name: &str, value: Option<&str>) -> Result<()> {
        let text = || {
            value
                .filter(|value| !value.is_empty())
                .ok_or_else(|| about(name, format_args!("it needs a value: {name}=…")))
        };
        let bare = |on| match value {
            None => Ok(on),
            Some(_) => Err(about(name, "it takes no value")),
        };
        match name {
            "stride" => self.stride = Some(count(name, text()?, u16::MAX)?),
            "stripe_width" | "stripe-width" => {
                self.stripe_width = Some(count(name, text()?, u32::MAX)?);
            }
            "hash_alg" | "hash-alg" => self.hash = Some(hash(text()?)?),
            "mmp_update_interval" => {
                self.mmp_interval = Some(count(name, text()?, MOST_MMP_INTERVAL)?);
            }
            "orphan_file_size" => {
                self.orphan_file_size = Some(text()?.parse().map_err(|e| about(name, e))?);
            }
            "encoding" => self.encoding = encoding(text()?)?,
            "encoding_flags" => self.encoding_flags = Some(encoding_flags(text()?)?),
            "clear_mmp" => self.clear_mmp = bare(true)?,
            "force_fsck" => self.force_check = bare(true)?,
            "test_fs" => self.test_fs = Some(bare(true)?),
            "^test_fs" => self.test_fs = Some(bare(false)?),
            _ => {
                return refuse(format!(
                    "unknown extended option '{name}'{}",
                    meant(name, EXTENDED.iter().copied())
                ));
            }
        }
        Ok(())
    }

    /// Takes a time between two checks: a number of days, or with d, w, m (30 days) or s behind it.
    ///
    /// # Errors
    /// No such time, or one beyond 32 bits of seconds.
    pub fn set_interval(&mut self, text: &str) -> Result<()> {
        let bad = || {
            TuneError::Refused(format!(
                "bad interval \"{text}\": it must be a number of days, or one with d, w, m or s \
                 behind it"
            ))
        };
        let (digits, unit) = match text.strip_suffix(|c: char| c.is_ascii_alphabetic()) {
            Some(digits) => (digits, text.get(digits.len()..).unwrap_or_default()),
            None => (text, "d"),
        };
        let unit = match unit {
            "s" => 1,
            "d" => 86_400,
            "w" => 7 * 86_400,
            "m" => 30 * 86_400,
            _ => return Err(bad()),
        };
        let number = match digits.parse::<u64>() {
            Ok(number) => number,
            // All digits: it can only be too large.
            Err(_) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => u64::MAX,
            Err(_) => return Err(bad()),
        };
        let most = u32::MAX;
        let Ok(seconds) = u32::try_from(number.saturating_mul(unit)) else {
            return refuse(format!(
                "bad interval \"{text}\": it is larger than {} days ({most} seconds)",
                most / 86_400
            ));
        };
        self.check_interval = Some(seconds);
        Ok(())
    }
}

/// True if the word is one of [`EXTENDED`], with any value.
fn is_extended(word: &str) -> bool {
    let name = |word: &str| word.split('=').next().unwrap_or_default().replace('-', "_");
    EXTENDED.iter().any(|known| name(known) == name(word))
}

fn encoding(name: &str) -> Result<bool> {
    match name {
        "utf8" | "utf8-12.1" => Ok(true),
        _ => refuse(format!("unknown encoding '{name}': Linux knows only utf8")),
    }
}

fn encoding_flags(name: &str) -> Result<u16> {
    match name {
        "strict" => Ok(Superblock::STRICT_ENCODING),
        "nostrict" => Ok(0),
        _ => refuse(format!("unknown flag '{name}' of the encoding: it can be strict or nostrict")),
    }
}

fn hash(name: &str) -> Result<u8> {
    match name {
        "legacy" => Ok(0),
        "half_md4" => Ok(1),
        "tea" => Ok(2),
        _ => refuse(format!("bad hash_alg '{name}': it must be half_md4, tea or legacy")),
    }
}

#[cfg(test)]
mod tests {
    use super::super::features;
    use super::super::words::{DEFAULT_OPTIONS, FEATURES};
    use super::*;

    #[test]
    fn offered_words_are_taken() {
        let mut request = Request::default();
        for word in FEATURES {
            request.set_features(word).expect(word);
        }
        for word in DEFAULT_OPTIONS {
            request.set_default_options(word).expect(word);
            request.set_default_options(&format!("^{word}")).expect(word);
        }
        for word in QUOTAS {
            request.set_quotas(word).expect(word);
        }
        for word in JOURNAL {
            request.set_journal(&format!("{word}4")).expect(word);
        }
        for word in EXTENDED {
            let value = if word.ends_with('=') { "4" } else { "" };
            request.set_extended(&format!("{word}{value}")).expect(word);
        }
        assert_eq!(DEFAULT_OPTIONS.len(), DefaultMountOpts::words().count());
    }

    /// All features of all words: each is switched, or refused with what to do.
    #[test]
    fn all_features_have_an_answer() {
        for name in Feature::names() {
            let feature = Feature::parse(name).expect(name);
            for (word, on) in [(name.to_owned(), true), (format!("^{name}"), false)] {
                Request::default().set_features(&word).expect(&word);
                let refused = features::why_not(feature, on);
                assert_eq!(refused.is_none(), FEATURES.contains(&word.as_str()), "{word}");
                assert!(refused.is_none_or(|why| why.contains([':', ' '])), "{word}: {refused:?}");
            }
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (text, words) in [
            ("strid=4", "did you mean \"stride=\""),
            ("stride=70000", "larger than 65535"),
            ("stride", "needs a value"),
            ("force_fsck=1", "takes no value"),
            ("hash_alg=md5", "half_md4"),
            ("mmp_update_interval=301", "larger than 300"),
            ("clear_mmp=1", "takes no value"),
            ("encoding=latin1", "only utf8"),
            ("encoding_flags=frob", "strict or nostrict"),
            ("orphan_file_size=x", "orphan_file_size"),
            ("mount_opts=ro,stride=4", "another -E"),
            ("mount_opts=ro,stripe-width=4", "another -E"),
            ("mount_opts=ro,^test_fs", "another -E"),
        ] {
            let line = Request::default().set_extended(text).expect_err(text).to_string();
            assert!(line.contains(words), "{text}: {line}");
        }
        for (text, words) in [
            ("siz=4", "did you mean \"size=\""),
            ("size", "needs a value"),
            ("size=0", "is not from 1 to"),
            ("size=x", "size"),
            ("fast_commit_size=9999P", "is not from 1 to"),
        ] {
            let line = Request::default().set_journal(text).expect_err(text).to_string();
            assert!(line.contains(words), "{text}: {line}");
        }
        let line = Request::default().set_quotas("usrquoat").expect_err("a mistake").to_string();
        assert!(line.contains("did you mean \"usrquota\""), "{line}");
        for text in ["", "d", "1y", "-1", "1dd"] {
            Request::default().set_interval(text).expect_err(text);
        }
        for text in ["99999m", "49711", "99999999999999999999s"] {
            let line = Request::default().set_interval(text).expect_err(text).to_string();
            assert!(line.contains("larger than 49710 days"), "{line}");
        }
        for (text, seconds) in [("0", 0), ("3", 259_200), ("2w", 1_209_600), ("6m", 15_552_000)] {
            let mut request = Request::default();
            request.set_interval(text).expect(text);
            assert_eq!(request.check_interval, Some(seconds));
        }
        let mut request = Request::default();
        request.set_extended("stride=4,mount_opts=ro,acl,stripe=4").expect("a list");
        assert_eq!(request.mount_options.as_deref(), Some(&b"ro,acl,stripe=4"[..]));
        assert_eq!((request.stride, request.test_fs), (Some(4), None));
        request.set_features("dir_index,^dir_index").expect("features");
        assert_eq!(request.features.len(), 1);
    }
}
