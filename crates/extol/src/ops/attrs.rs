//! Attributes: chmod, chown, utimes, truncate, chattr.

use std::sync::Arc;

use crate::fast_commit::Reason;
use extol_jbd2::Handle;
use extol_ondisk::{FileType, Incompat, InodeFlags, RoCompat, Time};
use extol_vfs::{Attr, FsError, Result, SetAttr, SetTime};

use super::files::check_key;
use super::reserve::Reservation;
use super::{values, with_space};
use crate::data::{flush, truncate};
use crate::dir;
use crate::encrypted;
use crate::error;
use crate::fast_commit::eligibility;
use crate::inodes::{Cell, InodeState};
use crate::map;
use crate::mounted::MountedFs;
use crate::quota::Ids;
use crate::xattr::{self, acl};

/// Attributes.
pub(crate) fn getattr(fs: &MountedFs, ino: u32) -> Result<Attr> {
    let cell = fs.cell(ino)?;
    let st = cell.read_any()?;
    Ok(fs.attr(&st))
}

/// Changes attributes.
pub(crate) fn setattr(fs: &MountedFs, ino: u32, set: &SetAttr) -> Result<Attr> {
    fs.check_writable()?;
    let cell = fs.cell(ino)?;
    with_space(fs, || {
        let mut st = cell.write_any()?;
        if st.is_deleted && !only_times(set) {
            return Err(FsError::Stale);
        }
        check_flags(&st, set)?;
        if let Some(wanted) = set.flags {
            check_wanted(fs, &st, wanted, set.project)?;
        }
        let projects = fs.vol.geo.ro_compat.contains(RoCompat::PROJECT);
        if !projects && set.project.is_some_and(|p| p != 0) {
            return Err(FsError::NotSupported("project ids need the project feature"));
        }
        if let Some(size) = set.size {
            resize(fs, &cell, &mut st, size)?;
        }
        if *set != SetAttr::default() {
            change(fs, &cell, &mut st, set)?;
        }
        Ok(fs.attr(&st))
    })
}

fn check_flags(st: &InodeState, set: &SetAttr) -> Result<()> {
    let flags = st.node.raw.flags;
    let attributes = set.perm.is_some() || set.uid.is_some() || set.gid.is_some();
    // A front end that caches times (FUSE writeback cache) writes them back later, the change time
    // among them. They belong to changes that were allowed.
    let written_back = set.ctime.is_some() && set.atime.is_none();
    let times = !written_back && (set.atime.is_some() || set.mtime.is_some());
    if flags.contains(InodeFlags::IMMUTABLE) && (attributes || set.size.is_some() || times) {
        return Err(FsError::NotPermitted);
    }
    if flags.contains(InodeFlags::VERITY) && set.size.is_some() {
        return Err(FsError::NotPermitted);
    }
    if st.enables_verity && set.size.is_some() {
        return Err(FsError::TextBusy);
    }
    // It says "now" by a modification time that is the change time.
    let now = set.ctime.is_some() && set.mtime == set.ctime;
    let chosen = |t: Option<SetTime>| matches!(t, Some(SetTime::At(_))) && !now;
    let chosen = chosen(set.atime) || chosen(set.mtime);
    if flags.contains(InodeFlags::APPEND) && (attributes || set.size.is_some() || (times && chosen))
    {
        return Err(FsError::NotPermitted);
    }
    Ok(())
}

/// Err unless the `chattr` flags can become `wanted`. As in Linux, flags that users see and cannot
/// change are left alone without an error, because chattr(1) gives back all that it read.
fn check_wanted(fs: &MountedFs, st: &InodeState, wanted: u32, project: Option<u32>) -> Result<()> {
    let old = st.node.raw.flags;
    let wanted = InodeFlags::from_bits_retain(wanted);
    if !InodeFlags::USER_VISIBLE.contains(wanted) {
        return Err(FsError::NotSupported("a flag that is not the user's"));
    }
    let wanted = wanted & InodeFlags::USER_MODIFIABLE;
    let excluded = match st.kind() {
        Some(FileType::Directory) => InodeFlags::empty(),
        Some(FileType::Regular) => InodeFlags::NOT_ON_REGULAR,
        _ => !InodeFlags::OTHER_MASK,
    };
    if wanted.intersects(excluded) {
        return Err(FsError::NotSupported("this flag on this kind of file"));
    }
    if old.contains(InodeFlags::IMMUTABLE) && wanted.contains(InodeFlags::IMMUTABLE) {
        // Nothing else of the inode changes as long as it stays so.
        let project = project.is_some_and(|project| project != st.node.raw.projid);
        if project || (old ^ wanted) & !InodeFlags::IMMUTABLE != InodeFlags::empty() {
            return Err(FsError::NotPermitted);
        }
    }
    let no_dax = InodeFlags::NOT_WITH_DAX
        & !if st.is_dir() { InodeFlags::INLINE_DATA } else { InodeFlags::empty() };
    let had_dax = old.contains(InodeFlags::DAX);
    if (wanted.contains(InodeFlags::DAX) && old.intersects(no_dax))
        || (had_dax && wanted.intersects(no_dax))
    {
        return Err(FsError::NotSupported("DAX beside this flag"));
    }
    check_layout(fs, st, old, wanted)
}

