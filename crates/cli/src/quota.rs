//! `extol quota`: usage and limits of owners, for administrators of a volume.

mod owners;
mod show;
mod volumes;

use extol::quotas::{Kind, LIMIT_UNIT, Limits, Quota, WrongUsage};
use extol_cli_common::{Failure, Result, counted, json_text, print, print_json};
use extol_proc::Shown as _;

use crate::args::QuotaArgs;
use crate::options::Opening;
use crate::volume::{self, Source, VolumeOptions};
use crate::{interrupt, options};
use volumes::{Mounted, Open, Quotas};

#[cfg(test)]
pub use show::examples;

/// What the command does.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Action {
    Report,
    Set,
    Check,
}

impl Action {
    fn of(args: &QuotaArgs) -> Result<Self> {
        match args.action.as_str() {
            "report" => Ok(Self::Report),
            "set" => Ok(Self::Set),
            "check" => Ok(Self::Check),
            other => Err(Failure::usage(format_args!(
                "unknown action \"{other}\": use report, set or check"
            ))),
        }
    }
}

/// Reports, sets or checks.
pub fn run(args: &QuotaArgs) -> Result<()> {
    let action = Action::of(args)?;
    let limits = limits(args);
    let grace = (grace(args.block_grace.as_deref())?, grace(args.inode_grace.as_deref())?);
    refuse_mixed(args, action, limits, grace)?;
    let Opening { volume: mut options, part } = options::opening(&args.options)?;
    let writes = action == Action::Set || args.repair;
    if writes && options.access.read_only {
        return Err(Failure::usage("ro and norecovery cannot be used with what changes quotas"));
    }
    options.access.read_only = !writes;
    interrupt::catch()?;
    let source = Source { path: &args.source, part };
    let name = args.source.shown();
    if args.source.is_dir() {
        return match action {
            Action::Report => report(args, &Mounted(&args.source)),
            Action::Set => set(args, &Mounted(&args.source), limits, grace),
            Action::Check => Err(Failure::about(
                name,
                "usage is checked while nothing changes it: name an image or device that is not \
                 mounted",
            )),
        };
    }
    if writes {
        look_first(args, action, source, &options)?;
    }
    let fs = volume::open(source, &options.without_threads())?;
    let open = Open { name: &args.source, fs: &fs };
    let done = match action {
        Action::Report => report(args, &open),
        Action::Set => set(args, &open, limits, grace),
        Action::Check => check(args, &open),
    };
    let closed = volume::close(&fs).map_err(|error| Failure::about(name, error));
    done.and(closed)
}

/// Refuses what the volume does not allow before it is opened for writing, which leaves marks.
fn look_first(
    args: &QuotaArgs,
    action: Action,
    source: Source<'_>,
    options: &VolumeOptions,
) -> Result<()> {
    let mut options = options.clone();
    options.access.read_only = true;
    let fs = volume::open(source, &options.without_threads())?;
    let looked = (|| {
        let open = Open { name: &args.source, fs: &fs };
        if action == Action::Check {
            fs.quotas().map_err(|error| about(args, error))?;
            return quotas(args, &open, &kinds(args)).map(drop);
        }
        let kind = one_kind(args)?;
        owners::ids(kind, &args.owners)?;
        let there = fs.quotas().map_err(|error| about(args, error))?;
        let is_there = there.iter().any(|quota| quota.kind == kind);
        if is_there { Ok(()) } else { Err(missing(args, kind)) }
    })();
    let closed = volume::close(&fs).map_err(|error| Failure::about(args.source.shown(), error));
    looked.and(closed)
}

fn missing(args: &QuotaArgs, kind: Kind) -> Failure {
    about(args, format_args!("the volume has no quota inode for {}s", kind.name()))
}

fn about(args: &QuotaArgs, error: impl std::fmt::Display) -> Failure {
    volume::about(&args.source, error)
}

fn limits(args: &QuotaArgs) -> Limits {
    // (Part of a unit is not less than was asked for.)
    let units = |bytes: Option<u64>| bytes.map(|bytes| bytes.div_ceil(LIMIT_UNIT));
    Limits {
        space_soft: units(args.block_soft),
        space_hard: units(args.block_hard),
        inode_soft: args.inode_soft,
        inode_hard: args.inode_hard,
    }
}

/// A time in seconds.
fn grace(text: Option<&str>) -> Result<Option<u32>> {
    let Some(text) = text else { return Ok(None) };
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400), ("w", 604_800)];
    let unit = units.iter().find_map(|(unit, len)| Some((text.strip_suffix(unit)?, *len)));
    let (digits, len) = unit.unwrap_or((text, 1));
    let number = digits.parse::<u32>().ok().and_then(|number| number.checked_mul(len));
    number.map(Some).ok_or_else(|| {
        Failure::usage(format_args!(
            "bad time \"{text}\": give seconds, or a number with m, h, d or w, as 7d"
        ))
    })
}

