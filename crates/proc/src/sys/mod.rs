//! The calls that one system has and another has not. What is read from `/proc` and `/sys` is not
//! among them: a system without those has nothing in them.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(all(unix, not(target_os = "linux")))]
mod other;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
pub(crate) use linux::{look_at, random_bytes};
#[cfg(all(unix, not(target_os = "linux")))]
pub(crate) use other::{look_at, random_bytes};
#[cfg(windows)]
pub(crate) use windows::random_bytes;
