//! The layers of the crate: a module uses only modules that stand before it. The order is drawn in
//! `src/lib.rs`.

use extol_testkit::{assert_drawing, assert_layers};

/// The layers, lowest first. Modules of one line do not use each other.
const LAYERS: &[&[&str]] = &[
    &["error", "sys"],
    &["keys", "name_keys", "encryption"],
    &["options"],
    &["node"],
    &["superblock"],
    &["fast_commit_support"],
    &["runtime_options"],
    &["freeze_gate"],
    &["guard"],
    &["throttle"],
    // What changes say of themselves to fast commits.
    &["fast_commit/reason"],
    &["fast_commit/delta"],
    &["alloc"],
    &["fast_commit/eligibility"],
    // What is on the device. Inodes are read and written through the volume, which tells fast
    // commits of each change, and keeps the dentry cache and the shared attribute blocks.
    &["dir/dentry_cache", "dir/looked_through", "xattr/sharing"],
    &["quota/usage"],
    &["volume"],
    &["map"],
    &["xattr"],
    &["quota"],
    &["inline"],
    &["encrypted"],
    &["dir"],
    &["fast_commit"],
    // The parts of the mounted state.
    &["dirs_moved"],
    &["error_state/record"],
    &["maintenance/requests"],
    &["services/lazy_init/groups", "services/lazy_init/schedule"],
    &["services/lazy_init/thread"],
    &["services/lazy_init/state"],
    &["data/delalloc", "data/cache", "data/readahead/threads"],
    &["verity"],
    &["inodes", "orphan"],
    &["data/dirty"],
    &["mounted"],
    // What works on it.
    &["error_state"],
    &["look"],
    &["services"],
    &["data"],
    &["ops"],
    &["fast_commit/replay"],
    &["maintenance"],
    &["quotas"],
    &["find_journal"],
    &["resize"],
    &["mount"],
    &["tune"],
    &["remount"],
    &["info", "stats"],
    &["check"],
    &["ext4"],
    &["path", "fuse"],
    &["lib"],
];

#[test]
fn modules_use_lower_ones_only() {
    assert_layers(env!("CARGO_MANIFEST_DIR"), LAYERS);
}

#[test]
fn the_drawing_names_every_layer() {
    assert_drawing(env!("CARGO_MANIFEST_DIR"), LAYERS);
}
