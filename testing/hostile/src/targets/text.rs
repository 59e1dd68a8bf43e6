//! Texts that users write.

use extol::MountOptions;
use extol::image::BuildError;
use extol::image::edits::{Contexts, Edits, MetaFile, Owner};
use extol::image::tree::{DataRef, Kind, Limits, Meta, TreeBuilder};
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

/// A metadata file, or a file of contexts, that changes a small tree. What is refused is told in a
/// line.
pub(super) fn meta_file(input: &[u8]) {
    let Some((&kind, text)) = input.split_first() else { return };
    let mut limits = Limits::default();
    limits.entries = 10_000;
    limits.meta_bytes = 4 << 20;
    let mut tree = TreeBuilder::new(limits);
    let file = Kind::File { size: 3, data: DataRef(0) };
    for (path, kind) in [(&b"etc"[..], Kind::Dir), (b"etc/shadow", file), (b"x", Kind::Fifo)] {
        tree.add(path, Meta { mode: 0o755, ..Meta::default() }, kind).expect("a tree");
    }
    tree.link(b"etc/second", b"etc/shadow").expect("a name");
    let mut edits = Edits::default();
    let parsed = match kind & 1 {
        0 => MetaFile::parse("input", text).map(|file| edits.meta_file = Some(file)),
        _ => Contexts::parse("input", text).map(|file| edits.selinux = Some(file)),
    };
    let told = |error: BuildError| {
        let line = error.to_string();
        assert!(line.len() < 4000 && !line.contains('\n'), "{line}");
    };
    match parsed.and_then(|()| edits.apply(&mut tree, Owner::default())) {
        Err(error) => told(error),
        Ok(()) => {
            let tree = tree.finish();
            assert!(tree.nodes().all(|(_, node)| node.meta.mode <= 0o7777));
            assert!(tree.find(b"etc/second") == tree.find(b"etc/shadow"));
        }
    }
}
