//! Which policies are accepted: the rules of Linux 6.18.

use crate::{Flags, KeySpec, Mode, Policy};

/// What the rules must know of the volume.
#[derive(Clone, Copy, Debug)]
pub struct Volume {
    /// Binary logarithm of the size of blocks.
    pub block_bits: u8,
    /// The volume has the feature `huge_file`: files may have more than 2^32 sectors.
    pub huge_files: bool,
    /// The volume has the feature `stable_inodes`: numbers of inodes never change.
    pub stable_inodes: bool,
    /// UUID of the volume, which some keys are derived from.
    pub uuid: [u8; 16],
}

/// Why a policy is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// The modes do not go together, or one of them is not known.
    #[error("the encryption modes {contents} (contents) and {names} (names) are not supported")]
    Modes {
        /// Mode of contents.
        contents: u8,
        /// Mode of names.
        names: u8,
    },
    /// Unknown flags, or flags that exclude each other.
    #[error("the encryption flags {0:#x} are not supported")]
    Flags(u8),
    /// `DIRECT_KEY` with modes that cannot have it.
    #[error("direct keys need one mode with long IVs for contents and names")]
    DirectKey,
    /// `IV_INO_LBLK_*` with another mode than AES-256-XTS.
    #[error("IVs of inode numbers need contents in AES-256-XTS")]
    InodeIvMode,
    /// `IV_INO_LBLK_*` where numbers of inodes may change.
    #[error("IVs of inode numbers need a volume with the feature stable_inodes")]
    UnstableInodes,
    /// `IV_INO_LBLK_*` with files of more data units than fit.
    #[error("IVs of inode numbers need files of at most 2^32 data units")]
    LongFiles,
    /// A size of data units that is none.
    #[error("data units of 2^{0} bytes are not supported")]
    DataUnit(u8),
    /// Reserved bytes that are not zero.
    #[error("reserved bytes of the encryption policy are not zero")]
    Reserved,
    /// Version 1 in a directory whose names are case-insensitive.
    #[error("encryption policies of version 1 cannot be used in a case-insensitive directory")]
    CasefoldV1,
}

/// A policy that can be used on a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    pub(crate) policy: Policy,
    pub(crate) contents: Mode,
    pub(crate) names: Mode,
    pub(crate) unit_bits: u8,
    pub(crate) uuid: [u8; 16],
}

impl Checked {
    /// The policy.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Mode of contents.
    #[must_use]
    pub const fn contents(&self) -> Mode {
        self.contents
    }

    /// Mode of names and targets.
    #[must_use]
    pub const fn names(&self) -> Mode {
        self.names
    }

    /// Binary logarithm of the size of data units.
    #[must_use]
    pub const fn unit_bits(&self) -> u8 {
        self.unit_bits
    }
}

impl Policy {
    /// The policy, if it can be used on this volume for an inode (`casefold`: a directory with
    /// case-insensitive names).
    ///
    /// # Errors
    ///
    /// The first rule of Linux that it breaks.
    pub fn check(&self, volume: &Volume, casefold: bool) -> Result<Checked, Unsupported> {
        let v1 = matches!(self.key, KeySpec::Descriptor(_));
        let (contents, names) = self.modes(v1)?;
        let unit_bits =
            if self.log2_data_unit == 0 { volume.block_bits } else { self.log2_data_unit };
        self.check_flags(v1)?;
        if !v1 && (unit_bits > volume.block_bits || unit_bits < 9) {
            return Err(Unsupported::DataUnit(self.log2_data_unit));
        }
        if self.flags.contains(Flags::DIRECT_KEY) && (contents != names || contents.iv_len() < 24) {
            return Err(Unsupported::DirectKey);
        }
        if self.flags.intersects(Flags::IV_INO_LBLK_64 | Flags::IV_INO_LBLK_32) {
            check_inode_ivs(contents, unit_bits, volume)?;
        }
        if !v1 && self.reserved != [0; 3] {
            return Err(Unsupported::Reserved);
        }
        if v1 && casefold {
            return Err(Unsupported::CasefoldV1);
        }
        Ok(Checked { policy: *self, contents, names, unit_bits, uuid: volume.uuid })
    }

    fn modes(&self, v1: bool) -> Result<(Mode, Mode), Unsupported> {
        let bad = Unsupported::Modes { contents: self.contents, names: self.names };
        let contents = Mode::from_number(self.contents).ok_or(bad)?;
        let names = Mode::from_number(self.names).ok_or(bad)?;
        match (contents, names) {
            (Mode::Aes256Xts, Mode::Aes256Cts)
            | (Mode::Aes128Cbc, Mode::Aes128Cts)
            | (Mode::Adiantum, Mode::Adiantum) => Ok((contents, names)),
            (Mode::Aes256Xts, Mode::Aes256Hctr2) | (Mode::Sm4Xts, Mode::Sm4Cts) if !v1 => {
                Ok((contents, names))
            }
            _ => Err(bad),
        }
    }

    fn check_flags(&self, v1: bool) -> Result<(), Unsupported> {
        let inode_ivs = Flags::IV_INO_LBLK_64 | Flags::IV_INO_LBLK_32;
        let known = Flags::PADDING | Flags::DIRECT_KEY;
        let known = if v1 { known } else { known | inode_ivs };
        let exclusive = self.flags & (Flags::DIRECT_KEY | inode_ivs);
        if !known.contains(self.flags) || exclusive.bits().count_ones() > 1 {
            return Err(Unsupported::Flags(self.flags.bits()));
        }
        Ok(())
    }
}

