//! The layers of the crate: a module uses only modules that stand before it. The order is drawn in
//! `src/lib.rs`; `extol_testkit::assert_layers` says what counts as a use.

use extol_testkit::{assert_drawing, assert_layers};

/// The layers, lowest first. Modules of one line do not use each other.
const LAYERS: &[&[&str]] = &[
    &["abi", "buffer", "errno", "interrupts", "pool"],
    &["config", "wire"],
    &["counts"],
    &["init"],
    &["mount"],
    &["rights"],
    &["writers"],
    &["control"],
    &["connection"],
    &["ops"],
    &["handle"],
    &["device"],
    &["uring"],
    &["session"],
    &["direct"],
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
