//! Records of extended headers: `LENGTH KEYWORD=VALUE\n`.

use std::fmt::Write as _;

use extol_ondisk::acl::{Acl, AclTag};
use extol_vfs::Timestamp;

/// Records of one entry.
#[derive(Debug, Default)]
pub(super) struct Records(pub Vec<u8>);

impl Records {
    /// Adds one. Its length counts its own digits.
    pub fn add(&mut self, keyword: &[u8], value: &[u8]) {
        let body = keyword.len() + value.len() + 3;
        let digits = |n: usize| n.to_string().len();
        let mut len = body + digits(body);
        len = body + digits(len);
        self.0.extend(format!("{len} ").bytes());
        for part in [keyword, b"=", value, b"\n"] {
            self.0.extend_from_slice(part);
        }
    }

    pub fn number(&mut self, keyword: &str, value: u64) {
        self.add(keyword.as_bytes(), value.to_string().as_bytes());
    }

    pub fn time(&mut self, keyword: &str, time: Timestamp) {
        self.add(keyword.as_bytes(), time_text(time).as_bytes());
    }

    /// An extended attribute, in the form that most programs read.
    pub fn xattr(&mut self, name: &[u8], value: &[u8]) {
        let acl = |name: &str| Some((format!("SCHILY.acl.{name}"), acl_text(value)?));
        let list = match name {
            b"system.posix_acl_access" => acl("access"),
            b"system.posix_acl_default" => acl("default"),
            _ => None,
        };
        if let Some((keyword, text)) = list {
            return self.add(keyword.as_bytes(), text.as_bytes());
        }
        if name == b"security.selinux" {
            // GNU tar has a record of its own, without the NUL at the end.
            self.add(b"RHT.security.selinux", value.strip_suffix(b"\0").unwrap_or(value));
        }
        let encoded = gnu_encoded(name);
        if encoded != name {
            // libarchive reads this one right; of the other it takes the name as it is.
            let keyword = [b"LIBARCHIVE.xattr.", &*url_encoded(name)].concat();
            self.add(&keyword, base64(value).as_bytes());
        }
        self.add(&[b"SCHILY.xattr.", &*encoded].concat(), value);
    }
}

/// The name of an attribute as GNU tar reads it: a record's keyword ends at the first `=`. A `%`
/// that GNU tar takes as it is stays, so that others read it right as well.
fn gnu_encoded(name: &[u8]) -> Vec<u8> {
    let has = |text: &[u8]| name.windows(text.len()).any(|part| part == text);
    if !has(b"=") && !has(b"%3D") && !has(b"%25") {
        return name.to_vec();
    }
    let encoded = |byte: &u8| match byte {
        b'=' => b"%3D".to_vec(),
        b'%' => b"%25".to_vec(),
        byte => vec![*byte],
    };
    name.iter().flat_map(encoded).collect()
}

/// The name of an attribute as libarchive encodes it.
fn url_encoded(name: &[u8]) -> Vec<u8> {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'=' | b'%');
    let mut text = String::new();
    for &byte in name {
        let _ = match is_plain(byte) {
            true => write!(text, "{}", char::from(byte)),
            false => write!(text, "%{byte:02X}"),
        };
    }
    text.into_bytes()
}

/// Seconds, with a fraction if there is one. -1.5 is half a second before -1.
fn time_text(Timestamp { sec, nsec }: Timestamp) -> String {
    let nsec = nsec.min(999_999_999);
    let (sign, whole, nsec) = match (sec < 0, nsec) {
        (true, 0) => ("-", sec.unsigned_abs(), 0),
        (true, nsec) => ("-", sec.unsigned_abs() - 1, 1_000_000_000 - nsec),
        (false, nsec) => ("", sec.unsigned_abs(), nsec),
    };
    match nsec {
        0 => format!("{sign}{whole}"),
        _ => {
            let text = format!("{sign}{whole}.{nsec:09}");
            text.trim_end_matches('0').to_owned()
        }
    }
}

/// An access list as text, with numbers in place of names.
fn acl_text(value: &[u8]) -> Option<String> {
    let acl = Acl::from_xattr(value).ok().filter(Acl::is_valid)?;
    let entry = |tag: AclTag, perm: u16| {
        let subject = match tag {
            AclTag::UserObj => "user:".into(),
            AclTag::User(id) => format!("user:{id}"),
            AclTag::GroupObj => "group:".into(),
            AclTag::Group(id) => format!("group:{id}"),
            AclTag::Mask => "mask:".into(),
            AclTag::Other => "other:".into(),
        };
        let right = |bit: u16, text: char| if perm & bit != 0 { text } else { '-' };
        format!("{subject}:{}{}{}", right(4, 'r'), right(2, 'w'), right(1, 'x'))
    };
    let entries: Vec<_> = acl.entries.iter().map(|e| entry(e.tag, e.perm)).collect();
    Some(entries.join(","))
}

/// Bytes as base64, without padding, as libarchive writes them.
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, &byte| bits << 8 | u32::from(byte));
        let bits = bits << (8 * (3 - three.len()));
        for digit in 0..=three.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::{Records, acl_text, base64, time_text};
    use crate::edits::decimal;
    use extol_vfs::Timestamp;

    #[test]
    fn a_record_counts_its_own_digits() {
        for len in [0, 1, 3, 4, 5, 90, 91, 92, 93, 94, 980, 984, 985, 986, 987, 988, 9983, 9984] {
            let mut records = Records::default();
            records.add(b"key", &vec![b'x'; len]);
            let text = String::from_utf8(records.0).expect("text");
            let told: usize = text.split(' ').next().expect("a length").parse().expect("a number");
            assert_eq!(told, text.len(), "{len}");
        }
    }

    #[test]
    fn times_are_read_back() {
        for (sec, nsec, text) in [
            (0, 0, "0"),
            (5, 500_000_000, "5.5"),
            (10, 0, "10"),
            (-1, 500_000_000, "-0.5"),
            (-2, 500_000_000, "-1.5"),
            (-2, 0, "-2"),
            (15_032_385_535, 999_999_999, "15032385535.999999999"),
        ] {
            assert_eq!(time_text(Timestamp { sec, nsec }), text);
            let back = decimal(text).expect("a time");
            assert_eq!((back.sec, back.nsec), (sec, nsec));
        }
    }

    #[test]
    fn encodings() {
        assert_eq!([&b""[..], b"f", b"fo", b"foo"].map(base64), ["", "Zg", "Zm8", "Zm9v"]);
        assert_eq!(acl_text(b"junk"), None);
    }
}
