//! Extended headers: records `LENGTH KEYWORD=VALUE\n`, whose values take the place of the header's.

use std::collections::HashSet;

use extol_ondisk::Time;

use crate::edits::decimal;
use crate::tree::XattrSet;

use super::acl;

/// What extended headers say of an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Extended {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<i64>,
    pub gid: Option<i64>,
    pub mtime: Option<Time>,
    pub atime: Option<Time>,
    pub ctime: Option<Time>,
    pub crtime: Option<Time>,
    pub major: Option<u32>,
    pub minor: Option<u32>,
    /// The permission bits that an access list gives the file, whatever its header says.
    acl_mode: Option<u16>,
    /// Access lists that are text and name users without a number: name of the attribute, mode
    /// without those users, and what is to be told. An attribute of that name is as good.
    acls_left_out: Vec<(&'static [u8], u16, String)>,
    /// Attributes, in the order of the records.
    pub xattrs: XattrSet,
    /// Encoded names of attributes that libarchive's record gave.
    told_twice: HashSet<Vec<u8>>,
    pub sparse: SparseRecords,
    /// What was left out, for remarks.
    left_out: Vec<String>,
}

/// Records of sparse files, in any of three formats.
#[derive(Clone, Debug, Default)]
pub(super) struct SparseRecords {
    pub major: Option<u64>,
    pub minor: Option<u64>,
    pub name: Option<Vec<u8>>,
    pub real_size: Option<u64>,
    /// The numbers of the map, places and lengths by turns.
    pub map: Option<Vec<u64>>,
}

/// The attribute of access lists.
const ACCESS: &[u8] = b"system.posix_acl_access";
/// The most remarks of one entry.
const MAX_REMARKS: usize = 10;

impl Extended {
    /// Reads records. An error says what is wrong with them.
    pub fn read(&mut self, mut bytes: &[u8], runs: u64) -> Result<(), String> {
        while !bytes.is_empty() {
            let (keyword, value, rest) =
                record(bytes).ok_or("has an extended header that is damaged")?;
            self.take(keyword, value, runs).ok_or_else(|| {
                let keyword = crate::error::shown(keyword);
                format!("has an extended header whose '{keyword}' cannot be read")
            })?;
            bytes = rest;
        }
        Ok(())
    }

    fn take(&mut self, keyword: &[u8], value: &[u8], runs: u64) -> Option<()> {
        // An empty value takes back what a global header says.
        let unset = value.is_empty();
        match keyword {
            b"path" => self.path = (!unset).then(|| value.to_vec()),
            b"linkpath" => self.link = (!unset).then(|| value.to_vec()),
            b"size" => self.size = optional(value, unsigned)?,
            b"uid" => self.uid = optional(value, signed)?,
            b"gid" => self.gid = optional(value, signed)?,
            b"mtime" => self.mtime = optional(value, time)?,
            b"atime" => self.atime = optional(value, time)?,
            b"ctime" => self.ctime = optional(value, time)?,
            b"LIBARCHIVE.creationtime" => self.crtime = optional(value, time)?,
            b"SCHILY.devmajor" => self.major = optional(value, small)?,
            b"SCHILY.devminor" => self.minor = optional(value, small)?,
            b"RHT.security.selinux" => {
                let mut label = value.to_vec();
                // Labels are stored with a NUL behind them.
                if label.last() != Some(&0) {
                    label.push(0);
                }
                self.attribute(b"security.selinux", label);
            }
            b"SCHILY.acl.access" => self.acl(ACCESS, value),
            b"SCHILY.acl.default" => self.acl(b"system.posix_acl_default", value),
            b"SCHILY.acl.ace" => self.remark("its NFSv4 access list is left out"),
            _ => return self.take_by_prefix(keyword, value, runs),
        }
        Some(())
    }

    fn take_by_prefix(&mut self, keyword: &[u8], value: &[u8], runs: u64) -> Option<()> {
        if let Some(name) = keyword.strip_prefix(b"SCHILY.xattr.") {
            // libarchive writes an attribute twice, and encodes more of a name than GNU tar.
            if !self.told_twice.contains(name) {
                self.attribute(&gnu_decoded(name), value.to_vec());
            }
        } else if let Some(encoded) = keyword.strip_prefix(b"LIBARCHIVE.xattr.") {
            let name = percent_decoded(encoded)?;
            self.attribute(&name, base64(value)?);
            if name != encoded {
                self.told_twice.insert(encoded.to_vec());
            }
        } else if let Some(name) = keyword.strip_prefix(b"GNU.sparse.") {
            return self.sparse.take(name, value, runs);
        }
        // Keywords of others say nothing that an image has.
        Some(())
    }

