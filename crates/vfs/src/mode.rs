//! Modes as chmod(1) takes them: octal, or clauses as in `u+x,go-w`.
//!
//! A clause without `u`, `g`, `o` or `a` is for all, but sets no bit of the umask. Set-id bits of a
//! directory stay unless the mode names them: a number of five digits does, a shorter one does if
//! it sets them.

use crate::number::{self, NumberError};

const ALL: u16 = 0o7777;
const SET_ID: u16 = 0o6000;
const EXECUTE: u16 = 0o111;

/// A change of permission bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mode(Vec<Step>);

/// What one operator does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Step {
    op: char,
    /// The bits of `u`, `g`, `o`; 0 if none of them is named.
    affected: u16,
    value: Value,
    /// Set-id bits that change in a directory, too.
    named: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Value {
    Bits(u16),
    /// These, and execution by all if it is a directory or can be executed already.
    Execute(u16),
    /// What these bits of the file say, for all.
    Copy(u16),
}

impl Mode {
    /// Reads a mode.
    ///
    /// # Errors
    /// One line if it is none.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.starts_with(|c: char| c.is_ascii_digit()) || text.trim().is_empty() {
            let bits = number::octal(text, ALL.into()).map_err(|NumberError { .. }| bad(text))?;
            let bits = bits as u16;
            let named = if text.len() >= 5 { SET_ID } else { bits & SET_ID };
            let value = Value::Bits(bits);
            return Ok(Self(vec![Step { op: '=', affected: ALL, value, named }]));
        }
        let mut steps = Vec::new();
        for clause in text.split(',') {
            clause_steps(clause, &mut steps).ok_or_else(|| bad(text))?;
        }
        Ok(Self(steps))
    }

    /// The bits that a file with these gets.
    #[must_use]
    pub fn applied(&self, perm: u16, is_dir: bool, umask: u16) -> u16 {
        self.0.iter().fold(perm, |perm, step| step.applied(perm, is_dir, umask))
    }
}

impl Step {
    fn applied(self, perm: u16, is_dir: bool, umask: u16) -> u16 {
        let kept = if is_dir { SET_ID & !self.named } else { 0 };
        let value = match self.value {
            Value::Bits(bits) => bits,
            Value::Execute(bits) if is_dir || perm & EXECUTE != 0 => bits | EXECUTE,
            Value::Execute(bits) => bits,
            Value::Copy(class) => {
                let of = |bits: u16| if perm & class & bits != 0 { bits } else { 0 };
                of(0o444) | of(0o222) | of(EXECUTE)
            }
        };
        let value = value & !kept & if self.affected == 0 { !umask } else { self.affected };
        match self.op {
            '+' => perm | value,
            '-' => perm & !value,
            _ => perm & (kept | if self.affected == 0 { 0 } else { !self.affected }) | value,
        }
    }
}

/// The steps of a clause such as `ug=rw+X`.
fn clause_steps(clause: &str, steps: &mut Vec<Step>) -> Option<()> {
    let is_op = |c: char| matches!(c, '+' | '-' | '=');
    let at = clause.find(is_op)?;
    let (classes, mut rest) = clause.split_at(at);
    let affected = classes.chars().try_fold(0, |bits, c| Some(bits | class(c)?))?;
    while let Some(op) = rest.chars().next() {
        let end = rest[1..].find(is_op).map_or(rest.len(), |at| at + 1);
        steps.push(step(op, affected, &rest[1..end])?);
        rest = &rest[end..];
    }
    Some(())
}

fn step(op: char, affected: u16, what: &str) -> Option<Step> {
    if what.starts_with(|c: char| c.is_ascii_digit()) {
        let bits = number::octal(what, ALL.into()).ok()? as u16;
        return (affected == 0).then_some(Step {
            op,
            affected: ALL,
            value: Value::Bits(bits),
            named: SET_ID,
        });
    }
    let (mut bits, mut execute, mut copied) = (0, false, None);
    for c in what.chars() {
        match c {
            'r' => bits |= 0o444,
            'w' => bits |= 0o222,
            'x' => bits |= EXECUTE,
            's' => bits |= SET_ID,
            't' => bits |= 0o1000,
            'X' => execute = true,
            'u' | 'g' | 'o' if what.len() == 1 => copied = class(c),
            _ => return None,
        }
    }
    let value = match copied {
        Some(class) => Value::Copy(class & 0o777),
        None if execute => Value::Execute(bits),
        None => Value::Bits(bits),
    };
    let named = SET_ID & bits & if affected == 0 { ALL } else { affected };
    Some(Step { op, affected, value, named })
}

/// The bits of a class of users.
fn class(c: char) -> Option<u16> {
    match c {
        'u' => Some(0o4700),
        'g' => Some(0o2070),
        'o' => Some(0o1007),
        'a' => Some(ALL),
        _ => None,
    }
}

fn bad(text: &str) -> String {
    format!("bad mode {text:?}: give an octal number up to 7777, or clauses as in u+x,go-w")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(text: &str, perm: u16, is_dir: bool) -> u16 {
        Mode::parse(text).unwrap().applied(perm, is_dir, 0o022)
    }

    #[test]
    fn as_chmod_has_it() {
        for (text, perm, is_dir, then) in [
            ("644", 0o755, false, 0o644),
            ("4755", 0o644, false, 0o4755),
            ("755", 0o6700, false, 0o755),
            ("755", 0o6700, true, 0o6755),
            ("00755", 0o6700, true, 0o755),
            ("2755", 0o4700, true, 0o6755),
            ("u+x", 0o644, false, 0o744),
            ("+x", 0o644, false, 0o755),
            ("+w", 0o444, false, 0o644),
            ("a+w", 0o444, false, 0o666),
            ("-w", 0o666, false, 0o466),
            ("go-rwx", 0o777, false, 0o700),
            ("u=rwX,go=rX", 0o600, false, 0o644),
            ("u=rwX,go=rX", 0o700, false, 0o755),
            ("u=rwX,go=rX", 0o600, true, 0o755),
            ("g=u", 0o640, false, 0o660),
            ("o=g-w", 0o770, false, 0o775),
            ("u=", 0o4755, false, 0o055),
            ("u=", 0o4755, true, 0o4055),
            ("u-s", 0o4755, true, 0o755),
            ("+t", 0o755, true, 0o1755),
            ("g+s", 0o755, true, 0o2755),
            ("=", 0o6755, false, 0),
            ("=r", 0o6755, true, 0o6444),
            ("=0755", 0o6700, true, 0o755),
            ("+1000", 0o755, false, 0o1755),
        ] {
            assert_eq!(applied(text, perm, is_dir), then, "{text} of {perm:o}");
        }
    }

    #[test]
    fn mistakes() {
        for text in ["", "8", "17777", "u", "u+q", "u+x,", "z+x", "u+ug", "u+7", "0x7", "-1x"] {
            assert!(Mode::parse(text).unwrap_err().contains("bad mode"), "{text}");
        }
    }
}
