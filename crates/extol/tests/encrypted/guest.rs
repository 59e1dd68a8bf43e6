//! The guest, with what encryption takes.

use extol_guest::Guest;
use extol_testkit::Image;

/// Mounts the volume, and gives it the key. Its identifier is in `id`.
pub const ENTER: &str = "
    set -e
    mount -t ext4 /dev/vda /mnt
    id=$(xfs_io -c add_enckey /mnt </key | sed 's/.* //')";

/// Ciphers, their modes, and hashes. (XChaCha12 is in `chacha_generic`.)
const MODULES: [&str; 11] = [
    "xts",
    "cts",
    "cbc",
    "ecb",
    "essiv",
    "hmac",
    "sha256_generic",
    "sha512_generic",
    "adiantum",
    "nhpoly1305",
    "chacha_generic",
];

/// A guest with the volume as its drive. (GNU's xargs: that of busybox repeats parts of names.)
pub fn guest(image: &Image) -> Guest {
    let guest = Guest::new().drive(&image.path).file("/key", [7; 64]);
    let guest = MODULES.into_iter().fold(guest, Guest::module);
    ["xfs_io", "chattr", "xargs"].into_iter().fold(guest, Guest::program)
}
