//! Lazy inode-table initialisation, on volumes of mke2fs and of Extol over old contents: every
//! table is zeroed in the end, no used inode is touched, and each event stops or continues it. L1
//! to
//! L9 are scenarios of the design.

mod old_log;
mod rig;
mod threads;
mod turns;
