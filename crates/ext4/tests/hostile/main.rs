//! Hostile and damaged volumes, through the public interface: whatever the bytes are, there is no panic, no hang, no
//! memory without end, and file data is never written over metadata.
//!
//! `storm` damages volumes at random (see there how to run one case again), `known` holds the cases that were found
//! once, `limits` proves bounds.

mod base;
mod disk;
mod exercise;
mod layout;
mod mutate;
mod rng;
mod seal;
mod storm;
mod watch;
