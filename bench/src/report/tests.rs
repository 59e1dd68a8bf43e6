use super::*;

#[path = "../../../testing/schema.rs"]
mod schema;

fn sample() -> Report {
    let mut report = Report::new("sample");
    report.set("load", "a < b & c");
    let mut table = Table::new("Rates", &["threads", "target", "files/s", "ratio"]);
    table.row(vec![
        Cell::number(2.0, 0),
        "<lib>".into(),
        Cell::number(1234.56, 1),
        Cell::number(0.5, 2).missed_if(true),
    ]);
    table.row(vec![Cell::number(16.0, 0), "x".into(), Cell::number(9.0, 1), Cell::Missing]);
    report.tables.push(table);
    report.goals.push(Goal::at_least("speed", 0.5, 1.0));
    report.goals.push(Goal::at_most("size", 0.5, 1.0));
    for log in [false, true] {
        report.charts.push(Chart {
            title: format!("log {log}"),
            x: "threads".into(),
            y: "files/s".into(),
            places: vec!["2".into(), "16".into(), "64".into()],
            series: vec![
                ("a & b".into(), vec![Some(1.0), None, Some(300.0)]),
                ("c".into(), vec![Some(f64::NAN), Some(20.0), Some(0.0)]),
            ],
            log,
        });
    }
    report
}

#[test]
fn text_is_aligned() {
    let text = sample().text();
    assert!(
        text.contains(
            "threads  target  files/s  ratio\n      2  <lib>    1234.6  0.50!\n     \
        16  x           9.0      -\n"
        ),
        "{text}"
    );
    assert!(text.contains("MISSED  speed") && text.contains("met     size"), "{text}");
    assert!(text.contains("machine: Linux"));
}

#[test]
fn the_page_needs_nothing_else() {
    let html = sample().html();
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    assert_eq!((html.matches("<svg").count(), html.matches("</svg>").count()), (2, 2));
    assert!(
        html.contains("&lt;lib&gt;")
            && html.contains("a &lt; b &amp; c")
            && !html.contains("<lib>")
    );
    assert!(html.contains("class=\"missed\">0.50!"));
    for outside in ["src=", "href=", "@import", "<script"] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert!(html.contains("name=\"viewport\"") && html.contains(" viewBox=\"0 0 480 "));
    // A table that is wider than the screen scrolls by itself.
    let scrolled = html.matches("<div class=\"wide\"><table").count();
    assert_eq!((scrolled, html.matches("<table").count()), (2, 2));
    // On a phone, too, what a row is about has more than a word for a line.
    assert!(html.contains("<table class=\"goals\">"));
    assert!(html.contains(".goals td.t:first-child{min-width"));
    for opened in ["div", "table", "tr", "td", "th", "figure", "dl", "h2"] {
        let closed = html.matches(&format!("</{opened}>")).count();
        let count = html.matches(&format!("<{opened}>")).count()
            + html.matches(&format!("<{opened} ")).count();
        assert_eq!(count, closed, "{opened}");
    }
}

#[test]
fn a_chart_names_its_places_and_series() {
    let chart = &sample().charts[0];
    let svg = chart.svg().unwrap();
    for text in ["log false", "threads", "files/s", "16", "64", "a &amp; b"] {
        assert!(svg.contains(text), "{text}\n{svg}");
    }
    let empty = Chart { series: vec![("a".into(), vec![None])], ..chart.clone() };
    assert!(empty.svg().is_none());
}

/// The names that programs may rely on.
#[test]
fn json_schema() {
    let json: serde_json::Value = serde_json::from_str(&sample().json()).unwrap();
    for pointer in [
        "/bench",
        "/command",
        "/machine/kernel",
        "/machine/processor",
        "/machine/processors",
        "/machine/memory",
        "/machine/load",
        "/setting/0/1",
        "/results",
        "/tables/0/title",
        "/tables/0/columns/3",
        "/tables/0/rows/0/2/value",
        "/goals/0/met",
        "/notes",
    ] {
        assert!(json.pointer(pointer).is_some(), "{pointer}: {json:#}");
    }
    let schema = include_str!("../../../docs/guide/schemas/bench.json");
    let printed = extol_cli_common::json_text(&sample()).unwrap();
    let printed: serde_json::Value = serde_json::from_str(&printed).unwrap();
    schema::check(&serde_json::from_str(schema).unwrap(), &printed, "bench");
    assert_eq!(json.pointer("/tables/0/rows/0/3/missed"), Some(&true.into()));
    assert_eq!(json.pointer("/tables/0/rows/1/3"), Some(&serde_json::Value::Null));
}

#[test]
#[should_panic(expected = "a row of another table")]
fn rows_fit_their_table() {
    Table::new("t", &["a", "b"]).row(vec![Cell::Missing]);
}

/// A missed goal says what the baseline makes of it, in every form; a goal that is met needs no
/// remark.
#[test]
fn a_missed_goal_is_shown_beside_its_baseline() {
    let mut report = Report::new("sample");
    for (measured, reaches) in
        [(2.9, Some(3.8)), (2.9, Some(12.25)), (11.0, Some(3.8)), (2.9, None)]
    {
        report
            .goals
            .push(Goal::at_least("loads", measured, 10.0).beside("what does nothing", reaches));
    }
    let text = report.text();
    let lines: Vec<&str> = text.lines().filter(|l| l.contains("loads")).collect();
    assert_eq!(
        lines,
        [
            "  MISSED  loads: 2.900 (wanted 10.000) (what does nothing reaches 3.80 of 10)",
            "  MISSED  loads: 2.900 (wanted 10.000) (what does nothing meets it with 12.25 of 10)",
            "  met     loads: 11.000 (wanted 10.000)",
            "  MISSED  loads: 2.900 (wanted 10.000)",
        ]
    );
    let html = report.html();
    assert_eq!(html.matches("missed (what does nothing").count(), 2, "{html}");
    let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
    let at = |pointer: &str| json.pointer(pointer).cloned();
    assert_eq!(at("/goals/0/baseline/measured"), Some(3.8.into()));
    assert_eq!(
        [0, 1, 2].map(|n| at(&format!("/goals/{n}/baseline/met"))),
        [false, true, false].map(|b| Some(b.into()))
    );
    assert_eq!(at("/goals/3/baseline"), None);
}
