//! How much the kernel may keep dirty for one block device.
//!
//! Linux lets a fifth of the memory be dirty. On a machine with much memory a short run of a writer
//! never reaches that, and says nothing about what happens once it does: then the writer goes as
//! fast as the disk, in Linux as anywhere. With a bound for the device that is so from the first
//! second on.

use std::path::{Path, PathBuf};

use crate::{BenchError, Result};

/// The option of `kernel` contenders.
const OPTION: &str = "dirty_mb=";

/// A bound in force; dropping it lifts it.
#[derive(Debug)]
pub(super) struct DirtyBound {
    bdi: PathBuf,
}

impl DirtyBound {
    /// Takes `dirty_mb=` (mebibytes) out of mount options, which the kernel does not know. Gives
    /// the others, and the bound.
    ///
    /// # Errors
    /// If it is no number, or the device has no such bound.
    pub(super) fn take(options: &str, source: &str) -> Result<(String, Option<Self>)> {
        let (bound, others): (Vec<&str>, Vec<&str>) =
            options.split(',').partition(|option| option.starts_with(OPTION));
        let Some(bound) = bound.last() else { return Ok((options.to_owned(), None)) };
        let mib: u64 = bound[OPTION.len()..]
            .parse()
            .map_err(|_| BenchError(format!("{bound}: a number of mebibytes is wanted")))?;
        let name = Path::new(source).file_name().unwrap_or_default();
        let bdi = Path::new("/sys/class/block").join(name).join("bdi");
        let bound = Self { bdi };
        bound.set("max_bytes", &(mib << 20).to_string())?;
        // Else it counts only while memory is short.
        bound.set("strict_limit", "1")?;
        Ok((others.join(","), Some(bound)))
    }

    fn set(&self, knob: &str, value: &str) -> Result<()> {
        let path = self.bdi.join(knob);
        std::fs::write(&path, value).map_err(|e| {
            BenchError(format!("{}: {e} ({OPTION} needs root and Linux 6.2)", path.display()))
        })
    }
}

impl Drop for DirtyBound {
    fn drop(&mut self) {
        let _ = self.set("strict_limit", "0");
        let _ = self.set("max_ratio", "100");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_options_stay_as_they_are() {
        for options in ["", "noatime", "noatime,commit=1"] {
            let (others, bound) = DirtyBound::take(options, "/dev/none").unwrap();
            assert!(others == options && bound.is_none());
        }
    }

    #[test]
    fn mistakes_are_told() {
        for (option, word) in
            [("dirty_mb=much", "mebibytes"), ("noatime,dirty_mb=8", "/sys/class/block/none/bdi")]
        {
            let error = DirtyBound::take(option, "/dev/none").unwrap_err().to_string();
            assert!(error.contains(word), "{error}");
        }
    }
}
