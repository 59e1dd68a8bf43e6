//! Access lists as archives have them: text, such as `user::rwx,user:lisa:r--:502,group::r-x`.

use extol_ondisk::acl::{Acl, AclEntry, AclTag};

/// An access list that was text.
#[derive(Debug, Default)]
pub(super) struct AclText {
    acl: Acl,
    /// Names without a number.
    pub unknown: Vec<String>,
}

impl AclText {
    /// True if it says no more than a mode.
    pub fn is_plain(&self) -> bool {
        self.acl.entries.len() == 3
    }

    /// The permission bits of the mode that go with it.
    pub fn mode(&self) -> u16 {
        mode_of(&self.acl)
    }

    /// The mode of a file without the entries of users and groups by name.
    pub fn mode_without_names(&self) -> u16 {
        let perm = |tag| self.acl.entries.iter().find(|entry| entry.tag == tag);
        let own = perm(AclTag::GroupObj).map_or(0, |entry| entry.perm);
        let mask = perm(AclTag::Mask).map_or(7, |entry| entry.perm);
        self.mode() & !0o070 | (own & mask & 7) << 3
    }

    /// As an attribute.
    pub fn to_xattr(&self) -> Vec<u8> {
        self.acl.to_xattr()
    }
}

/// Reads a list: entries between commas or on lines, each with the number behind it if it names a
/// user or a group.
pub(super) fn parse(text: &[u8]) -> Option<AclText> {
    let text = std::str::from_utf8(text).ok()?;
    let mut list = AclText::default();
    for line in text.split([',', '\n']) {
        // What is behind # is a comment, such as the effective rights.
        let entry = line.split('#').next().unwrap_or_default().trim();
        if !entry.is_empty() {
            let entry = parse_entry(entry, &mut list.unknown)?;
            list.acl.entries.push(entry);
        }
    }
    list.acl.entries.sort_by_key(|entry| entry.tag);
    // A name without a number stands for 0 here, and is told.
    list.acl.is_valid().then_some(list)
}

fn parse_entry(text: &str, unknown: &mut Vec<String>) -> Option<AclEntry> {
    let mut words: Vec<_> = text.split(':').map(str::trim).collect();
    if matches!(words[0], "default" | "d") {
        words.remove(0);
    }
    let (tag, name, rights, number) = match words[..] {
        [tag, name, rights] => (tag, name, rights, ""),
        [tag, name, rights, number] => (tag, name, rights, number),
        [tag, rights] => (tag, "", rights, ""),
        _ => return None,
    };
    let mut id = || {
        let digits = if number.is_empty() { name } else { number };
        digits.parse().unwrap_or_else(|_| {
            unknown.push(name.to_owned());
            0
        })
    };
    let tag = match tag {
        "user" | "u" if name.is_empty() => AclTag::UserObj,
        "user" | "u" => AclTag::User(id()),
        "group" | "g" if name.is_empty() => AclTag::GroupObj,
        "group" | "g" => AclTag::Group(id()),
        "mask" | "m" => AclTag::Mask,
        "other" | "o" => AclTag::Other,
        _ => return None,
    };
    let perm = rights.bytes().try_fold(0, |perm, right| {
        Some(
            perm | match right {
                b'r' => 4,
                b'w' => 2,
                b'x' => 1,
                b'-' => 0,
                _ => return None,
            },
        )
    })?;
    Some(AclEntry { tag, perm })
}

/// The permission bits of the mode that go with an attribute, if it is an access list.
pub(super) fn mode_of_xattr(name: &[u8], value: &[u8]) -> Option<u16> {
    let acl = Acl::from_xattr(value).ok()?;
    (name == b"system.posix_acl_access").then(|| mode_of(&acl))
}

/// The permission bits that Linux gives a file with that list: those of the group are the mask.
fn mode_of(acl: &Acl) -> u16 {
    let perm = |tag| acl.entries.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm);
    let group = perm(AclTag::Mask).or(perm(AclTag::GroupObj));
    [perm(AclTag::UserObj), group, perm(AclTag::Other)]
        .into_iter()
        .fold(0, |mode, perm| mode << 3 | perm.unwrap_or(0) & 7)
}

/// True if ext4 has attributes of that name with such values.
pub(super) fn is_stored(name: &[u8], value: &[u8]) -> bool {
    let known = [&b"user."[..], b"trusted.", b"security."];
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => {
            Acl::from_xattr(value).is_ok_and(|acl| acl.is_valid())
        }
        _ => {
            let after = known.iter().find_map(|prefix| name.strip_prefix(*prefix));
            after.is_some_and(|rest| !rest.is_empty() && rest.len() <= 255 && !rest.contains(&0))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_stored, parse};

    #[test]
    fn texts_of_all_programs() {
        let star = parse(b"user::rwx,user:lisa:r--:502,group::r-x,mask::r-x,other::---");
        let gnu =
            parse(b"user::rwx\nuser:502:r--\t#effective:r--\ngroup::r-x\nmask::r-x\nother::---\n");
        let short = parse(b"u::rwx,u:502:r,g::rx,m:rx,o:-");
        let mixed = parse(b"mask::r-x,other::---,group::r-x,user:502:r--,user::rwx");
        let default = parse(b"default:user::rwx,default:user:502:r--,d:g::r-x,d:m::r-x,d:o::---");
        let wanted = star.expect("star").to_xattr();
        for (name, list) in [("gnu", gnu), ("short", short), ("mixed", mixed), ("d", default)] {
            assert_eq!(list.expect(name).to_xattr(), wanted, "{name}");
        }
        assert!(is_stored(b"system.posix_acl_access", &wanted));
        let plain = parse(b"user::rwx,group::r-x,other::---").expect("plain");
        assert_eq!(
            (plain.mode(), parse(b"u::rwx,g::r-x,m::-w-,o::--x").expect("mask").mode()),
            (0o750, 0o721)
        );
        assert!(plain.is_plain() && plain.unknown.is_empty());
        let names = parse(b"user::rwx,user:lisa:r--,group::r-x,mask::r-x,other::---");
        assert_eq!(names.expect("names").unknown, ["lisa"]);
    }

    #[test]
    fn what_is_no_list() {
        for text in [
            &b""[..],
            b"user::rwx",
            b"user::rwx,group::r-x,other::q--",
            b"\xff",
            b"user::rwx,user:5:r--,group::r-x,other::---",
            b"a:b:c:d:e",
            b"x",
        ] {
            assert!(parse(text).is_none(), "{text:?}");
        }
        for name in [&b"user."[..], b"com.x", b"system.data", b"", b"user.a\0b"] {
            assert!(!is_stored(name, b"1"), "{name:?}");
        }
    }
}
