//! Device tables, as genext2fs and makedevs have them.

use extol_vfs::Rdev;

use super::{Item, Line, MAX_ITEMS, What, id, mode, number, text, words};

/// Reads a line. What a `-` stands for, and what is missing at the end, is 0.
pub(super) fn line(line: &[u8], items: &mut Vec<Item>) -> Line<()> {
    let fields: Vec<&[u8]> = words(line).collect();
    if !(3..=10).contains(&fields.len()) {
        return Err("is not: name type mode uid gid major minor start increment count".into());
    }
    if !fields[0].starts_with(b"/") {
        return Err(format!("the name '{}' does not begin with a slash", text(fields[0])));
    }
    let field = |at: usize| fields.get(at).copied().filter(|word| *word != b"-").unwrap_or(b"0");
    let (major, minor) = (number("the major number", field(5))?, number("the minor", field(6))?);
    let start = number("the start", field(7))?;
    let step = number("the increment", field(8))?;
    let count = number("the count", field(9))?;
    let what = |minor| {
        let rdev = Rdev { major, minor };
        Ok(match fields[1] {
            b"f" => What::File,
            b"d" => What::Dir,
            b"c" => What::Char(rdev),
            b"b" => What::Block(rdev),
            b"p" => What::Fifo,
            b"s" => What::Socket,
            other => {
                return Err(format!("the type '{}' is none of f d c b p s", text(other)));
            }
        })
    };
    let item = Item {
        path: fields[0].to_vec(),
        mode: Some(mode(fields[2])?),
        uid: Some(id("the owner", field(3))?),
        gid: Some(id("the group", field(4))?),
        ..Item::default()
    };
    if count == 0 {
        items.push(Item { what: what(minor)?, ..item });
        return Ok(());
    }
    // The last number is one below the count, whatever the first one is.
    if start >= count {
        return Err(format!("there is no number from {start} up to below {count}"));
    }
    if (count - start) as usize > MAX_ITEMS {
        return Err(format!("names more than {MAX_ITEMS} files"));
    }
    for nr in start..count {
        let minor = u64::from(nr) * u64::from(step) + u64::from(minor);
        let minor = minor.checked_sub(start.into()).and_then(|minor| u32::try_from(minor).ok());
        let minor = minor.ok_or_else(|| format!("file {nr} has no minor number of 32 bits"))?;
        let path = [fields[0], nr.to_string().as_bytes()].concat();
        items.push(Item { path, what: what(minor)?, ..item.clone() });
    }
    Ok(())
}
