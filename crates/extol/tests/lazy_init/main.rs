//! Lazy inode-table initialisation, on volumes of mke2fs and of Extol over old contents: every
//! table is zeroed in the end, no used inode is touched, and each event stops it or lets it go on.

mod old_log;
mod rig;
mod steps;
mod threads;
