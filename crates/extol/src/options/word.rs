//! One option as it is given: a name, and perhaps a value.

use extol_vfs::Size;

/// An option of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word<'a> {
    pub name: &'a str,
    pub value: Option<&'a str>,
}

impl<'a> Word<'a> {
    /// `name` or `name=value`.
    pub fn new(text: &'a str) -> Self {
        match text.split_once('=') {
            Some((name, value)) => Self { name, value: Some(value) },
            None => Self { name: text, value: None },
        }
    }

    /// One line about a bad or missing value.
    pub fn bad(&self) -> String {
        match self.value {
            Some(v) => format!("bad value \"{v}\" for mount option \"{}\"", self.name),
            None => format!("mount option \"{}\" needs a value", self.name),
        }
    }

    /// The same, with what to give.
    pub fn bad_use(&self, what: &str) -> String {
        format!("{}: use {what}", self.bad())
    }

    /// True if this is the option `name`; for the positive one of two flags.
    pub fn is(&self, name: &str) -> bool {
        self.name == name
    }

    /// Sets a flag: on if this is the option `name`.
    pub fn flag(&self, name: &str, flag: &mut bool) -> Result<(), String> {
        *flag = self.is(name);
        Ok(())
    }

    /// The value as a number.
    pub fn number(&self) -> Result<u64, String> {
        self.value.and_then(|v| v.parse::<u64>().ok()).ok_or_else(|| self.bad())
    }

    /// The value as a number of at most `max`.
    pub fn up_to(&self, max: u64) -> Result<u64, String> {
        self.number().and_then(|n| if n <= max { Ok(n) } else { Err(self.bad()) })
    }

    /// The value as a number of 32 bits.
    pub fn u32(&self) -> Result<u32, String> {
        self.number().and_then(|n| u32::try_from(n).map_err(|_| self.bad()))
    }

    /// The value as a size in bytes, of at most `max`; a number without a unit counts `unit`s.
    pub fn size(&self, unit: u64, max: u64) -> Result<u64, String> {
        let size = self.value.ok_or_else(|| self.bad())?.parse::<Size>();
        match size.and_then(|size| size.bytes(unit)) {
            Ok(bytes) if bytes <= max => Ok(bytes),
            Ok(_) => Err(self.bad_use(&format!("at most {}M", max >> 20))),
            Err(error) => Err(format!("mount option \"{}\": {error}", self.name)),
        }
    }

    /// The value as one of several names.
    pub fn choose<T: Copy>(&self, names: &[(&str, T)]) -> Result<T, String> {
        let known = names.iter().find(|(name, _)| Some(*name) == self.value);
        known.map(|(_, what)| *what).ok_or_else(|| self.bad())
    }
}

/// The name of a choice.
pub(crate) fn name_of<T: Copy + PartialEq>(names: &[(&'static str, T)], what: T) -> &'static str {
    names.iter().find(|(_, known)| *known == what).map_or("", |(name, _)| name)
}

/// `name`, or `noname`.
pub(super) fn flag(on: bool, name: &str) -> String {
    if on { name.to_owned() } else { format!("no{name}") }
}

/// `name`, or nothing.
pub(super) fn only(on: bool, name: &str) -> String {
    if on { name.to_owned() } else { String::new() }
}

/// `name=value`, or nothing.
pub(super) fn with(name: &str, value: Option<impl std::fmt::Display>) -> String {
    value.map(|value| format!("{name}={value}")).unwrap_or_default()
}
