//! Options as text: all of them, and those that differ from what this volume has without options.

use extol_block::Direct;
use extol_block::open::{Base, Opened};
use extol_ondisk::Superblock;
use extol_ondisk::superblock::DefaultMountOpts;

use super::{DataMode, ErrorPolicy, MountOptions, table};

impl MountOptions {
    /// With what is usual on a device of another host, where the options do not say: a round trip
    /// takes its time, so more of them are under way.
    #[must_use]
    pub(super) fn over_network(mut self) -> Self {
        self.data.readahead.get_or_insert(32 << 20);
        self
    }

    /// With what is usual on such a base, where the options do not say.
    #[must_use]
    pub fn for_base(self, base: &Base) -> Self {
        if base.file().is_none() { self.over_network() } else { self }
    }

    /// Whether a program that mounts nothing bypasses the page cache, where the options do not say.
    /// A disk image that is only read is read through it: most of the reads are small, and the page
    /// cache often holds the image.
    #[must_use]
    pub fn direct(&self) -> Direct {
        match self.access.direct {
            Some(true) => Direct::On,
            Some(false) => Direct::Off,
            None if self.access.read_only => Direct::Devices,
            None => Direct::Auto,
        }
    }

    /// With what is usual on what was opened for a program that mounts nothing, where the options
    /// do not say.
    #[must_use]
    pub fn for_opened(self, opened: &Opened) -> Self {
        let mut options = self.for_base(&opened.base);
        // The page cache holds the same data. (Not what is packed: that is unpacked once.)
        let is_cached = opened.base.file().is_some_and(|file| !file.is_direct());
        let is_packed = opened.layers.iter().any(|layer| layer.container().is_some());
        if options.access.read_only && is_cached && !is_packed {
            options.cache.data.get_or_insert(0);
        }
        options
    }

    /// What these options mean on this volume: where they leave the decision to the superblock, its
    /// value.
    pub(crate) fn effective(&self, sb: &Superblock) -> Self {
        let has = |flag| sb.default_mount_opts.contains(flag);
        let mut o = self.clone();
        o.journal.data_mode.get_or_insert(match (sb.default_mount_opts.bits() & 0x60) >> 5 {
            1 => DataMode::Journal,
            3 => DataMode::Writeback,
            _ => DataMode::Ordered,
        });
        o.journal.barrier.get_or_insert(!has(DefaultMountOpts::NOBARRIER));
        o.access.errors.get_or_insert(match sb.errors {
            2 => ErrorPolicy::RemountRo,
            3 => ErrorPolicy::Panic,
            _ => ErrorPolicy::Continue,
        });
        o.inodes.grpid.get_or_insert(has(DefaultMountOpts::BSDGROUPS));
        o.space.resuid.get_or_insert(u32::from(sb.def_resuid));
        o.space.resgid.get_or_insert(u32::from(sb.def_resgid));
        o
    }

    /// Every option as one word, always in the same order; empty where there is nothing to say.
    pub(crate) fn words(&self) -> Vec<String> {
        table().map(|spec| (spec.show)(self)).collect()
    }

    /// As `/proc/mounts` shows it: `ro` or `rw`, the rule for access times, and whatever differs
    /// from `defaults`.
    pub(crate) fn shown(&self, defaults: &Self) -> String {
        let always = 2;
        let words = self.words().into_iter().zip(defaults.words()).enumerate();
        let shown = words
            .filter(|(at, (word, default))| !word.is_empty() && (*at < always || word != default));
        shown.map(|(_, (word, _))| word).collect::<Vec<_>>().join(",")
    }
}
