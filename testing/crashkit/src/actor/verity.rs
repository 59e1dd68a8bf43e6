//! What an actor does with files of fs-verity.

use extol::vfs::{EnableVerity, VolumeControl as _};

use super::{Actor, Done};

impl Actor {
    /// True if a file is one of fs-verity: nothing writes it any more.
    #[must_use]
    pub fn is_verified(&self, path: &str) -> bool {
        self.tree().get(path).is_some_and(|id| self.history.is_sealed(id))
    }

    /// Makes a file one of fs-verity. False: no space.
    pub fn enable_verity(&mut self, path: &str, how: &EnableVerity) -> Done<bool> {
        let full = self.full(path);
        let text = format!("enable fs-verity of {path}, algorithm {}", how.algorithm);
        let digest = self.act(&text, |fs| {
            let ino = fs.symlink_metadata(&full)?.id.ino;
            fs.enable_verity(ino, how)?;
            fs.measure_verity(ino)
        })?;
        self.history.quiet(text);
        let id = self.tree().get(path).unwrap_or_default();
        let is_done = digest.is_some();
        if let Some(digest) = digest {
            self.history.sealed(id, digest.bytes);
        }
        Ok(is_done)
    }
}
