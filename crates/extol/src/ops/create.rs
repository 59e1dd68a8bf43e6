//! New inodes: create, mkdir, mknod, symlink, O_TMPFILE.

use extol_fscrypt::Context;
use extol_jbd2::Handle;
use extol_ondisk::{FileType, Incompat, Inode, InodeFlags, InodeNr};
use extol_vfs::{Attr, Creds, FsError, NewNode, Result};

use super::reserve::Reservation;
use super::{check_name, values, with_inode};
use crate::alloc::{Allocator, Run};
use crate::dir;
use crate::encrypted;
use crate::error;
use crate::inline;
use crate::inodes::InodeState;
use crate::map;
use crate::mounted::MountedFs;
use crate::node::Node;
use crate::orphan;
use crate::quota::Ids;
use crate::volume::Volume;
use crate::xattr::{self, acl};

/// Largest link count; with dir_nlink, a directory with more subdirectories has 1.
pub(super) const LINK_MAX: u16 = 65000;
/// Blocks a new inode may need beside those of its directory: its own block, attributes, a mapping
/// block.
const INODE_BLOCKS: u64 = 4;
/// Blocks an entry may add to a directory: leaf, index at every level, mapping.
pub(super) const ENTRY_BLOCKS: u64 = 10;

fn kind_of(new: &NewNode) -> FileType {
    match new {
        NewNode::Regular => FileType::Regular,
        NewNode::Directory => FileType::Directory,
        NewNode::Symlink(_) => FileType::Symlink,
        NewNode::CharDevice(_) => FileType::CharDevice,
        NewNode::BlockDevice(_) => FileType::BlockDevice,
        NewNode::Fifo => FileType::Fifo,
        NewNode::Socket => FileType::Socket,
    }
}

/// Creates an inode with a name in `dir`, and takes a reference.
pub(crate) fn create(
    fs: &MountedFs,
    dir: u32,
    name: &[u8],
    new: &NewNode,
    perm: u16,
    umask: u16,
    owner: Creds,
) -> Result<Attr> {
    check_name(name)?;
    fs.check_writable()?;
    if let NewNode::Symlink(target) = new {
        // The target and a NUL must fit into one block, as in Linux.
        if target.is_empty() {
            return Err(FsError::NotFound);
        }
        if target.len() >= fs.vol.geo.block_len().min(4096) {
            return Err(FsError::NameTooLong);
        }
        if target.contains(&0) {
            return Err(FsError::Invalid("target of a symbolic link with a zero byte"));
        }
    }
    let cell = fs.cell(dir)?;
    with_inode(fs, || {
        let mut parent = cell.write()?;
        create_in(fs, &mut parent, name, new, perm, umask, owner)
    })
}

/// Checks that names may be added to or removed from a directory.
pub(crate) fn check_dir(parent: &InodeState) -> Result<()> {
    if !parent.is_dir() {
        return Err(FsError::NotADirectory);
    }
    if parent.node.raw.links == 0 {
        return Err(FsError::NotFound);
    }
    if parent.node.raw.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(FsError::NotPermitted);
    }
    Ok(())
}

/// One more subdirectory.
pub(crate) fn add_dir_link(fs: &MountedFs, raw: &mut Inode) -> Result<()> {
    count_dir_link(fs.has_dir_nlink(), raw)
}

/// [`add_dir_link`] with or without the feature dir_nlink.
pub(crate) fn count_dir_link(dir_nlink: bool, raw: &mut Inode) -> Result<()> {
    match raw.links {
        1 => {} // Too many to count already.
        n if n < LINK_MAX => raw.links += 1,
        _ if dir_nlink && raw.flags.contains(InodeFlags::INDEX) => raw.links = 1,
        _ => return Err(FsError::TooManyLinks),
    }
    Ok(())
}

/// One subdirectory less.
pub(crate) fn drop_dir_link(raw: &mut Inode) {
    if raw.links > 2 {
        raw.links -= 1;
    }
}

