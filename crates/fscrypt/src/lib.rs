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
//! # Invariants
//!
//! - FSC-1: Keys and what is derived from them are overwritten when they are dropped, and no
//!   `Debug` or error message shows a byte of them.
//! - FSC-2: Contexts, names and targets are hostile: what does not fit is an error, never a panic.

#![forbid(unsafe_code)]

mod argument;
mod cipher;
mod context;
mod file;
mod key;
mod mode;
mod name;
mod nokey;
mod rules;
mod siphash;

pub use context::{BadContext, Context, Flags, KeySpec, Policy};
pub use extol_ondisk::encryption::{DESCRIPTOR_LEN, IDENTIFIER_LEN, MIN_NAME, NONCE_LEN};
pub use file::FileKey;
pub use key::{BadKey, MasterKey};
pub use mode::Mode;
pub use name::{BadName, decrypted_name, encrypted_len, encrypted_name, symlink};
pub use nokey::{MAX_NOKEY_NAME, NoKeyName};
pub use rules::{Checked, Unsupported, Volume};
pub use siphash::siphash24;
