//! Lines in so many columns.

/// `head` and the items of `value`, which `between` divides, in one line. Where there is no room
/// for all, whole items are left out at the end, and `…` stands for them: a number that is cut
/// would be another number. The first item is always there, alone where not even `…` fits. Without
/// `width` all are.
pub fn fit(head: &str, value: &str, between: &str, width: Option<usize>) -> String {
    let whole = format!("{head}{value}");
    let columns = |text: &str| text.chars().count();
    let Some(width) = width.filter(|width| columns(whole.trim_end()) > *width) else {
        return whole.trim_end().to_owned();
    };
    let rest = columns(between) + columns("…");
    let mut line = head.to_owned();
    for (n, item) in value.split(between).enumerate() {
        let next = if n == 0 { format!("{line}{item}") } else { format!("{line}{between}{item}") };
        if n > 0 && columns(&next) + rest > width {
            break;
        }
        line = next;
    }
    if columns(&line) + rest <= width { line + between + "…" } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_items_or_none() {
        let value = "1234 transactions, 243.8us each, 18700 flushes";
        let at = |width| fit("commits ", value, ", ", Some(width));
        assert_eq!(at(54), "commits 1234 transactions, 243.8us each, 18700 flushes");
        assert_eq!(at(53), "commits 1234 transactions, 243.8us each, …");
        assert_eq!(at(42), "commits 1234 transactions, 243.8us each, …");
        assert_eq!(at(41), "commits 1234 transactions, …");
        assert_eq!(at(28), "commits 1234 transactions, …");
        assert_eq!(at(27), "commits 1234 transactions");
        assert_eq!(at(0), "commits 1234 transactions");
        assert_eq!(fit("a ", value, ", ", None), format!("a {value}"));
        assert_eq!(fit("options ", "rw,noatime,commit=9", ",", Some(22)), "options rw,noatime,…");
        assert_eq!(fit("é ", "1  22  333", "  ", Some(10)), "é 1  22  …");
    }
}
