//! Every number of `costs.txt` is what an operation costs.

use std::path::Path;
use std::time::Duration;

use extol_costs::table::{CALLS, Row, differences, show};
use extol_costs::trace::{LEFT_OUT, calls};
use extol_testkit::{Need, Scratch, require, run, tool};

const TIME: Duration = Duration::from_secs(300);

/// Counts all rows, the system calls as well.
fn count() -> String {
    let scratch = Scratch::in_memory();
    let trace = scratch.path().join("trace");
    let left_out = LEFT_OUT.map(|name| format!("?{name}")).join(",");
    let mut command = tool("strace");
    command.args(["-f", "-qq", "-s", "256", "-e", &format!("trace=!{left_out}"), "-o"]);
    command.arg(&trace).arg(env!("CARGO_BIN_EXE_extol-costs")).arg(scratch.path());
    let told = run(&mut command, TIME);
    assert_eq!(told.code, Some(0), "{}", told.output);
    let mut rows: Vec<Row> = told.output.lines().filter_map(Row::of_line).collect();
    let calls = calls(&std::fs::read_to_string(&trace).expect("the trace"));
    assert_eq!(calls.len(), rows.len(), "a row of the trace for each row");
    for (row, calls) in rows.iter_mut().zip(calls.values()) {
        println!("{}: {calls:?}", row.name);
        row.counts.set(CALLS, calls.values().sum());
    }
    show(&rows)
}

#[test]
fn operations_cost_what_the_table_says() {
    if !require(&[Need::Tool("strace")]) {
        return;
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("costs.txt");
    let now = count();
    if std::env::var_os("EXTOL_BLESS").is_some() {
        std::fs::write(&path, &now).expect("the table");
        return;
    }
    let known = std::fs::read_to_string(&path).expect("the table");
    let told = differences(&known, &now);
    assert!(
        told.is_empty(),
        "what operations cost is not what testing/costs/costs.txt says:\n  {}\nif that is meant: \
         EXTOL_BLESS=1 cargo test -p extol-costs, and the commit says why",
        told.join("\n  ")
    );
}