fn create_in(
    fs: &MountedFs,
    parent: &mut InodeState,
    name: &[u8],
    new: &NewNode,
    perm: u16,
    umask: u16,
    owner: Creds,
) -> Result<Attr> {
    check_dir(parent)?;
    let vol = &fs.vol;
    let spot = dir::seek(vol, &parent.node, name)?;
    if spot.entry.is_some() {
        return Err(FsError::Exists);
    }
    encrypted::check_add(vol, &parent.node)?;
    let kind = kind_of(new);
    if kind == FileType::Directory {
        add_dir_link(fs, &mut parent.node.raw.clone())?;
    }
    let context = encrypted::inherit(vol, &parent.node, kind)?;
    if needs_block(fs, new, context.as_ref())? {
        fs.check_room_for(owner)?;
    }
    prepare_quotas(fs, &parent.node.raw, owner)?;
    let reserved = Reservation::make(fs, inode_blocks(fs, parent) + ENTRY_BLOCKS)?;
    let credits = Allocator::ALLOC_INODE_CREDITS
        + dir::credits_add(vol, &parent.node)
        + credits_to_inherit(vol, &parent.node)
        + 12;
    let mut h = fs.start(credits)?;
    let mut made = make(fs, &mut h, parent, new, context.as_ref(), (perm, umask), owner)?;
    let added = dir::add_at(vol, &mut h, &mut parent.node, name, &spot, made.node.ino, kind);
    if let Err(e) = added {
        unmake(fs, &mut h, &mut made);
        parent.store(fs, &mut h, true)?;
        if !matches!(e, FsError::Io(_)) {
            // (After a failed read nothing is undone.)
            let _ = h.stop();
        }
        return Err(e);
    }
    if kind == FileType::Directory {
        add_dir_link(fs, &mut parent.node.raw)?;
    }
    parent.touch(fs.now());
    parent.store(fs, &mut h, true)?;
    made.store(fs, &mut h, true)?;
    let attr = fs.attr(&made);
    fs.table.retain(made.node.ino.0);
    fs.table.insert(made);
    let stopped = h.stop().map_err(error::journal);
    drop(reserved);
    stopped?;
    dir::note_found(vol, &parent.node, name, InodeNr(attr.id.ino));
    Ok(attr)
}

/// Blocks that a new inode in `parent` may need beside those of its directory.
pub(super) fn inode_blocks(fs: &MountedFs, parent: &InodeState) -> u64 {
    let list = acl::len(&fs.vol, &parent.node, acl::Which::Default);
    INODE_BLOCKS + if list > 0 { 2 * xattr::blocks(&fs.vol, list) } else { 0 }
}

/// Credits for what a new inode takes over from its directory, the inode not included.
fn credits_to_inherit(vol: &Volume, parent: &Node) -> u32 {
    let context = match encrypted::is_encrypted(parent) {
        true => xattr::credits(vol, parent, encrypted::CONTEXT_LEN),
        false => 0,
    };
    acl::credits_to_inherit(vol, parent) + context
}

/// The owners of a new inode get entries in the quota files.
fn prepare_quotas(fs: &MountedFs, parent: &Inode, owner: Creds) -> Result<()> {
    let Some(quotas) = fs.quotas.get() else { return Ok(()) };
    quotas.prepare(&fs.vol, owners(fs, parent, owner))
}

/// Owner, group and project of a new inode.
fn owners(fs: &MountedFs, parent: &Inode, owner: Creds) -> Ids {
    let of_parent = parent.mode & 0o2000 != 0 || fs.runtime.grpid.load();
    Ids {
        user: owner.uid,
        group: if of_parent { parent.gid } else { owner.gid },
        project: match parent.flags.contains(InodeFlags::PROJINHERIT) {
            true => parent.projid,
            false => 0,
        },
    }
}

/// True if the new inode needs a block of its own. An error if its target is too long.
fn needs_block(fs: &MountedFs, new: &NewNode, context: Option<&Context>) -> Result<bool> {
    Ok(match new {
        NewNode::Directory => {
            context.is_some() || !fs.vol.geo.incompat().contains(Incompat::INLINE_DATA)
        }
        NewNode::Symlink(target) => {
            encrypted::stored_len(&fs.vol, context, target)? >= size_of::<[u32; 15]>()
        }
        _ => false,
    })
}

