//! The comparisons of each part: participants, loads, goals.

use std::sync::Arc;

use super::{Comparison, Metric, Part, Participant, Speed, Want};
use crate::contender::{Contender, Medium};
use crate::subject::SubjectKind;
use crate::versus::Entry;
use crate::workload::{
    Dbench, Direction, FsMark, FsyncLatency, LoadFile, Metadata, PostMark, Rand, Seq, Untar,
    VarMail, Workload,
};

/// The volume's feature, which is also Extol's mount option.
const FAST: &str = "fast_commit";
/// Numbers of threads over which more must never be slower.
pub(super) const THREADS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Threads of the metadata loads through the mount.
const METADATA_THREADS: u32 = 4;

pub(super) fn mount() -> Entry {
    Entry::new("mount", Contender::Mounted(SubjectKind::Extol, FAST.into()), &[FAST])
}

fn library() -> Entry {
    Entry::new("library", Contender::Node(FAST.into()), &[FAST])
}

fn linux() -> Entry {
    Entry::new("Linux FC", Contender::Mounted(SubjectKind::Kernel, String::new()), &[FAST])
}

/// jbd2 with ordered data.
fn linux_without() -> Entry {
    Entry::new("Linux", Contender::Mounted(SubjectKind::Kernel, String::new()), &[])
}

/// The same, whose writers go to the disk at once and not to the memory of a machine with much of
/// it: it may have as much dirty as Extol's mount may beside fsyncs.
fn linux_full() -> Entry {
    Entry::new(
        "Linux, memory full",
        Contender::Mounted(SubjectKind::Kernel, "dirty_mb=32".into()),
        &[],
    )
}

pub(super) fn fuse2fs() -> Entry {
    Entry::new("fuse2fs", Contender::Mounted(SubjectKind::Fuse2fs, String::new()), &[])
}

fn noop() -> Entry {
    Entry::new("noop", Contender::Noop(String::new()), &[])
}

fn raw() -> Entry {
    Entry::new("raw", Contender::Raw, &[])
}

pub(super) fn fs_mark(threads: u32) -> FsMark {
    FsMark { threads, size: 4096, files: 2000, dirs: 64, keep: true, ..FsMark::default() }
}

pub(super) fn dbench(clients: u32, loadfile: Option<Arc<LoadFile>>) -> Dbench {
    Dbench { clients, loadfile, ..Dbench::default() }
}

pub(super) fn postmark() -> PostMark {
    PostMark { number: 1000, transactions: 2000, ..PostMark::default() }
}

pub(super) fn metadata(threads: u32, files: u64) -> Metadata {
    Metadata { threads, files, ..Metadata::default() }
}

/// The same load for all. fuse2fs may be absent, or fail at it; what does nothing may not be able
/// to do what a load wants.
pub(super) fn participants(
    entries: impl IntoIterator<Item = Entry>,
    load: impl Workload + 'static,
) -> Vec<Participant> {
    let load: Arc<dyn Workload> = Arc::new(load);
    let participant = |entry: Entry| Participant {
        optional: matches!(
            entry.contender,
            Contender::Mounted(SubjectKind::Fuse2fs, _) | Contender::Noop(_)
        ),
        load: Arc::clone(&load),
        entry,
    };
    entries.into_iter().map(participant).collect()
}

/// The first participant's rate to that of another.
fn ratio(to: usize, metric: Metric, at_least: f64) -> Want {
    Want::Ratio { of: 0, to, metric, at_least }
}

impl Comparison {
    pub(super) fn new(title: impl Into<String>, participants: Vec<Participant>) -> Self {
        Self {
            title: title.into(),
            participants,
            metrics: vec![Metric::Rate],
            wants: Vec::new(),
            untimed: false,
        }
    }

    fn want(mut self, want: Want) -> Self {
        self.wants.push(want);
        self
    }

    /// The other build of Extol does what its mount does. It is the last, since the goals know the
    /// participants by number.
    pub(super) fn add_before(&mut self) {
        let before =
            self.participants.iter().find_map(|participant| match &participant.entry.contender {
                Contender::Mounted(SubjectKind::Extol, options) => Some(Participant {
                    entry: Entry {
                        name: SubjectKind::Before.name().into(),
                        contender: Contender::Mounted(SubjectKind::Before, options.clone()),
                        features: participant.entry.features.clone(),
                    },
                    load: Arc::clone(&participant.load),
                    optional: false,
                }),
                _ => None,
            });
        self.participants.extend(before);
    }

    /// Every one of these phases, of the first participant to each of the peers.
    pub(super) fn phases(mut self, names: &[&'static str], peers: &[(usize, f64)]) -> Self {
        self.metrics = names.iter().map(|name| Metric::Phase(name)).collect();
        for (to, at_least) in peers {
            self.wants.extend(self.metrics.iter().map(|metric| ratio(*to, *metric, *at_least)));
        }
        self.untimed = true;
        self
    }

    pub(super) fn untimed(mut self) -> Self {
        self.untimed = true;
        self
    }
}

impl Speed {
    pub(super) fn plan(&self, part: Part, medium: &Medium) -> Vec<Comparison> {
        let mut comparisons = self.comparisons(part, medium);
        for participant in comparisons.iter_mut().flat_map(|c| &mut c.participants) {
            participant.entry.contender.add_options(&self.options.join(","));
        }
        if self.conduct.place.programs.before.is_some() {
            comparisons.iter_mut().for_each(Comparison::add_before);
        }
        comparisons
    }

