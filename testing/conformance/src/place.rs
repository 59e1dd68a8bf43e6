//! Where a random tester works: a kind of volume and a subject, fresh for every run.

use std::fmt;

use extol_testkit::{Image, Scratch, Subject, e2fsck};

use crate::known::Side;
use crate::posix::Posix;
use crate::{Library, Mounted};

/// A subject on a kind of volume.
#[derive(Clone, Debug)]
pub struct Place {
    /// The library, or a mount by `subject`.
    pub side: Side,
    /// What mounts.
    pub subject: Subject,
    /// Arguments of mke2fs.
    pub mke2fs: &'static [&'static str],
    /// Mount options.
    pub options: &'static str,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match (&self.side, &self.subject) {
            (Side::Library, _) => "the library",
            (_, Subject::Extol) => "a mount",
            (_, Subject::Kernel) => "Linux",
            (_, Subject::Fuse2fs) => "fuse2fs",
        };
        write!(f, "{what}, mke2fs {}, options {:?}", self.mke2fs.join(" "), self.options)
    }
}

impl Place {
    /// True if what was synced survives a crash here.
    #[must_use]
    pub fn has_journal(&self) -> bool {
        !self.mke2fs.contains(&"ext2") && !self.mke2fs.contains(&"^has_journal")
    }

    /// Runs `work` on a fresh volume. If it is content, e2fsck must be, too.
    ///
    /// # Panics
    /// If the volume cannot be made or mounted, or e2fsck finds something.
    pub fn with<T, E>(&self, work: impl FnOnce(&dyn Posix) -> Result<T, E>) -> Result<T, E> {
        let scratch = Scratch::new();
        let image = Image::mke2fs(scratch.path(), "image", 96 << 20, self.mke2fs);
        let path = image.path.clone();
        let fs: Box<dyn Posix> = match self.side {
            Side::Library => Box::new(Library::new(path.clone(), self.options)),
            Side::Linux | Side::Mount => {
                let options: Vec<&str> =
                    self.options.split(',').filter(|o| !o.is_empty()).collect();
                Box::new(Mounted::new(self.subject.clone(), image, scratch.dir("mnt"), &options))
            }
        };
        let done = work(&*fs)?;
        fs.unmount();
        e2fsck(&Image { path, journal: None }).assert_clean(&self.to_string());
        Ok(done)
    }
}
