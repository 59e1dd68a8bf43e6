//! The threads of an open volume, and what else ends with it.

use std::sync::Arc;

use extol_jbd2::Services;
use extol_task::Runner;

use super::fence::Fence;
use crate::data::writeback::Writeback;
use crate::guard::mmp::HeldClaim;
use crate::maintenance::requests::StopRequests;
use crate::mounted::MountedFs;
use crate::services::zeroed::Refill;

/// What runs while a volume is open; each part ends when it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    pub(super) requests: Option<StopRequests>,
    pub(super) journal: Option<Services>,
    pub(super) writeback: Option<Runner>,
    pub(super) refill: Option<Runner>,
    pub(crate) mmp: Option<HeldClaim>,
    /// What all writes of this mount pass.
    pub(crate) fence: Option<Arc<Fence>>,
}

/// Starts the threads of the journal, before the first transaction. A volume that is only read has
/// none.
pub(crate) fn start_journal(fs: &MountedFs, threads: &mut Threads) -> std::io::Result<()> {
    if fs.threads && threads.journal.is_none() {
        threads.journal = Some(Services::start(&fs.vol.journal)?);
    }
    Ok(())
}

/// Starts the other threads of a writable volume.
pub(crate) fn start_writers(
    fs: &Arc<MountedFs>,
    threads: &mut Threads,
    merge: bool,
) -> std::io::Result<()> {
    let service = Writeback(Arc::downgrade(fs));
    threads.writeback = Some(Runner::start("extol-writeback", &fs.dirty.service, service)?);
    let refill = Refill(Arc::downgrade(fs));
    threads.refill = Some(Runner::start("extol-zeroed", &fs.refill, refill)?);
    threads.requests = Some(fs.maintenance.stopper());
    fs.maintenance.set_merge(merge)
}
