//! The journal's threads: one that commits by time and on request, one that checkpoints. They work
//! with the I/O priority of [`Journal::io_priority`], not with that of the process that opened the
//! volume.

use std::sync::Arc;

use extol_block::{Membership, PriorityGroup};
use extol_task::{Progress, Runner, Service};

use crate::checkpoint::step::CheckpointService;
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
        let group = journal.io_priority();
        let commit = WithPriority::new(CommitService(Arc::clone(journal)), group);
        let commit = Runner::start("extol-commit", &journal.commit_wakeup, commit)?;
        let checkpoint = WithPriority::new(CheckpointService(Arc::clone(journal)), group);
        let checkpoint = Runner::start("extol-checkpoint", &journal.checkpoint_wakeup, checkpoint)?;
        Ok(Self { _runners: [commit, checkpoint] })
    }
}

/// A service whose thread belongs to a priority group.
struct WithPriority<S> {
    service: S,
    group: PriorityGroup,
    place: Option<Membership>,
}

impl<S> WithPriority<S> {
    fn new(service: S, group: &PriorityGroup) -> Self {
        Self { service, group: group.clone(), place: None }
    }
}

impl<S: Service> Service for WithPriority<S> {
    fn step(&mut self) -> Progress {
        self.place.get_or_insert_with(|| self.group.join());
        self.service.step()
    }
}
