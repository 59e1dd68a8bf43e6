//! What the user wants of something that is measured: `fua=`.

use serde::{Deserialize, Serialize};

/// Whether a fast commit goes one of two ways between which nothing but time and trust decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Preference {
    /// Where it has turned out faster.
    #[default]
    Auto,
    /// Never: durable writes are not to be trusted, or processor time is dear.
    Never,
    /// Wherever it can.
    Always,
}

impl Preference {
    /// All of them, as option values.
    pub const NAMES: [(&'static str, Self); 3] =
        [("auto", Self::Auto), ("never", Self::Never), ("always", Self::Always)];

    /// The option value.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, one)| *one == self).map_or("", |(name, _)| name)
    }
}
