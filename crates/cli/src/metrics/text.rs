//! The page: Prometheus text format 0.0.4.

use std::fmt::Write as _;

use extol::Stats;
use extol_jbd2::fast::FastCommitStats;
use extol_task::Distribution;
use extol_vfs::plain_lines;

#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "# HELP extol_{name} {help}\n# TYPE extol_{name} {kind}\n");
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.head(name, "counter", help);
        let _ = writeln!(self.0, "extol_{name} {value}");
    }

    fn seconds(&mut self, name: &str, help: &str, ns: u64) {
        self.head(name, "counter", help);
        let _ = writeln!(self.0, "extol_{name} {}", ns as f64 / 1e9);
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.head(name, "gauge", help);
        let _ = writeln!(self.0, "extol_{name} {value}");
    }

    /// A counter for each value of a label.
    fn labelled(&mut self, name: &str, help: &str, label: &str, values: &[(String, u64)]) {
        self.head(name, "counter", help);
        for (value, count) in values {
            let value = escape(value);
            let _ = writeln!(self.0, "extol_{name}{{{label}=\"{value}\"}} {count}");
        }
    }

    /// The same buckets every time: powers of two from `first` to `last`, each divided by `unit`.
    fn histogram(
        &mut self,
        name: &str,
        help: &str,
        d: &Distribution,
        (first, last, unit): (u32, u32, f64),
    ) {
        self.head(name, "histogram", help);
        for power in first..=last {
            let le = 1_u64 << power;
            let below: u64 =
                d.buckets.iter().filter(|(at_most, _)| *at_most <= le).map(|(_, n)| n).sum();
            let _ = writeln!(self.0, "extol_{name}_bucket{{le=\"{}\"}} {below}", le as f64 / unit);
        }
        let _ = writeln!(self.0, "extol_{name}_bucket{{le=\"+Inf\"}} {}", d.count);
        let _ = writeln!(self.0, "extol_{name}_sum {}", d.sum as f64 / unit);
        let _ = writeln!(self.0, "extol_{name}_count {}", d.count);
    }
}