    /// The permission bits that an access list gives the file, whatever its header says.
    pub fn acl_mode(&self) -> Option<u16> {
        let left_out = self.acls_left_out.iter().find(|(name, ..)| *name == ACCESS);
        self.acl_mode.or(left_out.map(|(_, mode, _)| *mode))
    }

    /// What was left out, for remarks.
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        let is_there = |wanted: &[u8]| self.xattrs.iter().any(|(name, _)| **name == *wanted);
        let acls = self.acls_left_out.iter().filter(move |(name, ..)| !is_there(name));
        let all = self.left_out.iter().chain(acls.map(|(.., what)| what));
        all.take(MAX_REMARKS).cloned()
    }

    fn acl(&mut self, name: &'static [u8], text: &[u8]) {
        match acl::parse(text) {
            Some(acl) if acl.unknown.is_empty() => {
                let access = name == ACCESS;
                if access {
                    self.acl_mode = Some(acl.mode());
                }
                // A mode says the same then.
                if !(access && acl.is_plain()) {
                    self.xattrs.push((name.into(), acl.to_xattr().into()));
                }
            }
            Some(acl) => {
                let user = acl.unknown.join(", ");
                let what = format!("its access list is left out: it has no number for '{user}'");
                self.acls_left_out.retain(|(other, ..)| *other != name);
                self.acls_left_out.push((name, acl.mode_without_names(), what));
            }
            None => self.remark("its access list is left out: it cannot be read"),
        }
    }

    fn attribute(&mut self, name: &[u8], value: Vec<u8>) {
        match acl::is_stored(name, &value) {
            true => {
                self.acl_mode = acl::mode_of_xattr(name, &value).or(self.acl_mode);
                self.xattrs.push((name.into(), value.into()));
            }
            false if name.is_empty() => self.remark("an attribute without a name is left out"),
            false => {
                let name = crate::error::shown(name);
                self.remark(&format!("its attribute '{name}' is left out: ext4 cannot have it"));
            }
        }
    }

    fn remark(&mut self, what: &str) {
        if self.left_out.len() < MAX_REMARKS {
            self.left_out.push(what.to_owned());
        }
    }
}

impl SparseRecords {
    fn take(&mut self, name: &[u8], value: &[u8], runs: u64) -> Option<()> {
        match name {
            b"major" => self.major = Some(unsigned(value)?),
            b"minor" => self.minor = Some(unsigned(value)?),
            b"name" => self.name = Some(value.to_vec()),
            b"size" | b"realsize" => self.real_size = Some(unsigned(value)?),
            b"map" => {
                let numbers = value.split(|&byte| byte == b',').filter(|word| !word.is_empty());
                let map: Option<Vec<_>> = numbers.map(unsigned).collect();
                self.map = Some(map.filter(|map| map.len() as u64 <= runs.saturating_mul(2))?);
            }
            b"offset" | b"numbytes" => {
                let map = self.map.get_or_insert_default();
                let is_place = map.len().is_multiple_of(2);
                if is_place != (name == b"offset") || map.len() as u64 >= runs.saturating_mul(2) {
                    return None;
                }
                map.push(unsigned(value)?);
            }
            _ => {}
        }
        Some(())
    }

    /// True if the entry is a sparse file.
    pub fn is_there(&self) -> bool {
        self.major.is_some() || self.map.is_some()
    }
}

/// The first record: keyword, value, and what follows.
fn record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let blank = bytes.iter().take(21).position(|&byte| byte == b' ')?;
    let len = usize::try_from(unsigned(&bytes[..blank])?).ok()?;
    if len <= blank + 1 || len > bytes.len() {
        return None;
    }
    let (record, rest) = bytes.split_at(len);
    let record = record[blank + 1..].strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    let (keyword, value) = (&record[..equals], &record[equals + 1..]);
    (!keyword.is_empty()).then_some((keyword, value, rest))
}

/// A value, or none if it is empty.
#[expect(clippy::option_option, reason = "the outer one is a failure")]
fn optional<T>(value: &[u8], parse: fn(&[u8]) -> Option<T>) -> Option<Option<T>> {
    if value.is_empty() { Some(None) } else { parse(value).map(Some) }
}

/// A number of decimal digits.
pub(super) fn unsigned(value: &[u8]) -> Option<u64> {
    if value.is_empty() {
        return None;
    }
    value.iter().try_fold(0_u64, |number, &digit| match digit {
        b'0'..=b'9' => number.checked_mul(10)?.checked_add(u64::from(digit - b'0')),
        _ => None,
    })
}

fn signed(value: &[u8]) -> Option<i64> {
    match value.strip_prefix(b"-") {
        Some(digits) => i64::try_from(unsigned(digits)?).ok()?.checked_neg(),
        None => i64::try_from(unsigned(value)?).ok(),
    }
}

fn small(value: &[u8]) -> Option<u32> {
    u32::try_from(unsigned(value)?).ok()
}