/// Checks the flags that decide the layout of an inode: a directory folds names, or ceases to, only
/// while it has none, and a file changes between extents and block maps only while it has no
/// blocks.
fn check_layout(
    fs: &MountedFs,
    st: &InodeState,
    old: InodeFlags,
    wanted: InodeFlags,
) -> Result<()> {
    let changed = old ^ wanted;
    if changed.contains(InodeFlags::CASEFOLD) {
        if !fs.vol.geo.incompat().contains(Incompat::CASEFOLD) {
            return Err(FsError::NotSupported("case folding without its feature"));
        }
        if st.is_dir() && !dir::is_empty(&fs.vol, &st.node)? {
            return Err(FsError::NotEmpty);
        }
        if wanted.contains(InodeFlags::CASEFOLD) {
            encrypted::check_fold(&fs.vol, &st.node)?;
        }
    }
    if changed.contains(InodeFlags::EXTENTS)
        && wanted.contains(InodeFlags::EXTENTS)
        && !fs.vol.geo.incompat().contains(Incompat::EXTENTS)
    {
        return Err(FsError::Invalid("extents need their feature"));
    }
    let raw = &st.node.raw;
    let holds_nothing = st.is_regular()
        && raw.size == 0
        && raw.blocks == 0
        && st.pages.is_empty()
        && !raw.flags.contains(InodeFlags::INLINE_DATA);
    if changed.contains(InodeFlags::EXTENTS) && !holds_nothing {
        return Err(FsError::NotSupported("another kind of map for a file that has blocks"));
    }
    Ok(())
}

fn resize(fs: &MountedFs, cell: &Arc<Cell>, st: &mut InodeState, size: u64) -> Result<()> {
    match st.kind() {
        Some(FileType::Regular) => {}
        Some(FileType::Directory) => return Err(FsError::IsADirectory),
        _ => return Err(FsError::Invalid("only regular files have a size to set")),
    }
    check_key(fs, st)?;
    let old = st.node.raw.size;
    let now = fs.now();
    st.node.raw.ctime = now;
    if size != old {
        st.node.raw.mtime = now;
    }
    if size == old && st.pages.is_empty() {
        // Blocks behind the end (preallocated with keep-size) still go.
        return truncate::unmap_behind(fs, st, size);
    }
    truncate::set_size(fs, cell, st, size)
}

fn change(fs: &MountedFs, cell: &Arc<Cell>, st: &mut InodeState, set: &SetAttr) -> Result<()> {
    let now = fs.now();
    if let Some(flags) = set.flags {
        change_journal_flag(fs, st, flags)?;
    }
    let only_times = only_times(set);
    // Without a name, a crash deletes the file; it stays in memory as long as it is referenced, and
    // a new link stores all of it. The kernel writes back the times of every file that it has just
    // unlinked: not worth a transaction.
    let unnamed = st.node.raw.links == 0;
    if only_times && !st.is_dir() && (unnamed || fs.runtime.lazytime.load()) {
        set_times(fs, st, set, now);
        if !unnamed {
            st.lazy_times = true;
            fs.dirty.add(cell, fs.clock.now_ns());
        }
        return Ok(());
    }
    let old = Ids::of_inode(&st.node.raw);
    let ids = Ids {
        user: set.uid.unwrap_or(old.user),
        group: set.gid.unwrap_or(old.group),
        project: set.project.unwrap_or(old.project),
    };
    let quotas = fs.quotas.get().filter(|_| ids != old);
    quotas.map_or(Ok(()), |quotas| quotas.prepare(&fs.vol, ids))?;
    let lists = set.perm.is_some() && fs.fixed.acl && xattr::has_any(&st.node);
    let list = if lists { acl::len(&fs.vol, &st.node, acl::Which::Access) } else { 0 };
    let blocks = 1 + xattr::blocks(&fs.vol, list);
    let _reserved = lists.then(|| Reservation::make(fs, blocks)).transpose()?;
    // (Behind the reservation: without room this is tried once more, and would promise again.)
    if let Some(quotas) = quotas {
        let values = u64::from(xattr::count_values(&fs.vol, &st.node));
        quotas.promise_transfer(&fs.vol, &st.node, (st.pages.reserved(), values), ids)?;
    }
    let credits = if lists { xattr::credits(&fs.vol, &st.node, list) } else { 0 };
    let mut h = fs.start(1 + credits)?;
    if st.is_dir() {
        // (Times that are set look like those that a new name leaves, which no record has to tell.)
        eligibility::note_ineligible(&mut h, st.node.ino, Reason::Attributes);
    }
    if let Some(perm) = set.perm {
        chmod(fs, &mut h, st, perm, lists)?;
    }
    (st.node.raw.uid, st.node.raw.gid) = (ids.user, ids.group);
    if let Some(flags) = set.flags {
        apply_flags(fs, st, flags);
        fs.table.note_flags(st.node.raw.flags);
    }
    st.node.raw.projid = ids.project;
    set_times(fs, st, set, now);
    st.store(fs, &mut h, !only_times)?;
    fs.settle(st);
    h.stop().map_err(error::journal)?;
    values::delete_left(fs);
    Ok(())
}

