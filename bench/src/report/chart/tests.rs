use super::shapes::RADIUS;
use super::*;

/// Edges of a shape that takes place: left, top, right, bottom.
type Edges = (f64, f64, f64, f64);

fn text_box(shape: &Shape) -> Option<(String, Edges)> {
    let Shape::Text { x, y, size, anchor, text } = shape else { return None };
    let wide = width(text, *size);
    let left = match anchor {
        Anchor::Start => *x,
        Anchor::Middle => x - wide / 2.0,
        Anchor::End => x - wide,
    };
    Some((text.clone(), (left, y - size * 0.8, left + wide, y + size * 0.25)))
}

fn data_boxes(shape: &Shape) -> Vec<Edges> {
    match shape {
        Shape::Bar { x, y, width, height, .. } => vec![(*x, *y, x + width, y + height)],
        Shape::Mark { x, y, side, .. } => vec![(*x, *y, x + side, y + side)],
        Shape::Point { x, y, .. } => vec![(x - RADIUS, y - RADIUS, x + RADIUS, y + RADIUS)],
        Shape::Line { points, .. } => {
            // All of the line is within the box of its ends; that no text is there is more than is
            // needed.
            let ends = points.windows(2).map(|pair| {
                let ((a, b), (c, d)) = (pair[0], pair[1]);
                (a.min(c), b.min(d), a.max(c), b.max(d))
            });
            ends.collect()
        }
        // The grid, too, is drawn around text.
        Shape::Rule { from, to, .. } => vec![(from.0, from.1, to.0 + 0.1, to.1 + 0.1)],
        Shape::Text { .. } => Vec::new(),
    }
}

fn meet(a: Edges, b: Edges) -> bool {
    a.0 < b.2 && b.0 < a.2 && a.1 < b.3 && b.1 < a.3
}

/// No text meets another one or data, and all is within the picture.
fn assert_legible(chart: &Chart) {
    let picture = chart.layout().expect("values");
    let texts: Vec<_> = picture.shapes.iter().filter_map(text_box).collect();
    let data: Vec<Edges> = picture.shapes.iter().flat_map(data_boxes).collect();
    for (n, (text, edges)) in texts.iter().enumerate() {
        for (other, beside) in &texts[n + 1..] {
            assert!(!meet(*edges, *beside), "{}: \"{text}\" on \"{other}\"", chart.title);
        }
        for shape in &data {
            assert!(!meet(*edges, *shape), "{}: \"{text}\" on data {shape:?}", chart.title);
        }
    }
    for edges in texts.iter().map(|t| t.1).chain(data) {
        assert!(
            edges.0 >= 0.0 && edges.1 >= 0.0 && edges.2 <= WIDTH && edges.3 <= picture.height,
            "{}: {edges:?} outside of {} x {}",
            chart.title,
            WIDTH,
            picture.height
        );
    }
}

fn chart(places: &[&str], series: &[(&str, &[f64])], log: bool) -> Chart {
    Chart {
        title: format!("{} places, {} series, log {log}", places.len(), series.len()),
        x: "threads".into(),
        y: "files per second".into(),
        places: places.iter().map(|p| (*p).to_owned()).collect(),
        series: series
            .iter()
            .map(|(name, values)| ((*name).to_owned(), values.iter().copied().map(Some).collect()))
            .collect(),
        log,
    }
}

