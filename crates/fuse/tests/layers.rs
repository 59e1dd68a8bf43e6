//! The layers of the crate: a module uses only modules that stand before it. The order is drawn in
//! `src/lib.rs`; `testing/layers.rs` says what counts as a use.

#[path = "../../../testing/layers.rs"]
mod layers;

/// The layers, lowest first. Modules of one line may use each other.
const LAYERS: &[&[&str]] = &[
    &["abi", "buffer", "errno", "pool"],
    &["config", "wire"],
    &["counts"],
    &["init"],
    &["mount"],
    &["rights"],
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

/// Uses of a higher module, with the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[];

#[test]
fn modules_use_lower_ones_only() {
    layers::modules_use_lower_ones_only(env!("CARGO_MANIFEST_DIR"), LAYERS, EXCEPTIONS);
}

#[test]
fn the_drawing_names_every_layer() {
    layers::the_drawing_names_every_layer(env!("CARGO_MANIFEST_DIR"), LAYERS);
}
