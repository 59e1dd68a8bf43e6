//! What happens to an open volume beside the operations.

pub(crate) mod lazy_init;
pub(crate) mod zeroed;