/// Refuses arguments of another action, and those that do not say enough.
fn refuse_mixed(
    args: &QuotaArgs,
    action: Action,
    limits: Limits,
    grace: (Option<u32>, Option<u32>),
) -> Result<()> {
    let (sets_limits, sets_grace) = (limits != Limits::default(), grace != (None, None));
    if action != Action::Set && (sets_limits || sets_grace) {
        return Err(Failure::usage("limits and grace times are for quota set"));
    }
    if action != Action::Check && args.repair {
        return Err(Failure::usage("--repair is for quota check"));
    }
    if action == Action::Check && !args.owners.is_empty() {
        return Err(Failure::usage("quota check is about all owners: name none"));
    }
    if action != Action::Set {
        return Ok(());
    }
    if sets_grace && (sets_limits || !args.owners.is_empty()) {
        return Err(Failure::usage(
            "grace times are those of all owners: set them without owners and limits",
        ));
    }
    if sets_limits && args.owners.is_empty() {
        return Err(Failure::usage("whose limits? Name users, groups or projects"));
    }
    if !sets_limits && !sets_grace {
        return Err(Failure::usage(
            "nothing to set: give --block-hard SIZE, --inode-hard COUNT or the like",
        ));
    }
    for (soft, hard) in
        [(limits.space_soft, limits.space_hard), (limits.inode_soft, limits.inode_hard)]
    {
        if let (Some(soft), Some(hard @ 1..)) = (soft, hard)
            && soft > hard
        {
            return Err(Failure::usage("the soft limit is larger than the hard one"));
        }
    }
    Ok(())
}

/// The kinds of owners that are asked for; all, if nothing is said.
fn kinds(args: &QuotaArgs) -> Vec<Kind> {
    let asked = [args.user, args.group, args.project];
    let all = !asked.contains(&true);
    Kind::ALL
        .into_iter()
        .zip(asked)
        .filter(|(_, asked)| all || *asked)
        .map(|(kind, _)| kind)
        .collect()
}

/// The one kind for which owners are named.
fn one_kind(args: &QuotaArgs) -> Result<Kind> {
    match kinds(args)[..] {
        [kind] => Ok(kind),
        _ if !(args.user || args.group || args.project) => Ok(Kind::User),
        _ => Err(Failure::usage("owners of one kind: --user, --group or --project")),
    }
}

/// The quotas of these kinds; those that are asked for must be there.
fn quotas(args: &QuotaArgs, fs: &dyn Quotas, kinds: &[Kind]) -> Result<Vec<Quota>> {
    let quotas = fs.read(kinds)?;
    let asked = args.user || args.group || args.project;
    let lacks = |kind: &&Kind| quotas.iter().all(|quota| quota.kind != **kind);
    match kinds.iter().find(lacks).filter(|_| asked) {
        Some(kind) => Err(missing(args, *kind)),
        None => Ok(quotas),
    }
}

fn report(args: &QuotaArgs, fs: &dyn Quotas) -> Result<()> {
    if args.owners.is_empty() {
        let quotas = quotas(args, fs, &kinds(args))?;
        return show::quotas(args, &quotas);
    }
    report_of(args, fs, one_kind(args)?)
}

/// Shows the quotas of the owners that are named.
fn report_of(args: &QuotaArgs, fs: &dyn Quotas, kind: Kind) -> Result<()> {
    let ids = owners::ids(kind, &args.owners)?;
    let mut quotas = quotas(args, fs, &[kind])?;
    for quota in &mut quotas {
        let mut entries: Vec<_> = ids.iter().map(|id| extol::quotas::Entry::new(*id)).collect();
        for entry in &mut entries {
            let known = quota.entries.iter().find(|known| known.id == entry.id);
            *entry = known.copied().unwrap_or(*entry);
        }
        quota.entries = entries;
    }
    show::quotas(args, &quotas)
}

fn set(
    args: &QuotaArgs,
    fs: &dyn Quotas,
    limits: Limits,
    (space, inodes): (Option<u32>, Option<u32>),
) -> Result<()> {
    let kind = one_kind(args)?;
    if args.owners.is_empty() {
        fs.set_grace(kind, space, inodes)?;
        let mut quotas = quotas(args, fs, &[kind])?;
        quotas.iter_mut().for_each(|quota| quota.entries.clear());
        return show::quotas(args, &quotas);
    }
    let ids = owners::ids(kind, &args.owners)?;
    fs.set_limits(kind, &ids, limits)?;
    report_of(args, fs, kind)
}

fn check(args: &QuotaArgs, open: &Open<'_>) -> Result<()> {
    let (kinds, fs) = (kinds(args), open.fs);
    quotas(args, open, &kinds)?;
    let mut wrong: Vec<WrongUsage> = fs.wrong_usage().map_err(|error| about(args, error))?;
    wrong.retain(|wrong| kinds.contains(&wrong.kind));
    let repaired = args.repair && !wrong.is_empty();
    if repaired {
        fs.correct_usage(&wrong).map_err(|error| about(args, error))?;
    }
    match args.json {
        true => print_json(json_text(&show::Checked::new(&args.source, &wrong, repaired))?)?,
        false => print(show::wrong(&args.source, &wrong, repaired))?,
    }
    if wrong.is_empty() || repaired {
        return Ok(());
    }
    Err(about(
        args,
        format_args!(
            "the usage of {} is wrong; extol quota check --repair writes it right",
            counted(wrong.len() as u64, "owner")
        ),
    ))
}
