//! What a list of options means for a mount that stands: decided before anything is touched.

use extol_vfs::RemountError;

use crate::fast_commit_support::Obstacle;
use crate::options::MountOptions;

/// What a remount may do with an option.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rule {
    /// Takes effect at once.
    Live,
    /// May be repeated, not changed: a mount option of the opening.
    Fixed,
    /// As `Fixed`, with the kernel's words.
    FixedAs(&'static str),
    /// Refused, whatever it says.
    Never(&'static str),
    /// A change is passed over with this message.
    PassedOver(&'static str),
    /// Needs a log.
    Log,
    /// Takes effect at once, if the volume can have it.
    FastCommit,
}

const JOURNAL: Rule = Rule::Never("Cannot specify journal on remount");
const CHECKSUM: Rule =
    Rule::PassedOver("changing journal_checksum during remount not supported; ignoring");

/// The rule of every option. What is not here is unknown, or has no meaning for Extol and never
/// had.
const RULES: &[(&str, Rule)] = &[
    ("ro", Rule::Live),
    ("rw", Rule::Live),
    ("relatime", Rule::Live),
    ("norelatime", Rule::Live),
    ("strictatime", Rule::Live),
    ("nostrictatime", Rule::Live),
    ("atime", Rule::Live),
    ("noatime", Rule::Live),
    ("diratime", Rule::Live),
    ("nodiratime", Rule::Live),
    ("sync", Rule::Live),
    ("async", Rule::Live),
    ("dirsync", Rule::Live),
    ("nodirsync", Rule::Live),
    ("lazytime", Rule::Live),
    ("nolazytime", Rule::Live),
    ("barrier", Rule::Live),
    ("nobarrier", Rule::Live),
    ("commit", Rule::Live),
    ("errors", Rule::Live),
    ("discard", Rule::Live),
    ("nodiscard", Rule::Live),
    ("grpid", Rule::Live),
    ("bsdgroups", Rule::Live),
    ("nogrpid", Rule::Live),
    ("sysvgroups", Rule::Live),
    ("minixdf", Rule::Live),
    ("bsddf", Rule::Live),
    ("resuid", Rule::Live),
    ("resgid", Rule::Live),
    ("delalloc", Rule::Live),
    ("nodelalloc", Rule::Live),
    ("min_batch_time", Rule::Live),
    ("max_batch_time", Rule::Live),
    ("fua", Rule::Live),
    ("fast_commit", Rule::FastCommit),
    ("nofast_commit", Rule::Live),
    ("async_checkpoint", Rule::Log),
    ("noasync_checkpoint", Rule::Live),
    ("checkpoint", Rule::Live),
    ("checkpoint_merge", Rule::Live),
    ("nocheckpoint_merge", Rule::Live),
    ("ckpt_thread_ioprio", Rule::Live),
    ("journal_ioprio", Rule::Live),
    ("dirty_mb", Rule::Live),
    ("readahead_kb", Rule::Live),
    ("init_itable", Rule::Live),
    ("inititable", Rule::Live),
    ("noinit_itable", Rule::Live),
    ("noinititable", Rule::Live),
    ("data", Rule::FixedAs("Cannot change data mode on remount")),
    ("journal_path", JOURNAL),
    ("journal_dev", JOURNAL),
    ("journal_checksum", CHECKSUM),
    ("nojournal_checksum", CHECKSUM),
    ("journal_async_commit", Rule::Fixed),
    ("norecovery", Rule::Fixed),
    ("noload", Rule::Fixed),
    ("sb", Rule::Fixed),
    ("user_xattr", Rule::Fixed),
    ("nouser_xattr", Rule::Fixed),
    ("acl", Rule::Fixed),
    ("noacl", Rule::Fixed),
    ("cache_mb", Rule::Fixed),
    ("data_cache_mb", Rule::Fixed),
    ("inode_cache", Rule::Fixed),
    ("direct", Rule::Fixed),
    ("nodirect", Rule::Fixed),
];

/// What the volume can.
#[derive(Clone, Copy, Debug)]
pub(super) struct Able<'a> {
    /// It has a log.
    pub log: bool,
    /// Why it can have no fast commits.
    pub no_fast_commits: Option<&'a Obstacle>,
}

/// A remount that may be made.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// All options as they will be.
    pub options: MountOptions,
    /// Lines for the user.
    pub warnings: Vec<String>,
    /// `abort`.
    pub abort: bool,
}

impl Plan {
    /// Parses `list` on top of the options in force.
    pub fn parse(current: &MountOptions, list: &str, able: Able<'_>) -> Result<Self, RemountError> {
        let mut plan = Self { options: current.clone(), warnings: Vec::new(), abort: false };
        for word in list.split(',').filter(|word| !word.is_empty()) {
            plan.word(word, able).map_err(RemountError)?;
        }
        plan.options.check().map_err(RemountError)?;
        Ok(plan)
    }

