//! Dividing leaves before they are full.
//!
//! A fast commit says the names of a transaction, and whoever replays them needs room for them in the directory as the last
//! full commit left it. A leaf that is divided when it is full has had no room for a while, and the fsyncs of that while are
//! full commits. So in directories whose names fast commits tell, a leaf is divided while it still has some: what the old
//! block has left serves the replay until the next full commit, and from then on both halves have plenty.
//!
//! ```text
//!   used     0 ─────────────── 3/4 ───────── 1
//!            names go in       divided       (a leaf of a directory that nobody syncs: divided here)
//!                              └── room for replays, a quarter of a block
//! ```
//!
//! The price is space: leaves are between 3/8 and 3/4 full instead of 1/2 and full, a third more blocks. Directories in
//! which nobody syncs pay nothing.

use extol_journal::Handle;
use extol_ondisk::dirent::{self, NewEntry, entry_len};

use super::blocks::Shape;
use super::leaf::{self, Division, Hashed};

/// Bytes that the entries of a leaf may use in a directory whose names fast commits tell.
fn limit(shape: &Shape<'_>) -> usize {
    let area = dirent::area_len(shape.geo);
    area - area / 4
}

/// True if a leaf whose entries take `used` bytes, `new` not among them, is to be divided although there may be room.
pub(super) fn is_due(h: &Handle, shape: &Shape<'_>, used: usize, new: &NewEntry<'_>) -> bool {
    used + entry_len(new.name.len()) > limit(shape) && h.tells_names_of(shape.ino.0)
}

/// How to divide the entries of a leaf, one of them new: with `early` so that both have room, if that is possible.
pub(super) fn divide(items: &[Hashed<'_>], shape: &Shape<'_>, early: bool) -> Option<Division> {
    let best = early.then(|| leaf::divide(items, limit(shape))).flatten();
    best.or_else(|| leaf::divide(items, dirent::area_len(shape.geo)))
}
