//! Disk images with partitions.

use crate::{MIB, schema};
use extol_testkit::{Image, LoopDevice, Scratch, extol_ok, run_ok, text, tool};
use serde_json::Value;

/// A disk image with partitions.
pub struct Disk {
    pub image: Image,
}

impl Disk {
    /// Made by sfdisk.
    pub fn new(scratch: &Scratch, name: &str, mib: u64, script: &str) -> Self {
        let disk = Self { image: Image::sparse(scratch.join(name), mib * MIB) };
        disk.write_table(scratch, script);
        disk
    }

    /// A block device with partitions made by sfdisk.
    pub fn on_device(scratch: &Scratch, device: &LoopDevice, script: &str) -> Self {
        let disk = Self { image: Image { path: device.path().into(), journal: None } };
        disk.write_table(scratch, script);
        disk
    }

    fn write_table(&self, scratch: &Scratch, script: &str) {
        let input = scratch.join("script");
        std::fs::write(&input, script).expect("script");
        let line = "PATH=$PATH:/sbin:/usr/sbin sfdisk -q \"$0\" <\"$1\"";
        run_ok(tool("sh").args(["-c", line]).arg(&self.image.path).arg(input));
    }

    pub fn name(&self) -> &str {
        text(&self.image.path)
    }

    pub fn part(&self, part: impl std::fmt::Display) -> String {
        format!("{}:{part}", self.name())
    }

    /// Number, start and bytes of all partitions, by sfdisk.
    pub fn places(&self) -> Vec<(u64, u64, u64)> {
        let said = run_ok(tool("sfdisk").arg("--json").arg(&self.image.path));
        let said: Value = serde_json::from_str(&said).expect("JSON");
        let table = &said["partitiontable"];
        let sector = table["sectorsize"].as_u64().unwrap_or(512);
        let parts = table["partitions"].as_array().expect("partitions").iter();
        let place = |part: &Value| {
            let node = part["node"].as_str().expect("node");
            let digits = node.rsplit(|c: char| !c.is_ascii_digit()).next().expect("number");
            let number = |name: &str| part[name].as_u64().expect("a number");
            (digits.parse().expect("number"), number("start") * sector, number("size") * sector)
        };
        parts.map(place).collect()
    }

    /// The same by Extol; its JSON fits the schema.
    pub fn shown(&self) -> (Value, Vec<(u64, u64, u64)>) {
        let said = disk_json(self.name());
        let parts = said["partitions"].as_array().expect("partitions").iter();
        let number = |part: &Value, name: &str| part[name].as_u64().expect("a number");
        let place =
            |part: &Value| (number(part, "number"), number(part, "start"), number(part, "bytes"));
        let places = parts.map(place).collect();
        (said, places)
    }
}

pub const DOS: &str = "label: dos\nsize=10M,type=83\nsize=10M,type=82\nsize=100M,type=5\n\
                   size=10M,type=83\nsize=20M,type=83\nsize=20M,type=83\nsize=20M,type=83\n";

/// The JSON of a disk with partitions, which fits the schema.
pub fn disk_json(name: &str) -> Value {
    let said = extol_ok(&["info", "--json", name]);
    let said: Value = serde_json::from_str(&said).expect("JSON");
    let schema = include_str!("../../../docs/guide/schemas/disk.json");
    let schema: Value = serde_json::from_str(schema).expect("a schema");
    schema::check(&schema, &said, "disk");
    said
}

/// The UUID of a volume, as `extol info` has it.
pub fn volume_uuid(name: &str) -> String {
    let said: Value = serde_json::from_str(&extol_ok(&["info", "--json", name])).expect("JSON");
    said["uuid"].as_str().expect("a UUID").to_owned()
}
