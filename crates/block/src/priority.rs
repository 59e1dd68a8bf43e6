//! I/O priorities of service threads, as `ionice(1)` sets them.
//!
//! A disk scheduler with priorities (BFQ, mq-deadline) orders the requests of a thread by its class
//! and level. Many processes wait for a service thread (commits, checkpoints, whole-volume syncs),
//! so it gets a priority of its own. Such threads are the members of a [`PriorityGroup`]: each
//! joins when it starts and leaves when it ends, and a change of the group's priority applies to
//! all members at once.
//!
//! Where the system refuses the priority (real time needs a capability) the thread keeps its own.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;

use extol_sync::plain::Mutex;

use crate::sys;

/// Levels go from 0 (first) to this.
const LOWEST: u8 = 7;
/// Position of the class in the kernel's number.
const CLASS_SHIFT: u32 = 13;

/// Class and level as `ioprio_set(2)` knows them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoPriority {
    class: Class,
    level: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    RealTime = 1,
    BestEffort = 2,
    Idle = 3,
}

impl IoPriority {
    /// Only while the disk is idle otherwise.
    pub const IDLE: Self = Self { class: Class::Idle, level: 0 };
    /// The default of service threads, as in Linux: best effort, before the usual level 4.
    pub const SERVICE: Self = Self { class: Class::BestEffort, level: 3 };

    /// Best effort, level 0 (first) to 7; `None` outside of that.
    #[must_use]
    pub fn best_effort(level: u8) -> Option<Self> {
        (level <= LOWEST).then_some(Self { class: Class::BestEffort, level })
    }

    /// Real time, level 0 (first) to 7: before everything of the other classes; `None` outside of
    /// that.
    #[must_use]
    pub fn real_time(level: u8) -> Option<Self> {
        (level <= LOWEST).then_some(Self { class: Class::RealTime, level })
    }

    /// The priority of a thread of this process, by its id; `None` if it has none of its own.
    ///
    /// # Errors
    /// If there is no such thread.
    pub fn of_thread(id: i32) -> io::Result<Option<Self>> {
        let number = sys::io_priority(id)?;
        let level = (number & 7) as u8;
        Ok(match number >> CLASS_SHIFT & 7 {
            1 => Self::real_time(level),
            2 => Self::best_effort(level),
            3 => Some(Self::IDLE),
            _ => None,
        })
    }

    fn number(self) -> i32 {
        (self.class as i32) << CLASS_SHIFT | i32::from(self.level)
    }
}

impl Default for IoPriority {
    fn default() -> Self {
        Self::SERVICE
    }
}

impl fmt::Display for IoPriority {
    /// As f2fs shows it in sysfs: `be,3`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.class {
            Class::RealTime => write!(f, "rt,{}", self.level),
            Class::BestEffort => write!(f, "be,{}", self.level),
            Class::Idle => f.write_str("idle"),
        }
    }
}

impl FromStr for IoPriority {
    type Err = String;

    /// `be:3`, `rt:0`, `idle`. (Also `be,3` as f2fs writes it; in a list of mount options a comma
    /// ends the word.)
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\" is no I/O priority: use be:0 to be:7, rt:0 to rt:7, or idle");
        let level = |rest: &str| match rest.strip_prefix([':', ',']).unwrap_or(rest).as_bytes() {
            [digit @ b'0'..=b'9'] => Some(digit - b'0'),
            _ => None,
        };
        if text == "idle" {
            return Ok(Self::IDLE);
        }
        let parsed = match text.split_at_checked(2) {
            Some(("be", rest)) => level(rest).and_then(Self::best_effort),
            Some(("rt", rest)) => level(rest).and_then(Self::real_time),
            _ => None,
        };
        parsed.ok_or_else(wrong)
    }
}

#[derive(Debug)]
struct Members {
    priority: IoPriority,
    threads: Vec<i32>,
}

/// Threads that share a priority. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PriorityGroup(Arc<Mutex<Members>>);

impl Default for PriorityGroup {
    fn default() -> Self {
        Self::new(IoPriority::default())
    }
}

impl PriorityGroup {
    /// A group without members.
    #[must_use]
    pub fn new(priority: IoPriority) -> Self {
        Self(Arc::new(Mutex::new(Members { priority, threads: Vec::new() })))
    }

    /// The calling thread is a member until the returned value is dropped, which must be before the
    /// thread ends.
    #[must_use]
    pub fn join(&self) -> Membership {
        let id = sys::own_thread();
        let mut members = self.0.lock();
        members.threads.push(id);
        let _ = sys::set_io_priority(id, members.priority.number());
        Membership { group: self.clone(), id }
    }

    /// Changes the priority of the group and of every member.
    pub fn set(&self, priority: IoPriority) {
        let mut members = self.0.lock();
        members.priority = priority;
        for id in &members.threads {
            // The lock keeps each of them alive.
            let _ = sys::set_io_priority(*id, priority.number());
        }
    }

    /// The group's priority.
    #[must_use]
    pub fn get(&self) -> IoPriority {
        self.0.lock().priority
    }
}

/// A thread's place in a [`PriorityGroup`].
#[derive(Debug)]
pub struct Membership {
    group: PriorityGroup,
    id: i32,
}

impl Drop for Membership {
    fn drop(&mut self) {
        let mut members = self.group.0.lock();
        if let Some(at) = members.threads.iter().position(|id| *id == self.id) {
            members.threads.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (text, shown) in [
            ("be:3", "be,3"),
            ("be,0", "be,0"),
            ("be7", "be,7"),
            ("rt:4", "rt,4"),
            ("idle", "idle"),
        ] {
            assert_eq!(
                text.parse::<IoPriority>().map(|p| p.to_string()).as_deref(),
                Ok(shown),
                "{text}"
            );
        }
        for text in ["", "be", "be:", "be:8", "be:33", "rt:-1", "idle:1", "xy:3", "é", "be::3"] {
            let error = text.parse::<IoPriority>().expect_err(text);
            assert!(error.contains("be:0 to be:7"), "{error}");
        }
    }

    #[test]
    fn members_have_the_priority_of_the_group_at_once() {
        let of = |id| IoPriority::of_thread(id).expect("the thread lives");
        let group = PriorityGroup::new(IoPriority::SERVICE);
        let (to_test, from_thread) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let its = group.clone();
        let thread = std::thread::spawn(move || {
            let place = its.join();
            to_test.send(place.id).expect("the test listens");
            let _ = ended.recv();
        });
        let id = from_thread.recv().expect("the thread's id");
        assert_eq!(of(id), Some(IoPriority::SERVICE));
        group.set(IoPriority::best_effort(6).expect("a level"));
        assert_eq!(of(id).map(|p| p.to_string()).as_deref(), Some("be,6"));
        group.set(IoPriority::IDLE);
        assert_eq!(of(id), Some(IoPriority::IDLE));
        drop(end);
        thread.join().expect("the thread");
        assert!(group.0.lock().threads.is_empty(), "a thread that ended is no member");
        group.set(IoPriority::SERVICE);
        assert_eq!(group.get(), IoPriority::SERVICE);
    }
}
