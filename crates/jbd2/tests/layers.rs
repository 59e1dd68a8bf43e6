//! The layers of the crate: a module uses only modules that stand before it. The order is drawn in
//! `src/lib.rs`.

use extol_testkit::{assert_drawing, assert_layers};

/// The layers, lowest first. Modules of one line do not use each other.
const LAYERS: &[&[&str]] = &[
    &["types"],
    &["planted"],
    &["order"],
    // What is on the device, and reading it.
    &["format"],
    &["log_map"],
    &["home"],
    &["recovery"],
    &["inspect"],
    // Decisions and bookkeeping: no device, no thread.
    &["batching"],
    &["space"],
    &["checkpoint/policy"],
    &["stats"],
    &["fast/area"],
    &["fast/data_checksum"],
    &["fast/source"],
    &["fast/queue"],
    &["fast/async_requests"],
    &["journal/writes"],
    // Blocks, and the transactions that change them.
    &["cache"],
    &["transaction"],
    &["log"],
    &["checkpoint/list"],
    &["checkpoint/rounds"],
    &["journal/state"],
    // The journal, and what it does.
    &["journal"],
    &["handle"],
    &["journal/wait", "journal/join"],
    &["fast"],
    &["checkpoint"],
    &["commit"],
    &["services"],
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
