//! The crash kit's command: campaigns, and single states again.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use extol_crashkit::campaign::{Campaign, replay_case};
use extol_crashkit::cuts::{Effort, Fate};
use extol_crashkit::record::Plant;
use extol_crashkit::report::Report;
use extol_crashkit::variant::{VARIANTS, Variant};
use extol_crashkit::workloads::{self, Workload};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const EXAMPLES: &str = "\
EXAMPLES:
  extol-crashkit                                     every load on every kind of volume, once
  extol-crashkit --minutes 60 --effort long          an hour of it
  extol-crashkit --workload mix --variant async      one pair
  extol-crashkit --workload mix --variant async --seed 7 --rounds 160 --cut 120 --state but-3
                                                     one state again, with everything about it

EXIT STATUS:
  0 nothing found, 1 something is wrong with Extol, 2 wrong arguments or the load could not run";

/// Cuts the power of Extol volumes at every change, in every way, and verifies what recovery makes
/// of it.
#[derive(Parser, Debug)]
#[command(name = "extol-crashkit", version, after_help = EXAMPLES)]
struct Args {
    /// A load, or several with commas (default: all; see --list).
    #[arg(long, value_delimiter = ',')]
    workload: Vec<String>,
    /// A kind of volume, or several with commas (default: all; see --list).
    #[arg(long, value_delimiter = ',')]
    variant: Vec<String>,
    /// First seed.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Seeds to run, one after the other.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Go on with new seeds for so many minutes.
    #[arg(long)]
    minutes: Option<f64>,
    /// How much the load does (default: its own measure).
    #[arg(long)]
    rounds: Option<usize>,
    /// States at each cut.
    #[arg(long, value_enum, default_value_t = How::Quick)]
    effort: How,
    /// Most states of one run; they spread over all of it.
    #[arg(long)]
    max_states: Option<u64>,
    /// Of so many states, the recovery of one is cut at each of its changes (0: none).
    #[arg(long, default_value_t = 150)]
    again: u64,
    /// Of so many states, e2fsck is asked about one (0: none).
    #[arg(long, default_value_t = 100)]
    e2fsck: u64,
    /// Of so many states, Linux is asked about one, over a loop device (0: none; needs root).
    #[arg(long, default_value_t = 0)]
    linux: u64,
    /// Threads that verify (default: one per processor).
    #[arg(long)]
    jobs: Option<usize>,
    /// Stop a run after so many failures.
    #[arg(long, default_value_t = 3)]
    failures: usize,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// List loads and kinds of volumes.
    #[arg(long)]
    list: bool,
    /// Try one state again: the cut.
    #[arg(long, requires = "state")]
    cut: Option<usize>,
    /// Try one state again: its name.
    #[arg(long, requires = "cut")]
    state: Option<Fate>,
    /// ... and one of its recovery: CUT:STATE.
    #[arg(long, requires = "cut", value_parser = second)]
    second: Option<(usize, Fate)>,
    /// Try a saved state again.
    #[arg(long)]
    case: Option<PathBuf>,
    /// Where states of runs with several threads are saved if they fail.
    #[arg(long)]
    keep: Option<PathBuf>,
    /// Plant a bug (only with the feature planted-bugs).
    #[arg(long, value_parser = plant)]
    plant: Option<Plant>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum How {
    Quick,
    Long,
}

fn second(text: &str) -> Result<(usize, Fate), String> {
    let (cut, fate) = text.split_once(':').ok_or("it is CUT:STATE")?;
    Ok((cut.parse().map_err(|_| "it is CUT:STATE")?, fate.parse()?))
}

fn plant(name: &str) -> Result<Plant, String> {
    Plant::by_name(name).ok_or_else(|| {
        let names: Vec<&str> = Plant::ALL.iter().map(|(name, _)| *name).collect();
        format!("known are: {}", names.join(", "))
    })
}

fn main() -> ExitCode {
    let args = Args::parse();
    if args.list {
        list();
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("extol-crashkit: {e}");
            ExitCode::from(2)
        }
    }
}

fn list() {
    println!("loads:");
    for w in workloads::all() {
        println!("  {:<18} {}", w.name(), w.about());
    }
    println!("kinds of volumes:");
    for v in VARIANTS {
        println!("  {:<18} {}", v.name, v.about);
    }
}

type Loads = Vec<Box<dyn Workload>>;