    fn comparisons(&self, part: Part, medium: &Medium) -> Vec<Comparison> {
        match part {
            Part::FsyncMount => THREADS.iter().map(|n| fsync_mount(*n, medium)).collect(),
            Part::MetadataMount => self.metadata_mount(),
            Part::LoadsMount => self.loads_mount(),
            Part::DataMount => self.data_mount(),
            Part::FsyncLibrary => [1, 8, 32].into_iter().map(fsync_library).collect(),
            Part::MetadataLibrary => [1, 2].into_iter().map(|n| self.metadata_library(n)).collect(),
            Part::DataLibrary => vec![
                Comparison::new("sequential", participants([library(), raw()], self.seq()))
                    .phases(&["write + fsync", "cold read"], &[(1, 0.9)]),
            ],
            Part::Isolation => vec![self.isolation()],
        }
    }

    fn seq(&self) -> Seq {
        Seq { size: self.size, ..Seq::default() }
    }

    fn metadata_mount(&self) -> Vec<Comparison> {
        let all = || [mount(), noop(), fuse2fs()];
        let peers = [(1, 0.8), (2, 8.0)];
        let untar = Untar { files: self.files, ..Untar::default() };
        vec![
            Comparison::new(
                format!("metadata, {METADATA_THREADS} threads"),
                participants(all(), metadata(METADATA_THREADS, self.files)),
            )
            .phases(&["create", "stat", "unlink"], &peers),
            Comparison::new("tree", participants(all(), untar))
                .phases(&["untar", "rm -rf"], &peers),
        ]
    }

    fn loads_mount(&self) -> Vec<Comparison> {
        let all = || [mount(), fuse2fs(), noop()];
        let played = |clients, at_least| {
            let load = dbench(clients, self.loadfile.clone());
            Comparison::new(format!("dbench, {clients} clients"), participants(all(), load))
                .want(ratio(1, Metric::Rate, at_least))
        };
        vec![
            played(2, 5.0),
            played(10, 5.0),
            Comparison::new("varmail, 16 threads", participants(all(), VarMail::default()))
                .want(ratio(1, Metric::Rate, 3.0)),
            Comparison::new("postmark", participants(all(), postmark()))
                .want(ratio(1, Metric::Rate, 10.0))
                .untimed(),
        ]
    }

    fn data_mount(&self) -> Vec<Comparison> {
        let all = || [mount(), linux(), noop()];
        let random = Rand {
            rw: Direction::Read,
            size: self.size,
            depth: 16,
            direct: true,
            ..Rand::default()
        };
        vec![
            Comparison::new("sequential", participants(all(), self.seq()))
                .phases(&["write + fsync", "cold read"], &[(1, 0.8)]),
            Comparison::new("direct 4 KiB random reads, depth 16", participants(all(), random))
                .want(ratio(1, Metric::Rate, 0.6)),
        ]
    }

    fn metadata_library(&self, threads: u32) -> Comparison {
        let title = if threads == 1 {
            "metadata, 1 thread".into()
        } else {
            format!("metadata, {threads} threads")
        };
        Comparison::new(title, participants([library(), linux()], metadata(threads, self.files)))
            .phases(&["create", "stat", "unlink"], &[(1, 1.0)])
    }

    fn isolation(&self) -> Comparison {
        let load = FsyncLatency {
            // Room for the next file while the old one goes.
            writer_size: (self.conduct.volume.size / 4).min(256 << 20),
            fresh: true,
            ..FsyncLatency::default()
        };
        let all = [library(), mount(), linux_without(), linux_full(), fuse2fs()];
        Comparison::new("write 4 KiB + fsync", participants(all, load))
            .want(Want::Beside { of: 0, at_most: 3.0 })
            .want(Want::Beside { of: 1, at_most: 3.0 })
    }
}

fn threads_title(threads: u32) -> String {
    if threads == 1 { "1 thread".into() } else { format!("{threads} threads") }
}

fn fsync_mount(threads: u32, medium: &Medium) -> Comparison {
    const MEASURED: u32 = 8;
    let slow = matches!(medium.key(), "cloud" | "sata");
    if threads != MEASURED {
        // What does nothing uses no medium: its row of thread counts beside the quick ones says all
        // that it can say.
        let baseline = (!slow).then(noop);
        let all = [mount(), linux()].into_iter().chain(baseline);
        return Comparison::new(threads_title(threads), participants(all, fs_mark(threads)));
    }
    let all = [mount(), linux(), fuse2fs(), noop()];
    let comparison = Comparison::new(threads_title(threads), participants(all, fs_mark(threads)))
        .want(ratio(1, Metric::Rate, if slow { 1.0 } else { 0.7 }));
    // "On this machine's disk."
    match medium {
        Medium::Image | Medium::Device(_) => comparison.want(ratio(2, Metric::Rate, 10.0)),
        _ => comparison,
    }
}

fn fsync_library(threads: u32) -> Comparison {
    let mut all = participants([library(), linux()], fs_mark(threads));
    let writes = Rand {
        rw: Direction::Write,
        size: 4 << 20,
        jobs: threads,
        direct: true,
        fdatasync: 1,
        ..Rand::default()
    };
    all.extend(participants([raw()], writes));
    let comparison = Comparison::new(threads_title(threads), all)
        .want(ratio(1, Metric::Rate, if threads >= 8 { 2.0 } else { 1.0 }))
        // Two, and a few full commits.
        .want(Want::Flushes { of: 0, at_most: 2.1 });
    if threads == 32 { comparison.want(ratio(2, Metric::Rate, 0.5)) } else { comparison }
}
