//! Quotas of the volume: [`crate::quotas`].

use extol_ondisk::quota::Kind;
use extol_vfs::{RemountError, Result};

use super::Ext4;
use crate::quotas::text::{self, Request};
use crate::quotas::{self, Limits, Quota, WrongUsage};

impl Ext4 {
    /// Usage and limits of users, groups and projects.
    ///
    /// # Errors
    /// `NotSupported` if the volume has no quota inodes; they are damaged.
    pub fn quotas(&self) -> Result<Vec<Quota>> {
        self.op(quotas::report)
    }

    /// Sets limits of users, groups or projects. It is durable when this returns. They are enforced
    /// by mounts with the options for that (`usrquota`, `grpquota`, `prjquota`).
    ///
    /// # Errors
    /// As [`quotas`](Self::quotas); `NoSpace`.
    pub fn set_limits(&self, kind: Kind, ids: &[u32], limits: Limits) -> Result<()> {
        self.change(|fs| quotas::set_limits(fs, kind, ids, limits))
    }

    /// Sets for how many seconds soft limits on space and on inodes may be exceeded. It is durable
    /// when this returns.
    ///
    /// # Errors
    /// As [`quotas`](Self::quotas).
    pub fn set_grace(&self, kind: Kind, space: Option<u32>, inodes: Option<u32>) -> Result<()> {
        self.change(|fs| quotas::set_grace(fs, kind, space, inodes))
    }

    /// Compares the usage in the quota inodes with what all inodes have. No other thread may change
    /// the volume meanwhile, and no file may be open that has no name.
    ///
    /// # Errors
    /// As [`quotas`](Self::quotas); an inode is damaged.
    pub fn wrong_usage(&self) -> Result<Vec<WrongUsage>> {
        self.change(quotas::wrong_usage)
    }

    /// Writes the usage that [`wrong_usage`](Self::wrong_usage) has found. Nothing may have changed
    /// since. It is durable when this returns.
    ///
    /// # Errors
    /// As [`quotas`](Self::quotas); `NoSpace`.
    pub fn correct_usage(&self, wrong: &[WrongUsage]) -> Result<()> {
        self.change(|fs| quotas::correct_usage(fs, wrong))
    }

    /// Answers a request of another process.
    pub(super) fn answer_about_quotas(
        &self,
        request: &str,
    ) -> std::result::Result<Vec<String>, RemountError> {
        let refused = |error: &dyn std::fmt::Display| RemountError(error.to_string());
        let request = Request::parse(request)
            .ok_or_else(|| refused(&"the request is of another version of extol"))?;
        let done = match request {
            Request::Report(kind, from) => self
                .op(|fs| quotas::report_from(fs, kind, from, text::MOST + 1))
                .map(|quota| quota.map(|quota| text::answer(&quota, from)).unwrap_or_default()),
            Request::Limits(kind, id, limits) => {
                self.set_limits(kind, &[id], limits).map(|()| Vec::new())
            }
            Request::Grace(kind, space, inodes) => {
                self.set_grace(kind, space, inodes).map(|()| Vec::new())
            }
        };
        done.map_err(|error| refused(&error))
    }
}
