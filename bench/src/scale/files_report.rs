//! What the growth looks like: tables, pictures, goals.

use super::files::{Cost, Row};
use crate::report::{Cell, Chart, Goal, Report, Table};

/// An operation of a row.
type Op = (&'static str, fn(&Row) -> Cost);

const OPS: [Op; 6] = [
    ("create", |r| r.create),
    ("lookup", |r| r.lookup_warm),
    ("cold lookup", |r| r.lookup_cold),
    ("unlink", |r| r.unlink),
    ("unlink old", |r| r.unlink_old),
    ("list, per entry", |r| r.list),
];

/// Operations whose cost must not grow. (The others read from the device what no cache can hold.)
const FLAT: [usize; 3] = [0, 1, 3];
/// How much more they may cost: noise, and for each level that the index has more. (Random files
/// among more files lie in more blocks, so some of it is the processor's cache.)
const NOISE: f64 = 1.5;
const LEVEL: f64 = 0.5;

pub(super) fn describe(report: &mut Report, rows: &[Row]) {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        match groups.last_mut() {
            Some(group) if group[0].way == row.way && group[0].layout == row.layout => {
                group.push(row)
            }
            _ => groups.push(vec![row]),
        }
    }
    for group in &groups {
        let name = name(group[0]);
        report.tables.push(costs(&name, group));
        report.tables.push(growth(&name, group));
        report.tables.push(volumes(&name, group));
        goals(report, &name, group);
        report.charts.extend(charts(&name, group));
    }
    for layout in ["one", "spread"] {
        let beside: Vec<&[&Row]> =
            groups.iter().filter(|g| g[0].layout == layout).map(Vec::as_slice).collect();
        if beside.len() > 1 {
            report.tables.extend(side_by_side(place(layout), &beside));
        }
    }
    if groups.len() > 1 {
        report.charts.push(memory(&groups));
    }
}

fn place(layout: &str) -> &'static str {
    if layout == "one" { "one directory" } else { "spread" }
}

