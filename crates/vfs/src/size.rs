//! Sizes as users write them, by one rule for every command and option: `K`, `M`, `G`, `T`, `P` and
//! `E`, alone or as `KiB`, are powers of 1024, `KB`, `MB` and so on powers of 1000, `s` is a sector
//! of 512 bytes and `B` a byte, in upper or lower case. What a number without a unit means is
//! for the option to say.

use std::str::FromStr;

use crate::number::{Kind, NumberError, is_negative};

/// A size that was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    number: u64,
    /// Bytes of the unit; `None` without one.
    unit: Option<u64>,
}

impl Size {
    pub(crate) const KIND: Kind = Kind { name: "size", example: "512M or 1G" };

    /// A size in bytes.
    #[must_use]
    pub const fn of_bytes(bytes: u64) -> Self {
        Self { number: bytes, unit: Some(1) }
    }

    /// In bytes. A number without a unit counts things of `plain` bytes.
    ///
    /// # Errors
    /// If it is 2^64 or more.
    pub fn bytes(self, plain: u64) -> Result<u64, NumberError> {
        let unit = self.unit.unwrap_or(plain);
        let too_large =
            || NumberError(format!("the size {} is too large: 2^64 bytes or more", self.number));
        self.number.checked_mul(unit).ok_or_else(too_large)
    }
}

impl FromStr for Size {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        let bad = |why: &str| Self::KIND.bad(text, why);
        let trimmed = Self::KIND.trimmed(text)?;
        let end = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
        let (digits, unit) = trimmed.split_at(end);
        let unit = unit.trim_start();
        match (digits, unit.chars().next()) {
            ("", _) if is_negative(unit) => {
                return Err(bad("it must not be negative"));
            }
            ("", _) => return Err(bad("it must be a number, with a unit as in 512M or 1G")),
            (_, Some('.' | ',')) => {
                return Err(bad("it must be a whole number; take a smaller unit"));
            }
            _ => {}
        }
        let unit = unit_bytes(unit)
            .ok_or_else(|| bad("the unit must be s, B, K, M, G, T, P or E, or as KiB or KB"))?;
        // All digits, so it can only be too large.
        let number = digits.parse().map_err(|_| bad("it is too large: 2^64 bytes or more"))?;
        let size = Self { number, unit };
        size.bytes(1).map_err(|_| bad("it is too large: 2^64 bytes or more"))?;
        Ok(size)
    }
}

/// Bytes of a unit; the inner `None` is for no unit, the outer one for an unknown one.
#[allow(clippy::option_option)]
fn unit_bytes(unit: &str) -> Option<Option<u64>> {
    let unit = unit.to_ascii_lowercase();
    let bytes = match unit.as_str() {
        "" => return Some(None),
        "s" => 512,
        "b" => 1,
        _ => {
            let power = "kmgtpe".find(unit.chars().next()?)? as u32 + 1;
            match &unit[1..] {
                "" | "i" | "ib" => 1024_u64.pow(power),
                "b" => 1000_u64.pow(power),
                _ => return None,
            }
        }
    };
    Some(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Result<u64, String> {
        text.parse::<Size>().and_then(|size| size.bytes(1024)).map_err(|e| e.to_string())
    }

    #[test]
    fn units() {
        for (text, expected) in [
            ("1G", 1 << 30),
            ("1GiB", 1 << 30),
            ("1gi", 1 << 30),
            ("1Gb", 1_000_000_000),
            ("1GB", 1_000_000_000),
            ("10 MB", 10_000_000),
            (" 10m ", 10 << 20),
            ("64k", 64 << 10),
            ("2T", 2 << 40),
            ("3P", 3 << 50),
            ("15E", 15 << 60),
            ("2048s", 1 << 20),
            ("7B", 7),
            ("1000", 1_024_000),
            ("0", 0),
        ] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
    }

    #[test]
    fn each_mistake_has_its_line() {
        for (text, words) in [
            ("", "empty"),
            ("  ", "empty"),
            ("-5M", "negative"),
            ("G", "a number"),
            ("lots", "a number"),
            ("--", "a number"),
            ("\u{e9}", "a number"),
            ("1.5G", "whole"),
            ("1x", "unit"),
            ("1Gx", "unit"),
            ("1 \u{e9}", "unit"),
            ("1G\u{e9}", "unit"),
            ("1e3", "unit"),
            ("16E", "too large"),
            ("99999999999999999999", "too large"),
            ("99999999999999T", "too large"),
            ("18446744073709551615", "too large"),
        ] {
            let line = bytes(text).expect_err(text);
            assert!(line.contains(words) && !line.contains('\n'), "{text}: {line}");
        }
    }
}
