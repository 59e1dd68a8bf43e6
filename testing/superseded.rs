//! The one moment of a commit behind which e2fsck drops the log.

use extol::{MountOptions, inspect_journal};
use extol_block::{FileDevice, OpenOptions, SharedDevice};
use extol_jbd2::inspect::{BlockReport, FcTagReport};
use extol_testkit::Image;
use std::path::Path;
use std::sync::Arc;

/// True if e2fsck must not be asked: the fast commits of the last durable transaction are still in
/// their area, for the one write that clears it was not done (`docs/reliability.md`).
pub fn is_superseded(image: &Image) -> bool {
    let open = |path: &Path| -> SharedDevice {
        Arc::new(FileDevice::open(path, &OpenOptions::read_only()).expect("open an image"))
    };
    let options = MountOptions::default().with_journal(image.journal.as_deref().map(open));
    let report = inspect_journal(&open(&image.path), &options).expect("look at the journal");
    let head = report.blocks.iter().find_map(|block| match block {
        BlockReport::FastCommit { block, tags, .. } => match tags.first() {
            Some(FcTagReport::Head { tid, .. }) => Some((*block, *tid)),
            _ => None,
        },
        _ => None,
    });
    let first = report.superblock.fast_commit.map(|(first, _)| first);
    head.is_some_and(|(at, tid)| {
        Some(at) == first && tid.wrapping_add(1) == report.recovery.end_tid
    })
}
