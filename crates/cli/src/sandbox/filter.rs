//! The system calls that are left.
//!
//! A list of what is allowed; everything else gives EPERM. It does not end the process, because of
//! what that costs here: a call that the list lacks (a new C library tries a new one, and does
//! without when it is refused) would end a mount with data that are not yet on the disk. An
//! attacker gains nothing by an error.
//!
//! Where a call is needed for one purpose, its arguments are checked: threads but no processes,
//! memory that is not executable, signals to the own process only. `clone3` hides its flags in
//! memory, so it does not exist (ENOSYS), and the C library uses `clone`; that takes a filter of
//! its own, because a filter knows one error. The kernel computes once which calls are allowed
//! whatever their arguments, and lets them pass without running the filter: reads, writes, futexes
//! cost nothing.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule,
};

/// The process that the list is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Serves a mount.
    Daemon,
    /// Unmounts it.
    Monitor,
    /// Connects to the server of its volume.
    Connector,
}

/// Both filters, compiled.
#[derive(Debug)]
pub struct Filter {
    clone3: BpfProgram,
    list: BpfProgram,
}

impl Filter {
    /// Confines the calling thread.
    pub fn install(&self) -> Result<(), String> {
        // The second no longer allows to install one.
        let installed = seccompiler::apply_filter(&self.clone3)
            .and_then(|()| seccompiler::apply_filter(&self.list));
        installed.map_err(|error| format!("seccomp filters ({error})"))
    }
}

/// Compiles the lists for this processor. `open`: files may be opened, because Landlock restricts
/// which.
pub fn build(kind: Kind, open: bool) -> Result<Filter, String> {
    compile(kind, open)
        .map_err(|error| format!("seccomp filters for {} ({error})", std::env::consts::ARCH))
}

fn compile(kind: Kind, open: bool) -> Result<Filter, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    let mut allow = |calls: &[i64]| rules.extend(calls.iter().map(|&call| (call, Vec::new())));
    allow(DATA);
    allow(MEMORY);
    allow(THREADS);
    allow(QUERIES);
    allow(MESSAGES);
    #[cfg(target_arch = "x86_64")]
    allow(OLD);
    match kind {
        Kind::Daemon if open => allow(&[libc::SYS_openat, libc::SYS_getdents64]),
        Kind::Daemon => {}
        Kind::Monitor => allow(&[libc::SYS_umount2, libc::SYS_openat, libc::SYS_syncfs]),
        Kind::Connector => allow(&[libc::SYS_connect]),
    }
    for (call, conditions) in conditional()? {
        rules.insert(call, conditions);
    }
    if kind == Kind::Connector {
        rules.insert(libc::SYS_socket, streams()?);
    }
    if kind == Kind::Monitor {
        rules.insert(libc::SYS_mount, remount_read_only()?);
    }
    let arch = std::env::consts::ARCH.try_into()?;
    let filter =
        |rules, mismatch, matched| SeccompFilter::new(rules, mismatch, matched, arch)?.try_into();
    let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok(Filter {
        clone3: filter(clone3, SeccompAction::Allow, SeccompAction::Errno(libc::ENOSYS as u32))?,
        list: filter(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)?,
    })
}

