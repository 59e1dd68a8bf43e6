//! Fast commits: what an fsync says in records, and what recovery makes of them.

pub(crate) mod replay;
