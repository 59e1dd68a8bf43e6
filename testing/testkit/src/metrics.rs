//! The page of counters that a mount or an export serves.

use std::io::{Read as _, Write as _};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);

/// The head and the body that `http://ADDRESS/metrics` answers with.
///
/// # Panics
/// If nothing answers.
#[must_use]
pub fn metrics_of(address: &str) -> (String, String) {
    let mut stream = std::net::TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(LIMIT)).expect("a deadline");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").expect("ask");
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).expect("an answer");
    let text = String::from_utf8(bytes).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    (head.to_owned(), body.to_owned())
}

/// Samples by name with labels.
///
/// # Panics
/// Where the text is not of the format.
#[must_use]
pub fn metric_samples(body: &str) -> Vec<(String, f64)> {
    let mut samples = Vec::new();
    let (mut family, mut kind, mut helped) = (String::new(), String::new(), String::new());
    let mut bucket = (f64::NEG_INFINITY, 0.0);
    assert!(body.ends_with('\n'));
    for line in body.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            helped = rest.split_once(' ').expect("a help text").0.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, of) = rest.split_once(' ').expect("a type");
            assert_eq!(name, helped, "HELP before TYPE");
            assert!(["counter", "gauge", "histogram"].contains(&of), "{line}");
            (family, kind) = (name.to_owned(), of.to_owned());
            bucket = (f64::NEG_INFINITY, 0.0);
        } else {
            let (name, number) =
                line.rsplit_once(' ').unwrap_or_else(|| panic!("no sample: {line}"));
            let number: f64 = number.parse().unwrap_or_else(|_| panic!("no number: {line}"));
            let bare = name.split('{').next().expect("a name");
            assert!(bare.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{line}");
            let suffix =
                bare.strip_prefix(&*family).unwrap_or_else(|| panic!("{line} is not of {family}"));
            match (&*kind, suffix) {
                ("histogram", "_bucket") => {
                    let le =
                        name.split("le=\"").nth(1).and_then(|r| r.split('"').next()).expect("le");
                    let le =
                        if le == "+Inf" { f64::INFINITY } else { le.parse().expect("a bound") };
                    assert!(le > bucket.0 && number >= bucket.1, "{line}: buckets go down");
                    bucket = (le, number);
                }
                ("histogram", "_count") => {
                    assert_eq!(
                        bucket,
                        (f64::INFINITY, number),
                        "{line}: the last bucket is the count"
                    );
                }
                ("histogram", "_sum") | ("gauge", "") => {}
                ("counter", "") => assert!(bare.ends_with("_total") && number >= 0.0, "{line}"),
                _ => panic!("{line} does not belong to a {kind}"),
            }
            assert!(!samples.iter().any(|(n, _)| n == name), "{name} twice");
            samples.push((name.to_owned(), number));
        }
    }
    samples
}
