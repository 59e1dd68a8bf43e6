//! Name spaces of extended attributes, as numbered on disk.

/// `user.`
pub const USER: u8 = 1;
/// `system.posix_acl_access`
pub const ACL_ACCESS: u8 = 2;
/// `system.posix_acl_default`
pub const ACL_DEFAULT: u8 = 3;
/// `trusted.`
pub const TRUSTED: u8 = 4;
/// Lustre.
pub const LUSTRE: u8 = 5;
/// `security.`
pub const SECURITY: u8 = 6;
/// `system.`
pub const SYSTEM: u8 = 7;
/// `system.richacl`
pub const RICHACL: u8 = 8;
/// Encryption context.
pub const ENCRYPTION: u8 = 9;
/// `gnu.` (Hurd)
pub const HURD: u8 = 10;
