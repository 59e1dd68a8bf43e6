//! `extol info` of a disk with partitions, and of a volume that is a part of something.

use std::fmt::Write as _;
use std::path::Path;

use extol_block::open::{Layer, Partition, Table};
use extol_proc::Shown as _;
use extol_vfs::{bytes_text, plain};
use serde::Serialize;

use crate::files::human;

/// A disk with partitions.
#[derive(Serialize)]
pub struct Disk {
    /// "gpt" or "dos" (MBR).
    table: &'static str,
    /// Its bytes.
    bytes: u64,
    /// The GPT is the copy at the end of the disk: the first one is damaged.
    is_copy: bool,
    /// The copy of the GPT at the end of the disk is damaged.
    copy_is_damaged: bool,
    /// The MBR beside the GPT has entries of its own.
    is_hybrid: bool,
    /// The partitions, by their numbers.
    partitions: Vec<Part>,
    #[serde(flatten)]
    packed: Packed,
}

/// What a volume or a disk is packed in.
#[derive(Serialize)]
pub struct Packed {
    /// "sparse", "gzip", "qcow2" …; `None`: in nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<&'static str>,
    /// The files below it, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    backing: Vec<String>,
    /// With its article, and more about it.
    #[serde(skip)]
    text: String,
}

impl Packed {
    pub fn of_layers(layers: &[Layer]) -> Self {
        let Some((layer, known)) =
            layers.iter().find_map(|layer| Some((layer, layer.container()?)))
        else {
            return Self { container: None, backing: Vec::new(), text: String::new() };
        };
        let (mut text, mut backing) = (known.what.to_owned(), Vec::new());
        if let Layer::Qcow2 { version, cluster, backing: below } = layer {
            let _ = write!(text, " (version {version}, clusters of {})", human(*cluster));
            backing.extend(below.iter().map(|path| path.shown().to_string()));
        }
        for path in &backing {
            let _ = write!(text, ", over {path}");
        }
        Self { container: Some(known.word), backing, text }
    }

    /// `None`: it is not packed.
    pub fn text(&self) -> Option<&str> {
        self.container.map(|_| &*self.text)
    }
}

/// A partition, or another part of a disk.
#[derive(Serialize)]
pub struct Part {
    /// Its number; `None`: it is no partition.
    number: Option<u32>,
    /// Where it begins, in bytes.
    start: u64,
    /// Its bytes.
    bytes: u64,
    /// Its type: a GUID, or the byte of an MBR.
    #[serde(rename = "type")]
    kind: String,
    /// What that type means; empty if it is not known.
    purpose: &'static str,
    /// Its name in a GPT.
    name: String,
    /// What `PARTUUID=` names.
    uuid: String,
    /// What it holds: "ext4", "swap" …; empty if that is not known.
    holds: &'static str,
    /// The label of its file system.
    label: String,
}

impl Part {
    fn of(part: &Partition) -> Self {
        Self {
            number: Some(part.number),
            start: part.start,
            bytes: part.len,
            kind: part.type_id.clone(),
            purpose: part.purpose(),
            name: part.name.clone(),
            uuid: part.uuid.clone(),
            holds: part.found.word(),
            label: bytes_text(part.found.label()),
        }
    }

    /// The part of a disk that a volume is. `None`: it is all of one.
    pub fn of_layers(layers: &[Layer]) -> Option<Self> {
        Some(match layers.last()? {
            Layer::AndroidSparse
            | Layer::Expanded(_)
            | Layer::Vmdk
            | Layer::Vhdx
            | Layer::Qcow2 { .. } => return None,
            Layer::Partition(part) => Self::of(part),
            Layer::Window(start, bytes) => Self {
                number: None,
                start: *start,
                bytes: *bytes,
                kind: String::new(),
                purpose: "",
                name: String::new(),
                uuid: String::new(),
                holds: "",
                label: String::new(),
            },
        })
    }

    /// A line as those of a volume.
    pub fn line(&self) -> String {
        let place = format!("{} at byte {}", human(self.bytes), self.start);
        let what = match self.number {
            None => place,
            Some(number) if self.name.is_empty() => format!("partition {number}, {place}"),
            Some(number) => format!("partition {number} ({}), {place}", plain(&self.name)),
        };
        format!("{:<22} {what}\n", "Part of a disk")
    }
}

impl Disk {
    pub fn new(table: &Table, bytes: u64, layers: &[Layer]) -> Self {
        Self {
            table: table.kind.word(),
            bytes,
            is_copy: table.is_copy,
            copy_is_damaged: table.copy_is_damaged,
            is_hybrid: table.is_hybrid,
            partitions: table.parts.iter().map(Part::of).collect(),
            packed: Packed::of_layers(layers),
        }
    }

    /// A table, and how a volume on it is named.
    pub fn text(&self, source: &Path) -> String {
        let kind = if self.table == "gpt" { "GPT" } else { "MBR" };
        let mut text = format!("{kind} disk of {}", human(self.bytes));
        if let Some(packed) = self.packed.text() {
            let _ = write!(text, ", packed in {packed}");
        }
        if self.is_copy {
            text += "; its first table is damaged, this is the copy at its end";
        }
        if self.copy_is_damaged {
            text += "; the copy of its table at its end is damaged (gdisk writes it anew)";
        }
        if self.is_hybrid {
            text += "; its MBR shows some of the partitions as well";
        }
        if self.partitions.is_empty() {
            return text + ", without partitions\n";
        }
        let _ = writeln!(
            text,
            "\n{:>4}  {:<11} {:>7} {:>15}  type, name",
            "part", "holds", "size", "start"
        );
        for part in &self.partitions {
            let name = if part.name.is_empty() { &part.label } else { &part.name };
            let purpose = if part.purpose.is_empty() { &part.kind } else { part.purpose };
            let comma = if name.is_empty() { "" } else { ", " };
            let _ = writeln!(
                text,
                "{:>4}  {:<11} {:>7} {:>15}  {purpose}{comma}{}",
                part.number.unwrap_or(0),
                if part.holds.is_empty() { "?" } else { part.holds },
                human(part.bytes),
                part.start,
                plain(name),
            );
        }
        let volume = self.partitions.iter().find(|part| part.holds.starts_with("ext"));
        if let Some(number) = volume.and_then(|part| part.number) {
            let _ = writeln!(text, "a partition is named {}:{number}", source.shown());
        }
        text
    }
}
