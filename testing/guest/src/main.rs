//! Runs a script in the guest, by hand:
//!
//! ```text
//! $ cargo run -q -p extol-guest -- [OPTION]... [IMAGE]... <SCRIPT
//! ```
//!
//! `-m MODULE` loads a module, `-p PROGRAM` brings a program of the host, `-l SECONDS` sets the
//! limit, `-r` makes the next image read-only. Prints what the script printed, and on standard
//! error what the kernel had to say. The exit code is the script's; 100 after `power-cut`, 101 if
//! the guest failed.

use extol_guest::{End, Guest};
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let mut guest = Guest::new();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_default();
        guest = match word.as_str() {
            "-m" => guest.module(&value()),
            "-p" => guest.program(&value()),
            "-l" => guest.limit(Duration::from_secs(value().parse().unwrap_or(120))),
            "-r" => guest.drive_read_only(Path::new(&value())),
            image => guest.drive(Path::new(image)),
        };
    }
    let mut script = String::new();
    if let Err(e) = std::io::stdin().read_to_string(&mut script) {
        eprintln!("no script on standard input: {e}");
        return ExitCode::from(101);
    }
    match guest.try_run(&script) {
        Ok(report) => {
            print!("{}", report.output);
            eprint!("{}", report.console);
            eprintln!("the script began after {:?}", report.boot);
            match report.end {
                End::Code(code) => ExitCode::from(code),
                End::Cut => ExitCode::from(100),
            }
        }
        Err(failed) => {
            eprintln!("the guest {failed}");
            ExitCode::from(101)
        }
    }
}
