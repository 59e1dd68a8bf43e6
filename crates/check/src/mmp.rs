//! The multiple-mount protection.

use extol_ondisk::{Incompat, mmp};

use crate::error::Result;
use crate::report::{Finding, Findings, Kind};
use crate::vol::Vol;

/// The multiple-mount protection: its block has no other owner, and the volume is
/// not in use.
pub(crate) fn check(vol: &Vol, claims: &crate::claims::Claims, out: &mut Findings) -> Result<()> {
    if !vol.incompat(Incompat::MMP) {
        return Ok(());
    }
    let nr = vol.sb.mmp_block;
    if nr <= vol.geo.first_data_block || nr >= vol.geo.blocks() {
        out.push(Finding::error(Kind::Mmp, format!("the protection is at impossible block {nr}")));
        return Ok(());
    }
    claims.found.claim(vol.cluster(nr));
    match mmp::Mmp::decode(&vol.block(nr)?, &vol.geo) {
        Err(error) => out.push(Finding::error(Kind::Mmp, error.to_string()).block(nr)),
        Ok(state) if state.seq == mmp::SEQ_CLEAN => {}
        Ok(state) if state.seq > mmp::SEQ_MAX => {
            out.push(
                Finding::error(Kind::Mmp, "a checker had the volume and did not end").block(nr),
            );
        }
        Ok(_) => {
            out.push(Finding::note(Kind::Mmp, "the volume is in use, or was not closed").block(nr))
        }
    }
    Ok(())
}
