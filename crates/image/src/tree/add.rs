//! A tree that is being made.

use std::collections::{HashMap, HashSet};

use extol_ondisk::Time;
use extol_vfs::Rdev;

use super::entries::{Entries, NONE};
use super::resolve::{Missing, Place, check_name};
use super::types::{
    Kind, Meta, NameRef, Node, NodeId, Note, OtherTimes, TimesId, VerityTrees, XattrSet, XattrSetId,
};
use super::{Limits, MAX_NOTES, MAX_TARGET};
use crate::error::{BuildError, Result, shown};

/// A tree that is being made. Sources add to it, edits change it, [`finish`](Self::finish) ends it.
#[derive(Debug)]
pub struct TreeBuilder {
    limits: Limits,
    pub(super) nodes: Vec<Node>,
    pub(super) entries: Entries,
    pub(super) xattrs: Vec<XattrSet>,
    /// The numbers of the sets.
    xattr_ids: HashMap<XattrSet, XattrSetId>,
    pub(super) times: Vec<OtherTimes>,
    /// How the trees of files of fs-verity are made.
    pub verity: VerityTrees,
    pub(super) notes: Vec<Note>,
    pub(super) more_notes: u64,
    /// Bytes of names, targets and attributes.
    meta_bytes: u64,
    /// Names that were added, those that were removed again among them.
    added: u64,
    pub(super) layer: u16,
    /// Directories in which the lower layers are hidden by this one.
    pub(super) hidden: HashSet<NodeId>,
}

/// The highest numbers of a device: 12 and 20 bits.
const MAX_MAJOR: u32 = 0xFFF;
const MAX_MINOR: u32 = 0xF_FFFF;
/// What a tree takes for a set of attributes beside its bytes.
const SET_COST: u64 = 64;

