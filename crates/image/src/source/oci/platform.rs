//! Platforms, and the image that is for one of them.

use super::json::{Config, PlatformDoc};
use crate::error::{BuildError, Result};

/// What an image is for: `linux/arm64`, `linux/arm/v7`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Platform {
    os: String,
    architecture: String,
    /// Any, if it is not given.
    variant: Option<String>,
}

impl Platform {
    /// Reads `OS/ARCHITECTURE[/VARIANT]`.
    ///
    /// # Errors
    /// What is not written so.
    pub fn parse(text: &str) -> Result<Self> {
        let words: Vec<_> = text.split('/').collect();
        let is_word =
            |word: &&str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_graphic());
        if !(2..=3).contains(&words.len()) || !words.iter().all(is_word) {
            let why = format!("--platform {text}: write OS/ARCHITECTURE, such as linux/arm64");
            return Err(BuildError::Refused(why));
        }
        Ok(Self {
            os: words[0].into(),
            architecture: words[1].into(),
            variant: words.get(2).map(|word| (*word).into()),
        })
    }

    /// That of this machine.
    #[must_use]
    pub fn host() -> Self {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "x86" => "386",
            "aarch64" => "arm64",
            "powerpc64" if cfg!(target_endian = "little") => "ppc64le",
            "powerpc64" => "ppc64",
            "loongarch64" => "loong64",
            other => other,
        };
        Self { os: "linux".into(), architecture: architecture.into(), variant: None }
    }

    /// True if an image of that platform is wanted.
    pub(super) fn takes(&self, other: &Self) -> bool {
        // The first variant of arm64 is its only one in use.
        let variant = |platform: &Self| match (&*platform.architecture, &platform.variant) {
            ("arm64", None) => Some("v8".to_owned()),
            (_, variant) => variant.clone(),
        };
        self.os == other.os
            && self.architecture == other.architecture
            && (self.variant.is_none() || variant(self) == variant(other))
    }

    /// True if it says nothing: what is stored beside images is marked so.
    pub(super) fn is_unknown(&self) -> bool {
        self.os == "unknown" || self.architecture == "unknown"
    }
}

impl From<&PlatformDoc> for Platform {
    fn from(doc: &PlatformDoc) -> Self {
        let (os, architecture) = (doc.os.clone(), doc.architecture.clone());
        Self { os, architecture, variant: doc.variant.clone().filter(|word| !word.is_empty()) }
    }
}

impl From<&Config> for Platform {
    fn from(doc: &Config) -> Self {
        let (os, architecture) = (doc.os.clone(), doc.architecture.clone());
        Self { os, architecture, variant: doc.variant.clone().filter(|word| !word.is_empty()) }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let variant = self.variant.as_ref().map(|variant| format!("/{variant}"));
        let text = format!("{}/{}{}", self.os, self.architecture, variant.unwrap_or_default());
        f.write_str(&extol_vfs::plain(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::Platform;

    #[test]
    fn platforms() {
        let parse = |text: &str| Platform::parse(text).expect(text);
        assert!(parse("linux/arm64").takes(&parse("linux/arm64/v8")));
        assert!(parse("linux/arm64/v8").takes(&parse("linux/arm64")));
        assert!(parse("linux/arm").takes(&parse("linux/arm/v7")));
        assert!(!parse("linux/arm/v6").takes(&parse("linux/arm/v7")));
        assert!(!parse("linux/amd64").takes(&parse("linux/386")));
        assert_eq!(parse("linux/arm/v7").to_string(), "linux/arm/v7");
        for text in ["", "linux", "linux/", "/arm", "a/b/c/d", "linux/ arm"] {
            assert!(Platform::parse(text).is_err(), "{text}");
        }
    }
}
