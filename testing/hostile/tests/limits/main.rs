//! Bounds, proved one by one: a volume is crafted to be as bad as one kind of damage can make it
//! (its checksums are right), and then everything is done with it: `extol info`, `log`, `check` (as
//! it lies, and as it will be after recovery), a read-only mount, a mount with changes, fsync and
//! unmount, and another mount.
//!
//! Each case states what is said about it (by the checker, and by Extol with the inode), and all of
//! them keep within the same bounds on requests to the device ([`prove::Bounds`]) and on memory.
//! Requests are counted, not timed: the bounds hold on every machine.
//!
//! `EXTOL_TELL=1` with `--nocapture` prints what each case took and what was said.

mod craft;
mod dirs;
mod fast;
mod files;
mod journal;
mod prove;
mod space;
mod supers;
