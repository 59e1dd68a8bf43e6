//! fscrypt: contexts, keys, ciphers and names of encrypted files. No I/O.
//!
//! Everything here is as Linux does it, to the byte: what a kernel encrypted is decrypted, and the
//! reverse. The layers, from below:
//!
//! - [`Context`] and [`Policy`]: what an encrypted inode says of itself (a hidden extended
//!   attribute), and [which policies](Policy::check) are accepted;
//! - [`MasterKey`]: a secret, and what is derived from it;
//! - [`FileKey`]: the cipher of one inode with its IVs: contents by data unit, names, targets of
//!   symbolic links;
//! - [`NoKeyName`]: what a name is called as long as its key is not there.
//!
//! Without the feature `ciphers` only what concerns policies is left: [`MasterKey::new`] refuses
//! every key.
//!
//! # Invariants
//!
//! - FSC-1: Keys and what is derived from them are overwritten when they are dropped, and no
//!   `Debug` or error message shows a byte of them.
//! - FSC-2: Contexts, names and targets are hostile: what does not fit is an error, never a panic.

#![forbid(unsafe_code)]

mod argument;
mod bad_key;
#[cfg(feature = "ciphers")]
mod cipher;
mod context;
#[cfg(feature = "ciphers")]
mod file;
#[cfg(feature = "ciphers")]
mod key;
mod mode;
mod name;
#[cfg(feature = "ciphers")]
mod nokey;
mod rules;
mod siphash;
#[cfg(not(feature = "ciphers"))]
mod without;

pub use bad_key::BadKey;
pub use context::{BadContext, Context, Flags, KeySpec, Policy};
pub use extol_ondisk::encryption::{DESCRIPTOR_LEN, IDENTIFIER_LEN, MIN_NAME, NONCE_LEN};
#[cfg(feature = "ciphers")]
pub use file::FileKey;
#[cfg(feature = "ciphers")]
pub use key::MasterKey;
pub use mode::Mode;
pub use name::{BadName, decrypted_name, encrypted_len, encrypted_name, symlink};
#[cfg(feature = "ciphers")]
pub use nokey::{MAX_NOKEY_NAME, NoKeyName};
pub use rules::{Checked, Unsupported, Volume};
pub use siphash::siphash24;
#[cfg(not(feature = "ciphers"))]
pub use without::{FileKey, MAX_NOKEY_NAME, MasterKey, NoKeyName};

/// True if there are ciphers (feature `ciphers`). Without them no key is accepted.
pub const HAS_CIPHERS: bool = cfg!(feature = "ciphers");