fn chosen(args: &Args) -> Result<(Loads, Vec<Variant>), String> {
    let loads = match &args.workload[..] {
        [] => workloads::all(),
        names => {
            let find = |n: &String| {
                workloads::by_name(n).ok_or(format!("no load is called \"{n}\", see --list"))
            };
            names.iter().map(find).collect::<Result<_, _>>()?
        }
    };
    let kinds = match &args.variant[..] {
        [] => VARIANTS.to_vec(),
        names => {
            let find = |n: &String| {
                Variant::by_name(n)
                    .ok_or(format!("no kind of volume is called \"{n}\", see --list"))
            };
            names.iter().map(find).collect::<Result<_, _>>()?
        }
    };
    Ok((loads, kinds))
}

fn campaign<'a>(args: &Args, load: &'a dyn Workload, variant: Variant, seed: u64) -> Campaign<'a> {
    let mut campaign = Campaign::quick(load, variant, seed);
    campaign.plant = args.plant;
    if args.effort == How::Long {
        campaign.effort = Effort::LONG;
        // Different lengths find the log at different places.
        campaign.rounds = load.quick() * (1 + seed as usize % 3);
    }
    campaign.rounds = args.rounds.unwrap_or(campaign.rounds);
    campaign.max_states = args.max_states.unwrap_or(u64::MAX);
    campaign.again_every = args.again;
    campaign.e2fsck_every = args.e2fsck;
    campaign.linux_every = args.linux;
    campaign.jobs = args.jobs.unwrap_or(campaign.jobs);
    campaign.max_failures = args.failures;
    if let Some(keep) = &args.keep {
        campaign.keep.clone_from(keep);
    }
    campaign
}

/// True if nothing was found.
fn run(args: &Args) -> Result<bool, String> {
    if let Some(dir) = &args.case {
        return Ok(told(replay_case(dir, &mut |line| println!("{line}"))));
    }
    let (loads, kinds) = chosen(args)?;
    if let (Some(cut), Some(fate)) = (args.cut, args.state) {
        let ([load], [kind]) = (&loads[..], &kinds[..]) else {
            return Err("one state belongs to one --workload and one --variant".into());
        };
        let campaign = campaign(args, &**load, *kind, args.seed);
        return Ok(told(campaign.replay(cut, fate, args.second, &mut |line| println!("{line}"))));
    }
    let end = args.minutes.map(|m| Instant::now() + Duration::from_secs_f64(m * 60.0));
    let began = Instant::now();
    let mut report = Report::default();
    let mut could_not_run = 0;
    'seeds: for seed in args.seed.. {
        if end.is_none() && seed >= args.seed + args.seeds {
            break;
        }
        for load in &loads {
            for kind in &kinds {
                if end.is_some_and(|end| Instant::now() >= end) {
                    break 'seeds;
                }
                // A pair that is named is tried all the same.
                if !load.suits(kind) && (args.workload.is_empty() || args.variant.is_empty()) {
                    continue;
                }
                let campaign = campaign(args, &**load, *kind, seed);
                let bar = bar(format!("seed {seed}, {} on {}", load.name(), kind.name));
                let row = campaign.run(&mut |cut, cuts, states| {
                    bar.set_length(cuts as u64);
                    bar.set_position(cut as u64);
                    bar.set_prefix(format!("{} states", states + report.total().verified));
                });
                bar.finish_and_clear();
                let row = match row {
                    Ok(row) => row,
                    // What the others find is worth having.
                    Err(e) => {
                        eprintln!("seed {seed}: {e}");
                        could_not_run += 1;
                        continue;
                    }
                };
                for failure in &row.failures {
                    // To the error stream: the report may be JSON.
                    eprintln!("FAILED {}\nreplay: {}", failure.what, failure.replay);
                }
                report.add(row);
            }
        }
    }
    report.wall_seconds = began.elapsed().as_secs_f64();
    let mut out = std::io::stdout().lock();
    let printed = if args.json {
        serde_json::to_writer_pretty(&mut out, &report)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out))
    } else {
        let (loads, kinds) = (report.summed(true).table(), report.summed(false).table());
        write!(out, "{}\n{loads}\n{kinds}\n{}\n", report.table(), report.summary())
    };
    printed.map_err(|e| format!("printing the report: {e}"))?;
    match could_not_run {
        0 => Ok(report.total().failures.is_empty()),
        n => Err(format!("{n} runs could not be made, see above")),
    }
}

fn told(result: Result<(), String>) -> bool {
    match &result {
        Ok(()) => println!("nothing is wrong with this state"),
        Err(what) => println!("FAILED {what}"),
    }
    result.is_ok()
}

fn bar(what: String) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() {
        ProgressDrawTarget::stderr_with_hz(10)
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(1), target).with_message(what);
    if let Ok(style) = ProgressStyle::with_template("{msg} {bar:30} {percent}% {prefix}") {
        bar.set_style(style);
    }
    bar
}
