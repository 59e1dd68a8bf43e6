//! In place of `verity` in a build without that feature: nothing of files of fs-verity is in
//! memory, and they are refused, as Linux does without `CONFIG_FS_VERITY`.

use extol_vfs::FsError;

/// Blocks of trees that are verified: none.
#[derive(Default, Debug)]
pub(crate) struct VerifiedBlocks {}

/// What verifies the contents of one file: nothing does.
#[derive(Debug)]
pub(crate) enum FileVerity {}

impl VerifiedBlocks {
    /// The answer to what needs a file of fs-verity.
    #[expect(clippy::unused_self, reason = "there is no other use of it")]
    pub fn refusal(&self) -> FsError {
        FsError::NotSupported("this program is built without fs-verity")
    }
}
