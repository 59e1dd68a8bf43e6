//! What an inode's record means for the usage of its owners.

use extol_ondisk::quota::{Entry, Kind};
use extol_ondisk::{Inode, InodeFlags};
use smallvec::{SmallVec, smallvec};

/// The owners of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ids {
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Project.
    pub project: u32,
}

impl Ids {
    /// Of a record.
    pub fn of_inode(raw: &Inode) -> Self {
        Self { user: raw.uid, group: raw.gid, project: raw.projid }
    }

    /// The one that files of this kind count.
    pub fn of(self, kind: Kind) -> u32 {
        match kind {
            Kind::User => self.user,
            Kind::Group => self.group,
            Kind::Project => self.project,
        }
    }
}

/// What an inode in use means for its owners.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Usage {
    ids: Ids,
    /// Bytes.
    space: u64,
    /// Itself, and the attribute values in inodes of their own that it pays for.
    inodes: i64,
}

impl Usage {
    /// Of a record, without attribute values. `None`: the inode is such a value, for which those
    /// pay that refer to it.
    pub fn of(raw: &Inode) -> Option<Self> {
        let space = raw.blocks.saturating_mul(512);
        let is_value = raw.flags.contains(InodeFlags::EA_INODE);
        (!is_value).then(|| Self { ids: Ids::of_inode(raw), space, inodes: 1 })
    }

    /// With so many more inodes.
    pub fn and_values(self, values: i64) -> Self {
        Self { inodes: self.inodes.saturating_add(values), ..self }
    }

    /// True if the same ids have both.
    pub fn has_owners_of(self, other: Self) -> bool {
        self.ids == other.ids
    }

    /// Bytes.
    pub(super) fn space(self) -> u64 {
        self.space
    }
}

/// Bytes and inodes that are to be had beside what there is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Room {
    /// Bytes.
    pub space: u64,
    pub inodes: u64,
}

impl Room {
    /// Both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            space: self.space.saturating_add(other.space),
            inodes: self.inodes.saturating_add(other.inodes),
        }
    }

    /// What is left without the other, or nothing.
    pub fn minus(self, other: Self) -> Self {
        Self {
            space: self.space.saturating_sub(other.space),
            inodes: self.inodes.saturating_sub(other.inodes),
        }
    }

    /// Not more than the other, of each.
    pub fn at_most(self, other: Self) -> Self {
        Self { space: self.space.min(other.space), inodes: self.inodes.min(other.inodes) }
    }
}

/// A change of one id's usage.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Amount {
    pub space: i128,
    pub inodes: i64,
}

impl Amount {
    fn of(usage: Usage, sign: i64) -> Self {
        let space = i128::from(usage.space) * i128::from(sign);
        Self { space, inodes: usage.inodes.saturating_mul(sign) }
    }

    /// Of what is promised.
    pub fn of_room(room: Room) -> Self {
        let inodes = i64::try_from(room.inodes).unwrap_or(i64::MAX);
        Self { space: i128::from(room.space), inodes }
    }

    /// Adds it to an entry. Usage that was too low ends at zero, and none is beyond what a file can
    /// store.
    pub fn add_to(self, entry: &mut Entry) {
        let space = i128::from(entry.space) + self.space;
        let inodes = i128::from(entry.inodes) + i128::from(self.inodes);
        entry.space = clamped(space);
        entry.inodes = clamped(inodes);
    }
}

fn clamped(value: i128) -> u64 {
    u64::try_from(value.clamp(0, i128::from(i64::MAX))).unwrap_or(0)
}

/// Whose usage changes by how much.
pub(super) fn differences(
    kind: Kind,
    before: Option<Usage>,
    after: Option<Usage>,
) -> SmallVec<[(u32, Amount); 2]> {
    let id = |usage: Usage| usage.ids.of(kind);
    match (before, after) {
        (Some(old), Some(new)) if id(old) == id(new) => {
            let space = i128::from(new.space) - i128::from(old.space);
            let inodes = new.inodes.saturating_sub(old.inodes);
            let amount = Amount { space, inodes };
            if (space, inodes) == (0, 0) { smallvec![] } else { smallvec![(id(new), amount)] }
        }
        (old, new) => {
            let goes = old.map(|old| (id(old), Amount::of(old, -1)));
            let comes = new.map(|new| (id(new), Amount::of(new, 1)));
            goes.into_iter().chain(comes).collect()
        }
    }
}
