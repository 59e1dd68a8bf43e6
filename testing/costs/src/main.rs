//! Counts what operations cost and prints the table without system calls, which the test adds.
//!
//!     extol-costs DIR
//!
//! Images are made in that directory, which is to be in memory.

use std::ffi::OsString;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: alloc_tracker::Allocator<std::alloc::System> = alloc_tracker::Allocator::system();

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().skip(1).collect();
    let [dir] = &words[..] else {
        eprintln!("extol-costs: give a directory for the images");
        return ExitCode::FAILURE;
    };
    run(dir.as_ref())
}

#[cfg(debug_assertions)]
fn run(dir: &std::path::Path) -> ExitCode {
    for row in extol_costs::rows::all(dir) {
        println!("{}", row.line());
    }
    ExitCode::SUCCESS
}

#[cfg(not(debug_assertions))]
fn run(_: &std::path::Path) -> ExitCode {
    eprintln!("extol-costs: only debug builds count locks; build it without --release");
    ExitCode::FAILURE
}
