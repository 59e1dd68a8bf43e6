//! What the command line changes of what a source says.
//!
//! Edits are made in one order, whatever the order of the options: names that are left out first,
//! so that nothing is asked of them; then numbers of owners are mapped, then set, then the mode,
//! the times, and the root directory's owner. What a metadata file says of single files is stronger
//! than all of these. Labels and fs-verity come last, for what that file has made as well. Each
//! changes a file once, however many names it has.

mod mode;
mod owner;
mod pattern;
#[cfg(feature = "selinux")]
mod selinux;
mod table;
#[cfg(test)]
mod tests;
mod time;

pub use mode::ModeChange;
pub use owner::{IdMap, Owner};
pub use pattern::{Pattern, Patterns, States};
#[cfg(feature = "selinux")]
pub use selinux::Contexts;
pub use table::MetaFile;
pub(crate) use time::decimal;
pub use time::{TimeEdit, parse_time};

use std::collections::HashMap;

use crate::error::{BuildError, Result};
use crate::tree::{Kind, Meta, NodeId, OtherTimes, TreeBuilder, VerityTrees, XattrSet, XattrSetId};

/// Changes of a tree.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// Names that are left out, with all that is below them.
    pub exclude: Patterns,
    /// Files that become such of fs-verity, by their names or those of directories above them.
    pub verity: Patterns,
    /// How their trees are made.
    pub verity_trees: VerityTrees,
    /// How users are mapped.
    pub map_users: IdMap,
    /// How groups are mapped; as users if this is empty.
    pub map_groups: IdMap,
    /// The owner of all files.
    pub owner: Owner,
    /// A change of all modes.
    pub chmod: Option<ModeChange>,
    /// The owner of the root directory.
    pub root_owner: Owner,
    /// What is done to times.
    pub mtime: Option<TimeEdit>,
    /// What is said of single files, and which are made.
    pub meta_file: Option<MetaFile>,
    /// Labels of all files.
    #[cfg(feature = "selinux")]
    pub selinux: Option<Contexts>,
}

impl Edits {
    /// Makes them, when the source has been listed. `root`: the owner of the root directory,
    /// unless they say another one.
    ///
    /// # Errors
    /// An owner that no range has, limits.
    pub fn apply(&self, tree: &mut TreeBuilder, root: Owner) -> Result<()> {
        if !self.exclude.is_empty() {
            let exclude = &self.exclude;
            tree.prune(
                exclude.start(),
                |states, name, is_dir| exclude.matches(states, name, is_dir),
                |states, name| exclude.enter(states, name),
            );
        }
        let mut mapped = HashMap::new();
        let root = self.root_owner.or(root);
        for id in tree.live() {
            let given = if id == NodeId::ROOT { root } else { Owner::default() };
            self.node(tree, id, given, &mut mapped)?;
        }
        let root = tree.meta_mut(NodeId::ROOT);
        root.uid = self.root_owner.uid.unwrap_or(root.uid);
        root.gid = self.root_owner.gid.unwrap_or(root.gid);
        if let Some(meta_file) = &self.meta_file {
            meta_file.apply(tree)?;
        }
        if !self.verity.is_empty() {
            let verity = &self.verity;
            let files = tree.files_in(
                verity.start(),
                |states, name, is_dir| verity.matches(states, name, is_dir),
                |states, name| verity.enter(states, name),
            );
            files.into_iter().for_each(|id| tree.meta_mut(id).verity = true);
            tree.verity = self.verity_trees.clone();
        }
        #[cfg(feature = "selinux")]
        if let Some(contexts) = &self.selinux {
            contexts.apply(tree)?;
        }
        Ok(())
    }