impl TreeBuilder {
    /// A tree with an empty root directory: mode 755, owned by root.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        let meta = Meta::implied_dir(Time::default());
        Self {
            limits,
            nodes: vec![Node { meta, kind: Kind::Dir, nlink: 0, first: NONE }],
            entries: Entries::new(),
            xattrs: vec![XattrSet::new()],
            xattr_ids: HashMap::from([(XattrSet::new(), XattrSetId::NONE)]),
            times: vec![OtherTimes::default()],
            verity: VerityTrees::default(),
            notes: Vec::new(),
            more_notes: 0,
            meta_bytes: 0,
            added: 0,
            layer: 0,
            hidden: HashSet::new(),
        }
    }

    /// What the source may have at most.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Adds a file by its path in the source. Parents that are missing become directories of root.
    /// A name that is there gets the new file, and a directory that is there the new metadata.
    ///
    /// # Errors
    /// Names that ext4 cannot have, parents that are no directories, limits.
    pub fn add(&mut self, path: &[u8], meta: Meta, kind: Kind) -> Result<NodeId> {
        self.check_kind(path, kind)?;
        let implied = Meta::implied_dir(meta.mtime);
        match self.resolve(path, Missing::Make(&implied))? {
            Place::Dir(dir) if kind.is_dir() => {
                self.nodes[dir.at()].meta = meta;
                Ok(dir)
            }
            Place::Dir(_) => {
                Err(BuildError::entry(path, "stands for a directory, and is said to be none"))
            }
            Place::Name(dir, name) => self.put(dir, &name, meta, kind),
        }
    }

    /// Adds a file to a directory: what a source does that lists directories.
    ///
    /// # Errors
    /// Names that ext4 cannot have, limits.
    pub fn add_child(
        &mut self,
        dir: NodeId,
        name: &[u8],
        meta: Meta,
        kind: Kind,
    ) -> Result<NodeId> {
        self.check_kind(name, kind)?;
        check_plain(name)?;
        self.put(dir, name, meta, kind)
    }

    /// Gives a file that is there one more name.
    ///
    /// # Errors
    /// As of [`add`](Self::add); a target that is missing, a directory, or the name itself.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        let why = |why: &str| {
            BuildError::entry(path, format!("a hard link to '{}': {why}", shown(target)))
        };
        let place = self.resolve(target, Missing::Refuse).map_err(|error| match error {
            BuildError::Source { why: reason, .. } => why(&reason),
            other => other,
        })?;
        let node = match &place {
            Place::Dir(dir) => *dir,
            Place::Name(dir, name) => self.child(*dir, name).ok_or_else(|| why("is not there"))?,
        };
        let Node { kind, meta, .. } = *self.node(node);
        if kind.is_dir() {
            return Err(why("is a directory, which has one name only"));
        }
        let implied = Meta::implied_dir(meta.mtime);
        match self.resolve(path, Missing::Make(&implied))? {
            Place::Dir(_) => Err(why("the name stands for a directory")),
            Place::Name(dir, name) => {
                if matches!(&place, Place::Name(d, n) if (*d, n) == (dir, &name)) {
                    return Err(why("is the name itself"));
                }
                self.link_child(dir, &name, node)
            }
        }
    }

    /// Gives a file one more name in a directory.
    ///
    /// # Errors
    /// Names that ext4 cannot have, limits.
    pub fn link_child(&mut self, dir: NodeId, name: &[u8], node: NodeId) -> Result<()> {
        check_plain(name)?;
        if self.node(node).kind.is_dir() {
            return Err(BuildError::entry(name, "is a hard link to a directory"));
        }
        let entry = self.entry(dir, name)?;
        self.set_entry(entry, node.0);
        Ok(())
    }

    /// Removes a name from a directory, and all that is below it. False if it is not there.
    pub fn remove_child(&mut self, dir: NodeId, name: &[u8]) -> bool {
        let Some(entry) = self.entries.find(dir, name) else { return false };
        let entry = &mut self.entries.all[entry as usize];
        std::mem::replace(&mut entry.node, NONE) != NONE
    }

    /// The file of that name in a directory.
    #[must_use]
    pub fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let entry = self.entries.find(dir, name)?;
        let node = self.entries.all[entry as usize].node;
        (node != NONE).then_some(NodeId(node))
    }

    /// The file of that path, if it is there. Links on the way are followed.
    pub(crate) fn find_node(&mut self, path: &[u8]) -> Result<Option<NodeId>> {
        let before = (self.notes.len(), self.more_notes);
        let found = match self.resolve(path, Missing::Refuse) {
            Ok(Place::Dir(dir)) => Some(dir),
            Ok(Place::Name(dir, name)) => self.child(dir, &name),
            Err(BuildError::Source { .. }) => None,
            Err(error) => return Err(error),
        };
        if found.is_none() {
            // Of a file that is not there nothing was taken.
            self.notes.truncate(before.0);
            self.more_notes = before.1;
        }
        Ok(found)
    }

    /// The file of that number.
    ///
    /// # Panics
    /// If the number is not of this tree.
    #[must_use]
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.at()]
    }

    /// What is said of a file, to be changed.
    ///
    /// # Panics
    /// If the number is not of this tree.
    pub fn meta_mut(&mut self, id: NodeId) -> &mut Meta {
        &mut self.nodes[id.at()].meta
    }

    /// Keeps the target of a symbolic link.
    ///
    /// # Errors
    /// If it is longer than Linux allows, or a limit is reached.
    pub fn target(&mut self, path: &[u8], target: &[u8]) -> Result<NameRef> {
        if target.is_empty() || target.len() > MAX_TARGET || target.contains(&0) {
            let why = match target.len() {
                0 => "is a symbolic link without a target".into(),
                1..=MAX_TARGET => "is a symbolic link to a name with a NUL byte".into(),
                len => {
                    format!("is a symbolic link to a name of {len} bytes, of at most {MAX_TARGET}")
                }
            };
            return Err(BuildError::entry(path, why));
        }
        self.charge(target.len() as u64)?;
        let at = self.entries.bytes.len() as u32;
        self.entries.bytes.extend_from_slice(target);
        Ok(NameRef { at, len: target.len() as u16 })
    }

    /// The bytes of a target.
    ///
    /// # Panics
    /// If the reference is not of this tree.
    #[must_use]
    pub fn bytes(&self, name: NameRef) -> &[u8] {
        &self.entries.bytes[name.at as usize..][..usize::from(name.len)]
    }

    /// Keeps a set of extended attributes, with the prefixes of their names. Of a name that is
    /// there twice the last value counts.
    ///
    /// # Errors
    /// If a limit is reached.
    pub fn xattrs(&mut self, mut set: XattrSet) -> Result<XattrSetId> {
        // The last one comes first, and is the one that is kept.
        set.reverse();
        set.sort_by(|a, b| a.0.cmp(&b.0));
        set.dedup_by(|later, kept| later.0 == kept.0);
        if let Some(&id) = self.xattr_ids.get(&set) {
            return Ok(id);
        }
        let bytes: usize = set.iter().map(|(name, value)| name.len() + value.len()).sum();
        // The set and its copy in the index.
        self.charge(2 * (bytes as u64 + SET_COST * (1 + set.len() as u64)))?;
        let id = XattrSetId(self.xattrs.len() as u32);
        self.xattrs.push(set.clone());
        self.xattr_ids.insert(set, id);
        Ok(id)
    }

    /// The attributes of a set.
    ///
    /// # Panics
    /// If the number is not of this tree.
    #[must_use]
    pub fn xattr_set(&self, id: XattrSetId) -> &XattrSet {
        &self.xattrs[id.0 as usize]
    }

    /// Keeps the times beside mtime.
    ///
    /// # Errors
    /// If a limit is reached.
    pub fn times(&mut self, times: OtherTimes) -> Result<TimesId> {
        if times == OtherTimes::default() {
            return Ok(TimesId::NONE);
        }
        if self.times.last() != Some(&times) {
            self.charge(size_of::<OtherTimes>() as u64)?;
            self.times.push(times);
        }
        Ok(TimesId(self.times.len() as u32 - 1))
    }

    /// The times of that number.
    ///
    /// # Panics
    /// If the number is not of this tree.
    #[must_use]
    pub fn other_times(&self, id: TimesId) -> OtherTimes {
        self.times[id.0 as usize]
    }

    /// Remarks on something that was taken in another way than the source says.
    pub fn note(&mut self, entry: &[u8], what: impl Into<String>) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(Note { entry: shown(entry), what: what.into() });
        } else {
            self.more_notes += 1;
        }
    }

    /// Puts a file into a directory, over what has that name.
    pub(super) fn put(
        &mut self,
        dir: NodeId,
        name: &[u8],
        meta: Meta,
        kind: Kind,
    ) -> Result<NodeId> {
        let entry = self.entry(dir, name)?;
        let there = self.entries.all[entry as usize].node;
        if there != NONE && kind.is_dir() && self.nodes[there as usize].kind.is_dir() {
            self.nodes[there as usize].meta = meta;
            self.set_entry(entry, there);
            return Ok(NodeId(there));
        }
        // (A layer may do so with what is below it.)
        let replaces = there != NONE
            && self.nodes[there as usize].kind.is_dir()
            && self.entries.all[entry as usize].layer == self.layer;
        if replaces {
            self.note(name, "takes the place of a directory of that name and of all in it");
        }
        self.count()?;
        let id = self.nodes.len() as u32;
        self.nodes.push(Node { meta, kind, nlink: 0, first: NONE });
        self.set_entry(entry, id);
        Ok(NodeId(id))
    }

    /// The entry of a name, new or there.
    fn entry(&mut self, dir: NodeId, name: &[u8]) -> Result<u32> {
        check_name(name, name)?;
        match self.entries.find(dir, name) {
            Some(entry) => Ok(entry),
            None => {
                self.count()?;
                self.charge(name.len() as u64)?;
                Ok(self.entries.insert(dir, name, self.layer))
            }
        }
    }

    /// Lets a name stand for a file.
    fn set_entry(&mut self, nr: u32, node: u32) {
        let entry = &mut self.entries.all[nr as usize];
        entry.node = node;
        entry.layer = self.layer;
        if !entry.listed {
            entry.listed = true;
            let dir = &mut self.nodes[entry.parent.at()];
            entry.next = std::mem::replace(&mut dir.first, nr);
        }
    }

    fn check_kind(&self, path: &[u8], kind: Kind) -> Result<()> {
        let limit = self.limits.file_size;
        match kind {
            Kind::File { size, .. } if size > limit => {
                let why =
                    format!("is {size} bytes long, more than {limit} (--limits file-size=NUMBER)");
                Err(BuildError::entry(path, why))
            }
            Kind::Char(Rdev { major, minor }) | Kind::Block(Rdev { major, minor })
                if major > MAX_MAJOR || minor > MAX_MINOR =>
            {
                let why = format!(
                    "is a device with the number {major},{minor}, which Linux cannot have (at \
                     most {MAX_MAJOR},{MAX_MINOR})"
                );
                Err(BuildError::entry(path, why))
            }
            _ => Ok(()),
        }
    }

    /// One entry or file more.
    fn count(&mut self) -> Result<()> {
        self.added += 1;
        let limit = self.limits.entries;
        // A name and its file are counted each; numbers have 32 bits.
        if self.added / 2 >= limit || self.added >= u64::from(NONE) {
            return Err(BuildError::Limit { what: "entries", name: "entries", limit });
        }
        Ok(())
    }

    /// So many bytes more of names and attributes.
    pub(crate) fn charge(&mut self, bytes: u64) -> Result<()> {
        self.meta_bytes = self.meta_bytes.saturating_add(bytes);
        // Places of names have 32 bits.
        let limit = self.limits.meta_bytes.min(u64::from(u32::MAX));
        if self.meta_bytes > limit {
            let what = "bytes of names and attributes";
            return Err(BuildError::Limit { what, name: "metadata", limit });
        }
        Ok(())
    }
}

/// A name of a directory listing.
fn check_plain(name: &[u8]) -> Result<()> {
    if name.is_empty()
        || name == b"."
        || name == b".."
        || name.iter().any(|b| matches!(b, 0 | b'/'))
    {
        return Err(BuildError::entry(name, "is no name of a file"));
    }
    check_name(name, name)
}
