//! Recovery of volumes with fast commits on top of the log: those that Linux left, and those that
//! are made here.

#[path = "../common/mod.rs"]
#[allow(dead_code)]
mod common;
mod crafted;
mod linux;
mod reasons;
