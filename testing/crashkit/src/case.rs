//! A failed state in files, for runs that cannot be repeated because several threads took part.
//!
//! A directory with the crashed media (`volume`, `volume.journal`) and `case.json`: what was
//! promised by then.

use std::path::Path;

use extol_block::MemDevice;
use serde::{Deserialize, Serialize};

use crate::model::{History, Moment};
use crate::outside::{load_all, save_all};
use crate::variant::Variant;

/// What is needed to verify a state again.
#[derive(Debug, Serialize, Deserialize)]
pub struct Case {
    /// Name of the kind of volume.
    pub variant: String,
    /// What was wrong.
    pub what: String,
    /// The actors' histories.
    pub histories: Vec<History>,
    /// How they see the cut.
    pub moments: Vec<Moment>,
}

impl Case {
    /// Writes it and the crashed media.
    ///
    /// # Errors
    /// If that fails.
    pub fn save(&self, dir: &Path, crashed: &[MemDevice]) -> Result<(), String> {
        let fail = |e: std::io::Error| format!("saving a case: {e}");
        std::fs::create_dir_all(dir).map_err(fail)?;
        save_all(crashed, dir, "volume")?;
        let text = serde_json::to_vec(self).map_err(|e| format!("saving a case: {e}"))?;
        std::fs::write(dir.join("case.json"), text).map_err(fail)
    }

    /// Reads it and the crashed media.
    ///
    /// # Errors
    /// If that fails.
    pub fn load(dir: &Path) -> Result<(Self, Variant, Vec<MemDevice>), String> {
        let bytes =
            std::fs::read(dir.join("case.json")).map_err(|e| format!("{}: {e}", dir.display()))?;
        let case: Self =
            serde_json::from_slice(&bytes).map_err(|e| format!("{}: {e}", dir.display()))?;
        let variant = Variant::by_name(&case.variant).ok_or("no such kind of volume")?;
        let mut image = extol_testkit::Image::existing(dir.join("volume"));
        image.journal = variant.external.then(|| dir.join("volume.journal"));
        let devices = load_all(&image)?;
        Ok((case, variant, devices))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::replay_case;
    use crate::cuts::{Cutter, Fate};
    use crate::record::Recording;
    use crate::workloads;

    #[test]
    fn a_saved_state_is_verified_again() {
        let variant = Variant::by_name("external").expect("a kind of volume");
        let load = workloads::by_name("threads").expect("a load");
        let run = Recording::of(&*load, &variant, 1, 15, None).expect("a run");
        let mut cutter = Cutter::new(run.base.snapshot(), &run.events, 1);
        let cut = run.events.len() / 2;
        cutter.seek(cut);
        let crashed = cutter.state(Fate::All).into_devices();
        let scratch = extol_testkit::Scratch::new();
        let mut case = Case {
            variant: variant.name.to_owned(),
            what: "a test".to_owned(),
            histories: run.histories.clone(),
            moments: run.moments(cut),
        };
        case.save(scratch.path(), &crashed).expect("save");
        replay_case(scratch.path(), &mut |_| {}).expect("nothing is wrong");
        // As if everything had been promised by then.
        case.moments = run.moments(run.events.len());
        case.save(scratch.path(), &crashed).expect("save");
        replay_case(scratch.path(), &mut |_| {}).expect_err("promises are broken");
    }
}
