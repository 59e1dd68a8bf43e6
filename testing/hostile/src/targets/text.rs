//! Texts that users write.

use extol::MountOptions;
use extol_fuse::MountConfig;

/// Mount options: the library's and the mount's. What was taken must keep within the limits that
/// the options state.
pub(super) fn mount_options(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(options) = MountOptions::parse(&text) {
        assert!(
            options.cache.metadata_bytes >= 4 << 20 && options.cache.metadata_bytes <= 1 << 40,
            "{text}"
        );
        assert!(
            options.data.dirty_bytes >= 1 << 20 && options.data.dirty_bytes <= 1 << 40,
            "{text}"
        );
        assert!(options.cache.data_bytes() <= 1 << 40, "{text}");
        assert!((64..=1 << 28).contains(&options.cache.inodes), "{text}");
        assert!(
            !options.journal.commit.is_zero() && options.journal.commit.as_secs() <= 21_474_836,
            "{text}"
        );
        assert!(
            MountOptions::parse(&format!("{text},ro")).is_ok_and(|o| o.access.read_only),
            "{text}"
        );
    }
    let mut config = MountConfig::default();
    for word in text.split(',') {
        if config.accept(word) == Ok(true) {
            // Saying it again changes nothing.
            let flags = config.flags;
            assert!(config.accept(word) == Ok(true) && config.flags == flags, "{text}");
        }
    }
}
