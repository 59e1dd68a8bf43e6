//! Background threads of an open volume: one module per service.

pub(crate) mod lazy_init;
pub(crate) mod zeroed;