    fn word(&mut self, word: &str, able: Able<'_>) -> Result<(), String> {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (word, None),
        };
        match word {
            "remount" => return Ok(()),
            "abort" => {
                self.abort = true;
                return Ok(());
            }
            _ => {}
        }
        let rule = RULES.iter().find(|(known, _)| *known == name).map(|(_, rule)| *rule);
        if let Some(Rule::Never(line)) = rule {
            return Err(line.to_owned());
        }
        let before = self.options.clone();
        if !self.options.set(name, value)? {
            return Err(format!("unknown mount option \"{word}\""));
        }
        let Some(rule) = rule else { return Ok(()) };
        let changed = self.options.words() != before.words();
        match rule {
            Rule::Log if !able.log && self.options.async_checkpoint.is_some() => {
                return Err(format!("{name}: the volume is mounted without a journal"));
            }
            Rule::FixedAs(_) if !able.log => {
                self.warnings.push(format!("{name} has no meaning without a journal; ignoring"));
                self.options = before;
            }
            Rule::FastCommit => match able.no_fast_commits {
                Some(Obstacle::NoLog) => {
                    return Err(format!("{name}: the volume is mounted without a journal"));
                }
                Some(why @ Obstacle::DataJournal) => {
                    self.warnings.push(why.line());
                    self.options = before;
                }
                Some(why) => return Err(why.line()),
                None => {}
            },
            Rule::FixedAs(line) if changed => return Err(line.to_owned()),
            Rule::Fixed if changed => {
                return Err(format!(
                    "{name} cannot be changed by a remount: unmount and mount again"
                ));
            }
            Rule::PassedOver(line) if changed => {
                self.warnings.push(line.to_owned());
                self.options = before;
            }
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABLE: Able<'_> = Able { log: true, no_fast_commits: None };

    fn current() -> MountOptions {
        MountOptions {
            data: Some(crate::options::DataMode::Ordered),
            fast_commit: Some(true),
            ..MountOptions::default()
        }
    }

    fn parse(list: &str) -> Result<Plan, String> {
        Plan::parse(&current(), list, ABLE).map_err(|e| e.0)
    }

    /// Every option that can change: what to say, and what the text shows then.
    const CHANGES: &[(&str, &str)] = &[
        ("ro", "ro,relatime"),
        ("noatime", "rw,noatime"),
        ("strictatime", "rw,strictatime"),
        ("nodiratime", "rw,relatime,nodiratime"),
        ("sync", "rw,relatime,sync"),
        ("dirsync", "rw,relatime,dirsync"),
        ("lazytime", "rw,relatime,lazytime"),
        ("nobarrier", "rw,relatime,nobarrier"),
        ("barrier=0", "rw,relatime,nobarrier"),
        ("commit=9", "rw,relatime,commit=9"),
        ("errors=panic", "rw,relatime,errors=panic"),
        ("discard", "rw,relatime,discard"),
        ("grpid", "rw,relatime,grpid"),
        ("minixdf", "rw,relatime,minixdf"),
        ("resuid=7", "rw,relatime,resuid=7"),
        ("resgid=7", "rw,relatime,resgid=7"),
        ("nodelalloc", "rw,relatime,nodelalloc"),
        ("fua=always", "rw,relatime,fua=always"),
        ("min_batch_time=5", "rw,relatime,min_batch_time=5"),
        ("max_batch_time=0", "rw,relatime,max_batch_time=0"),
        ("nofast_commit", "rw,relatime,nofast_commit"),
        ("async_checkpoint", "rw,relatime,async_checkpoint=50"),
        ("async_checkpoint=30", "rw,relatime,async_checkpoint=30"),
        ("checkpoint=nomerge", "rw,relatime,checkpoint=nomerge"),
        ("nocheckpoint_merge", "rw,relatime,checkpoint=nomerge"),
        ("noinit_itable", "rw,relatime,noinit_itable"),
        ("init_itable=3", "rw,relatime,init_itable=3"),
        ("journal_ioprio=5", "rw,relatime,journal_ioprio=5"),
        ("ckpt_thread_ioprio=rt:2", "rw,relatime,ckpt_thread_ioprio=rt:2"),
        ("dirty_mb=8", "rw,relatime,dirty_mb=8"),
    ];

    /// What takes each of them back.
    const BACK: &str = "rw,relatime,diratime,async,nodirsync,nolazytime,barrier,commit=0,errors=continue,nodiscard,nogrpid,bsddf,resuid=0,\
        resgid=0,delalloc,min_batch_time=0,fua=auto,fast_commit,max_batch_time=15000,noasync_checkpoint,\
        checkpoint=merge,journal_ioprio=3,ckpt_thread_ioprio=be:3,init_itable,dirty_mb=64";

    #[test]
    fn live_options_go_on_and_off() {
        let now = current();
        for (list, shown) in CHANGES {
            let plan = parse(list).unwrap_or_else(|e| panic!("{list}: {e}"));
            assert_eq!(&plan.options.shown(&now), shown, "{list}");
            assert!(plan.warnings.is_empty() && !plan.abort, "{list}");
            let mut off = now.clone();
            off.errors = Some(crate::options::ErrorPolicy::Continue);
            off.resuid = Some(0);
            off.resgid = Some(0);
            let back = Plan::parse(&plan.options, BACK, ABLE).unwrap();
            assert_eq!(back.options.shown(&off), "rw,relatime", "{list}");
        }
    }

    #[test]
    fn every_rule_knows_its_option() {
        for (name, rule) in RULES {
            let mut o = MountOptions::default();
            let known = [
                None,
                Some("1"),
                Some("ordered"),
                Some("panic"),
                Some("merge"),
                Some("none"),
                Some("idle"),
                Some("never"),
            ];
            let taken = known.iter().any(|value| o.set(name, *value) == Ok(true));
            assert!(taken || matches!(rule, Rule::Never(_)), "{name}");
        }
        assert!(parse("abort").unwrap().abort);
    }

    #[test]
    fn what_cannot_change_is_refused_in_one_line() {
        let table = [
            ("data=journal", "Cannot change data mode on remount"),
            ("journal_path=/x", "Cannot specify journal on remount"),
            ("journal_dev=5", "Cannot specify journal on remount"),
            ("sb=32768", "sb cannot be changed by a remount: unmount and mount again"),
            ("norecovery", "norecovery cannot be changed by a remount: unmount and mount again"),
            ("noacl", "noacl cannot be changed by a remount: unmount and mount again"),
            ("cache_mb=9", "cache_mb cannot be changed by a remount: unmount and mount again"),
            ("direct", "direct cannot be changed by a remount: unmount and mount again"),
            (
                "checkpoint=disable",
                "checkpoint=disable is not supported: leave it out (every mount here can be recovered)",
            ),
            ("frob=1", "unknown mount option \"frob=1\""),
            ("commit=x", "bad value \"x\" for mount option \"commit\""),
            (
                "async_checkpoint=100",
                "bad value \"100\" for mount option \"async_checkpoint\": use a percentage from 1 to 99, or 0 for off",
            ),
            ("commit=9,data=writeback", "Cannot change data mode on remount"),
        ];
        for (list, line) in table {
            assert_eq!(parse(list).unwrap_err(), line, "{list}");
        }
    }

    #[test]
    fn repeating_what_is_in_force_is_no_change() {
        let plan = parse("remount,data=ordered,acl,user_xattr,cache_mb=192,rw").unwrap();
        assert_eq!(plan.options.words(), current().words());
        assert!(plan.warnings.is_empty());
    }

    #[test]
    fn some_are_passed_over_with_a_warning() {
        let plan = parse("journal_checksum,commit=9").unwrap();
        assert_eq!(
            plan.warnings,
            ["changing journal_checksum during remount not supported; ignoring"]
        );
        assert_eq!(plan.options.shown(&current()), "rw,relatime,commit=9");
    }

    #[test]
    fn fast_commits_where_the_volume_can_have_them() {
        fn parse(list: &str, why: &Obstacle) -> Result<Plan, RemountError> {
            Plan::parse(&current(), list, Able { log: true, no_fast_commits: Some(why) })
        }
        let line = parse("commit=9,fast_commit", &Obstacle::NoFeature).unwrap_err().0;
        assert!(line.contains("tune2fs -O fast_commit"), "{line}");
        assert!(
            parse("fast_commit", &Obstacle::Short(1024)).unwrap_err().0.contains("1024 blocks")
        );
        let off = MountOptions { fast_commit: Some(false), ..current() };
        let able = Able { log: true, no_fast_commits: Some(&Obstacle::DataJournal) };
        let plan = Plan::parse(&off, "fast_commit,commit=9", able).unwrap();
        assert_eq!(plan.warnings, ["data=journal disables fast commits"]);
        assert_eq!((plan.options.fast_commit, plan.options.commit.as_secs()), (Some(false), 9));
        for why in [Obstacle::NoFeature, Obstacle::DataJournal, Obstacle::Short(1)] {
            assert!(parse("nofast_commit", &why).unwrap().warnings.is_empty());
        }
    }

    #[test]
    fn without_a_journal() {
        let able = Able { log: false, no_fast_commits: Some(&Obstacle::NoLog) };
        let parse = |list| Plan::parse(&current(), list, able);
        assert_eq!(
            parse("fast_commit").unwrap_err().0,
            "fast_commit: the volume is mounted without a journal"
        );
        assert_eq!(
            parse("async_checkpoint").unwrap_err().0,
            "async_checkpoint: the volume is mounted without a journal"
        );
        assert!(parse("noasync_checkpoint,async_checkpoint=0,commit=9").is_ok());
        let plan = parse("data=journal").unwrap();
        assert_eq!(plan.warnings.len(), 1);
        assert_eq!(plan.options.words(), current().words());
    }
}
