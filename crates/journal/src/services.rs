//! The journal's threads: one that commits by time and on request, one that checkpoints.

use std::sync::Arc;

use extol_service::Runner;

use crate::checkpoint::CheckpointService;
use crate::commit::CommitService;
use crate::journal::Journal;

/// Runs the commit and checkpoint services of a journal until dropped.
#[derive(Debug)]
pub struct Services {
    _runners: [Runner; 2],
}

impl Services {
    /// Starts the threads.
    ///
    /// # Errors
    /// If a thread cannot be created.
    pub fn start(journal: &Arc<Journal>) -> std::io::Result<Self> {
        let commit =
            Runner::start("extol-commit", &journal.commit_wakeup, CommitService(Arc::clone(journal)))?;
        let checkpoint = Runner::start(
            "extol-checkpoint",
            &journal.checkpoint_wakeup,
            CheckpointService(Arc::clone(journal)),
        )?;
        Ok(Self { _runners: [commit, checkpoint] })
    }
}
