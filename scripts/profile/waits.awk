# Reads `perf script -F comm,tid,time,event,ip,sym` of futex calls and prints how long which thread
# waited for what: the functions that called the wait. With `-v stacks=FILE` every wait goes there
# as a stack and its microseconds, for a flame graph.
#
#   perf script … | awk -v top=10 -v stacks=FILE -f names.awk -f waits.awk
#
# A wait is the time from a thread's sys_enter_futex to its next sys_exit_futex, with the time
# until a processor was free again. A wait that was not over at the end is left out. The function
# that makes the system call itself (`lock_slow`, `wait_until_internal` …) is not on the stack, as
# libc's `syscall` has no frame; its caller is. A thread that sleeps below no function of Extol, or
# in a loop of `is_loop`, has nothing to do as a rule; these are in the last line, and in no
# picture. (Workers of a mount wait for requests in a read or in io_uring, not in a futex.)

# Functions of Extol but for the locks themselves: they say how a thread waits and not for what.
function is_ours(name) { return name ~ /extol/ && name !~ /^<?extol_sync/ }

# Where a thread of Extol sleeps until there is work for it.
function is_loop(name) {
    if (name ~ /runner::Runner>?::start::/) return 1
    if (name ~ /lazy_init::thread::run$/) return 1
    return name ~ /(pool::Pool>?::watch|session::Mount>?::run|threads::Shared>?::work)$/
}

function callers(    n, name, found, wanted) {
    found = ""
    wanted = 2
    for (n = 1; n <= depth && wanted; n++) {
        if (!is_ours(frames[n])) continue
        name = short(frames[n], 90)
        if (found == "" && is_loop(name)) return ""
        found = found == "" ? name : found " < " name
        wanted--
    }
    return found
}

# The call that a thread is in goes on until its exit.
function entered(    n, stack, waiting) {
    since[tid] = time
    waiting = callers()
    by[tid] = thread "\t" waiting
    delete path[tid]
    if (stacks != "" && waiting != "") {
        stack = thread
        for (n = depth; n > 0; n--) stack = stack ";" frames[n]
        path[tid] = stack
    }
}

function left(    took) {
    if (!(tid in since)) return
    took = time - since[tid]
    delete since[tid]
    if (by[tid] ~ /\t$/) { idle[thread] += took; return }
    waits[by[tid]]++
    waited[by[tid]] += took
    if (took > longest[by[tid]]) longest[by[tid]] = took
    all += took
    if (tid in path) flame[path[tid]] += took
}

/^[^ \t]/ || /^ *[^ \t].*: +syscalls:/ {
    if (!match($0, / +[0-9]+ +[0-9]+\.[0-9]+: +syscalls:/)) next
    thread = substr($0, 1, RSTART - 1)
    sub(/^ +/, "", thread)
    thread = plain(thread)
    split(substr($0, RSTART), words, " ")
    tid = words[1]
    time = words[2] + 0
    if ($0 ~ /sys_exit_futex/) { left(); inside = 0 } else { inside = 1; depth = 0 }
    next
}
/^$/ { if (inside) entered(); inside = 0; next }
inside {
    name = $0
    sub(/^[ \t]*[0-9a-f]+ /, "", name)
    frames[++depth] = name
}

END {
    if (stacks != "") for (key in flame) printf "%s %d\n", key, flame[key] * 1e6 >stacks
    printf "%8s %8s %9s %9s  %-14s %s\n",
        "s in all", "waits", "mean us", "most ms", "thread", "waiting function < its caller"
    for (n = 0; n < top; n++) {
        best = ""
        for (key in waited) if (best == "" || waited[key] > waited[best]) best = key
        if (best == "") break
        split(best, part, "\t")
        printf "%8.3f %8d %9.1f %9.2f  %-14s %s\n", waited[best], waits[best],
            1e6 * waited[best] / waits[best], 1e3 * longest[best], part[1], part[2]
        delete waited[best]
    }
    printf "%8.3f  all of these\n", all
    if (n == 0) print "no thread waited"
    line = ""
    for (key in idle) line = line sprintf(", %s %.1f s", key, idle[key])
    if (line == "") exit
    print "asleep in the thread's own loop, mostly for want of work: " substr(line, 3)
}
