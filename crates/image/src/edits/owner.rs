//! Owners: set for all files, or mapped by ranges.

use extol_ondisk::acl::{Acl, AclTag};

use crate::error::{BuildError, Result};

/// An owner, a group, or both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Owner {
    /// The user.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
}

impl Owner {
    /// What is missing here, from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { uid: self.uid.or(other.uid), gid: self.gid.or(other.gid) }
    }

    /// Reads `UID`, `UID:GID` or `:GID`. Names would mean other numbers on other hosts.
    ///
    /// # Errors
    /// What is not a number.
    pub fn parse(option: &str, text: &str) -> Result<Self> {
        let refuse = || {
            let highest = u32::MAX.to_string();
            let why = match text.split(':').any(|word| word == highest) {
                true => format!("{option} {text}: {highest} means no owner: the highest is below"),
                false => format!("{option} {text}: write numbers, such as 0:0, or 1000, or :100"),
            };
            BuildError::Refused(why)
        };
        let (user, group) = text.split_once(':').unwrap_or((text, ""));
        let number = |word: &str| match word {
            "" => Ok(None),
            word => id(word).map(Some).ok_or_else(refuse),
        };
        let owner = Self { uid: number(user)?, gid: number(group)? };
        if owner == Self::default() { Err(refuse()) } else { Ok(owner) }
    }
}

/// A number of a user or a group. The highest one means "no change" to chown and is none.
fn id(word: &str) -> Option<u32> {
    let digits = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    word.parse().ok().filter(|id| digits && *id != u32::MAX)
}

/// Ranges of numbers that are mapped: of users, or of groups.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct IdMap {
    /// First number in the source, first one in the image, how many.
    ranges: Vec<(u32, u32, u32)>,
}

impl IdMap {
    /// Adds `SOURCE:IMAGE:COUNT`.
    ///
    /// # Errors
    /// What is not three numbers, or a range that overlaps another one.
    pub fn add(&mut self, option: &str, text: &str) -> Result<()> {
        let refuse = |why: &str| Err(BuildError::Refused(format!("{option} {text}: {why}")));
        let words: Vec<_> = text.split(':').map(id).collect();
        let [Some(from), Some(to), Some(count)] = words[..] else {
            return refuse(
                "write SOURCE:IMAGE:COUNT, such as 100000:0:65536 for owners from 100000 on in the \
                 source that are 0 and up in the image",
            );
        };
        let fits = |first: u32| first.checked_add(count).is_some();
        if count == 0 || !fits(from) || !fits(to) {
            return refuse("give a count from 1 on that ends below 4294967295");
        }
        let overlap = |a: u32, b: u32, other: u32| a < b + other && b < a + count;
        for &(source, image, other) in &self.ranges {
            if overlap(from, source, other) || overlap(to, image, other) {
                return refuse("overlaps another range");
            }
        }
        self.ranges.push((from, to, count));
        Ok(())
    }

    /// True if nothing is mapped.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// The number in the image; `None` if there are ranges and none has it.
    #[must_use]
    pub fn map(&self, id: u32) -> Option<u32> {
        if self.ranges.is_empty() {
            return Some(id);
        }
        let range = self.ranges.iter().find(|(from, _, count)| id.wrapping_sub(*from) < *count)?;
        Some(range.1 + (id - range.0))
    }
}

/// An attribute with the numbers in it mapped: those of access lists, and the root user of file
/// capabilities. `None` if it has none; an error is the number that no range has.
pub(super) fn map_xattr(
    name: &[u8],
    value: &[u8],
    users: &IdMap,
    groups: &IdMap,
) -> std::result::Result<Option<Vec<u8>>, u32> {
    match name {
        b"system.posix_acl_access" | b"system.posix_acl_default" => {
            let Ok(mut acl) = Acl::from_xattr(value) else { return Ok(None) };
            for entry in &mut acl.entries {
                match &mut entry.tag {
                    AclTag::User(id) => *id = users.map(*id).ok_or(*id)?,
                    AclTag::Group(id) => *id = groups.map(*id).ok_or(*id)?,
                    _ => {}
                }
            }
            Ok(Some(acl.to_xattr()))
        }
        b"security.capability" => {
            // Revision 3 ends with the root user of the user namespace.
            let Some((rest, root)) = value.split_last_chunk::<4>() else { return Ok(None) };
            if value.len() != 24 || value[3] != 3 {
                return Ok(None);
            }
            let root = u32::from_le_bytes(*root);
            let mapped = users.map(root).ok_or(root)?;
            Ok(Some([rest, &mapped.to_le_bytes()].concat()))
        }
        _ => Ok(None),
    }
}

