//! Block devices for tests and measurements, each a decorator of another device.
//!
//! | type | purpose |
//! | --- | --- |
//! | [`CountingDevice`] | counts operations and bytes |
//! | [`EmulatedMedia`] | as slow as a disk, an array, a network disk |
//! | [`FaultDevice`] | fails chosen operations |
//! | [`OnlyRead`] | was opened for reading: a write to it is a panic |
//! | [`RecordingDevice`] | logs all changes and builds the image after a crash at any point |

mod counting;
mod emulated;
mod fault;
mod only_read;
mod recording;

pub use counting::{CountingDevice, DeviceStats};
pub use emulated::{EmulatedMedia, MediumStats, Profile, ProfileError, sleep_until};
pub use fault::{Fault, FaultDevice, FaultSpan};
pub use only_read::OnlyRead;
pub use recording::{Event, RecordingDevice};
