//! Where quotas are: on an open volume, or on one that is mounted.

use std::path::Path;
use std::sync::Arc;

use extol::quotas::text::{self, Request};
use extol::quotas::{Kind, Limits, Quota};
use extol_cli_common::Result;
use extol_vfs::FsError;

use crate::maintenance;
use crate::volume::{self, Volume};

/// What reports and sets.
pub(super) trait Quotas {
    /// Those quotas of these kinds that there are.
    fn read(&self, kinds: &[Kind]) -> Result<Vec<Quota>>;
    fn set_limits(&self, kind: Kind, ids: &[u32], limits: Limits) -> Result<()>;
    fn set_grace(&self, kind: Kind, space: Option<u32>, inodes: Option<u32>) -> Result<()>;
}

/// A volume that is open.
pub(super) struct Open<'a> {
    pub name: &'a Path,
    pub fs: &'a Arc<Volume>,
}

impl Open<'_> {
    fn told<T>(&self, result: extol_vfs::Result<T>) -> Result<T> {
        result.map_err(|error| volume::about(self.name, error))
    }
}

impl Quotas for Open<'_> {
    fn read(&self, kinds: &[Kind]) -> Result<Vec<Quota>> {
        let mut quotas = match self.fs.quotas() {
            // (Of volumes that have none, what systems have left that kept them in files.)
            Err(error @ FsError::NotSupported(_)) => {
                let old = self.told(self.fs.old_quotas())?;
                if old.is_empty() { self.told(Err(error))? } else { old }
            }
            quotas => self.told(quotas)?,
        };
        quotas.retain(|quota| kinds.contains(&quota.kind));
        Ok(quotas)
    }

    fn set_limits(&self, kind: Kind, ids: &[u32], limits: Limits) -> Result<()> {
        self.told(self.fs.set_limits(kind, ids, limits))
    }

    fn set_grace(&self, kind: Kind, space: Option<u32>, inodes: Option<u32>) -> Result<()> {
        self.told(self.fs.set_grace(kind, space, inodes))
    }
}

/// A volume that is mounted on this directory: its daemon does it.
pub(super) struct Mounted<'a>(pub &'a Path);

impl Mounted<'_> {
    fn ask(&self, request: &Request) -> Result<Vec<String>> {
        maintenance::quota(self.0, &request.to_text())
    }
}

impl Quotas for Mounted<'_> {
    fn read(&self, kinds: &[Kind]) -> Result<Vec<Quota>> {
        let mut quotas = Vec::new();
        for &kind in kinds {
            let entries = Vec::new();
            let mut quota = Quota { kind, space_grace: 0, inode_grace: 0, entries, file: None };
            let (mut from, mut is_there) = (Some(0), false);
            while let Some(start) = from {
                let answer = self.ask(&Request::Report(kind, start))?;
                is_there |= !answer.is_empty();
                from = text::add_answer(&mut quota, &answer);
            }
            quotas.extend(is_there.then_some(quota));
        }
        Ok(quotas)
    }

    fn set_limits(&self, kind: Kind, ids: &[u32], limits: Limits) -> Result<()> {
        ids.iter().try_for_each(|id| self.ask(&Request::Limits(kind, *id, limits)).map(drop))
    }

    fn set_grace(&self, kind: Kind, space: Option<u32>, inodes: Option<u32>) -> Result<()> {
        self.ask(&Request::Grace(kind, space, inodes)).map(drop)
    }
}
