//! What a server has done, to be shown.

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::procs;
use crate::server::Inner;

/// Calls by procedure.
#[derive(Debug, Default)]
pub(crate) struct Calls([AtomicU64; procs::COUNT]);

impl Calls {
    /// A call of this procedure of NFS came, from 0; an unknown one is not counted.
    pub(crate) fn note(&self, procedure: u32) {
        if let Some(calls) = self.0.get(procedure as usize) {
            calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Those that came, with the names of the procedures in lower case.
    pub(crate) fn by_procedure(&self) -> Vec<(String, u64)> {
        let calls =
            self.0.iter().enumerate().map(|(number, calls)| {
                (procs::name(number).to_owned(), calls.load(Ordering::Relaxed))
            });
        calls.filter(|(_, calls)| *calls > 0).collect()
    }
}

/// The counters of a server, as long as it is there.
#[derive(Clone)]
pub struct Counters(pub(crate) Weak<Inner>);

impl std::fmt::Debug for Counters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Counters").finish_non_exhaustive()
    }
}

impl Counters {
    /// The calls of NFS that came, by procedure in lower case; none once the server has ended.
    #[must_use]
    pub fn by_procedure(&self) -> Vec<(String, u64)> {
        self.0.upgrade().map(|inner| inner.export.calls.by_procedure()).unwrap_or_default()
    }

    /// Connections that are open.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.0.upgrade().map_or(0, |inner| inner.connections())
    }
}
