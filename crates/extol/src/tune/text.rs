//! A request as one line of text, for the way to the daemon of a mount; and what a mounted volume
//! can do of it.
//!
//! Words with spaces between them: a key of one character, as the option of tune2fs(8) has it where
//! there is one, and a number, a list, or bytes in hexadecimal.

use std::fmt::Write as _;

use extol_ondisk::Superblock;
use extol_ondisk::superblock::State;
use extol_vfs::{Tune, TuneFields};

use super::changes;
use super::plan::Plan;
use super::{Change, Request, ReservedBlocks, Result, refuse};
use crate::maintenance::tune::tunables_of;
use crate::options::ErrorPolicy;

const POLICIES: [ErrorPolicy; 3] =
    [ErrorPolicy::Continue, ErrorPolicy::RemountRo, ErrorPolicy::Panic];

impl Request {
    /// The text of a request for a mounted volume.
    ///
    /// # Errors
    /// What cannot be changed while it is mounted.
    pub fn to_text(&self) -> Result<String> {
        let unmounted = [
            (self.uuid.is_some(), "the UUID (-U)"),
            (!self.features.is_empty(), "features (-O)"),
            (!self.quotas.is_empty(), "quota files (-Q)"),
            (self.last_mounted.is_some(), "the directory of the last mount (-M)"),
            (self.mmp_interval.is_some(), "mmp_update_interval="),
            (self.orphan_file_size.is_some(), "orphan_file_size="),
            (self.journal.is_some(), "the journal (-j, -J)"),
            (self.test_fs.is_some(), "test_fs"),
            (self.clear_mmp, "clear_mmp"),
            (self.encoding || self.encoding_flags.is_some(), "the encoding of names"),
        ];
        if let Some((_, what)) = unmounted.iter().find(|(asked, _)| *asked) {
            return refuse(format!("{what} cannot change while the volume is mounted: unmount it"));
        }
        let mut text = String::new();
        let mut word = |key: char, value: &dyn std::fmt::Display| {
            let space = if text.is_empty() { "" } else { " " };
            let _ = write!(text, "{space}{key}{value}");
        };
        let mut number = |key, value: Option<i128>| {
            if let Some(value) = value {
                word(key, &value);
            }
        };
        let policy = self.errors.and_then(|e| POLICIES.iter().position(|policy| *policy == e));
        number('e', policy.map(|at| at as i128));
        number('u', self.reserved_uid.map(Into::into));
        number('g', self.reserved_gid.map(Into::into));
        number('C', self.mounts.map(Into::into));
        number('c', self.most_mounts.map(Into::into));
        number('i', self.check_interval.map(Into::into));
        number('T', self.last_check.map(Into::into));
        number('S', self.stride.map(Into::into));
        number('W', self.stripe_width.map(Into::into));
        number('H', self.hash.map(Into::into));
        number('F', self.force_check.then_some(1));
        match self.reserved {
            Some(ReservedBlocks::Count(blocks)) => word('r', &blocks),
            Some(ReservedBlocks::Percent(percent)) => word('m', &percent),
            None => {}
        }
        for (name, on) in &self.default_options {
            word('o', &format_args!("{}{name}", if *on { "" } else { "^" }));
        }
        for (key, bytes) in [('L', &self.label), ('P', &self.mount_options)] {
            if let Some(bytes) = bytes {
                word(key, &bytes.iter().fold(String::new(), |hex, b| hex + &format!("{b:02x}")));
            }
        }
        Ok(text)
    }

    /// The request that [`to_text`](Self::to_text) has written; `None` if it is not such a text.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let mut request = Self::default();
        for word in text.split(' ').filter(|word| !word.is_empty()) {
            let key = word.chars().next()?;
            request.read_word(key, word.get(key.len_utf8()..)?)?;
        }
        Some(request)
    }

    fn read_word(&mut self, key: char, value: &str) -> Option<()> {
        fn number<T: std::str::FromStr>(text: &str) -> Option<Option<T>> {
            text.parse().ok().map(Some)
        }
        match key {
            'e' => self.errors = Some(*POLICIES.get(value.parse::<usize>().ok()?)?),
            'u' => self.reserved_uid = number(value)?,
            'g' => self.reserved_gid = number(value)?,
            'C' => self.mounts = number(value)?,
            'c' => self.most_mounts = number(value)?,
            'i' => self.check_interval = number(value)?,
            'T' => self.last_check = number(value)?,
            'S' => self.stride = number(value)?,
            'W' => self.stripe_width = number(value)?,
            'H' => self.hash = Some(value.parse().ok().filter(|hash| *hash <= 2)?),
            'F' => self.force_check = true,
            'r' => self.reserved = Some(ReservedBlocks::Count(value.parse().ok()?)),
            'm' => {
                let percent = value.parse().ok().filter(|p| (0.0..=50.0).contains(p))?;
                self.reserved = Some(ReservedBlocks::Percent(percent));
            }
            'o' => self.set_default_options(value).ok()?,
            'L' => self.label = Some(bytes(value)?),
            'P' => self.mount_options = Some(bytes(value)?),
            _ => return None,
        }
        Some(())
    }
}