    /// Edits one file. `given`: an owner that is not the source's.
    fn node(
        &self,
        tree: &mut TreeBuilder,
        id: NodeId,
        given: Owner,
        mapped: &mut HashMap<XattrSetId, XattrSetId>,
    ) -> Result<()> {
        let node = tree.node(id);
        let (mut meta, kind) = (node.meta, node.kind);
        (meta.uid, meta.gid) = self.map_owner(tree, id, meta, given)?;
        meta.xattrs = self.map_xattrs(tree, id, meta.xattrs, mapped)?;
        meta.uid = self.owner.uid.unwrap_or(meta.uid);
        meta.gid = self.owner.gid.unwrap_or(meta.gid);
        if let Some(change) = &self.chmod
            && !matches!(kind, Kind::Symlink(_))
        {
            meta.mode = change.apply(meta.mode, kind.is_dir());
            meta.xattrs = with_mode(tree, meta)?;
        }
        if let Some(edit) = self.mtime {
            meta.mtime = edit.apply(meta.mtime);
            let OtherTimes { atime, ctime, crtime } = tree.other_times(meta.times);
            let apply = |time: Option<_>| time.map(|time| edit.apply(time));
            let times =
                OtherTimes { atime: apply(atime), ctime: apply(ctime), crtime: apply(crtime) };
            meta.times = tree.times(times)?;
        }
        *tree.meta_mut(id) = meta;
        Ok(())
    }

    /// The numbers of owner and group in the image: as given, else mapped. One that the source does
    /// not say need not be in a range.
    fn map_owner(
        &self,
        tree: &TreeBuilder,
        id: NodeId,
        meta: Meta,
        given: Owner,
    ) -> Result<(u32, u32)> {
        let (groups, option) = self.groups();
        let map = |ranges: &IdMap, option: &str, number: u32| match ranges.map(number) {
            Some(number) => Ok(number),
            None if meta.implied => Ok(number),
            None => Err(no_range(tree, id, option, number)),
        };
        Ok((
            given.uid.map_or_else(|| map(&self.map_users, "--map-users", meta.uid), Ok)?,
            given.gid.map_or_else(|| map(groups, option, meta.gid), Ok)?,
        ))
    }

    /// A set of attributes with the numbers of owners in it mapped.
    fn map_xattrs(
        &self,
        tree: &mut TreeBuilder,
        id: NodeId,
        before: XattrSetId,
        mapped: &mut HashMap<XattrSetId, XattrSetId>,
    ) -> Result<XattrSetId> {
        if let Some(known) = mapped.get(&before) {
            return Ok(*known);
        }
        let (groups, option) = self.groups();
        let map = |name: &[u8], value: &[u8]| {
            owner::map_xattr(name, value, &self.map_users, groups)
                .map_err(|number| no_range(tree, id, option, number))
        };
        let after = match edited(tree.xattr_set(before), map)? {
            Some(set) => tree.xattrs(set)?,
            None => before,
        };
        mapped.insert(before, after);
        Ok(after)
    }

    /// The ranges of groups, and the option that has them.
    fn groups(&self) -> (&IdMap, &'static str) {
        match self.map_groups.is_empty() {
            true => (&self.map_users, "--map-users"),
            false => (&self.map_groups, "--map-groups"),
        }
    }
}

fn no_range(tree: &TreeBuilder, id: NodeId, option: &str, number: u32) -> BuildError {
    let why = format!(
        "belongs to {number}, which is in no range of {option}: add one, such as \
         {number}:{number}:1"
    );
    BuildError::entry(&tree.path_of(id), why)
}

/// The attributes of a file whose mode was changed: an access list says the same.
fn with_mode(tree: &mut TreeBuilder, meta: Meta) -> Result<XattrSetId> {
    let chmod = |name: &[u8], value: &[u8]| Ok(owner::chmod_xattr(name, value, meta.mode));
    match edited(tree.xattr_set(meta.xattrs), chmod)? {
        Some(set) => tree.xattrs(set),
        None => Ok(meta.xattrs),
    }
}

/// A set of attributes with some values changed; `None` if none is.
fn edited(
    set: &XattrSet,
    change: impl Fn(&[u8], &[u8]) -> Result<Option<Vec<u8>>>,
) -> Result<Option<XattrSet>> {
    let mut out = None;
    for (nr, (name, value)) in set.iter().enumerate() {
        if let Some(new) = change(name, value)?.filter(|new| **new != **value) {
            out.get_or_insert_with(|| set.clone())[nr].1 = new.into();
        }
    }
    Ok(out)
}
