//! Which value inodes the attributes of an inode name, and another number for one of them.

use extol_jbd2::Handle;
use extol_ondisk::InodeNr;
use extol_ondisk::xattr::{self as format, XattrEntry};
use extol_vfs::Result;

use super::shared::{BlockArea, modify};
use super::value;
use super::{Areas, has_any};
use crate::node::Node;
use crate::volume::Volume;

/// The value inodes of an inode's attributes, once for each entry.
#[derive(Debug, Default)]
pub(crate) struct ValueNumbers {
    /// Of entries in the inode.
    pub body: Vec<InodeNr>,
    /// Of entries in its attribute block.
    pub block: Vec<InodeNr>,
    /// One of them is of the old form, which names the inode that has the attribute.
    pub has_old_form: bool,
}

/// Finds them.
pub(crate) fn value_numbers(vol: &Volume, node: &Node) -> Result<ValueNumbers> {
    if !value::are_allowed(vol) || !has_any(node) {
        return Ok(ValueNumbers::default());
    }
    let areas = Areas::load(vol, node)?;
    let numbers = |entries: &[XattrEntry]| {
        let named = entries.iter().filter(|entry| entry.has_inode());
        named.map(|entry| InodeNr(entry.value_inum)).collect()
    };
    Ok(ValueNumbers {
        body: numbers(&areas.body),
        block: areas.block.as_ref().map(|block| numbers(&block.entries)).unwrap_or_default(),
        has_old_form: areas.all().any(|entry| value::is_old_form(vol, node, entry)),
    })
}

/// The value in inode `numbers.0` is in inode `numbers.1` now: in the inode itself.
pub(crate) fn renumber_in_body(node: &mut Node, numbers: (InodeNr, InodeNr)) {
    if node.raw.extra_isize != 0 {
        format::renumber_ibody(&mut node.raw.tail, numbers);
    }
}

/// As that, in the attribute block of the inode. One credit.
pub(crate) fn renumber_in_block(
    vol: &Volume,
    h: &mut Handle,
    node: &Node,
    numbers: (InodeNr, InodeNr),
) -> Result<()> {
    let Some(area) = BlockArea::load(vol, node)? else { return Ok(()) };
    modify(vol, h, &area.buf, |bytes| format::renumber_block(bytes, numbers))
}

/// The number of a value is no more to be found by what is in it.
pub(crate) fn forget_value(vol: &Volume, value: &Node) {
    vol.sharing.values.lock().remove(format::stated_hash(&value.raw), value.ino);
}