/// Bytes of a text in hexadecimal.
fn bytes(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8));
    rest.is_empty().then(|| bytes.collect())?
}

/// What a request changes on a mounted volume with this superblock.
///
/// # Errors
/// What cannot be, or not while it is mounted.
pub(crate) fn live(before: &Superblock, request: &Request) -> Result<(Tune, Vec<Change>)> {
    request.to_text()?;
    let sb = Plan::of(before, request)?.sb;
    let mut fields = TuneFields::empty();
    let mut changed = |field, changed| fields.set(field, changed);
    changed(TuneFields::ERRORS, sb.errors != before.errors);
    changed(TuneFields::MOUNTS, sb.mnt_count != before.mnt_count);
    changed(TuneFields::MOST_MOUNTS, sb.max_mnt_count != before.max_mnt_count);
    changed(TuneFields::CHECK_INTERVAL, sb.checkinterval != before.checkinterval);
    changed(TuneFields::LAST_CHECK, sb.lastcheck != before.lastcheck);
    changed(TuneFields::RESERVED_BLOCKS, sb.r_blocks_count != before.r_blocks_count);
    changed(TuneFields::RESERVED_UID, sb.def_resuid != before.def_resuid);
    changed(TuneFields::RESERVED_GID, sb.def_resgid != before.def_resgid);
    changed(TuneFields::DEFAULT_OPTIONS, sb.default_mount_opts != before.default_mount_opts);
    changed(TuneFields::HASH, sb.def_hash_version != before.def_hash_version);
    changed(TuneFields::RAID_STRIDE, sb.raid_stride != before.raid_stride);
    changed(TuneFields::RAID_STRIPE_WIDTH, sb.raid_stripe_width != before.raid_stripe_width);
    changed(TuneFields::MOUNT_OPTIONS, sb.mount_opts != before.mount_opts);
    let force = sb.state.contains(State::ERROR) && !before.state.contains(State::ERROR);
    changed(TuneFields::FORCE_CHECK, force);
    let values = tunables_of(&sb);
    let label = (sb.volume_name != before.volume_name).then(|| sb.label().to_vec());
    Ok((Tune { label, fields, values }, changes::changes(before, &sb)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_come_back() {
        let mut request = Request { label: Some(b"a b\xFF".to_vec()), ..Request::default() };
        request.errors = Some(ErrorPolicy::Panic);
        request.reserved = Some(ReservedBlocks::Percent(1.25));
        (request.reserved_uid, request.reserved_gid) = (Some(5), Some(6));
        (request.mounts, request.most_mounts) = (Some(7), Some(-1));
        (request.check_interval, request.last_check) = (Some(8), Some(1 << 39));
        (request.stride, request.stripe_width, request.hash) = (Some(1), Some(2), Some(2));
        request.mount_options = Some(b"ro,acl".to_vec());
        request.force_check = true;
        request.set_default_options("^acl,discard,journal_data").expect("options");
        let text = request.to_text().expect("a text");
        assert_eq!(Request::from_text(&text), Some(request), "{text}");
        assert_eq!(Request::from_text(""), Some(Request::default()));
        request = Request { reserved: Some(ReservedBlocks::Count(9)), ..Request::default() };
        assert_eq!(request.to_text().expect("a text"), "r9");
        for bad in ["x1", "e3", "H3", "m51", "mNaN", "Labc", "Lxx", "u70000", "ofrob", "é"] {
            assert_eq!(Request::from_text(bad), None, "{bad}");
        }
    }

    #[test]
    fn what_needs_an_unmount() {
        let mut request = Request::default();
        request.set_features("fast_commit").expect("a feature");
        assert!(request.to_text().expect_err("mounted").to_string().contains("unmount"));
    }
}
