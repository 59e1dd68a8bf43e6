//! Encryption of files: what says how, and requests about it as text, for a volume that another
//! process has open.
//!
//! ```text
//! policy INODE             ─►  CONTEXT yes|no    whether the key is there; nothing: not encrypted
//! set-policy INODE POLICY  ─►  (nothing)
//! add-key RAW [NAME]       ─►  NAME
//! keys                     ─►  NAME yes|no FILES    of each: is it there, how many files keep it
//! remove-key NAME          ─►  FILES
//! ```
//!
//! CONTEXT, POLICY (as system calls pass it), RAW and NAME (descriptor or identifier of a key) are
//! bytes in hexadecimal digits.

use std::fmt::Write as _;

use zeroize::Zeroizing;

pub use extol_fscrypt::{
    BadKey, Context, DESCRIPTOR_LEN, Flags, IDENTIFIER_LEN, KeySpec, MasterKey, Mode, Policy,
};

/// How an inode is encrypted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encryption {
    /// Its policy and nonce.
    pub context: Context,
    /// The volume has the key that the policy names.
    pub has_key: bool,
}

impl Encryption {
    /// As text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let key = if self.has_key { "yes" } else { "no" };
        format!("{} {key}", to_hex(&self.context.to_bytes()))
    }

    /// From text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (context, key) = text.split_once(' ')?;
        let context = Context::parse(&from_hex(context)?).ok()?;
        Some(Self { context, has_key: key == "yes" })
    }
}

/// A request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Request {
    /// How an inode is encrypted.
    Policy(u32),
    /// A policy for an empty directory.
    SetPolicy(u32, Policy),
    /// What the keys are called, but for so many that are known: at most [`KEYS_AT_ONCE`] lines.
    Keys(usize),
    /// Takes a key away.
    RemoveKey(KeySpec),
}

/// An answer has no room for more keys.
pub const KEYS_AT_ONCE: usize = 100;

/// A key that is added: it is no [`Request`], which could be shown.
const ADD_KEY: &str = "add-key ";

/// The text of a request to add a key.
#[must_use]
pub fn add_key_text(raw: &[u8], descriptor: Option<[u8; DESCRIPTOR_LEN]>) -> Zeroizing<String> {
    // (It never grows: what it leaves behind then would not be overwritten.)
    let room = ADD_KEY.len() + 2 * (raw.len() + 1 + DESCRIPTOR_LEN);
    let mut text = Zeroizing::new(String::with_capacity(room));
    text.push_str(ADD_KEY);
    let mut put = |bytes: &[u8]| {
        for byte in bytes {
            let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
            text.push(digit(byte >> 4));
            text.push(digit(byte & 15));
        }
    };
    put(raw);
    if let Some(descriptor) = descriptor {
        text.push(' ');
        text.push_str(&to_hex(&descriptor));
    }
    text
}

/// The bytes of a key, and its descriptor if it is one of version 1.
type Secret = (Zeroizing<Vec<u8>>, Option<[u8; DESCRIPTOR_LEN]>);

/// The key in such a text.
pub(crate) fn secret(text: &str) -> Option<Secret> {
    let words = text.strip_prefix(ADD_KEY)?;
    let (raw, descriptor) = match words.split_once(' ') {
        None => (words, None),
        Some((raw, name)) => (raw, Some(from_hex(name)?.try_into().ok()?)),
    };
    Some((Zeroizing::new(from_hex(raw)?), descriptor))
}

/// A key of a volume that is in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyStatus {
    /// What it is called.
    pub spec: KeySpec,
    /// False if it was taken away, and files that were open then keep a part of it.
    pub is_there: bool,
    /// How many these are.
    pub files: usize,
}

impl KeyStatus {
    /// As text.
    #[must_use]
    pub fn to_text(&self) -> String {
        let there = if self.is_there { "yes" } else { "no" };
        format!("{} {there} {}", spec_to_hex(&self.spec), self.files)
    }

    /// From text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        let [spec, there, files] = words[..] else { return None };
        let spec = spec_from_hex(spec)?;
        Some(Self { spec, is_there: there == "yes", files: files.parse().ok()? })
    }
}

