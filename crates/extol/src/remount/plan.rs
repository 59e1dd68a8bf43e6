//! What a list of options means for an open volume: decided before anything is touched. The rule of
//! each option is in the table of the options.

use extol_vfs::RemountError;

use crate::fast_commit_support::Obstacle;
use crate::options::{MountOptions, Remount, Word, spec_of};

/// A name that the kernel refuses on a remount, and no option of Extol.
const JOURNAL_DEV: &str = "journal_dev";

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

    fn word(&mut self, text: &str, able: Able<'_>) -> Result<(), String> {
        let word = Word::new(text);
        let name = word.name;
        match text {
            "remount" => return Ok(()),
            "abort" => {
                self.abort = true;
                return Ok(());
            }
            _ => {}
        }
        let known = if name == JOURNAL_DEV { "journal_path" } else { name };
        let rule = spec_of(known).map(|spec| spec.remount);
        if let Some(Remount::Never(line)) = rule {
            return Err(line.to_owned());
        }
        let before = self.options.clone();
        if !self.options.set(name, word.value)? {
            return Err(format!("unknown mount option \"{text}\""));
        }
        let Some(rule) = rule else { return Ok(()) };
        let changed = self.options.words() != before.words();
        match rule {
            Remount::NeedsLog if !able.log && self.options.journal.async_checkpoint.is_some() => {
                return Err(format!("{name}: the volume is mounted without a journal"));
            }
            Remount::FixedAs(_) if !able.log => {
                self.warnings.push(format!("{name} has no meaning without a journal; ignoring"));
                self.options = before;
            }
            Remount::FastCommit if self.options.journal.fast_commit == Some(true) => {
                match able.no_fast_commits {
                    Some(Obstacle::NoLog) => {
                        return Err(format!("{name}: the volume is mounted without a journal"));
                    }
                    Some(why @ (Obstacle::DataJournal | Obstacle::Clusters)) => {
                        self.warnings.push(why.line());
                        self.options = before;
                    }
                    Some(why) => return Err(why.line()),
                    None => {}
                }
            }
            Remount::FixedAs(line) if changed => return Err(line.to_owned()),
            Remount::Fixed if changed => {
                return Err(format!(
                    "{name} cannot be changed by a remount: unmount and mount again"
                ));
            }
            Remount::Ignored(line) if changed => {
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
    use crate::options::table;

    const ABLE: Able<'_> = Able { log: true, no_fast_commits: None };

    fn current() -> MountOptions {
        let mut options = MountOptions::default();
        options.journal.data_mode = Some(crate::options::DataMode::Ordered);
        options.journal.fast_commit = Some(true);
        options
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
        ("usrquota", "rw,relatime,usrquota"),
        ("quota,grpquota,prjquota", "rw,relatime,usrquota,grpquota,prjquota"),
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
    const BACK: &str = "rw,relatime,diratime,async,nodirsync,nolazytime,barrier,commit=0,\
        errors=continue,nodiscard,nogrpid,bsddf,resuid=0,\
        resgid=0,noquota,delalloc,min_batch_time=0,fua=auto,\
        fast_commit,max_batch_time=15000,noasync_checkpoint,\
        checkpoint=merge,journal_ioprio=3,ckpt_thread_ioprio=be:3,init_itable,dirty_mb=64";

    #[test]
    fn live_options_go_on_and_off() {
        let now = current();
        for (list, shown) in CHANGES {
            let plan = parse(list).unwrap_or_else(|e| panic!("{list}: {e}"));
            assert_eq!(&plan.options.shown(&now), shown, "{list}");
            assert!(plan.warnings.is_empty() && !plan.abort, "{list}");
            let mut off = now.clone();
            off.access.errors = Some(crate::options::ErrorPolicy::Continue);
            off.space.resuid = Some(0);
            off.space.resgid = Some(0);
            let back = Plan::parse(&plan.options, BACK, ABLE).unwrap();
            assert_eq!(back.options.shown(&off), "rw,relatime", "{list}");
        }
    }

    #[test]
    fn every_rule_knows_its_option() {
        for (name, rule) in
            table().flat_map(|spec| spec.names.iter().map(|name| (name, spec.remount)))
        {
            let mut o = MountOptions::default();
            let known = [
                None,
                Some("1"),
                Some("64"),
                Some("ordered"),
                Some("panic"),
                Some("merge"),
                Some("none"),
                Some("idle"),
                Some("never"),
            ];
            let taken = known.iter().any(|value| o.set(name, *value) == Ok(true));
            assert!(taken || matches!(rule, Remount::Never(_)), "{name}");
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
                "checkpoint=disable is not supported: leave it out (every mount here can be \
                 recovered)",
            ),
            ("frob=1", "unknown mount option \"frob=1\""),
            ("commit=x", "mount option \"commit\": bad number \"x\": it must be a whole number"),
            (
                "async_checkpoint=100",
                "mount option \"async_checkpoint\": bad number \"100\": it is larger than 99; use \
                 a percentage from 1 to 99, or 0 for off",
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
        assert!(line.contains("extol tune -O fast_commit"), "{line}");
        assert!(
            parse("fast_commit", &Obstacle::Short(1024)).unwrap_err().0.contains("1024 blocks")
        );
        let mut off = current();
        off.journal.fast_commit = Some(false);
        let able = Able { log: true, no_fast_commits: Some(&Obstacle::DataJournal) };
        let plan = Plan::parse(&off, "fast_commit,commit=9", able).unwrap();
        assert_eq!(plan.warnings, ["data=journal disables fast commits"]);
        assert_eq!(
            (plan.options.journal.fast_commit, plan.options.journal.commit.as_secs()),
            (Some(false), 9)
        );
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