/// Makes the inode, with everything but a name. Not stored yet. `context`: what it is encrypted by.
pub(crate) fn make(
    fs: &MountedFs,
    h: &mut Handle,
    parent: &InodeState,
    new: &NewNode,
    context: Option<&Context>,
    (perm, umask): (u16, u16),
    owner: Creds,
) -> Result<InodeState> {
    let vol = &fs.vol;
    let kind = kind_of(new);
    let is_dir = kind == FileType::Directory;
    let parent_raw = &parent.node.raw;
    let top = parent.node.ino == InodeNr::ROOT || parent_raw.flags.contains(InodeFlags::TOPDIR);
    let mode = kind.mode_bits() | (perm & 0o7777);
    let inherited =
        fs.fixed.acl.then(|| acl::inherit(vol, &parent.node, mode, umask)).transpose()?;
    let ino = vol.alloc.alloc_inode(h, parent.node.ino, is_dir, top)?;
    if fs.orphans.contains(ino.0) {
        // Without links, but still to be deleted, and perhaps open.
        return Err(vol.alloc.refuse_used(h, ino, is_dir)?);
    }
    if let Err(e) = vol.promise_inode(ino, owners(fs, parent_raw, owner)) {
        vol.alloc.free_inode(h, ino, is_dir)?;
        return Err(e);
    }
    let perm = match &inherited {
        _ if kind == FileType::Symlink => 0o777,
        Some(inherited) => inherited.mode & 0o7777,
        None => perm & 0o7777 & !umask,
    };
    let raw = new_raw(fs, parent_raw, kind, perm, owner);
    let mut st = InodeState::new(Node { ino, raw }, h.tid());
    st.is_new = true;
    let filled = encrypt(fs, h, &mut st, context);
    let filled = filled.and_then(|()| fill(fs, h, &mut st, parent.node.ino, new));
    let filled = filled.and_then(|()| match &inherited {
        Some(lists) if !lists.is_plain() => {
            let mut large = fs.values();
            let stored = lists.store(vol, h, &mut st.node, &mut large);
            values::end(fs, h, &mut st, large).and(stored)
        }
        _ => Ok(()),
    });
    if let Err(e) = filled {
        unmake(fs, h, &mut st);
        return Err(e);
    }
    Ok(st)
}

/// The fields of a new inode: owner, mode, times, and what it inherits from its directory.
fn new_raw(fs: &MountedFs, parent: &Inode, kind: FileType, mut perm: u16, owner: Creds) -> Inode {
    let is_dir = kind == FileType::Directory;
    let now = fs.now();
    let mut raw = Inode::new_empty(&fs.vol.geo);
    let ids = owners(fs, parent, owner);
    (raw.uid, raw.gid, raw.projid) = (ids.user, ids.group, ids.project);
    if is_dir && parent.mode & 0o2000 != 0 {
        perm |= 0o2000;
    }
    raw.mode = kind.mode_bits() | perm;
    raw.links = if is_dir { 2 } else { 1 };
    raw.generation = extol_proc::random_number() as u32;
    (raw.atime, raw.ctime, raw.mtime, raw.crtime) = (now, now, now, now);
    raw.flags = parent.flags & InodeFlags::INHERITED;
    if kind == FileType::Regular {
        raw.flags &= !InodeFlags::NOT_ON_REGULAR;
    } else if !is_dir {
        raw.flags &= InodeFlags::OTHER_MASK;
    }
    raw
}

/// Makes the inode an encrypted one. (Its context comes first, as in Linux: then it finds room in
/// the inode.)
fn encrypt(
    fs: &MountedFs,
    h: &mut Handle,
    st: &mut InodeState,
    context: Option<&Context>,
) -> Result<()> {
    let Some(context) = context else { return Ok(()) };
    let mut large = fs.values();
    let stored = encrypted::store(&fs.vol, h, &mut st.node, &mut large, context);
    values::end(fs, h, st, large).and(stored)
}

fn fill(
    fs: &MountedFs,
    h: &mut Handle,
    st: &mut InodeState,
    parent: InodeNr,
    new: &NewNode,
) -> Result<()> {
    let vol = &fs.vol;
    match new {
        NewNode::Regular => map::init(&vol.geo, &mut st.node.raw),
        NewNode::Directory => {
            if vol.geo.incompat().contains(Incompat::INLINE_DATA)
                && !encrypted::is_encrypted(&st.node)
                && inline::max_size(vol, &st.node) > 0
            {
                st.node.raw.flags |= InodeFlags::INLINE_DATA;
            } else {
                map::init(&vol.geo, &mut st.node.raw);
            }
            dir::init(vol, h, &mut st.node, parent)?;
        }
        NewNode::Symlink(target) => {
            let stored = encrypted::stored_form(vol, &st.node, target)?;
            set_target(vol, h, st, &stored)?;
        }
        NewNode::CharDevice(dev) | NewNode::BlockDevice(dev) => {
            st.node.raw.set_rdev(dev.major, dev.minor)
        }
        NewNode::Fifo | NewNode::Socket => {}
    }
    st.disk_size = st.node.raw.size;
    Ok(())
}

