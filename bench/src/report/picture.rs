//! Charts as picture files, for documents.
//!
//! Each chart becomes one file that needs nothing else. It has its own background, and takes a dark
//! one with light text where the reader's system asks for dark pages; the lines' colours can be
//! read on both. The same values give the same bytes, so that a picture in a repository changes
//! only with what it shows.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::path::Path;

use super::Report;

/// What a dark page changes. The chart writes colours as attributes, which any rule overrides.
const STYLE: &str = "@media \
    (prefers-color-scheme:dark){.paper{fill:#16191d}[fill=\"#000000\"]{fill:#d8dbe0}[stroke=\"#000000\"]{stroke:#9aa0a8}[fill=\"#FFFFFF\"]{fill:#16191d}}";

impl Report {
    /// The charts as files: names such as `fsmark-files-s.svg`, and what is in them. Charts without
    /// any value are left out.
    #[must_use]
    pub fn pictures(&self) -> Vec<(String, String)> {
        let mut taken = HashSet::new();
        let charts = self.charts.iter().filter_map(|chart| Some((chart, chart.svg()?)));
        charts
            .map(|(chart, svg)| {
                let stem = name(&format!("{} {}", self.bench, chart.title));
                let other = (2..).map(|n| format!("{stem}-{n}"));
                // (There are fewer charts than numbers.)
                let name =
                    std::iter::once(stem.clone()).chain(other).find(|n| taken.insert(n.clone()));
                (name.unwrap_or(stem) + ".svg", standalone(&svg, &chart.title))
            })
            .collect()
    }

    /// Writes the charts as files into a directory, which is made if need be. Gives how many there
    /// are.
    ///
    /// # Errors
    /// If a file cannot be written.
    pub fn write_pictures(&self, dir: &Path) -> std::io::Result<usize> {
        std::fs::create_dir_all(dir)?;
        let pictures = self.pictures();
        for (name, svg) in &pictures {
            std::fs::write(dir.join(name), svg)?;
        }
        Ok(pictures.len())
    }
}

/// Lower-case characters, digits and single dashes; at most 80 of them.
fn name(text: &str) -> String {
    let mut s = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() {
            s.push(c.to_ascii_lowercase());
        } else if !s.is_empty() && !s.ends_with('-') {
            s.push('-');
        }
        if s.len() == 80 {
            break;
        }
    }
    s.trim_end_matches('-').to_owned()
}

/// A chart's elements with a background, a rule for dark pages, and a title as its
/// text.
fn standalone(svg: &str, title: &str) -> String {
    let (opening, rest) = svg.split_once('>').unwrap_or((svg, ""));
    let mut s = format!("{opening} role=\"img\">\n<title>{}</title>\n", super::html::escape(title));
    let _ = write!(
        s,
        "<style>{STYLE}</style>\n<rect class=\"paper\" width=\"100%\" height=\"100%\" rx=\"6\" \
            fill=\"#FDFDFD\"/>"
    );
    s += rest;
    if s.ends_with('\n') { s } else { s + "\n" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Chart;

    fn chart(title: &str) -> Chart {
        Chart {
            title: title.into(),
            x: "threads".into(),
            y: "files/s".into(),
            places: vec!["1".into(), "2".into()],
            series: vec![("library".into(), vec![Some(1.0), Some(2.0)])],
            log: false,
        }
    }

    fn report(titles: &[&str]) -> Report {
        let mut report = Report::new("scale");
        report.charts.extend(titles.iter().map(|t| chart(t)));
        report
    }

    #[test]
    fn names_are_plain_and_differ() {
        let names = |titles: &[&str]| {
            report(titles).pictures().into_iter().map(|p| p.0).collect::<Vec<_>>()
        };
        assert_eq!(
            names(&["create: us (SATA, 2 threads)", "../é", "same", "Same"]),
            [
                "scale-create-us-sata-2-threads.svg",
                "scale.svg",
                "scale-same.svg",
                "scale-same-2.svg"
            ]
        );
        assert!(name(&"x".repeat(300)).len() == 80);
    }

    #[test]
    fn a_picture_stands_alone_and_is_the_same_each_time() {
        let (one, two) = (report(&["a < b"]).pictures(), report(&["a < b"]).pictures());
        assert_eq!(one, two);
        let svg = &one[0].1;
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{svg}");
        assert!(
            svg.contains("<title>a &lt; b</title>")
                && svg.contains("xmlns=\"http://www.w3.org/2000/svg\"")
        );
        assert!(svg.contains("prefers-color-scheme:dark") && svg.contains("class=\"paper\""));
        assert_eq!(svg.matches("<svg").count(), 1);
        assert!(svg.len() < 20_000, "{} bytes", svg.len());
    }

    #[test]
    fn charts_without_values_are_left_out() {
        let mut report = report(&["a", "b"]);
        report.charts[0].series.clear();
        let dir = tempfile::tempdir().expect("a directory");
        let at = dir.path().join("new/pictures");
        assert_eq!(report.write_pictures(&at).expect("written"), 1);
        assert!(
            std::fs::read_to_string(at.join("scale-b.svg")).expect("there").contains("<title>b<")
        );
    }
}