/// The volume, `/dev/fuse`, io_uring.
const DATA: &[i64] = &[
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_sync_file_range,
    libc::SYS_fallocate,
    libc::SYS_ftruncate,
    libc::SYS_fadvise64,
    libc::SYS_flock,
    libc::SYS_close,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

const MEMORY: &[i64] = &[
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_brk,
    libc::SYS_mincore,
    libc::SYS_membarrier,
];

const THREADS: &[i64] = &[
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_rseq,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_ioprio_get,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
];

/// What a process may ask about itself and the machine.
const QUERIES: &[i64] = &[
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_getrandom,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_gettid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_getcpu,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_fstatfs,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    // For the cleanup process, when the mount stands.
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// Pipes and sockets that are open; the system log; clients of the counters.
const MESSAGES: &[i64] = &[
    libc::SYS_ppoll,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_shutdown,
    libc::SYS_accept4,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
];

/// Older forms, which newer machines never had.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_poll,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_readlink,
    libc::SYS_access,
    libc::SYS_time,
    libc::SYS_arch_prctl,
];

const PR_SET_VMA: u64 = 0x5356_4d41;
/// `_IO(0x12, N)`: sector size, discard, zeroes, size, whether read-only; `FIONBIO`, `FIOCLEX`,
/// `TCGETS`, `TIOCGWINSZ`.
const IOCTLS: [u64; 9] =
    [0x1268, 0x1277, 0x127f, 0x8008_1272, 0x125e, 0x5421, 0x5451, 0x5401, 0x5413];

/// mount(2) that does nothing but make a mount read-only.
fn remount_read_only() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let wanted = libc::MS_REMOUNT | libc::MS_RDONLY;
    let checked = wanted | libc::MS_BIND | libc::MS_MOVE;
    let flags = SeccompCondition::new(3, Len::Dword, Op::MaskedEq(checked), wanted)?;
    Ok(vec![SeccompRule::new(vec![flags])?])
}

/// Stream sockets of the internet and of this host.
fn streams() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let families = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX];
    let stream = SeccompCondition::new(1, Len::Dword, Op::MaskedEq(0xf), libc::SOCK_STREAM as u64)?;
    let rule = |family: &i32| {
        let family = SeccompCondition::new(0, Len::Dword, Op::Eq, *family as u64)?;
        SeccompRule::new(vec![family, stream.clone()])
    };
    families.iter().map(rule).collect()
}

type Rules = Vec<(i64, Vec<SeccompRule>)>;

/// Calls that are allowed with certain arguments.
fn conditional() -> Result<Rules, seccompiler::BackendError> {
    let equals = |arg, value: u64| SeccompCondition::new(arg, Len::Dword, Op::Eq, value);
    let bits = |arg, mask: u64, value: u64| {
        SeccompCondition::new(arg, Len::Dword, Op::MaskedEq(mask), value)
    };
    let one_of = |arg: u8, values: &[u64]| -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
        values.iter().map(|&value| SeccompRule::new(vec![equals(arg, value)?])).collect()
    };
    let exec = libc::PROT_EXEC as u64;
    let thread = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
    let spaces = (libc::CLONE_NEWNS
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWCGROUP) as u32;
    let own = u64::from(std::process::id());
    let words = |values: &[i32]| values.iter().map(|&value| value as u64).collect::<Vec<_>>();
    let descriptors = words(&[
        libc::F_DUPFD,
        libc::F_DUPFD_CLOEXEC,
        libc::F_GETFD,
        libc::F_SETFD,
        libc::F_GETFL,
        libc::F_SETFL,
        libc::F_OFD_SETLK,
    ]);
    Ok(vec![
        (libc::SYS_mmap, vec![SeccompRule::new(vec![bits(2, exec, 0)?])?]),
        (libc::SYS_mprotect, vec![SeccompRule::new(vec![bits(2, exec, 0)?])?]),
        (
            libc::SYS_clone,
            vec![SeccompRule::new(vec![bits(0, thread | u64::from(spaces), thread)?])?],
        ),
        // Another filter answers it.
        (libc::SYS_clone3, Vec::new()),
        (libc::SYS_tgkill, one_of(0, &[own])?),
        (
            libc::SYS_prctl,
            one_of(0, &[libc::PR_SET_NAME as u64, libc::PR_GET_NAME as u64, PR_SET_VMA])?,
        ),
        (libc::SYS_ioctl, one_of(1, &IOCTLS)?),
        (libc::SYS_fcntl, one_of(1, &descriptors)?),
        (libc::SYS_sched_setaffinity, one_of(0, &[0])?),
        // Of the calling thread.
        (libc::SYS_setpriority, one_of(1, &[0])?),
        // IOPRIO_WHO_PROCESS.
        (libc::SYS_ioprio_set, one_of(0, &[1])?),
        // Reads limits, sets none.
        (
            libc::SYS_prlimit64,
            vec![SeccompRule::new(vec![SeccompCondition::new(2, Len::Qword, Op::Eq, 0)?])?],
        ),
    ])
}
