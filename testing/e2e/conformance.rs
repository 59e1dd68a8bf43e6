//! The POSIX suite on the library, on a mount of Extol and on Linux's ext4, in one run.
//!
//! `EXTOL_CASE=part` runs the cases whose names have this part.

use extol_testkit::{Need, Subject, require};

const NEEDS: [Need; 6] = [
    Need::Root,
    Need::Loop,
    Need::Fuse,
    Need::Kernel("ext4"),
    Need::Tool("mke2fs"),
    Need::Tool("debugfs"),
];

#[test]
fn the_library_and_a_mount_behave_like_linux() {
    if !require(&NEEDS) {
        return;
    }
    let subject = Subject::under_test();
    let counts =
        extol_conformance::run(&subject).unwrap_or_else(|differences| panic!("{differences}"));
    println!("{counts:?}");
}