/// A figure of a row.
type Figure = (&'static str, fn(&Row) -> Option<f64>);

/// Every target of a layout below the other, by number of files: processor time, then wall time.
fn side_by_side(place: &str, groups: &[&[&Row]]) -> [Table; 2] {
    const CPU: [Figure; 7] = [
        ("fill", |r| Some(r.fill_cpu_us)),
        ("create", |r| Some(r.create.cpu_us)),
        ("lookup", |r| Some(r.lookup_warm.cpu_us)),
        ("cold lookup", |r| Some(r.lookup_cold.cpu_us)),
        ("unlink", |r| Some(r.unlink.cpu_us)),
        ("unlink old", |r| Some(r.unlink_old.cpu_us)),
        ("list, per entry", |r| Some(r.list.cpu_us)),
    ];
    const WALL: [Figure; 9] = [
        ("fill", |r| Some(r.fill_us)),
        ("create", |r| Some(r.create.wall_us.median)),
        ("lookup", |r| Some(r.lookup_warm.wall_us.median)),
        ("cold lookup", |r| Some(r.lookup_cold.wall_us.median)),
        ("unlink", |r| Some(r.unlink.wall_us.median)),
        ("unlink old", |r| Some(r.unlink_old.wall_us.median)),
        ("list, per entry", |r| Some(r.list.wall_us.median)),
        ("mount, ms", |r| Some(r.mount_ms)),
        ("unmount, ms", |r| Some(r.unmount_ms)),
    ];
    let table = |what: &str, figures: &[Figure]| {
        let sizes = places(groups[0]);
        let mut columns = vec!["operation", "target"];
        columns.extend(sizes.iter().map(String::as_str));
        columns.push("largest / smallest");
        let mut table = Table::new(
            format!("{place}, targets side by side: {what} by number of files"),
            &columns,
        );
        for (name, figure) in figures {
            for group in groups {
                let values: Vec<Option<f64>> = group.iter().map(|row| figure(row)).collect();
                let growth = group.last().and_then(|last| Some(figure(last)? / figure(group[0])?));
                let mut cells: Vec<Cell> = vec![(*name).into(), group[0].way.as_str().into()];
                cells.extend(values.into_iter().map(|v| Cell::number(v, 2)));
                cells.push(Cell::number(growth, 2));
                table.row(cells);
            }
        }
        table
    };
    [
        table("processor time of one operation in us", &CPU),
        table("time of one operation in us", &WALL),
    ]
}

fn name(row: &Row) -> String {
    format!("{}, {}", row.way, place(row.layout))
}

fn costs(name: &str, rows: &[&Row]) -> Table {
    let mut columns =
        vec!["files".to_owned(), "index levels".into(), "fill us".into(), "cpu us".into()];
    for (op, _) in OPS {
        columns.extend([format!("{op} us"), "cpu us".into()]);
    }
    columns.extend([
        "reads per create".into(),
        "reads per cold lookup".into(),
        "reads per unlink old".into(),
    ]);
    let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
    let mut table = Table::new(format!("{name}: cost of one operation"), &columns);
    for row in rows {
        let mut cells = vec![
            Cell::number(row.files as f64, 0),
            Cell::number(f64::from(row.htree_levels), 0),
            Cell::number(row.fill_us, 1),
            Cell::number(row.fill_cpu_us, 1),
        ];
        for (_, cost) in OPS {
            let cost = cost(row);
            cells.extend([Cell::number(cost.wall_us.median, 2), Cell::number(cost.cpu_us, 2)]);
        }
        let reads = [row.create.reads, row.lookup_cold.reads, row.unlink_old.reads];
        cells.extend(reads.map(|reads| Cell::number(reads, 2)));
        table.row(cells);
    }
    table
}

/// Processor time against the smallest size.
fn growth(name: &str, rows: &[&Row]) -> Table {
    let mut columns = vec!["files"];
    columns.extend(OPS.iter().map(|op| op.0));
    let mut table =
        Table::new(format!("{name}: processor time, smallest number of files = 1"), &columns);
    for row in rows {
        let mut cells = vec![Cell::number(row.files as f64, 0)];
        for (n, (_, cost)) in OPS.iter().enumerate() {
            let ratio = cost(row).cpu_us / cost(rows[0]).cpu_us;
            cells.push(
                Cell::number(ratio, 2)
                    .missed_if(row.ours && FLAT.contains(&n) && ratio > allowed(rows[0], row)),
            );
        }
        table.row(cells);
    }
    table
}

fn allowed(base: &Row, row: &Row) -> f64 {
    NOISE + LEVEL * f64::from(row.htree_levels.saturating_sub(base.htree_levels))
}

fn volumes(name: &str, rows: &[&Row]) -> Table {
    let mib = |bytes: Option<u64>| Cell::number(bytes.map(|b| b as f64 / f64::from(1 << 20)), 1);
    let mut table = Table::new(
        format!("{name}: the volume"),
        &[
            "files",
            "mount ms",
            "mount after a crash ms",
            "unmount ms",
            "resident MiB",
            "peak MiB",
            "bound MiB",
            "blocks in memory",
            "inodes in memory",
        ],
    );
    for row in rows {
        let over = row.peak.zip(row.bound).is_some_and(|(peak, bound)| peak > bound);
        table.row(vec![
            Cell::number(row.files as f64, 0),
            Cell::number(row.mount_ms, 1),
            Cell::number(row.mount_dirty_ms, 1),
            Cell::number(row.unmount_ms, 1),
            mib(row.resident),
            mib(row.peak).missed_if(over),
            mib(row.bound),
            Cell::number(row.cached_blocks.map(|n| n as f64), 0),
            Cell::number(row.cached_inodes.map(|n| n as f64), 0),
        ]);
    }
    table
}

fn goals(report: &mut Report, name: &str, rows: &[&Row]) {
    let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return };
    if !first.ours {
        return;
    }
    if first.files < last.files {
        for (op, cost) in FLAT.map(|n| OPS[n]) {
            let what = format!(
                "{name}: {op} with {} files against {}, processor time",
                last.files, first.files
            );
            report.goals.push(Goal::at_most(
                what,
                cost(last).cpu_us / cost(first).cpu_us,
                allowed(first, last),
            ));
        }
    }
    let peaks = rows.iter().filter_map(|r| Some((r.peak? as f64, r.bound? as f64)));
    if let Some((peak, bound)) = peaks.max_by(|a, b| (a.0 / a.1).total_cmp(&(b.0 / b.1))) {
        let mib = f64::from(1 << 20);
        report.goals.push(Goal::at_most(
            format!("{name}: peak of memory in MiB"),
            peak / mib,
            bound / mib,
        ));
    }
}

fn places(rows: &[&Row]) -> Vec<String> {
    rows.iter().map(|r| r.files.to_string()).collect()
}

fn charts(name: &str, rows: &[&Row]) -> [Chart; 2] {
    let of =
        |value: &dyn Fn(&Row) -> Option<f64>| rows.iter().map(|r| value(r)).collect::<Vec<_>>();
    [
        Chart {
            title: format!("processor time of one operation ({name})"),
            x: "files on the volume".into(),
            y: "processor time of an operation in µs".into(),
            places: places(rows),
            series: OPS
                .iter()
                .map(|(op, cost)| ((*op).into(), of(&|r| Some(cost(r).cpu_us))))
                .collect(),
            log: true,
        },
        Chart {
            title: format!("mount and unmount ({name})"),
            x: "files on the volume".into(),
            y: "milliseconds".into(),
            places: places(rows),
            series: vec![
                ("mount".into(), of(&|r| Some(r.mount_ms))),
                ("mount after a crash".into(), of(&|r| r.mount_dirty_ms)),
                ("unmount".into(), of(&|r| Some(r.unmount_ms))),
            ],
            log: true,
        },
    ]
}

fn memory(groups: &[Vec<&Row>]) -> Chart {
    let longest = groups.iter().max_by_key(|g| g.len()).map(Vec::as_slice).unwrap_or_default();
    Chart {
        title: "peak of memory".into(),
        x: "files on the volume".into(),
        y: "MiB of memory".into(),
        places: places(longest),
        series: groups
            .iter()
            .map(|g| {
                (name(g[0]), g.iter().map(|r| Some(r.peak? as f64 / f64::from(1 << 20))).collect())
            })
            .collect(),
        log: false,
    }
}
