//! Transaction ids and errors.

use extol_block::DeviceError;

/// Result of a journal operation.
pub type Result<T> = std::result::Result<T, JournalError>;

/// Why the journal refused or failed.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The journal was aborted earlier (the text says why); nothing more is written.
    #[error("the journal was aborted: {0}")]
    Aborted(String),
    /// The journal rests: the volume was remounted read-only.
    #[error("the volume is read-only")]
    ReadOnly,
    /// The journal's bytes are wrong.
    #[error("corrupt journal: {what} (block {block})")]
    Corrupt {
        /// What is wrong.
        what: String,
        /// Log block, or device block where the text says so.
        block: u64,
    },
    /// Refused: unknown feature, fast-commit blocks, foreign external device …
    #[error("{0}")]
    Unsupported(String),
    /// A commit was asked for while a batch lives.
    #[error("no commit can begin within a batch")]
    InBatch,
    /// A batch has no room for one more change; nothing of it will be durable.
    #[error("the batch changes more than {most} blocks")]
    BatchFull {
        /// The most blocks that it could change.
        most: u32,
    },
    /// More credits than a transaction can ever have.
    #[error("operation needs {wanted} journal credits, at most {max} fit")]
    TooManyCredits {
        /// Credits asked for.
        wanted: u32,
        /// The limit.
        max: u32,
    },
}

impl JournalError {
    pub(crate) fn corrupt(what: impl Into<String>, block: impl Into<u64>) -> Self {
        Self::Corrupt { what: what.into(), block: block.into() }
    }
}

/// Transaction id. 32 bits that wrap: order is modular, so there is no `Ord`; use [`Tid::after`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Tid(pub u32);

impl Tid {
    /// True if `self` is newer than `other` (they are less than 2^31 apart).
    #[must_use]
    pub fn after(self, other: Tid) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }

    /// True if `self` is `other` or newer.
    #[must_use]
    pub fn at_least(self, other: Tid) -> bool {
        !other.after(self)
    }

    /// The next id.
    #[must_use]
    pub fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }

    /// The id before.
    #[must_use]
    pub fn previous(self) -> Tid {
        Tid(self.0.wrapping_sub(1))
    }
}

impl std::fmt::Display for Tid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A commit, as the threads that ask for it know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CommitKind {
    /// The full commit of this transaction.
    Full(Tid),
    /// The fast commit of this batch of requests.
    Fast(u64),
}

#[cfg(test)]
mod tests {
    use super::Tid;

    #[test]
    fn order_is_modular() {
        assert!(Tid(1).after(Tid(0)));
        assert!(Tid(0).after(Tid(u32::MAX)));
        assert!(!Tid(u32::MAX).after(Tid(0)));
        assert!(Tid(5).at_least(Tid(5)));
        assert_eq!(Tid(u32::MAX).next(), Tid(0));
    }
}
