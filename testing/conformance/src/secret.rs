//! A volume whose cases run below an encrypted directory, with its key.

use std::path::{Path, PathBuf};

use extol_testkit::{Image, KernelMount, Subject, add_encryption_key, set_encryption_policy};

/// The directory, which is encrypted.
pub(crate) const DIR: &str = "secret";

/// The key. (Linux takes none with equal halves.)
pub(crate) fn key() -> Vec<u8> {
    (0..64).map(|n| n * 3 + 1).collect()
}

/// Lets Linux make the directory.
pub(crate) fn prepare(image: &Image, point: &Path) {
    let mount = KernelMount::mount(image, point, &[]);
    let identifier = add_encryption_key(mount.path(), None, &key());
    let dir = mount.path().join(DIR);
    std::fs::create_dir(&dir).expect("mkdir");
    // AES-256-XTS, AES-256-CTS, names padded to 32 bytes.
    let policy = [&[2, 1, 4, 3, 0, 0, 0, 0][..], &identifier].concat();
    set_encryption_policy(&dir, &policy).expect("Linux takes the policy");
    mount.unmount();
}

/// What a mount of this subject needs for the key: an option, whose file lies beside the image.
pub(crate) fn option(subject: &Subject, image: &Path) -> Option<String> {
    let file: PathBuf = image.with_extension("key");
    std::fs::write(&file, key()).expect("write the key");
    let name = file.display().to_string().replace(',', "\\,");
    subject.is_extol().then(|| format!("key={name}"))
}
