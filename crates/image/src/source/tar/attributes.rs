//! Attributes that extended headers give an entry.
//!
//! What a global header says holds for each entry behind it. So entries share its attributes until
//! one changes them, and there are no more of them than [`MOST_GLOBAL`]: an entry is a few bytes
//! when it is compressed, and must not cost a header of its largest size.

use std::collections::HashSet;

use crate::tree::XattrSet;

use super::acl;

/// The attribute of access lists.
pub(super) const ACCESS: &[u8] = b"system.posix_acl_access";
/// The most remarks of one entry.
const MAX_REMARKS: usize = 10;
/// The most bytes of attributes in global headers, with [`COST`] for each.
const MOST_GLOBAL: usize = 16 << 10;
/// What an attribute costs beside its bytes.
const COST: usize = 64;

/// Attributes of an entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Attributes {
    /// The permission bits that an access list gives the file, whatever its header says.
    acl_mode: Option<u16>,
    /// Access lists that are text and name users without a number: name of the attribute, mode
    /// without those users, and what is to be told. An attribute of that name is as good.
    acls_left_out: Vec<(&'static [u8], u16, String)>,
    /// In the order of the records.
    pub all: XattrSet,
    /// Encoded names of attributes that libarchive's record gave.
    pub told_twice: HashSet<Vec<u8>>,
    /// What was left out, for remarks.
    left_out: Vec<String>,
    /// What a copy costs, in bytes.
    cost: usize,
}

impl Attributes {
    /// True if they are more than a global header may give to all entries.
    pub fn are_too_many(&self) -> bool {
        self.cost > MOST_GLOBAL
    }

    /// The permission bits that an access list gives the file, whatever its header says.
    pub fn acl_mode(&self) -> Option<u16> {
        let left_out = self.acls_left_out.iter().find(|(name, ..)| *name == ACCESS);
        self.acl_mode.or(left_out.map(|(_, mode, _)| *mode))
    }

    /// What was left out, for remarks.
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        let is_there = |wanted: &[u8]| self.all.iter().any(|(name, _)| **name == *wanted);
        let acls = self.acls_left_out.iter().filter(move |(name, ..)| !is_there(name));
        let all = self.left_out.iter().chain(acls.map(|(.., what)| what));
        all.take(MAX_REMARKS).cloned()
    }

    /// An access list that is text.
    pub fn acl(&mut self, name: &'static [u8], text: &[u8]) {
        match acl::parse(text) {
            Some(acl) if acl.unknown.is_empty() => {
                let access = name == ACCESS;
                if access {
                    self.acl_mode = Some(acl.mode());
                }
                // A mode says the same then.
                if !(access && acl.is_plain()) {
                    self.push(name, acl.to_xattr());
                }
            }
            Some(acl) => {
                let user = acl.unknown.join(", ");
                let what = format!("its access list is left out: it has no number for '{user}'");
                self.cost += COST + what.len();
                self.acls_left_out.retain(|(other, ..)| *other != name);
                self.acls_left_out.push((name, acl.mode_without_names(), what));
            }
            None => self.remark("its access list is left out: it cannot be read"),
        }
    }

    fn push(&mut self, name: &[u8], value: Vec<u8>) {
        self.cost += COST + name.len() + value.len();
        self.all.push((name.into(), value.into()));
    }

    /// Keeps the name of an attribute that libarchive's record gave, as it is encoded there.
    pub fn tell_twice(&mut self, encoded: &[u8]) {
        self.cost += COST + encoded.len();
        self.told_twice.insert(encoded.to_vec());
    }

    /// One attribute more, or a remark that it is left out.
    pub fn add(&mut self, name: &[u8], value: Vec<u8>) {
        match acl::is_stored(name, &value) {
            true => {
                self.acl_mode = acl::mode_of_xattr(name, &value).or(self.acl_mode);
                self.push(name, value);
            }
            false if name.is_empty() => self.remark("an attribute without a name is left out"),
            false => {
                let name = crate::error::shown(name);
                self.remark(&format!("its attribute '{name}' is left out: ext4 cannot have it"));
            }
        }
    }

    /// Something else that is left out.
    pub fn remark(&mut self, what: &str) {
        if self.left_out.len() < MAX_REMARKS {
            self.cost += COST + what.len();
            self.left_out.push(what.to_owned());
        }
    }
}
