//! The running journal as a whole: many handles, commits and checkpoints over memory, crashes at
//! any write, failing devices, and the scenarios that decide whether something acknowledged can be
//! lost.
//!
//! | file | asks |
//! | --- | --- |
//! | `crash` | is every state after a crash a prefix of the transactions, with all that was acknowledged? |
//! | `stress` | do many threads on a tiny log end, and is what they wrote what a model says? |
//! | `faults` | does a failing write, flush or read lose nothing acknowledged and leave no thread waiting? |
//! | `scenarios` | single rules: revoke, reuse, credits, timer, clock, waiters of each kind |
//!
//! Random tests take the same seeds every time. `EXTOL_SOAK=100 cargo test --test runtime` runs a
//! hundred times as many.

mod crash;
mod devices;
mod faults;
mod lab;
mod scenarios;
mod stress;
mod world;
