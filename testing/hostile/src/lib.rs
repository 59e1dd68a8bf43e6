//! Hostile and damaged volumes: how they are made, and what must hold on them whatever their bytes
//! are: no panic, no hang, no memory without end, and file data never over metadata.
//!
//! ```text
//!   base ─► layout ─► mutate (seal) ─► exercise, on a disk that watches
//!   a sound   what is    one field or    open, walk, change, fsync,
//!   volume    where      more, with      crash or unmount
//!                        right checksums
//!              choices: by a seed, or by a fuzzer
//! ```
//!
//! Three users: the seeded storm and the limits (`tests/`), and the fuzz targets ([`targets`]),
//! which libFuzzer drives from the directory `fuzz` and which `tests/replay.rs` runs on the inputs
//! kept there.

pub mod base;
pub mod choices;
pub mod disk;
pub mod exercise;
pub mod fast;
pub mod layout;
pub mod mutate;
pub mod seal;
pub mod targets;
pub mod tree;
pub mod watch;
