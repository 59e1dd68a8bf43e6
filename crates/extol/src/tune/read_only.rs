//! The mark `read-only`, which keeps all from changing a volume.
//!
//! It comes in the transaction of all else. It goes alone, by one write of the superblock, because
//! nothing opens such a volume to change it.

use extol_block::SharedDevice;
use extol_ondisk::features::Feature;
use extol_ondisk::{Incompat, RoCompat, Superblock};

use super::plan::Plan;
use super::{MountOptions, Request, Result, Tuned, close, known, open, refuse};
use crate::resize::update_copies;
use crate::superblock::{geometry, write_superblock};

pub(super) const FEATURE: Feature = Feature::RoCompat(RoCompat::READONLY);

/// True if the volume is marked.
pub(super) fn is(sb: &Superblock) -> bool {
    sb.feature_ro_compat.contains(RoCompat::READONLY)
}

/// The superblock without the mark.
pub(super) fn without(sb: &Superblock) -> Superblock {
    let mut sb = sb.clone();
    sb.feature_ro_compat.remove(RoCompat::READONLY);
    sb
}

/// Takes the mark from a volume, which is the whole request.
pub(super) fn end(
    device: &SharedDevice,
    options: &MountOptions,
    request: &Request,
    plan: &Plan,
) -> Result<Tuned> {
    let alone = Request { features: vec![(FEATURE, false)], ..Request::default() };
    if *request != alone {
        return refuse(
            "the volume is marked as read-only: take the mark away first (-O ^read-only, and \
             nothing else)",
        );
    }
    let before = crate::superblock::read_superblock(&**device, None)?;
    if before.feature_incompat.contains(Incompat::NEEDS_RECOVERY) {
        // What is in the log may have the mark.
        return refuse("the journal must be replayed first: run extol replay");
    }
    let sb = without(&before);
    known::check(&sb, &geometry(&**device, &sb)?, false)?;
    write_superblock(&**device, &sb)?;
    let (fs, mut threads) = open(device, options)?;
    let updated = update_copies(&fs, u32::MAX);
    close::close(&fs, &mut threads)?;
    updated?;
    Ok(Tuned { changes: plan.changes(&before), notes: plan.notes.clone() })
}
