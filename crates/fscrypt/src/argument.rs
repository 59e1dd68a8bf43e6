//! Policies as system calls pass them (`struct fscrypt_policy_v1`, `fscrypt_policy_v2`).

use crate::{DESCRIPTOR_LEN, Flags, IDENTIFIER_LEN, KeySpec, Policy};

/// The numbers of the versions: that of version 1 is not the one of a context.
const V1: u8 = 0;
const V2: u8 = 2;

impl Policy {
    /// Its bytes in a system call.
    #[must_use]
    pub fn to_argument(&self) -> Vec<u8> {
        let mut out = vec![V1, self.contents, self.names, self.flags.bits()];
        match self.key {
            KeySpec::Descriptor(descriptor) => out.extend(descriptor),
            KeySpec::Identifier(identifier) => {
                out[0] = V2;
                out.push(self.log2_data_unit);
                out.extend(self.reserved);
                out.extend(identifier);
            }
        }
        out
    }

    /// A policy from the bytes of a system call; none if version and length do not fit.
    #[must_use]
    pub fn from_argument(bytes: &[u8]) -> Option<Self> {
        let (&[version, contents, names, flags], rest) = bytes.split_first_chunk()?;
        let flags = Flags::from_bits_retain(flags);
        let (key, log2_data_unit, reserved) = match version {
            V1 => {
                let descriptor: [u8; DESCRIPTOR_LEN] = rest.try_into().ok()?;
                (KeySpec::Descriptor(descriptor), 0, [0; 3])
            }
            V2 => {
                let (&[unit, a, b, c], rest) = rest.split_first_chunk()?;
                let identifier: [u8; IDENTIFIER_LEN] = rest.try_into().ok()?;
                (KeySpec::Identifier(identifier), unit, [a, b, c])
            }
            _ => return None,
        };
        Some(Self { key, contents, names, flags, log2_data_unit, reserved })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_passed_is_read_again() {
        for (version, len) in [(0, 12), (2, 24)] {
            let bytes: Vec<u8> = std::iter::once(version).chain(1..len).collect();
            let policy = Policy::from_argument(&bytes).unwrap();
            assert_eq!(policy.to_argument(), bytes);
            assert_eq!((policy.contents, policy.names, policy.flags.bits()), (1, 2, 3));
            assert_eq!(Policy::from_argument(&[&bytes[..], &[0]].concat()), None);
            assert_eq!(Policy::from_argument(&bytes[..bytes.len() - 1]), None);
        }
        for version in [1, 3, 255] {
            assert_eq!(Policy::from_argument(&[version; 12]), None);
            assert_eq!(Policy::from_argument(&[version; 24]), None);
        }
        assert_eq!(Policy::from_argument(&[]), None);
    }
}
