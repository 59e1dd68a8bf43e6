//! What names the inodes of attribute values: entries in inodes, and in attribute blocks, which
//! inodes share. An entry of a block is one user of the value, however many inodes share the block.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use extol_jbd2::Handle;
use extol_ondisk::xattr::stated_users;
use extol_ondisk::{Inode, InodeNr};
use extol_vfs::FsError;

use super::super::{ResizeError, refuse};
use super::inodes::Mover;
use super::survey::Survey;
use crate::fast_commit::eligibility::Change;
use crate::mounted::MountedFs;
use crate::node::Node;
use crate::xattr;

/// What names a value inode. Inodes are those of the time of the survey.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// Inodes with an entry in themselves.
    bodies: BTreeSet<u32>,
    /// Attribute blocks, each with an inode that has it.
    blocks: BTreeMap<u64, u32>,
    /// Entries in all of them.
    users: u64,
}

impl Holders {
    /// Blocks that change with them, at most.
    pub fn len(&self) -> u32 {
        u32::try_from(self.bodies.len() + self.blocks.len()).unwrap_or(u32::MAX)
    }
}

/// True if it is the inode of a value.
pub(super) fn is_value(fs: &MountedFs, raw: &Inode) -> bool {
    xattr::are_values_allowed(&fs.vol) && xattr::is_value(raw)
}

/// Notes what the attributes of an inode say about value inodes behind the limit.
pub(super) fn note(
    fs: &MountedFs,
    owner: &Node,
    limit: u32,
    found: &mut Survey,
) -> Result<(), ResizeError> {
    let numbers = xattr::value_numbers(&fs.vol, owner)?;
    let mut named = numbers.body.iter().chain(&numbers.block);
    if numbers.has_old_form && (found.contains_key(&owner.ino.0) || named.any(|ino| ino.0 > limit))
    {
        return refuse(format!(
            "inode {} and the value of an attribute name each other, as Lustre made them, and one \
             of them is behind the new end: choose a larger size",
            owner.ino
        ));
    }
    for ino in numbers.body.iter().filter(|ino| ino.0 > limit) {
        let holders = holders(*ino, found)?;
        holders.bodies.insert(owner.ino.0);
        holders.users += 1;
    }
    let nr = owner.raw.file_acl;
    let behind: Vec<_> = numbers.block.iter().filter(|ino| ino.0 > limit).collect();
    let named: BTreeSet<_> = behind.iter().copied().collect();
    for ino in named {
        let holders = holders(*ino, found)?;
        if let Entry::Vacant(block) = holders.blocks.entry(nr) {
            block.insert(owner.ino.0);
            holders.users += behind.iter().filter(|named| *named == &ino).count() as u64;
        }
    }
    Ok(())
}

fn holders(value: InodeNr, found: &mut Survey) -> Result<&mut Holders, ResizeError> {
    match found.get_mut(&value.0).and_then(|behind| behind.holders.as_mut()) {
        Some(holders) => Ok(holders),
        None => refuse(format!(
            "inode {value} is named as the value of an attribute, and is none: run e2fsck -f and \
             try again"
        )),
    }
}

/// Refuses a value that counts other users than it has.
pub(super) fn check(fs: &MountedFs, ino: u32, holders: &Holders) -> Result<(), ResizeError> {
    let counted = stated_users(&fs.vol.read_inode(InodeNr(ino))?);
    if holders.users == counted && counted > 0 {
        return Ok(());
    }
    refuse(format!(
        "inode {ino} is the value of {} attributes, but counts {counted}: run e2fsck -f and try \
         again",
        holders.users
    ))
}

impl Mover<'_> {
    /// All that names the value `numbers.0` names `numbers.1`.
    pub(super) fn renumber_holders(
        &self,
        h: &mut Handle,
        holders: &Holders,
        numbers: (InodeNr, InodeNr),
    ) -> Result<(), FsError> {
        let vol = &self.fs.vol;
        for owner in &holders.bodies {
            let ino = self.number(*owner);
            self.check_unused([ino])?;
            let mut node = Node { ino, raw: vol.read_inode(ino)? };
            xattr::renumber_in_body(&mut node, numbers);
            vol.write_inode(h, ino, &node.raw, Change::default())?;
        }
        for owner in holders.blocks.values() {
            let ino = self.number(*owner);
            let node = Node { ino, raw: vol.read_inode(ino)? };
            xattr::renumber_in_block(vol, h, &node, numbers)?;
        }
        Ok(())
    }
}
