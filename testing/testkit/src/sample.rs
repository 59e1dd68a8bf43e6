//! Files to put into volumes. Those of the machine may be missing, or change while a test runs.

/// A small file.
pub const HOSTNAME: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/hostname");
/// A file of some lines.
pub const PASSWD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/passwd");
/// Another one.
pub const GROUP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/group");
/// And another.
pub const FSTAB: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/fstab");
/// A directory.
pub const APT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/sample/apt");