fn check_inode_ivs(contents: Mode, unit_bits: u8, volume: &Volume) -> Result<(), Unsupported> {
    if contents != Mode::Aes256Xts {
        return Err(Unsupported::InodeIvMode);
    }
    if !volume.stable_inodes {
        return Err(Unsupported::UnstableInodes);
    }
    // A file has at most 2^32 - 1 blocks, and without the feature about 2^32 sectors.
    let size_bits = if volume.huge_files { 32 + volume.block_bits } else { 32 + 9 };
    if size_bits.saturating_sub(unit_bits) > 32 {
        return Err(Unsupported::LongFiles);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOLUME: Volume =
        Volume { block_bits: 12, huge_files: true, stable_inodes: true, uuid: [0; 16] };

    fn v1(contents: Mode, names: Mode, flags: u8) -> Policy {
        Policy { key: KeySpec::Descriptor([7; 8]), ..v2(contents, names, flags) }
    }

    fn v2(contents: Mode, names: Mode, flags: u8) -> Policy {
        Policy {
            key: KeySpec::Identifier([7; 16]),
            contents: contents.number(),
            names: names.number(),
            flags: Flags::from_bits_retain(flags),
            log2_data_unit: 0,
            reserved: [0; 3],
        }
    }

    fn accepted(policy: Policy) -> Result<(), Unsupported> {
        policy.check(&VOLUME, false).map(|_| ())
    }

    #[test]
    fn only_the_pairs_of_modes_that_linux_knows_are_accepted() {
        use Mode::*;
        let old = [(Aes256Xts, Aes256Cts), (Aes128Cbc, Aes128Cts), (Adiantum, Adiantum)];
        let new = [(Aes256Xts, Aes256Hctr2), (Sm4Xts, Sm4Cts)];
        for contents in Mode::ALL {
            for names in Mode::ALL {
                let pair = (contents, names);
                let in_v1 = accepted(v1(contents, names, 0)).is_ok();
                assert_eq!(in_v1, old.contains(&pair), "{pair:?}");
                let in_v2 = accepted(v2(contents, names, 0)).is_ok();
                assert_eq!(in_v2, old.contains(&pair) || new.contains(&pair), "{pair:?}");
            }
        }
        let odd = Policy { contents: 2, ..v2(Aes256Xts, Aes256Cts, 0) };
        assert_eq!(accepted(odd), Err(Unsupported::Modes { contents: 2, names: 4 }));
    }

    #[test]
    fn flags_go_with_few_modes_and_exclude_each_other() {
        use Mode::*;
        for flags in 0..=255_u8 {
            let direct = flags & 4 != 0;
            let adiantum = flags < 8;
            assert_eq!(accepted(v1(Adiantum, Adiantum, flags)).is_ok(), adiantum, "{flags:#x}");
            assert_eq!(accepted(v2(Adiantum, Adiantum, flags)).is_ok(), adiantum, "{flags:#x}");
            let xts = accepted(v1(Aes256Xts, Aes256Cts, flags)).is_ok();
            assert_eq!(xts, flags < 8 && !direct, "{flags:#x}");
            let xts = accepted(v2(Aes256Xts, Aes256Cts, flags)).is_ok();
            assert_eq!(xts, matches!(flags >> 2, 0 | 2 | 4), "{flags:#x}");
        }
        assert_eq!(accepted(v2(Aes256Xts, Aes256Cts, 0x18)), Err(Unsupported::Flags(0x18)));
        assert_eq!(accepted(v2(Aes256Xts, Aes256Cts, 4)), Err(Unsupported::DirectKey));
        assert_eq!(accepted(v2(Adiantum, Adiantum, 8)), Err(Unsupported::InodeIvMode));
    }

    #[test]
    fn inode_numbers_in_ivs_need_stable_inodes_and_32_bits_of_units() {
        let policy = v2(Mode::Aes256Xts, Mode::Aes256Cts, 8);
        let unstable = Volume { stable_inodes: false, ..VOLUME };
        assert_eq!(policy.check(&unstable, false), Err(Unsupported::UnstableInodes));
        let small = Policy { log2_data_unit: 11, ..policy };
        assert_eq!(accepted(small), Err(Unsupported::LongFiles));
        let short = Volume { huge_files: false, ..VOLUME };
        assert!(small.check(&short, false).is_ok());
    }

    #[test]
    fn data_units_are_512_bytes_to_a_block() {
        let policy = v2(Mode::Aes256Xts, Mode::Aes256Cts, 0);
        for log2_data_unit in 0..=255 {
            let got = Policy { log2_data_unit, ..policy }.check(&VOLUME, false);
            let fits = log2_data_unit == 0 || (9..=12).contains(&log2_data_unit);
            assert_eq!(got.is_ok(), fits, "{log2_data_unit}");
            if let Ok(checked) = got {
                assert_eq!(
                    checked.unit_bits(),
                    if log2_data_unit == 0 { 12 } else { log2_data_unit }
                );
            }
        }
    }

    #[test]
    fn reserved_bytes_are_zero_and_version_1_does_not_fold_cases() {
        let policy = v2(Mode::Aes256Xts, Mode::Aes256Cts, 0);
        assert!(policy.check(&VOLUME, true).is_ok());
        let odd = Policy { reserved: [0, 0, 1], ..policy };
        assert_eq!(accepted(odd), Err(Unsupported::Reserved));
        let old = v1(Mode::Aes256Xts, Mode::Aes256Cts, 0);
        assert_eq!(old.check(&VOLUME, true), Err(Unsupported::CasefoldV1));
    }
}
