//! What a source may have at most.

use extol_vfs::{nearest, number};

/// What a source may have at most. A source is not trusted: each number that it gives is checked
/// against one of these before anything is allocated for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Names.
    pub entries: u64,
    /// Bytes of names, link targets and extended attributes together.
    pub meta_bytes: u64,
    /// Bytes that a compressed source gives.
    pub expand: u64,
    /// Bytes that a compressed source gives for each of its own. Short sources are exempt.
    pub expand_ratio: u64,
    /// Directories in each other.
    pub depth: u32,
    /// Runs of data in a sparse file.
    pub sparse_runs: u64,
    /// Bytes of a file.
    pub file_size: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            entries: 1 << 24,
            meta_bytes: 1 << 30,
            expand: 1 << 40,
            expand_ratio: 1100,
            depth: 4096,
            sparse_runs: 1 << 20,
            file_size: 1 << 44,
        }
    }
}

impl Limits {
    /// The names that [`set`](Self::set) knows.
    pub const NAMES: [&str; 7] =
        ["entries", "metadata", "expand", "expand-ratio", "depth", "sparse-runs", "file-size"];

    /// Sets limits as `NAME=NUMBER`, several with commas between them. Bytes may have units.
    ///
    /// # Errors
    /// One line, if a name is not known or a number is none.
    pub fn set(&mut self, list: &str) -> Result<(), String> {
        for text in list.split(',') {
            self.set_one(text)?;
        }
        Ok(())
    }

    fn set_one(&mut self, text: &str) -> Result<(), String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let about = |error| format!("limit \"{name}\": {error}");
        let count = || number::count(value, 1..=u64::MAX).map_err(about);
        let bytes = || number::size(value, 1, 1..=1 << 60).map_err(about);
        match name {
            "entries" => self.entries = count()?,
            "metadata" => self.meta_bytes = bytes()?,
            "expand" => self.expand = bytes()?,
            "expand-ratio" => self.expand_ratio = count()?,
            "depth" => self.depth = number::count(value, 1..=u32::MAX).map_err(about)?,
            "sparse-runs" => self.sparse_runs = count()?,
            "file-size" => self.file_size = bytes()?,
            _ => {
                let known = match nearest(name, Self::NAMES) {
                    Some(known) => format!("did you mean \"{known}\"?"),
                    None => format!("it is one of {}", Self::NAMES.join(", ")),
                };
                return Err(format!("unknown limit \"{name}\": {known}"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_set_by_name() {
        let mut limits = Limits::default();
        limits.set("entries=5,depth=7,file-size=1M,expand=2G,expand-ratio=9").unwrap();
        limits.set("metadata=1K,sparse-runs=3").unwrap();
        let wanted = Limits {
            entries: 5,
            meta_bytes: 1024,
            expand: 2 << 30,
            expand_ratio: 9,
            depth: 7,
            sparse_runs: 3,
            file_size: 1 << 20,
        };
        assert_eq!(limits, wanted);
        for (text, words) in [
            ("depht=1", "did you mean \"depth\"?"),
            ("x=1", "it is one of entries"),
            ("depth", "is empty"),
            ("depth=-1", "negative"),
            ("entries=0", "less than 1"),
            ("", "unknown limit"),
        ] {
            let why = limits.set(text).unwrap_err();
            assert!(why.contains(words), "{why}");
        }
        assert_eq!(limits, wanted);
    }
}
