//! Tries the crash states of one recorded run.
//!
//! One thread walks along the tape and builds states; the others recover and verify them. A state
//! (its bytes, together with what had been promised by then) is verified once, however many ways
//! lead to it.
//!
//! Each state is recovered by Extol, read in full, compared with the model, closed, and read by
//! the independent checker. Of some, e2fsck and Linux are asked as well; of some, the recovery
//! itself is recorded and cut at each of its changes, and a second recovery must show the same as
//! the first.

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::Instant;

use extol_testkit::Scratch;
use parking_lot::Mutex;

use crate::case::Case;
use crate::cuts::{Cutter, Effort, Fate};
use crate::media::Media;
use crate::model::{History, Moment, Rules, verify};
use crate::outside::{Other, ask_e2fsck, ask_linux};
use crate::record::{Plant, Recording};
use crate::recover::{Recovered, checked_in_memory, recover, recover_on_tape, replayed};
use crate::report::{Failure, Row, Second};
use crate::variant::Variant;
use crate::view::View;
use crate::windows::{Window, window};
use crate::workloads::Workload;

/// One load on one kind of volume, and how hard to try.
#[derive(Debug)]
pub struct Campaign<'a> {
    /// The load.
    pub workload: &'a dyn Workload,
    /// The volume.
    pub variant: Variant,
    /// Chooses what the load does and which states are tried.
    pub seed: u64,
    /// How much the load does.
    pub rounds: usize,
    /// A bug to plant while it runs.
    pub plant: Option<Plant>,
    /// States at a cut.
    pub effort: Effort,
    /// Every so many cuts are tried (1: all).
    pub stride: usize,
    /// At most so many states are verified; then the stride grows so that they spread over the
    /// whole run.
    pub max_states: u64,
    /// Of so many states, one recovery is cut as well (0: none).
    pub again_every: u64,
    /// Of so many states, e2fsck is asked about one (0: none).
    pub e2fsck_every: u64,
    /// Of so many states, Linux is asked about one (0: none).
    pub linux_every: u64,
    /// Threads that verify.
    pub jobs: usize,
    /// Stop after so many failures.
    pub max_failures: usize,
    /// Where failed states of runs with several threads are saved.
    pub keep: PathBuf,
}

/// States tried of a recovery that is cut.
const AGAIN: Effort = Effort { exhaustive: 2, some: 1, torn: 1, mixed: 0 };

/// A state to verify.
struct Job {
    nr: u64,
    cut: usize,
    fate: Fate,
    media: Media,
    moments: Vec<Moment>,
}

#[derive(Default)]
struct Counters {
    e2fsck: AtomicU64,
    linux: AtomicU64,
    again: AtomicU64,
    again_runs: AtomicU64,
    superseded: AtomicU64,
    data_missing: AtomicU64,
    marks: AtomicU64,
}

impl Counters {
    /// e2fsck was asked; `mark`: and repaired a mark of its own.
    fn asked(&self, mark: bool) {
        self.e2fsck.fetch_add(1, Ordering::Relaxed);
        self.marks.fetch_add(u64::from(mark), Ordering::Relaxed);
    }

    /// Notes the window that a state is in. True: e2fsck must not be asked.
    fn spared(&self, window: Option<Window>) -> bool {
        match window {
            None => {}
            Some(Window::DataMissing) => {
                self.data_missing.fetch_add(1, Ordering::Relaxed);
            }
            Some(Window::Superseded) => {
                self.superseded.fetch_add(1, Ordering::Relaxed);
            }
        }
        window == Some(Window::Superseded)
    }
}

impl<'a> Campaign<'a> {
    /// A quick one.
    #[must_use]
    pub fn quick(workload: &'a dyn Workload, variant: Variant, seed: u64) -> Self {
        Self {
            workload,
            variant,
            seed,
            rounds: workload.quick(),
            plant: None,
            effort: Effort::QUICK,
            stride: 1,
            max_states: u64::MAX,
            again_every: 0,
            e2fsck_every: 0,
            linux_every: 0,
            jobs: std::thread::available_parallelism().map_or(1, usize::from),
            max_failures: 3,
            keep: std::env::temp_dir().join("extol-crashkit"),
        }
    }