/// A label's value in the format, with control characters escaped.
fn escape(text: &str) -> String {
    plain_lines(text).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// About 1 us to 69 s, in seconds.
const TIME: (u32, u32, f64) = (10, 36, 1e9);
/// 1 to 1024 requests.
const SIZE: (u32, u32, f64) = (0, 10, 1.0);

/// The requests that came, by kind.
pub enum Served {
    /// Nothing is served yet.
    Nothing,
    Fuse(Vec<(String, u64)>),
    Nfs {
        calls: Vec<(String, u64)>,
        connections: usize,
    },
}

/// The counters of the volume `source`, and those of its requests.
pub fn exposition(source: &str, stats: &Stats, served: &Served) -> String {
    let mut page = Page::default();
    page.head("info", "gauge", "The volume and its mount options.");
    let _ = writeln!(
        page.0,
        "extol_info{{source=\"{}\",uuid=\"{}\",label=\"{}\",options=\"{}\"}} 1",
        escape(source),
        escape(&stats.uuid),
        escape(&stats.label),
        escape(&stats.mount_options)
    );
    volume(&mut page, stats);
    match served {
        Served::Nothing => {}
        Served::Fuse(requests) => {
            let help = "Requests of the kernel, by kind.";
            page.labelled("fuse_requests_total", help, "kind", requests);
        }
        Served::Nfs { calls, connections } => {
            page.labelled("nfs_calls_total", "Calls of clients.", "procedure", calls);
            page.gauge("nfs_connections", "Clients connected.", *connections as f64);
        }
    }
    journal(&mut page, stats);
    let d = &stats.journal.distributions;
    for (name, help, distribution) in [
        ("sync_wait_seconds", "From asking for durability to having it.", &d.sync_wait_ns),
        ("commit_seconds", "Whole commits.", &d.commit_ns),
        ("commit_locked_seconds", "Commit phase: waiting for open handles.", &d.locked_ns),
        (
            "commit_flushing_seconds",
            "Commit phase: flushing the device before the record.",
            &d.flushing_ns,
        ),
        ("commit_logging_seconds", "Commit phase: writing the log.", &d.logging_ns),
        ("checkpoint_seconds", "Checkpoints: home writes, flush and tail.", &d.checkpoint_ns),
        ("handle_start_seconds", "Joining a transaction.", &d.handle_start_ns),
        (
            "space_wait_seconds",
            "Waits for log space, of the handles that had to.",
            &d.space_wait_ns,
        ),
    ] {
        page.histogram(name, help, distribution, TIME);
    }
    page.histogram("batch_size", "Durable requests that one commit served.", &d.batch_size, SIZE);
    page.0
}

fn volume(page: &mut Page, s: &Stats) {
    page.counter("operations_total", "Operations served.", s.operations);
    page.counter("errors_seen_total", "Corruptions met.", s.errors_seen);
    page.gauge("read_only", "1 if writes are refused.", f64::from(u8::from(s.read_only)));
    page.gauge(
        "stopped",
        "1 if an error has stopped the volume; it is read-only.",
        f64::from(u8::from(s.stopped)),
    );
    page.gauge(
        "needs_new_mount",
        "1 if no remount mends it: another program wrote to the volume, or the device was cut.",
        f64::from(u8::from(s.needs_new_mount)),
    );
    page.head("read_only_info", "gauge", "Why writes are refused; absent if they are not.");
    if let Some(why) = &s.read_only_reason {
        let _ = writeln!(page.0, "extol_read_only_info{{reason=\"{}\"}} 1", escape(why));
    }
    let bytes = |blocks: u64| blocks as f64 * f64::from(s.block_size);
    page.gauge("size_bytes", "Size of the volume.", bytes(s.blocks));
    page.gauge("free_bytes", "Free space without reservations.", bytes(s.free_blocks));
    page.gauge(
        "reserved_bytes",
        "Space reserved for data that is not mapped yet.",
        bytes(s.reserved_blocks),
    );
    page.gauge("inodes", "Inodes, in use and free.", s.inodes as f64);
    page.gauge("free_inodes", "Free inodes.", s.free_inodes as f64);
    page.gauge("inodes_cached", "Inodes decoded in memory.", s.inodes_cached as f64);
    page.gauge("inodes_dirty", "Inodes with data or times not written yet.", s.inodes_dirty as f64);
    page.gauge("dirty_bytes", "File data not written yet.", s.dirty_bytes as f64);
    page.gauge("data_cache_bytes", "Clean file data in memory.", s.data_cache.bytes as f64);
    page.counter(
        "data_cache_hit_bytes_total",
        "Bytes read from the cache.",
        s.data_cache.hit_bytes,
    );
    page.counter(
        "data_cache_miss_bytes_total",
        "Bytes not found in the cache.",
        s.data_cache.miss_bytes,
    );
    page.gauge("orphans", "Files unlinked but in use, or being truncated.", s.orphans as f64);
    page.counter(
        "readahead_read_bytes_total",
        "Read ahead of readers in this process.",
        s.readahead.read_bytes,
    );
    page.counter("readahead_used_bytes_total", "Of that, what they took.", s.readahead.used_bytes);
    page.gauge(
        "unflushed_bytes",
        "Written to the device and not flushed.",
        s.throttle.unflushed as f64,
    );
    page.counter(
        "throttled_flushes_total",
        "Large writes that flushed first, beside fsyncs of other files.",
        s.throttle.flushes,
    );
    page.seconds(
        "throttled_seconds_total",
        "Time that large writes were held up beside fsyncs of other files.",
        s.throttle.held_ns,
    );
    page.gauge(
        "lazy_init_groups",
        "Groups whose inode tables the lazy initialisation covers.",
        s.lazy_init.groups_total as f64,
    );
    page.gauge(
        "lazy_init_groups_done",
        "Groups whose inode tables are zeroed.",
        s.lazy_init.groups_done as f64,
    );
}

fn journal(page: &mut Page, s: &Stats) {
    let j = &s.journal;
    page.counter("transactions_total", "Committed transactions.", j.transactions);
    page.counter(
        "transactions_requested_total",
        "Of these, asked for by fsync or sync.",
        j.requested,
    );
    page.counter("handles_total", "Handles that took part in transactions.", j.handles);
    page.counter("transaction_blocks_total", "Blocks changed by transactions.", j.blocks);
    page.counter("logged_blocks_total", "Blocks written to the log.", j.logged_blocks);
    page.counter("checkpoints_total", "Checkpoints that wrote something.", j.checkpoints);
    page.counter("checkpointed_blocks_total", "Blocks written home.", j.checkpointed_blocks);
    page.counter("space_waits_total", "Times that a handle waited for log space.", j.space_waits);
    page.seconds("space_waiting_seconds_total", "Time of those waits.", j.space_wait_ns);
    page.counter("flushes_total", "Device flushes.", j.flushes);
    page.counter(
        "flushes_saved_total",
        "Flushes not needed because another had covered the data.",
        j.flushes_saved,
    );
    page.counter("batch_waits_total", "Commits whose leader waited for others.", j.batching.waits);
    page.seconds("batch_waiting_seconds_total", "Time of those waits.", j.batching.wait_ns);
    page.gauge(
        "syncers",
        "Concurrent syncers: requests that the last commits served together.",
        j.batching.syncers as f64,
    );
    let m = &s.checkpoint_merge;
    page.gauge(
        "merged_requests_queued",
        "Whole-volume requests that wait to be answered.",
        m.queued as f64,
    );
    page.counter(
        "merged_requests_total",
        "Whole-volume requests that were answered together.",
        m.total,
    );
    page.counter("merged_operations_total", "Operations that answered them.", m.issued);
    let a = &j.async_checkpoint;
    page.gauge(
        "async_checkpoint_threshold_percent",
        "Free part of the log under which the asynchronous checkpoint begins; 0 if it is off.",
        f64::from(a.threshold.map_or(0, |t| t.percent())),
    );
    page.counter(
        "async_checkpoint_runs_total",
        "Times that free log space fell under the threshold.",
        a.runs,
    );
    page.counter("async_checkpoint_batches_total", "Batches that it wrote home.", a.batches);
    page.counter("async_checkpoint_blocks_total", "Blocks that it wrote home.", a.blocks);
    page.seconds("async_checkpoint_busy_seconds_total", "Time that it worked.", a.busy_ns);
    fast_commits(page, &j.fast_commit);
    page.gauge("log_blocks", "Blocks of the log, 0 without one.", f64::from(j.log_blocks));
    page.gauge("log_free_blocks", "Of these, free.", f64::from(j.log_free));
    page.gauge(
        "checkpoint_backlog_blocks",
        "Blocks committed and not yet in place.",
        j.checkpoint_blocks as f64,
    );
    page.gauge("cached_blocks", "Metadata blocks in memory.", j.cached_blocks as f64);
    page.counter("cache_hits_total", "Metadata reads served from memory.", j.cache_hits);
    page.counter("cache_misses_total", "Metadata reads that went to the device.", j.cache_misses);
    page.gauge(
        "journal_aborted",
        "1 if the journal stopped after an error.",
        f64::from(u8::from(j.aborted.is_some())),
    );
}

fn fast_commits(page: &mut Page, f: &FastCommitStats) {
    page.gauge(
        "fast_commit_enabled",
        "1 if the mount writes fast commits.",
        f64::from(u8::from(f.enabled)),
    );
    page.counter("fast_commits_total", "Fast commits written.", f.commits);
    page.counter("fast_commit_requests_total", "Durable requests that they served.", f.requests);
    page.counter(
        "fast_commit_ineligible_total",
        "Requests committed in full because records cannot say what they need.",
        f.ineligible,
    );
    page.counter(
        "fast_commit_failed_total",
        "Requests committed in full because the area was full, or nothing was there to build on.",
        f.failed,
    );
    page.counter("fast_commit_skipped_total", "Requests that found everything durable.", f.skipped);
    page.counter("fast_commit_blocks_total", "Blocks written to the fast-commit area.", f.blocks);
    page.counter("fast_commit_bytes_total", "Bytes of records in them.", f.bytes);
    page.counter(
        "fast_commit_checksummed_total",
        "Fast commits with file data that was not flushed before them.",
        f.checksummed,
    );
    page.counter(
        "fast_commit_fua_total",
        "Fast commits durable by FUA, without a flush.",
        f.by_fua,
    );
    page.counter(
        "fast_commit_heads_total",
        "Fast commits that were the first of a transaction.",
        f.heads,
    );
    page.counter(
        "fast_commit_cleared_total",
        "Times that void fast commits were cleared.",
        f.cleared,
    );
    page.gauge(
        "fast_commit_average_seconds",
        "Moving average of the time of a fast commit.",
        f.average_ns as f64 / 1e9,
    );
    page.gauge(
        "fast_commit_area_blocks",
        "Blocks that one transaction may use.",
        f64::from(f.area_blocks),
    );
    let help = "Requests committed in full, by reason.";
    page.labelled("fast_commit_reasons_total", help, "reason", &f.reasons);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_add_up() {
        let histogram = extol_task::Histogram::default();
        for value in [1, 1, 3, 900, 5000] {
            histogram.record(value);
        }
        let mut page = Page::default();
        page.histogram("x", "Help.", &histogram.distribution(), SIZE);
        let lines: Vec<_> = page.0.lines().collect();
        assert_eq!(lines[0], "# HELP extol_x Help.");
        assert_eq!(lines[1], "# TYPE extol_x histogram");
        assert_eq!(lines[2], "extol_x_bucket{le=\"1\"} 2");
        assert_eq!(lines[3], "extol_x_bucket{le=\"2\"} 2");
        assert_eq!(lines[4], "extol_x_bucket{le=\"4\"} 3");
        assert_eq!(lines[12], "extol_x_bucket{le=\"1024\"} 4");
        assert_eq!(lines[13], "extol_x_bucket{le=\"+Inf\"} 5");
        assert_eq!(lines[15], "extol_x_count 5");
    }

    #[test]
    fn the_reason_is_a_label() {
        let device = extol_block::MemDevice::new(16 << 20);
        extol::mkfs::mkfs(&device, &extol::mkfs::MkfsOptions::default(), &mut |_| {}).unwrap();
        let fs = extol::Ext4::open(std::sync::Arc::new(device), &Default::default()).unwrap();
        let requests = vec![("lookup".to_owned(), 3)];
        let calls = Served::Nfs { calls: requests.clone(), connections: 2 };
        let page = exposition("disk.img", &fs.stats(), &calls);
        assert!(page.contains("\nextol_nfs_calls_total{procedure=\"lookup\"} 3\n"), "{page}");
        assert!(page.contains("\nextol_nfs_connections 2\n"), "{page}");
        let requests = Served::Fuse(requests);
        let page = exposition("disk.img", &fs.stats(), &requests);
        assert!(page.contains("\nextol_fuse_requests_total{kind=\"lookup\"} 3\n"), "{page}");
        assert!(
            page.contains("\nextol_read_only 0\n") && !page.contains("\nextol_read_only_info{")
        );
        assert!(page.contains(&format!("\nextol_inodes {}\n", fs.stats().inodes)));
        let _ = fs.remount("abort");
        let page = exposition("disk.img", &fs.stats(), &requests);
        for line in ["read_only 1", "stopped 1", "read_only_info{reason=\"abort was asked for by"] {
            assert!(page.contains(&format!("\nextol_{line}")), "{line} is missing:\n{page}");
        }
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
        assert_eq!(escape("\u{1b}[2J\u{9b}"), "\\\\u{1b}[2J\\\\u{9b}");
    }
}