/// A descriptor or identifier as hexadecimal digits.
#[must_use]
pub fn spec_to_hex(spec: &KeySpec) -> String {
    match spec {
        KeySpec::Descriptor(bytes) => to_hex(bytes),
        KeySpec::Identifier(bytes) => to_hex(bytes),
    }
}

/// A descriptor (16 hexadecimal digits) or an identifier (32).
#[must_use]
pub fn spec_from_hex(digits: &str) -> Option<KeySpec> {
    let bytes = from_hex(digits)?;
    let descriptor = bytes.as_slice().try_into().ok().map(KeySpec::Descriptor);
    descriptor.or_else(|| bytes.as_slice().try_into().ok().map(KeySpec::Identifier))
}

impl Request {
    /// As text.
    #[must_use]
    pub fn to_text(&self) -> String {
        match self {
            Self::Policy(ino) => format!("policy {ino}"),
            Self::Keys(from) => format!("keys {from}"),
            Self::RemoveKey(spec) => format!("remove-key {}", spec_to_hex(spec)),
            Self::SetPolicy(ino, policy) => {
                format!("set-policy {ino} {}", to_hex(&policy.to_argument()))
            }
        }
    }

    /// From text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["policy", ino] => Some(Self::Policy(ino.parse().ok()?)),
            ["keys", from] => Some(Self::Keys(from.parse().ok()?)),
            ["remove-key", spec] => Some(Self::RemoveKey(spec_from_hex(spec)?)),
            ["set-policy", ino, policy] => {
                let policy = Policy::from_argument(&from_hex(policy)?)?;
                Some(Self::SetPolicy(ino.parse().ok()?, policy))
            }
            _ => None,
        }
    }
}

/// Bytes as pairs of hexadecimal digits.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The bytes of pairs of hexadecimal digits.
#[must_use]
pub fn from_hex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    // (A vector that grows would leave copies of a key behind.)
    let mut bytes = Vec::with_capacity(pairs.len());
    for [high, low] in pairs {
        bytes.push(digit(*high)? << 4 | digit(*low)?);
    }
    rest.is_empty().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Policy = Policy {
        key: KeySpec::Identifier([0xA5; IDENTIFIER_LEN]),
        contents: 1,
        names: 4,
        flags: Flags::PADDING,
        log2_data_unit: 9,
        reserved: [0; 3],
    };

    #[test]
    fn requests_and_answers_are_read_again() {
        for request in [
            Request::Policy(12),
            Request::SetPolicy(u32::MAX, POLICY),
            Request::Keys(200),
            Request::RemoveKey(POLICY.key),
            Request::RemoveKey(KeySpec::Descriptor([9; 8])),
        ] {
            let text = request.to_text();
            assert_eq!(Request::parse(&text), Some(request));
            assert!(text.len() < 200, "it fits into the name of an attribute");
        }
        for has_key in [false, true] {
            let found = Encryption { context: Context { policy: POLICY, nonce: [7; 16] }, has_key };
            assert_eq!(Encryption::parse(&found.to_text()), Some(found));
        }
        for bad in ["", "policy", "policy x", "set-policy 12 00", "set-policy 12 0", "frob 12"] {
            assert_eq!(Request::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_key_is_added_by_a_text_that_fits_into_the_name_of_an_attribute() {
        for (raw, descriptor) in [(vec![0xA5; 64], Some([3; 8])), (vec![1; 16], None)] {
            let text = add_key_text(&raw, descriptor);
            assert!(text.len() < 200);
            let (found, called) = secret(&text).unwrap();
            assert_eq!((&**found, called), (&raw[..], descriptor));
            assert_eq!(Request::parse(&text), None);
        }
        for bad in ["add-key", "add-key 0", "add-key 00 00", "keys"] {
            assert!(secret(bad).is_none(), "{bad}");
        }
        let status = KeyStatus { spec: POLICY.key, is_there: false, files: 7 };
        assert_eq!(KeyStatus::parse(&status.to_text()), Some(status));
    }

    #[test]
    fn digits_come_in_pairs() {
        assert_eq!(from_hex("00fFa5"), Some(vec![0, 255, 0xA5]));
        assert_eq!(to_hex(&[0, 255, 0xA5]), "00ffa5");
        for bad in ["0", "000", "0x", "é"] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }
}