    /// Runs the load and tries its states. `progress` is called now and then with the cut, the
    /// number of cuts, and the states verified.
    ///
    /// # Errors
    /// If the load could not run at all.
    pub fn run(&self, progress: &mut dyn FnMut(usize, usize, u64)) -> Result<Row, String> {
        let began = Instant::now();
        let recording =
            Recording::of(self.workload, &self.variant, self.seed, self.rounds, self.plant)
                .map_err(|e| format!("{} on {}: {e}", self.workload.name(), self.variant.name))?;
        let failures = Mutex::new(Vec::new());
        let counters = Counters::default();
        let stop = AtomicBool::new(false);
        let mut row = Row {
            workload: self.workload.name().to_owned(),
            variant: self.variant.name.to_owned(),
            seed: self.seed,
            operations: recording.histories.iter().map(History::len).sum(),
            changes: recording.events.len(),
            wraps_percent: recording.journal.logged_blocks * 100
                / u64::from(recording.journal.log_blocks.max(1)),
            checkpoints: recording.journal.checkpoints,
            revokes: recording.journal.revoked_blocks,
            fast_commits: recording.journal.fast_commit.commits,
            checksummed: recording.journal.fast_commit.checksummed,
            by_fua: recording.journal.fast_commit.by_fua,
            fallbacks: recording.journal.fast_commit.ineligible
                + recording.journal.fast_commit.failed,
            ..Row::default()
        };
        let (sender, receiver) = mpsc::sync_channel::<Job>(self.jobs * 4);
        let receiver = Mutex::new(receiver);
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(|| {
                    let scratch = std::cell::OnceCell::new();
                    loop {
                        let job = receiver.lock().recv();
                        let Ok(job) = job else { return };
                        if stop.load(Ordering::Relaxed) {
                            continue;
                        }
                        let problem = self.verify(&recording, &job, &counters, &scratch);
                        if let Err((second, what)) = problem {
                            let mut failures = failures.lock();
                            failures.push(self.failure(&recording, &job, second, what));
                            stop.store(failures.len() >= self.max_failures, Ordering::Relaxed);
                        }
                    }
                });
            }
            self.feed(&recording, &mut row, &stop, &sender, progress);
            drop(sender);
        });
        row.e2fsck = counters.e2fsck.into_inner();
        row.linux = counters.linux.into_inner();
        row.superseded = counters.superseded.into_inner();
        row.data_missing = counters.data_missing.into_inner();
        row.marks = counters.marks.into_inner();
        row.recoveries_cut = counters.again_runs.into_inner();
        row.second_states = counters.again.into_inner();
        let mut failures = failures.into_inner();
        failures.sort_by_key(|f: &Failure| f.cut);
        row.failures = failures;
        row.seconds = began.elapsed().as_secs_f64();
        Ok(row)
    }

    /// Builds states and hands them out.
    fn feed(
        &self,
        recording: &Recording,
        row: &mut Row,
        stop: &AtomicBool,
        sender: &mpsc::SyncSender<Job>,
        progress: &mut dyn FnMut(usize, usize, u64),
    ) {
        let mut cutter = Cutter::new(recording.base.snapshot(), &recording.events, self.seed);
        let cuts = cutter.cuts();
        let mut verified: HashSet<(u128, usize)> = HashSet::new();
        let mut images: HashSet<u128> = HashSet::new();
        let mut cut = recording.first_cut;
        let mut stride = self.stride.max(1);
        while cut < cuts && !stop.load(Ordering::Relaxed) {
            cutter.seek(cut);
            let moments = recording.moments(cut);
            let promised = moments.iter().map(|m| m.promised).sum();
            for fate in cutter.fates(&self.effort) {
                let media = cutter.state(fate);
                row.built += 1;
                images.insert(media.fingerprint());
                if verified.insert((media.fingerprint(), promised)) {
                    let job = Job { nr: row.verified, cut, fate, media, moments: moments.clone() };
                    row.verified += 1;
                    if sender.send(job).is_err() {
                        return;
                    }
                }
            }
            row.cuts += 1;
            progress(cut, cuts, row.verified);
            // What is left of the budget spreads over what is left of the tape.
            let left = self.max_states.saturating_sub(row.verified);
            let each = row.verified.div_ceil(row.cuts.max(1) as u64).max(1);
            let affordable = (left / each).max(1);
            if self.max_states != u64::MAX {
                if left == 0 {
                    break;
                }
                stride = ((cuts - cut) as u64).div_ceil(affordable).max(self.stride.max(1) as u64)
                    as usize;
            }
            cut += stride;
        }
        row.distinct = images.len() as u64;
    }

    fn verify(
        &self,
        recording: &Recording,
        job: &Job,
        counters: &Counters,
        scratch: &std::cell::OnceCell<Scratch>,
    ) -> Result<(), (Option<Second>, String)> {
        let plain = |what| (None, what);
        let crashed = job.media.devices();
        let recovered = self.verify_first(recording, &job.moments, &crashed).map_err(plain)?;
        let chosen = |every: u64, offset: u64| every > 0 && (job.nr + offset).is_multiple_of(every);
        if chosen(8, 3) {
            checked_in_memory(&crashed).map_err(|e| plain(format!("replayed in memory, {e}")))?;
        }
        if chosen(8, 5) {
            replayed(&self.variant, &crashed)
                .map_err(|e| plain(format!("replayed without a mount, {e}")))?;
        }
        let whole = matches!(job.fate, Fate::None | Fate::All);
        let torn = matches!(job.fate, Fate::Torn(_));
        let comparable = whole || self.variant.outside_understands_parts();
        let ask_e2fsck_now = comparable && chosen(self.e2fsck_every, self.e2fsck_every / 2);
        let ask_linux_now = comparable
            && self.variant.linux_mounts_it()
            && chosen(self.linux_every, self.linux_every / 2);
        let (mut not_e2fsck, mut missing) = (false, false);
        let chosen_again = chosen(self.again_every, self.again_every / 2);
        if ask_e2fsck_now || ask_linux_now || chosen_again {
            let window = window(&self.variant, &crashed).map_err(plain)?;
            not_e2fsck = counters.spared(window);
            missing = window == Some(Window::DataMissing);
        }
        let rules = Rules { missing_data: missing, ..self.variant.rules() };
        let legal = |view: &View| verify_by(&recording.histories, &job.moments, view, rules);
        let other: Other<'_> = if torn || missing { Some(&legal) } else { None };
        if ask_e2fsck_now && !not_e2fsck {
            let dir = scratch.get_or_init(Scratch::in_memory);
            counters
                .asked(ask_e2fsck(&self.variant, &crashed, &recovered, other, dir).map_err(plain)?);
        }
        if ask_linux_now {
            let dir = scratch.get_or_init(Scratch::in_memory);
            ask_linux(&self.variant, &crashed, &recovered, other, dir).map_err(plain)?;
            counters.linux.fetch_add(1, Ordering::Relaxed);
        }
        if chosen_again {
            let events = recover_on_tape(&self.variant, &crashed).map_err(plain)?;
            let mut cutter = Cutter::new(job.media.snapshot(), &events, self.seed);
            let mut seen = HashSet::new();
            for cut in 0..cutter.cuts() {
                cutter.seek(cut);
                for fate in cutter.fates(&AGAIN) {
                    let media = cutter.state(fate);
                    if seen.insert(media.fingerprint()) {
                        let second = Second { cut, fate: fate.to_string() };
                        let nr = counters.again.fetch_add(1, Ordering::Relaxed);
                        let both = self.verify_second(&recovered, &media).and_then(|again| {
                            // What another recovery has left half done is e2fsck's business as
                            // well; but not of a transaction that it takes for none (`Other`).
                            let asked = self.e2fsck_every > 0 && nr.is_multiple_of(16);
                            if !asked || !comparable || torn {
                                return Ok(());
                            }
                            let crashed = media.devices();
                            let torn = matches!(fate, Fate::Torn(_));
                            if counters.spared(window(&self.variant, &crashed)?) {
                                return Ok(());
                            }
                            let other: Other<'_> =
                                if torn || missing { Some(&legal) } else { None };
                            let dir = scratch.get_or_init(Scratch::in_memory);
                            counters.asked(ask_e2fsck(
                                &self.variant,
                                &crashed,
                                &again,
                                other,
                                dir,
                            )?);
                            Ok(())
                        });
                        both.map_err(|what| (Some(second), what))?;
                    }
                }
            }
            counters.again_runs.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn verify_first(
        &self,
        recording: &Recording,
        moments: &[Moment],
        crashed: &[extol_block::MemDevice],
    ) -> Result<Recovered, String> {
        let recovered = recover(&self.variant, crashed)?;
        verify_all(&recording.histories, moments, &recovered.view, &self.variant)?;
        Ok(recovered)
    }

    fn verify_second(&self, first: &Recovered, media: &Media) -> Result<Recovered, String> {
        let again = recover(&self.variant, &media.devices())
            .map_err(|e| format!("second recovery: {e}"))?;
        match first.view.difference(&again.view) {
            None => Ok(again),
            Some(lines) => {
                Err(format!("the second recovery shows something else than the first:\n  {lines}"))
            }
        }
    }

    fn failure(
        &self,
        recording: &Recording,
        job: &Job,
        second: Option<Second>,
        what: String,
    ) -> Failure {
        if recording.histories.len() > 1 || self.variant.is_encrypted() {
            let replay = self.keep_case(recording, job, &what);
            return Failure { cut: job.cut, state: job.fate.to_string(), second, what, replay };
        }
        let plant = self.plant.map(Plant::name);
        let mut replay = format!(
            "cargo run -p extol-crashkit{} -- --workload {} --variant {} --seed {} --rounds {} \
                --cut {} --state {}",
            if plant.is_some() { " --features planted-bugs" } else { "" },
            self.workload.name(),
            self.variant.name,
            self.seed,
            self.rounds,
            job.cut,
            job.fate,
        );
        if let Some(Second { cut, fate }) = &second {
            replay.push_str(&format!(" --second {cut}:{fate}"));
        }
        if let Some(plant) = plant {
            replay.push_str(&format!(" --plant {plant}"));
        }
        Failure { cut: job.cut, state: job.fate.to_string(), second, what, replay }
    }

    /// Several threads never do the same again, nor do encrypted names come out as they were: the
    /// state goes into files.
    fn keep_case(&self, recording: &Recording, job: &Job, what: &str) -> String {
        let name = format!(
            "{}-{}-{}-{}-{}",
            self.workload.name(),
            self.variant.name,
            self.seed,
            job.cut,
            job.fate
        );
        let dir = self.keep.join(name);
        let case = Case {
            variant: self.variant.name.to_owned(),
            what: what.to_owned(),
            histories: recording.histories.clone(),
            moments: job.moments.clone(),
        };
        match case.save(&dir, &job.media.devices()) {
            Ok(()) => format!("cargo run -p extol-crashkit -- --case {}", dir.display()),
            Err(e) => format!("none, {e}"),
        }
    }

    /// Tries one state again and tells all about it. `Ok` if nothing is wrong with it.
    ///
    /// # Errors
    /// What is wrong.
    pub fn replay(
        &self,
        cut: usize,
        fate: Fate,
        second: Option<(usize, Fate)>,
        tell: &mut dyn FnMut(&str),
    ) -> Result<(), String> {
        let recording =
            Recording::of(self.workload, &self.variant, self.seed, self.rounds, self.plant)?;
        if cut > recording.events.len() {
            return Err(format!("there are only {} cuts", recording.events.len() + 1));
        }
        let mut cutter = Cutter::new(recording.base.snapshot(), &recording.events, self.seed);
        cutter.seek(cut);
        for history in &recording.histories {
            history.story(cut, 12).iter().for_each(|line| tell(line));
        }
        tell(&format!("cut {cut} of {}, state {fate}", recording.events.len()));
        cutter.describe().iter().for_each(|line| tell(line));
        let media = cutter.state(fate);
        let moments = recording.moments(cut);
        tell(&format!("{moments:?}"));
        let crashed = media.devices();
        let first = self.verify_first(&recording, &moments, &crashed)?;
        checked_in_memory(&crashed)?;
        tell("the first recovery is as it must be");
        if let Some((cut, fate)) = second {
            let events = recover_on_tape(&self.variant, &crashed)?;
            let mut cutter = Cutter::new(media.snapshot(), &events, self.seed);
            cutter.seek(cut.min(events.len()));
            tell(&format!("cut {cut} of {} of the recovery, state {fate}", events.len()));
            cutter.describe().iter().for_each(|line| tell(line));
            self.verify_second(&first, &cutter.state(fate))?;
            tell("the second recovery shows the same");
        }
        let torn = matches!(fate, Fate::Torn(_));
        let window = window(&self.variant, &crashed)?;
        let missing = window == Some(Window::DataMissing);
        if let Some(window) = window.filter(|_| !missing) {
            tell(&format!("e2fsck is not asked: {window:?}"));
        } else if matches!(fate, Fate::None | Fate::All) || self.variant.outside_understands_parts()
        {
            let rules = Rules { missing_data: missing, ..self.variant.rules() };
            let legal = |view: &View| verify_by(&recording.histories, &moments, view, rules);
            let other: Other<'_> = if missing || torn { Some(&legal) } else { None };
            ask_e2fsck(&self.variant, &crashed, &first, other, &Scratch::in_memory())?;
            tell("e2fsck agrees");
            if self.linux_every > 0 {
                ask_linux(&self.variant, &crashed, &first, other, &Scratch::in_memory())?;
                tell("Linux agrees");
            }
        }
        Ok(())
    }
}

/// Compares what all actors see with the model.
fn verify_all(
    histories: &[History],
    moments: &[Moment],
    view: &View,
    variant: &Variant,
) -> Result<(), String> {
    verify_by(histories, moments, view, variant.rules())
}

fn verify_by(
    histories: &[History],
    moments: &[Moment],
    view: &View,
    rules: Rules,
) -> Result<(), String> {
    histories.iter().zip(moments).try_for_each(|(h, m)| verify(h, *m, view, rules))
}

/// Tries a saved state again and tells all about it. `Ok` if nothing is wrong with it.
///
/// # Errors
/// What is wrong.
pub fn replay_case(dir: &Path, tell: &mut dyn FnMut(&str)) -> Result<(), String> {
    let (case, variant, crashed) = Case::load(dir)?;
    tell(&format!(
        "a state of a volume of the kind {}, saved because: {}",
        variant.name, case.what
    ));
    for (history, moment) in case.histories.iter().zip(&case.moments) {
        history.last_begun(moment.begun, 60).iter().for_each(|line| tell(line));
        tell(&format!("{moment:?}"));
    }
    let recovered = recover(&variant, &crashed)?;
    verify_all(&case.histories, &case.moments, &recovered.view, &variant)?;
    checked_in_memory(&crashed)?;
    let legal = |view: &View| verify_all(&case.histories, &case.moments, view, &variant);
    ask_e2fsck(&variant, &crashed, &recovered, Some(&legal), &Scratch::in_memory()).map(|_| ())
}
