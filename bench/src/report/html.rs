//! The page: tables and pictures in one file.

use std::fmt::Write as _;

use super::{Cell, Report};

const STYLE: &str = "\
    body{font:15px/1.5 sans-serif;max-width:64em;margin:2em auto;padding:0 1em;color:#222}\
    .wide{overflow-x:auto;margin:.5em 0 1.5em}table{border-collapse:collapse}\
    th,td{padding:.2em .7em;border-bottom:1px solid #ddd;text-align:right}\
    th{border-bottom:2px solid #888}.t{text-align:left}.missed{color:#b00;font-weight:bold}\
    code{background:#f3f3f3;padding:.1em .3em;overflow-wrap:anywhere}\
    td.t:first-child{min-width:9em}.goals td.t:first-child{min-width:15em}\
    .goals td:last-child{min-width:10em;text-align:left}\
    figure{margin:1.5em 0}svg{max-width:100%;height:auto}\
    dt{float:left;clear:left;width:9em;color:#666}dd{margin-left:9em;overflow-wrap:anywhere}\
    @media(max-width:40em){body{margin:1em auto;padding:0 .8em}h1{font-size:1.4em}\
    dt{float:none;width:auto}dd{margin:0 0 .5em}th,td{padding:.2em .5em}}";

/// The whole page.
pub(super) fn page(report: &Report) -> String {
    let mut s = format!(
        "<!doctype html>\n\
         <html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <title>extol-bench {0}</title><style>{STYLE}</style></head><body>\n\
         <h1>extol-bench {0}</h1>\n\
         <p><code>{1}</code></p>\n\
         <dl>\n",
        escape(&report.bench),
        escape(&report.command)
    );
    let machine = ("machine".to_owned(), report.machine.line());
    for (name, value) in std::iter::once(&machine).chain(&report.setting) {
        let _ = writeln!(s, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(value));
    }
    s += "</dl>\n";
    goals(&mut s, report);
    for svg in report.charts.iter().filter_map(super::Chart::svg) {
        let _ = writeln!(s, "<figure>{svg}</figure>");
    }
    for table in &report.tables {
        let _ = writeln!(s, "<h2>{}</h2>\n<div class=\"wide\"><table>\n<tr>", escape(&table.title));
        let is_text = |c: usize| table.rows.iter().any(|r| matches!(r[c], Cell::Text(_)));
        for (c, column) in table.columns.iter().enumerate() {
            let _ = write!(
                s,
                "<th{}>{}</th>",
                if is_text(c) { " class=\"t\"" } else { "" },
                escape(column)
            );
        }
        s += "</tr>\n";
        for row in &table.rows {
            s += "<tr>";
            for (c, cell) in row.iter().enumerate() {
                let class = match cell {
                    cell if cell.is_missed() => " class=\"missed\"",
                    _ if is_text(c) => " class=\"t\"",
                    _ => "",
                };
                let _ = write!(s, "<td{class}>{}</td>", escape(&cell.show()));
            }
            s += "</tr>\n";
        }
        s += "</table></div>\n";
    }
    for note in &report.notes {
        let _ = writeln!(s, "<p>{}</p>", escape(note));
    }
    s + "</body></html>\n"
}

fn goals(s: &mut String, report: &Report) {
    if report.goals.is_empty() {
        return;
    }
    *s += "<h2>Goals</h2>\n<div class=\"wide\"><table class=\"goals\">\n<tr><th \
        class=\"t\">goal</th><th>measured</th><th>wanted</th><th class=\"t\"></th></tr>\n";
    for goal in &report.goals {
        let (class, outcome) = if goal.met { ("t", "met") } else { ("missed", "missed") };
        let remark = goal.remark().map_or(String::new(), |line| format!(" ({})", escape(&line)));
        let _ = writeln!(
            s,
            "<tr><td class=\"t\">{}</td><td>{:.3}</td><td>{:.3}</td><td \
                class=\"{class}\">{outcome}{remark}</td></tr>",
            escape(&goal.what),
            goal.measured,
            goal.wanted
        );
    }
    *s += "</table></div>\n";
}

/// Text for HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