/// Sets the permission bits, and what the access list says of them.
fn chmod(
    fs: &MountedFs,
    h: &mut Handle,
    st: &mut InodeState,
    perm: u16,
    lists: bool,
) -> Result<()> {
    let old = st.node.raw.mode;
    st.node.raw.mode = (old & !0o7777) | (perm & 0o7777);
    if lists {
        let mut large = fs.values();
        acl::chmod(&fs.vol, h, &mut st.node, &mut large).inspect_err(|_| st.node.raw.mode = old)?;
        values::end(fs, h, st, large)?;
    }
    Ok(())
}

fn only_times(set: &SetAttr) -> bool {
    let SetAttr { atime, mtime, ctime, .. } = *set;
    *set == SetAttr { atime, mtime, ctime, ..SetAttr::default() }
}

/// Sets the times; the change time is `now` if `set` has none.
fn set_times(fs: &MountedFs, st: &mut InodeState, set: &SetAttr, now: Time) {
    if let Some(t) = set.atime {
        st.node.raw.atime = resolve(fs, t);
    }
    if let Some(t) = set.mtime {
        st.node.raw.mtime = resolve(fs, t);
    }
    st.node.raw.ctime = set.ctime.map_or(now, |t| resolve(fs, t));
}

fn resolve(fs: &MountedFs, t: SetTime) -> Time {
    match t {
        SetTime::Now => fs.now(),
        SetTime::At(t) => fs.time(t),
    }
}

/// Sets flags that [`check_wanted`] allows.
fn apply_flags(fs: &MountedFs, st: &mut InodeState, flags: u32) {
    let mut may = InodeFlags::USER_MODIFIABLE;
    match st.kind() {
        Some(FileType::Directory) => {}
        Some(FileType::Regular) => may &= !InodeFlags::NOT_ON_REGULAR,
        _ => may &= InodeFlags::OTHER_MASK,
    }
    let wanted = InodeFlags::from_bits_retain(flags) & may;
    let extents = (st.node.raw.flags ^ wanted).contains(InodeFlags::EXTENTS);
    if extents && may.contains(InodeFlags::EXTENTS) {
        st.node.raw.i_block.fill(0);
        if wanted.contains(InodeFlags::EXTENTS) {
            map::init(&fs.vol.geo, &mut st.node.raw);
        }
    }
    st.node.raw.flags = (st.node.raw.flags & !may) | wanted;
}

/// chattr ±j: how the data is written changes. So all data in flight is written and checkpointed
/// first, and no journalled version stays in memory: data written past the journal would not change
/// it, and the next change of the flag would bring it back.
fn change_journal_flag(fs: &MountedFs, st: &mut InodeState, flags: u32) -> Result<()> {
    let wanted = InodeFlags::from_bits_retain(flags).contains(InodeFlags::JOURNAL_DATA);
    if st.is_regular()
        && wanted != st.node.raw.flags.contains(InodeFlags::JOURNAL_DATA)
        && fs.vol.journal.has_log()
    {
        flush::flush(fs, st)?;
        fs.vol.journal.freeze().map_err(error::journal)?;
        fs.vol.journal.drop_idle();
        st.node.raw.flags.set(InodeFlags::JOURNAL_DATA, wanted);
        fs.vol.journal.thaw();
    }
    Ok(())
}
