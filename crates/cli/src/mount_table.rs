//! The kernel's table of mounts.

use std::path::Path;

/// An entry of the kernel's table of mounts.
#[derive(Debug)]
pub struct MountEntry {
    /// Its number.
    pub id: u64,
    /// `fuse.extol`, `ext4` …
    pub kind: String,
    /// What is mounted.
    pub source: String,
    /// Options of the mount, then those of the file system.
    pub options: Vec<String>,
}

/// What is mounted on top of exactly `dir`.
pub fn mount_entry(dir: &Path) -> Option<MountEntry> {
    mounts_on(dir).pop()
}

/// True if the mount with this number is on top of `dir`, and of FUSE: Linux gives the number of a
/// mount that is gone to the next. (Where the table of mounts cannot be read, any mount there
/// counts.)
pub fn is_top(dir: &Path, id: u64) -> bool {
    let Ok(table) = table() else { return true };
    find(&table, &dir.to_string_lossy())
        .pop()
        .is_some_and(|top| top.id == id && top.kind.starts_with("fuse"))
}

/// All that is mounted on exactly `dir`, the topmost last.
pub fn mounts_on(dir: &Path) -> Vec<MountEntry> {
    table().map(|table| find(&table, &dir.to_string_lossy())).unwrap_or_default()
}

/// Everything that is mounted.
fn table() -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read("/proc/self/mountinfo")?).into_owned())
}

fn find(table: &str, dir: &str) -> Vec<MountEntry> {
    let mut found = Vec::new();
    for (mount, volume) in table.lines().filter_map(|line| line.split_once(" - ")) {
        let mut mount = mount.split(' ');
        let id = mount.next().and_then(|number| number.parse().ok()).unwrap_or_default();
        if mount.nth(3).is_some_and(|point| unescape(point) == dir) {
            let mut volume = volume.split(' ');
            let kind = volume.next().unwrap_or_default().to_owned();
            let source = unescape(volume.next().unwrap_or_default());
            let lists = [mount.next(), volume.next()];
            let options = lists.into_iter().flatten().flat_map(|list| list.split(','));
            found.push(MountEntry {
                id,
                kind,
                source,
                options: options.map(str::to_owned).collect(),
            });
        }
    }
    found
}

/// Mountinfo writes blanks as `\040`.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, escaped)) = rest.split_once('\\') {
        plain.push_str(before);
        let code = escaped.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(code) => {
                plain.push(code.into());
                rest = escaped.get(3..).unwrap_or_default();
            }
            None => {
                plain.push('\\');
                rest = escaped;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topmost_mount_counts() {
        let table = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
90 22 0:50 / /mnt/a\\040b rw - ext4 /dev/loop0 rw\n\
91 90 0:51 / /mnt/a\\040b rw,nosuid shared:7 - fuse.extol /disk.img rw,user_id=0\n";
        let entry = find(table, "/mnt/a b").pop().unwrap();
        assert_eq!((entry.id, entry.kind.as_str()), (91, "fuse.extol"));
        assert_eq!(entry.source, "/disk.img");
        assert_eq!(entry.options, ["rw", "nosuid", "rw", "user_id=0"]);
        assert_eq!(find(table, "/mnt/a b").len(), 2);
        assert_eq!(find(table, "/").pop().unwrap().kind, "ext4");
        assert!(find(table, "/mnt").is_empty());
        assert_eq!(unescape(r"a\134b\"), r"a\b\");
    }
}