#[test]
fn nothing_is_printed_over_anything() {
    let long = "mount over io_uring, with -o fast_commit,checkpoint=merge,async_checkpoint=50 on a \
                cloud disk";
    let many: Vec<String> = (0..24).map(|n| (1_u64 << n).to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let rising: Vec<f64> = (0..24).map(|n| f64::from(n * n * 100_000 + 1)).collect();
    for log in [false, true] {
        for places in [
            &["library", "mount", long][..],
            &["1", "2", "16"],
            &["1000", "10000", "50000"],
            &["1000000", "1000001", "9000000", "9000001"],
            &["p50"],
            &many,
            &["7"],
        ] {
            let values: Vec<f64> = rising.iter().copied().take(places.len()).collect();
            for names in [&["Extol"][..], &[long, long, "c"], &many[..14]] {
                let series: Vec<(&str, &[f64])> = names.iter().map(|n| (*n, &values[..])).collect();
                assert_legible(&chart(places, &series, log));
                assert_legible(&Chart {
                    title: format!("{long} {long}"),
                    y: long.into(),
                    x: long.into(),
                    ..chart(places, &series, log)
                });
            }
        }
    }
    // Gains may be losses.
    for values in [[-14.0, 3.0], [-1.0, 250.0], [-3.0, -90.0], [0.0, 1e-9], [1e12, 5.0]] {
        assert_legible(&chart(
            &["cloud", "disk"],
            &[("published", &values), ("b", &values)],
            false,
        ));
        assert_legible(&chart(&["1", "2"], &[("published", &values), ("b", &values)], false));
    }
}

/// A line would say that something lies between two places.
#[test]
fn only_numbers_in_order_have_a_line() {
    let drawn = |places: &[&str], log| {
        let picture = chart(places, &[("a", &[1.0, 20.0, 3.0])], log).layout().expect("values");
        let count = |is: fn(&Shape) -> bool| picture.shapes.iter().filter(|s| is(s)).count();
        (
            count(|s| matches!(s, Shape::Line { .. })),
            count(|s| matches!(s, Shape::Point { .. })),
            count(|s| matches!(s, Shape::Bar { .. })),
        )
    };
    assert_eq!(drawn(&["1", "2", "16"], false), (1, 3, 0));
    assert_eq!(drawn(&["1", "2", "16"], true), (1, 3, 0));
    for places in [["p50", "p99", "max"], ["3", "2", "1"], ["1", "x", "2"], ["1", "2", "inf"]] {
        assert_eq!(drawn(&places, false), (0, 0, 3));
        assert_eq!(drawn(&places, true), (0, 3, 0));
    }
}

#[test]
fn values_that_are_missing_leave_a_gap() {
    let mut chart = chart(&["1", "2", "4"], &[("a", &[1.0, 2.0, 3.0]), ("b", &[9.0; 3])], true);
    chart.series[0].1 = vec![None, Some(f64::NAN), Some(0.0)];
    let picture = chart.layout().expect("values of b");
    assert_eq!(picture.shapes.iter().filter(|s| matches!(s, Shape::Point { .. })).count(), 3);
    chart.series.truncate(1);
    assert!(chart.layout().is_none());
}

#[test]
fn bars_are_as_long_as_their_values() {
    let picture =
        chart(&["x"], &[("a", &[50.0]), ("b", &[100.0])], false).layout().expect("values");
    let widths: Vec<f64> = picture
        .shapes
        .iter()
        .filter_map(|s| if let Shape::Bar { width, .. } = s { Some(*width) } else { None })
        .collect();
    assert!((widths[1] / widths[0] - 2.0).abs() < 0.01, "{widths:?}");
}

/// A series without a value has no line, and no name that would ask for one.
#[test]
fn the_legend_names_what_is_drawn() {
    for places in [["1", "2"], ["a", "b"]] {
        let mut chart =
            chart(&places, &[("mount", &[1.0, 2.0]), ("after a crash", &[1.0, 2.0])], false);
        let texts = |chart: &Chart| -> Vec<String> {
            let shapes = chart.layout().expect("values").shapes;
            shapes.iter().filter_map(text_box).map(|t| t.0).collect()
        };
        assert!(texts(&chart).contains(&"after a crash".to_owned()));
        chart.series[1].1 = vec![None, Some(f64::NAN)];
        let texts = texts(&chart);
        assert!(texts.contains(&"mount".to_owned()), "{texts:?}");
        assert!(!texts.contains(&"after a crash".to_owned()), "{texts:?}");
        assert_legible(&chart);
    }
}

/// A tenfold number of files is as wide everywhere on the axis, and the axis says how it is.
#[test]
fn equal_factors_have_equal_widths() {
    let chart = chart(&["1000", "100000", "1000000"], &[("a", &[1.0, 3.0, 4.0])], false);
    let picture = chart.layout().expect("values");
    let xs: Vec<f64> = picture
        .shapes
        .iter()
        .filter_map(|s| if let Shape::Point { x, .. } = s { Some(*x) } else { None })
        .collect();
    assert!(((xs[1] - xs[0]) / (xs[2] - xs[1]) - 2.0).abs() < 0.01, "{xs:?}");
    let texts: Vec<String> = picture.shapes.iter().filter_map(text_box).map(|t| t.0).collect();
    assert!(texts.contains(&"threads (logarithmic scale)".to_owned()), "{texts:?}");
}
