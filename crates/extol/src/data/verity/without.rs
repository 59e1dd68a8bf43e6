//! In place of `data/verity` in a build without that feature.

use extol_vfs::Result;

use crate::data::readahead::FileReadahead;
use crate::inodes::InodeState;
use crate::mounted::MountedFs;

/// Gives out no byte: none of them is verified (VE-1).
pub(crate) fn read(
    fs: &MountedFs,
    st: &InodeState,
    _offset: u64,
    _buf: &mut [u8],
    _ahead: Option<&FileReadahead>,
) -> Result<()> {
    match st.verity.get() {
        Some(file) => match **file {},
        None => Err(fs.verified.refusal()),
    }
}