/// An access list brought into line with a changed mode, as chmod(2) does it. `None` if the
/// attribute is none.
pub(super) fn chmod_xattr(name: &[u8], value: &[u8], mode: u16) -> Option<Vec<u8>> {
    if name != b"system.posix_acl_access" {
        return None;
    }
    let mut acl = Acl::from_xattr(value).ok()?;
    // The group's bits are those of the mask if there is one.
    let masked = acl.entries.iter().any(|entry| entry.tag == AclTag::Mask);
    for entry in &mut acl.entries {
        match entry.tag {
            AclTag::UserObj => entry.perm = mode >> 6 & 7,
            AclTag::GroupObj if !masked => entry.perm = mode >> 3 & 7,
            AclTag::Mask => entry.perm = mode >> 3 & 7,
            AclTag::Other => entry.perm = mode & 7,
            _ => {}
        }
    }
    Some(acl.to_xattr())
}

#[cfg(test)]
mod tests {
    use super::{IdMap, Owner, chmod_xattr, map_xattr};

    #[test]
    fn owners() {
        let parse = |text| Owner::parse("--owner", text);
        assert_eq!(parse("1:2").expect("both"), Owner { uid: Some(1), gid: Some(2) });
        assert_eq!(parse("1").expect("user"), Owner { uid: Some(1), gid: None });
        assert_eq!(parse(":2").expect("group"), Owner { uid: None, gid: Some(2) });
        for text in ["", ":", "root", "1:x", "-1", "4294967295", "4294967296", "1:2:3", "+1"] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.starts_with(&format!("--owner {text}: ")), "{error}");
        }
    }

    #[test]
    fn ranges() {
        let mut map = IdMap::default();
        map.add("--map-users", "100000:1:65535").expect("a range");
        map.add("--map-users", "1000:0:1").expect("a range");
        assert_eq!(map.map(100_000), Some(1));
        assert_eq!(map.map(165_534), Some(65_535));
        assert_eq!(map.map(165_535), None);
        assert_eq!((map.map(1000), map.map(0)), (Some(0), None));
        for text in [
            "1:2",
            "1:2:3:4",
            "a:0:1",
            "0:0:0",
            "4294967290:0:9",
            "0:4294967290:9",
            // Overlaps of the sources and of the images.
            "99999:70000:2",
            "165534:70000:1",
            "0:65535:1",
            "0:0:1",
        ] {
            assert!(map.add("--map-users", text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_in_attributes() {
        let mut map = IdMap::default();
        map.add("--map-users", "100:0:10").expect("a range");
        let acl = |user: u8, group: u8| {
            let entry = |tag: u8, id: [u8; 4]| [&[tag, 0, 6, 0][..], &id].concat();
            let none = [0xff; 4];
            [
                vec![2, 0, 0, 0],
                entry(1, none),
                entry(2, [user, 0, 0, 0]),
                entry(4, none),
                entry(8, [group, 0, 0, 0]),
                entry(0x10, none),
                entry(0x20, none),
            ]
            .concat()
        };
        let name = b"system.posix_acl_default";
        assert_eq!(map_xattr(name, &acl(101, 109), &map, &map), Ok(Some(acl(1, 9))));
        assert_eq!(map_xattr(name, &acl(99, 100), &map, &map), Err(99));
        assert_eq!(map_xattr(name, b"junk", &map, &map), Ok(None));
        let cap = |root: u8| [&[1, 0, 0, 3][..], &[0; 16], &[root, 0, 0, 0]].concat();
        assert_eq!(map_xattr(b"security.capability", &cap(100), &map, &map), Ok(Some(cap(0))));
        assert_eq!(map_xattr(b"security.capability", &cap(0), &map, &map), Err(0));
        assert_eq!(map_xattr(b"security.capability", &[0, 0, 0, 2], &map, &map), Ok(None));
        assert_eq!(map_xattr(b"user.x", &cap(100), &map, &map), Ok(None));
    }

    #[test]
    fn a_changed_mode_changes_the_access_list() {
        let acl = [2, 0, 0, 0, 1, 0, 7, 0, 255, 255, 255, 255, 4, 0, 7, 0, 255, 255, 255, 255];
        let acl = [&acl[..], &[0x20, 0, 7, 0, 255, 255, 255, 255]].concat();
        let changed = chmod_xattr(b"system.posix_acl_access", &acl, 0o640).expect("a list");
        assert_eq!((changed[6], changed[14], changed[22]), (6, 4, 0));
        assert_eq!(chmod_xattr(b"system.posix_acl_default", &acl, 0o640), None);
    }
}
