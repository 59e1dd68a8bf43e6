//! One option as it is given: a name, and perhaps a value.

use std::ops::RangeInclusive;

use extol_vfs::{NumberError, number};

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

    /// Refuses a value, of an option that has none.
    pub fn no_value(&self) -> Result<(), String> {
        match self.value {
            None => Ok(()),
            Some(_) => Err(format!("mount option \"{}\" takes no value", self.name)),
        }
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

    /// The value, which must be given.
    fn given(&self) -> Result<&'a str, String> {
        self.value.ok_or_else(|| self.bad())
    }

    /// One line about a number that is none.
    fn about(&self, error: NumberError) -> String {
        format!("mount option \"{}\": {error}", self.name)
    }

    /// The value as a count within bounds.
    pub fn count<T: Copy + Into<u64> + TryFrom<u64>>(
        &self,
        bounds: RangeInclusive<T>,
    ) -> Result<T, String> {
        number::count(self.given()?, bounds).map_err(|error| self.about(error))
    }

    /// The value as a size in bytes, within bounds; a number without a unit counts `unit`s.
    pub fn size(&self, unit: u64, bounds: RangeInclusive<u64>) -> Result<u64, String> {
        number::size(self.given()?, unit, bounds).map_err(|error| self.about(error))
    }

    /// The value as one of several names.
    pub fn choose<T: Copy>(&self, names: &[(&str, T)]) -> Result<T, String> {
        let known = names.iter().find(|(name, _)| Some(*name) == self.value);
        known.map(|(_, what)| *what).ok_or_else(|| {
            let all: Vec<_> = names.iter().map(|(name, _)| *name).collect();
            match &all[..] {
                [most @ .., last] => self.bad_use(&format!("{} or {last}", most.join(", "))),
                [] => self.bad(),
            }
        })
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
