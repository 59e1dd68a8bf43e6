//! Semantics of a mount that only a mount has, or that need many threads, whole volumes or large
//! directories. What a single caller sees is compared with Linux call by call in the test
//! `conformance`.

mod bulk;
mod directories;
mod files;
mod space;

use extol_testkit::{Need, Subject};

/// What every test here needs.
const NEEDS: [Need; 5] =
    [Need::Root, Need::Loop, Need::Fuse, Need::Kernel("ext4"), Need::Tool("mke2fs")];

fn subject() -> Subject {
    Subject::under_test()
}
