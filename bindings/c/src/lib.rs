//! libextol: ext4 in user space for C programs. `include/extol.h` is made from this crate.
//!
//! ```text
//!   volume   open, close, sync, statfs      device   a device that the program itself is
//!   paths    names and attributes           dirs     directory streams
//!   files    contents                       images   mkfs, build, replay, check
//!   failure  errno, and a line that says why
//!   given    strings, buffers and handles of the caller
//! ```
//!
//! # The line between the languages
//!
//! - CB-1: no panic crosses it. Every function does its work inside `failure::call`, which turns
//!   one into EIO.
//! - CB-2: a handle is a box that [`given`] makes and takes back. What it holds is shared with the
//!   files and directories opened through it, so these stay valid when the volume was closed; calls
//!   through them fail then.
//! - CB-3: nothing of the caller is kept after a call, but for a device's callbacks and its
//!   pointer, which are used until the volume, its files and its directories are closed.
//!
//! This crate is one of the few with unsafe code: pointers of the caller are read and written in
//! [`given`] and [`device`], and nowhere else.

#![allow(unsafe_code)]

pub mod device;
pub mod dirs;
pub mod failure;
pub mod files;
pub mod given;
pub mod images;
pub mod paths;
pub mod volume;

use std::ffi::c_char;

/// The version of the library, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn extol_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
