//! The connector: a process beside a daemon that makes connections to the server of its volume.
//!
//! ```text
//!   daemon (confined)          connector, `extol mount-connector ADDRESS`
//!     Connector ── number, time ──► standard input
//!               ◄── number, code, and a connected socket or a line ──
//! ```
//!
//! A daemon in its sandbox may make no connection at all. The address is in the connector's command
//! line and in no request, so a daemon that is taken over gets connections to the server of its own
//! volume, and to no other. The connector reads nothing from them. It resolves the host's name
//! once, at its start, and is confined then: no files, stream sockets only, over TCP only to the
//! port of the server. It keeps CAP_DAC_OVERRIDE, for Unix sockets of other users.
//!
//! It ends when the daemon has ended.
//!
//! Invariants
//! - CL-11: requests and answers are messages (SOCK_SEQPACKET), one request at a time is under way
//!   (the lock in `Connector::dial`), and an answer bears the number of its request: one that comes
//!   too late is closed.

#[cfg(feature = "network")]
mod process;

#[cfg(feature = "network")]
pub use process::{for_claimed, for_opened, run};
#[cfg(not(feature = "network"))]
pub use without::{for_claimed, for_opened, run};

/// There are no devices of other hosts.
#[cfg(not(feature = "network"))]
mod without {
    use extol_block::open::{Claimed, Opened};
    use extol_cli_common::{Failure, Result};

    use crate::args::ConnectorArgs;

    pub fn for_claimed(_claimed: &Claimed) -> Result<()> {
        Ok(())
    }

    pub fn for_opened(_opened: &Opened) -> Result<()> {
        Ok(())
    }

    pub fn run(_args: &ConnectorArgs) -> Result<()> {
        Err(Failure::usage("this program is built without devices of other hosts"))
    }
}
