//! What happens to an open volume without anybody asking.

pub(crate) mod lazy_init;
pub(crate) mod zeroed;
