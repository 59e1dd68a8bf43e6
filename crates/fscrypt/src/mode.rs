//! The ciphers that a policy can name.

/// A cipher by which contents or names are encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Contents: AES-256 in XTS mode.
    Aes256Xts,
    /// Names: AES-256 in CBC mode with ciphertext stealing.
    Aes256Cts,
    /// Contents: AES-128 in CBC mode; the IVs are encrypted by a hash of the key (ESSIV).
    Aes128Cbc,
    /// Names: AES-128 in CBC mode with ciphertext stealing.
    Aes128Cts,
    /// Contents: SM4 in XTS mode.
    Sm4Xts,
    /// Names: SM4 in CBC mode with ciphertext stealing.
    Sm4Cts,
    /// Contents and names: XChaCha12, AES-256, NH and Poly1305.
    Adiantum,
    /// Names: AES-256 in HCTR2 mode.
    Aes256Hctr2,
}

impl Mode {
    /// All modes.
    pub const ALL: [Self; 8] = [
        Self::Aes256Xts,
        Self::Aes256Cts,
        Self::Aes128Cbc,
        Self::Aes128Cts,
        Self::Sm4Xts,
        Self::Sm4Cts,
        Self::Adiantum,
        Self::Aes256Hctr2,
    ];

    /// The mode of a number in a context.
    #[must_use]
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.number() == number)
    }

    /// Its number in a context.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::Aes256Xts => 1,
            Self::Aes256Cts => 4,
            Self::Aes128Cbc => 5,
            Self::Aes128Cts => 6,
            Self::Sm4Xts => 7,
            Self::Sm4Cts => 8,
            Self::Adiantum => 9,
            Self::Aes256Hctr2 => 10,
        }
    }

    /// Its name, as the documentation of Linux writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes256Xts => "AES-256-XTS",
            Self::Aes256Cts => "AES-256-CBC-CTS",
            Self::Aes128Cbc => "AES-128-CBC-ESSIV",
            Self::Aes128Cts => "AES-128-CBC-CTS",
            Self::Sm4Xts => "SM4-XTS",
            Self::Sm4Cts => "SM4-CBC-CTS",
            Self::Adiantum => "Adiantum",
            Self::Aes256Hctr2 => "AES-256-HCTR2",
        }
    }

    /// The mode of a name: as the documentation writes it, or without the parts `-CBC` of names and
    /// `-ESSIV` of contents, as tools do.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        let short = |mode: Self| match mode {
            Self::Aes256Cts => "AES-256-CTS",
            Self::Aes128Cbc => "AES-128-CBC",
            Self::Aes128Cts => "AES-128-CTS",
            Self::Sm4Cts => "SM4-CTS",
            mode => mode.name(),
        };
        Self::ALL.into_iter().find(|mode| {
            name.eq_ignore_ascii_case(mode.name()) || name.eq_ignore_ascii_case(short(*mode))
        })
    }

    /// Bytes of its key.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes256Xts => 64,
            Self::Aes256Cts | Self::Sm4Xts | Self::Adiantum | Self::Aes256Hctr2 => 32,
            Self::Aes128Cbc | Self::Aes128Cts | Self::Sm4Cts => 16,
        }
    }

    /// Bytes of entropy that a master key must have for it, with policies of version 2.
    #[must_use]
    pub const fn security(self) -> usize {
        match self {
            Self::Aes256Xts | Self::Aes256Cts | Self::Adiantum | Self::Aes256Hctr2 => 32,
            Self::Aes128Cbc | Self::Aes128Cts | Self::Sm4Xts | Self::Sm4Cts => 16,
        }
    }

    /// Bytes of its IVs.
    #[must_use]
    pub const fn iv_len(self) -> usize {
        match self {
            Self::Adiantum | Self::Aes256Hctr2 => 32,
            _ => 16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_one_mode() {
        for mode in Mode::ALL {
            assert_eq!(Mode::from_name(mode.name()), Some(mode));
            assert_eq!(Mode::from_name(&mode.name().to_lowercase()), Some(mode));
        }
        assert_eq!(Mode::from_name("AES-256-CTS"), Some(Mode::Aes256Cts));
        assert_eq!(Mode::from_name("AES-128-CBC"), Some(Mode::Aes128Cbc));
        assert_eq!(Mode::from_name("AES-256-CBC"), None);
        assert_eq!(Mode::from_name(""), None);
    }
}
