//! The operating system that a volume is for.

use super::{Result, refuse};
use extol_ondisk::superblock::{CREATOR_HURD, CREATOR_LINUX};
use extol_vfs::number;

/// The operating system that a volume is for (`-o`), by its number in the superblock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatorOs(pub u32);

impl Default for CreatorOs {
    fn default() -> Self {
        Self(CREATOR_LINUX)
    }
}

impl CreatorOs {
    /// Reads a name or a number, as mke2fs does.
    ///
    /// # Errors
    /// Neither of them.
    pub fn parse(text: &str) -> Result<Self> {
        let number = match text.to_ascii_lowercase().as_str() {
            "linux" => CREATOR_LINUX,
            "gnu" | "hurd" => CREATOR_HURD,
            "freebsd" => 3,
            "lites" => 4,
            _ => match number::count(text, 0..=u32::MAX) {
                Ok(number) => number,
                Err(_) => {
                    return refuse(format!(
                        "unknown operating system '{text}' for -o: it can be linux, hurd, freebsd, \
                         lites or a number"
                    ));
                }
            },
        };
        Ok(Self(number))
    }

    pub(super) fn is_hurd(self) -> bool {
        self.0 == CREATOR_HURD
    }
}
