//! Lazy inode-table initialisation: what mkfs left out, done while the volume is in use.
//!
//! mkfs need not zero the inode tables: unused slots are known from the descriptors, and zeroing
//! them takes most of the time of making a large volume. But if a descriptor is lost, a checker has
//! to look at every slot, and must not take an inode of the device's earlier life for one of this
//! volume. So the tables are zeroed sooner or later: one group per step, and long pauses between
//! the steps.
//!
//! ```text
//!   Ext4 ─ MountedFs ─ LazyInit ──── request ────► thread.rs   one for all volumes of the process
//!                (state.rs) │                         │ a step is due
//!   schedule.rs, groups.rs ─┘                         ▼
//!     (when)     (which)                            step ─► zero_table.rs ─► alloc/itable.rs
//!                                                              (how)        (what may be zeroed)
//! ```
//!
//! | state | meaning | leaves it |
//! |---|---|---|
//! | off | `noinit_itable`, read-only, or a volume without the flag | option changed |
//! | waiting | for its next step | time |
//! | running | a step | its end |
//! | done | every group is zeroed; no request, and no thread if it was the last | never |
//! | stopped | an error, or the volume is read-only or closed | option set again, next mount |
//!
//! Progress is nowhere but in the descriptors (`INODE_ZEROED`), so after an unmount or a crash it
//! goes on where it stopped.
//!
//! Locking: `control` (held by a change of the option) comes before everything; `step` is held
//! during a step, outside of all locks of the volume; `inner` is a leaf. Only a stop waits for a
//! step, and it ends the step within one piece.

mod groups;
pub(crate) mod schedule;
pub(crate) mod state;
mod thread;
mod zero_table;

use std::sync::{Arc, Weak};
use std::time::Duration;

use extol_ondisk::GroupNr;
use extol_vfs::{FsError, Result};

use crate::mounted::MountedFs;
use crate::options::MountOptions;
use groups::Groups;
use state::{Phase, Setup};
use thread::{After, Request, now};
use zero_table::Outcome;
pub(crate) use zero_table::zero_now;

pub(crate) use state::LazyInit;
pub use state::LazyInitStats;

/// The thread's view of a volume: it does not keep it open.
#[derive(Debug)]
struct VolumeRequest(Weak<MountedFs>);

impl Request for VolumeRequest {
    fn step(&self) -> After {
        match self.0.upgrade() {
            Some(fs) => {
                // (An error is in the statistics.)
                let _ = step(&fs);
                fs.lazy_init.after_step()
            }
            None => After::End,
        }
    }
}

/// The volume was opened: finds out what there is to do, and begins if `init_itable` is on.
pub(crate) fn start(fs: &Arc<MountedFs>, options: &MountOptions) {
    let geo = &fs.vol.geo;
    let possible = !fs.fixed.read_only() && geo.has_gdt_csum();
    let found = possible.then(|| {
        let setup = Setup {
            possible: true,
            threads: options.background.threads,
            delay: options.background.init_itable_delay,
            groups: u64::from(geo.groups()),
        };
        (setup, Groups::read(&*fs.vol.dev, geo).map_err(|e| e.to_string()))
    });
    fs.lazy_init.set_up(Arc::new(VolumeRequest(Arc::downgrade(fs))), found);
    fs.lazy_init.set(options.background.init_itable);
}

/// One step, whether it is due or not. Returns the group that is done; `None` if there is none, or
/// the volume cannot be written now.
pub(crate) fn step(fs: &MountedFs) -> Result<Option<GroupNr>> {
    let lazy = &fs.lazy_init;
    let mut zeroed = lazy.step.lock();
    let (group, flush) = {
        let mut inner = lazy.inner.lock();
        let Some(schedule) = inner.schedule.filter(|_| inner.phase == Phase::Waiting) else {
            return Ok(None);
        };
        let Some(group) = inner.groups.first() else {
            inner.phase = Phase::Done;
            return Ok(None);
        };
        inner.phase = Phase::Running;
        (group, schedule.flushes())
    };
    let (began, before) = (now(), fs.vol.journal.data_writes());
    let outcome = match fs.freeze_gate.try_enter() {
        Some(_open) => fs.note(zero_table::zero_table(fs, group, flush, &mut zeroed, &lazy.stop)),
        // The volume is frozen: nothing is written now.
        None => Ok(Outcome::Postponed),
    };
    let ended = now();
    let mut inner = lazy.inner.lock();
    inner.phase = Phase::Waiting;
    match outcome {
        Ok(Outcome::Done(work)) => {
            let writes = (before, fs.vol.journal.data_writes());
            inner.count(group, work, (began, ended), writes);
            Ok(Some(group))
        }
        Ok(Outcome::Postponed) => {
            let delay = state::delay(inner.setup.delay.map(|d| d.max(Duration::from_millis(1))));
            if let Some(schedule) = &mut inner.schedule {
                schedule.postpone(ended, delay);
            }
            Ok(None)
        }
        Ok(Outcome::Stopped) => Ok(None),
        Err(e) => {
            inner.phase = Phase::Stopped;
            inner.error = Some(e.to_string());
            if e == FsError::ReadOnly { Ok(None) } else { Err(e) }
        }
    }
}