/// Puts what is stored for a target inside the inode if it fits, else in a block.
fn set_target(vol: &Volume, h: &mut Handle, st: &mut InodeState, target: &[u8]) -> Result<()> {
    st.node.raw.size = target.len() as u64;
    if target.len() < st.node.raw.i_block.len() {
        st.node.raw.i_block[..target.len()].copy_from_slice(target);
        return Ok(());
    }
    map::init(&vol.geo, &mut st.node.raw);
    vol.promise(&st.node, 1)?;
    let nr = vol.alloc.alloc_meta(h, vol.alloc.meta_goal(st.node.ino))?;
    map::insert(vol, h, &mut st.node, 0, Run { start: nr, len: 1 }, false)?;
    let buf = h.create(nr).map_err(error::journal)?;
    h.modify(&buf, |b| {
        if let Some(part) = b.get_mut(..target.len()) {
            part.copy_from_slice(target);
        }
    })
    .map_err(error::journal)
}

/// Undoes [`make`] in the same handle.
pub(crate) fn unmake(fs: &MountedFs, h: &mut Handle, st: &mut InodeState) {
    let vol = &fs.vol;
    let was_dir = st.is_dir();
    let raw = &st.node.raw;
    if raw.maps_blocks() && raw.blocks > 0 {
        let _ = map::remove(vol, h, &mut st.node, 0, u32::MAX, map::Discard::Free);
    }
    let mut large = fs.values();
    let _ = xattr::drop_all(vol, h, &mut st.node, &mut large);
    let _ = values::end(fs, h, st, large);
    st.node.raw.links = 0;
    // A small number would be read as a link of the orphan list.
    st.node.raw.dtime = u32::try_from(fs.now().sec).unwrap_or(u32::MAX).max(1);
    let _ = st.store_gone(fs, h);
    fs.vol.settle(&st.node, 0);
    // Last (DL-4).
    let _ = vol.alloc.free_inode(h, st.node.ino, was_dir);
}

/// Creates a regular file without a name, as an orphan, and takes a reference.
pub(crate) fn create_unnamed(
    fs: &MountedFs,
    dir: u32,
    perm: u16,
    umask: u16,
    owner: Creds,
) -> Result<Attr> {
    fs.check_writable()?;
    let cell = fs.cell(dir)?;
    with_inode(fs, || {
        let parent = cell.read()?;
        match check_dir(&parent) {
            // No name is searched for, so a removed directory is not "not found"; as in Linux.
            Err(FsError::NotFound) => return Err(FsError::NotPermitted),
            checked => checked?,
        }
        encrypted::check_add(&fs.vol, &parent.node)?;
        let context = encrypted::inherit(&fs.vol, &parent.node, FileType::Regular)?;
        prepare_quotas(fs, &parent.node.raw, owner)?;
        let reserved = Reservation::make(fs, inode_blocks(fs, &parent))?;
        let credits = Allocator::ALLOC_INODE_CREDITS
            + credits_to_inherit(&fs.vol, &parent.node)
            + orphan::CREDITS
            + 3;
        let mut h = fs.start(credits)?;
        let (new, how) = (NewNode::Regular, (perm, umask));
        let mut made = make(fs, &mut h, &parent, &new, context.as_ref(), how, owner)?;
        made.node.raw.links = 0;
        fs.orphans.add(&fs.vol, &fs.sb, &mut h, made.node.ino.0)?;
        made.store(fs, &mut h, true)?;
        let attr = fs.attr(&made);
        fs.table.retain(made.node.ino.0);
        fs.table.insert(made);
        let stopped = h.stop().map_err(error::journal);
        drop(reserved);
        stopped.map(|()| attr)
    })
}