fn time(value: &[u8]) -> Option<Time> {
    // libarchive writes `.5`, and `5.`.
    let text = std::str::from_utf8(value).ok()?;
    let whole = text.strip_suffix('.').unwrap_or(text);
    match whole.strip_prefix('.') {
        Some(fraction) => decimal(&format!("0.{fraction}")),
        None => decimal(whole),
    }
}

/// The name of an attribute that GNU tar has written: it encodes `=` and `%`, and no more.
fn gnu_decoded(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, tail)) = rest.split_first() {
        let (byte, tail) = match tail.split_at_checked(2) {
            Some((b"3D", tail)) if byte == b'%' => (b'=', tail),
            Some((b"25", tail)) if byte == b'%' => (b'%', tail),
            _ => (byte, tail),
        };
        out.push(byte);
        rest = tail;
    }
    out
}

/// The bytes of text with `%41` in it.
fn percent_decoded(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        let digits = std::str::from_utf8(digits).ok()?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return None;
        }
        out.push(u8::from_str_radix(digits, 16).ok()?);
        rest = tail;
    }
    Some(out)
}

/// The bytes of base64, with or without padding.
fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let text = text.strip_suffix(b"==").or_else(|| text.strip_suffix(b"=")).unwrap_or(text);
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for four in text.chunks(4) {
        let mut bits = 0_u32;
        for &digit in four {
            let six = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            bits = bits << 6 | u32::from(six);
        }
        bits <<= 6 * (4 - four.len());
        let bytes = match four.len() {
            4 => 3,
            3 => 2,
            2 => 1,
            _ => return None,
        };
        out.extend_from_slice(&bits.to_be_bytes()[1..=bytes]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use extol_ondisk::Time;

    use super::{Extended, base64, percent_decoded, record, signed, time};

    fn encoded(keyword: &str, value: &[u8]) -> Vec<u8> {
        let body = [keyword.as_bytes(), b"=", value, b"\n"].concat();
        let mut len = body.len() + 2;
        len = body.len() + 1 + len.to_string().len();
        [format!("{len} ").as_bytes(), &body].concat()
    }

    fn read(records: &[(&str, &[u8])]) -> Result<Extended, String> {
        let mut extended = Extended::default();
        let bytes: Vec<u8> = records.iter().flat_map(|(key, value)| encoded(key, value)).collect();
        extended.read(&bytes, 100).map(|()| extended)
    }

    #[test]
    fn values_of_all_kinds() {
        let extended = read(&[
            ("path", b"a=b\nc"),
            ("size", b"12345678901"),
            ("uid", b"4000000000"),
            ("mtime", b"1700000000.123456789"),
            ("atime", b"-1.5"),
            ("SCHILY.xattr.user.x", b"1\n=\0"),
            ("LIBARCHIVE.xattr.user.%78%25", b"AQID"),
            ("RHT.security.selinux", b"u:r:t"),
            ("VENDOR.unknown", b"passed over"),
        ])
        .expect("reads");
        assert_eq!(extended.path.as_deref(), Some(&b"a=b\nc"[..]));
        assert_eq!((extended.size, extended.uid), (Some(12_345_678_901), Some(4_000_000_000)));
        assert_eq!(extended.mtime, Some(Time { sec: 1_700_000_000, nsec: 123_456_789 }));
        assert_eq!(extended.atime, Some(Time { sec: -2, nsec: 500_000_000 }));
        let xattrs: Vec<_> =
            extended.xattrs.iter().map(|(name, value)| (&**name, &**value)).collect();
        assert_eq!(
            xattrs,
            [
                (&b"user.x"[..], &b"1\n=\0"[..]),
                (b"user.x%", &[1, 2, 3]),
                (b"security.selinux", b"u:r:t\0"),
            ]
        );
        assert_eq!(extended.left_out().count(), 0);
    }

    #[test]
    fn an_empty_value_takes_one_back() {
        let extended = read(&[("path", b"x"), ("path", b""), ("mtime", b"5"), ("mtime", b"")]);
        let extended = extended.expect("reads");
        assert_eq!((extended.path, extended.mtime), (None, None));
    }

    /// The records that GNU tar, and those that libarchive writes of the same attributes.
    #[test]
    fn names_of_attributes_are_decoded() {
        let names = |records: &[(&str, &[u8])]| -> Vec<String> {
            let extended = read(records).expect("reads");
            let text = |name: &[u8]| String::from_utf8(name.to_vec()).expect("text");
            extended.xattrs.iter().map(|(name, _)| text(name)).collect()
        };
        let gnu = names(&[
            ("SCHILY.xattr.user.a%3Db", b"1"),
            ("SCHILY.xattr.user.p%25q", b"2"),
            ("SCHILY.xattr.user.p%253Dq", b"3"),
            ("SCHILY.xattr.user.p%20%3", b"4"),
        ]);
        assert_eq!(gnu, ["user.a=b", "user.p%q", "user.p%3Dq", "user.p%20%3"]);
        let libarchive = names(&[
            ("LIBARCHIVE.xattr.user.sp%20ace", b"NA"),
            ("SCHILY.xattr.user.sp%20ace", b"4"),
            ("LIBARCHIVE.xattr.user.a%3Db", b"MQ"),
            ("SCHILY.xattr.user.a%3Db", b"1"),
        ]);
        assert_eq!(libarchive, ["user.sp ace", "user.a=b"]);
    }

    #[test]
    fn attributes_that_ext4_cannot_have_are_left_out() {
        let extended = read(&[
            ("SCHILY.xattr.com.apple.x", b"1"),
            ("SCHILY.xattr.user.", b"1"),
            ("SCHILY.xattr.system.posix_acl_access", b"junk"),
            ("SCHILY.acl.access", b"user::rwx,group::r-x,other::r-x"),
            ("SCHILY.acl.default", b"nonsense"),
        ]);
        let extended = extended.expect("reads");
        assert!(extended.xattrs.is_empty());
        assert_eq!(extended.left_out().count(), 4);
    }

    /// The bits of the group in the header are the mask, which speaks of users that are gone.
    #[test]
    fn a_list_that_is_left_out_widens_nothing() {
        let list = b"user::rw-,user:nobody-has-it:rw-,group::---,mask::rw-,other::---";
        let extended = read(&[("SCHILY.acl.access", list)]).expect("reads");
        assert_eq!((extended.acl_mode(), extended.left_out().count()), (Some(0o600), 1));
        let attribute = "SCHILY.xattr.system.posix_acl_access";
        let value = [
            &[2, 0, 0, 0][..],
            &[1, 0, 6, 0, 255, 255, 255, 255],
            &[2, 0, 6, 0, 42, 0, 0, 0],
            &[4, 0, 0, 0, 255, 255, 255, 255],
            &[16, 0, 6, 0, 255, 255, 255, 255],
            &[32, 0, 0, 0, 255, 255, 255, 255],
        ]
        .concat();
        for records in [
            [("SCHILY.acl.access", &list[..]), (attribute, &value)],
            [(attribute, &value), ("SCHILY.acl.access", list)],
        ] {
            let extended = read(&records).expect("reads");
            assert_eq!(extended.xattrs.len(), 1);
            assert_eq!((extended.acl_mode(), extended.left_out().count()), (Some(0o660), 0));
        }
    }

    #[test]
    fn damaged_records() {
        for bytes in [
            &b"x"[..],
            b"4 a=\n",
            b"7 a=b\n",
            b"6 a=bc",
            b"0 a=b\n",
            b"6 ab=\n\n",
            b"5 =b\n",
            b"99999999999999999999999 a=b\n",
            b"-6 a=b\n",
            b"4 ab\n",
        ] {
            let mut extended = Extended::default();
            assert!(extended.read(bytes, 1).is_err(), "{bytes:?}");
        }
        assert_eq!(record(b"6 a=b\nrest"), Some((&b"a"[..], &b"b"[..], &b"rest"[..])));
        for (key, value) in [
            ("size", &b"-1"[..]),
            ("size", b"x"),
            ("uid", b"99999999999999999999"),
            ("mtime", b"1.x"),
            ("LIBARCHIVE.xattr.user.%4", b"AQID"),
            ("LIBARCHIVE.xattr.user.%+1", b"AQID"),
            ("LIBARCHIVE.xattr.user.x", b"AQ*D"),
            ("GNU.sparse.map", b"1,x"),
            ("GNU.sparse.numbytes", b"1"),
        ] {
            let error = read(&[(key, value)]).expect_err(key);
            assert!(error.contains(key.split('%').next().expect("a key")), "{error}");
        }
        let many = b"1,".repeat(101);
        assert!(read(&[("GNU.sparse.map", &many)]).is_ok());
        let many = b"1,".repeat(201);
        assert!(read(&[("GNU.sparse.map", &many)]).is_err());
    }

    #[test]
    fn encodings() {
        assert_eq!(base64(b""), Some(vec![]));
        assert_eq!(base64(b"Zg=="), Some(b"f".to_vec()));
        assert_eq!(base64(b"Zm8"), Some(b"fo".to_vec()));
        assert_eq!(base64(b"Zm9v"), Some(b"foo".to_vec()));
        assert_eq!(base64(b"Z"), None);
        assert_eq!(percent_decoded(b"a%20b"), Some(b"a b".to_vec()));
        assert_eq!(signed(b"-9223372036854775807"), Some(-i64::MAX));
        assert_eq!(time(b".5"), Some(Time { sec: 0, nsec: 500_000_000 }));
        assert_eq!(time(b"5."), Some(Time { sec: 5, nsec: 0 }));
    }
}
