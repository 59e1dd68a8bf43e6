//! `extol info` of an external journal.

use std::fmt::Write as _;

use extol::Header;
use extol_ondisk::superblock::uuid_text;
use extol_vfs::{bytes_text, plain};
use serde::Serialize;

/// An external journal.
#[derive(Serialize)]
pub struct JournalDevice {
    /// Label.
    label: String,
    /// Uuid, which the volume's superblock names.
    uuid: String,
    /// Bytes per block.
    block_size: u32,
    /// Blocks of the device.
    blocks: u64,
    /// Blocks of the journal; `None` if its superblock is damaged.
    journal_blocks: Option<u32>,
    /// Its features.
    features: Vec<String>,
    /// Uuids of the volumes that use it.
    journal_of: Vec<String>,
    /// It holds transactions: the volume must be replayed.
    needs_recovery: bool,
    /// Seconds since 1970.
    created: u64,
}

impl JournalDevice {
    pub fn new(header: &Header) -> Self {
        let (sb, journal) = (&header.superblock, header.journal.as_ref());
        let users =
            journal.into_iter().flat_map(|log| log.users.iter().take(log.nr_users as usize));
        Self {
            label: bytes_text(sb.label()),
            uuid: uuid_text(&sb.uuid),
            block_size: sb.block_bytes(),
            blocks: sb.blocks_count,
            journal_blocks: journal.map(|journal| journal.maxlen),
            features: journal.map(|journal| journal.features.names()).unwrap_or_default(),
            journal_of: users.filter(|uuid| **uuid != [0; 16]).map(uuid_text).collect(),
            needs_recovery: journal.is_some_and(|journal| journal.start != 0),
            created: sb.mkfs_time,
        }
    }

    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: &dyn std::fmt::Display| {
            let _ = writeln!(text, "{name:<22} {value}");
        };
        let or_none = |list: String| if list.is_empty() { "<none>".to_owned() } else { list };
        line("Label", &or_none(plain(&self.label).into_owned()));
        line("UUID", &self.uuid);
        line("Is", &"an external journal, and no file system");
        line("Block size", &self.block_size);
        line("Blocks", &self.blocks);
        match self.journal_blocks {
            Some(blocks) => line("Journal", &format_args!("{blocks} blocks")),
            None => line("Journal", &"its superblock is damaged"),
        }
        line("Features", &or_none(self.features.join(" ")));
        line("Journal of", &or_none(self.journal_of.join(" ")));
        line("Needs recovery", &if self.needs_recovery { "yes" } else { "no" });
        text
    }
}
