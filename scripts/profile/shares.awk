# Reads stacks as inferno-collapse-perf writes them (`thread;outermost;…;innermost COUNT`) and
# prints where the time went: by thread, by the function that ran, and by the functions of Extol
# that were on the stack.
#
#   awk -v top=10 -f names.awk -f shares.awk COLLAPSED

# Where the kernel hands a system call on to its function. (That function's own name may be missing,
# where it only calls another.)
function is_entry(name) {
    return name ~ /^(do_syscall_64|x64_sys_call|invoke_syscall|el0_svc|do_el0_svc)/
}

# The largest first. `order` holds what was printed.
function table(title, counts,    n, key, best) {
    printf "\n%s\n", title
    for (n = 0; n < top; n++) {
        best = ""
        for (key in counts) {
            if ((title, key) in shown) continue
            if (best == "" || counts[key] > counts[best]) best = key
        }
        if (best == "" || counts[best] * 1000 < total) break
        shown[title, best] = 1
        printf "%6.1f %%  %s\n", 100 * counts[best] / total, best
    }
}

{
    count = $NF
    stack = $0
    sub(/ [0-9]+$/, "", stack)
    depth = split(stack, frames, ";")
    total += count
    threads[plain(frames[1])] += count
    if (depth > 1) ran[short(frames[depth], 110)] += count
    # Once for each stack, however often it is on it.
    split("", seen)
    for (n = 2; n <= depth; n++) {
        if (is_entry(frames[n])) {
            while (n < depth && is_entry(frames[n + 1])) n++
            name = n < depth ? frames[n + 1] : "entry and exit"
            sub(/^(__[a-z0-9]*_sys_|ksys_|__do_sys_|do_sys_|do_)/, "", name)
            calls[plain(frames[1]) ": " name] += count
            # No function of Extol is below it.
            break
        }
        if (frames[n] !~ /extol/ || frames[n] ~ /^<?extol(_bench|::bench|::main)/) continue
        name = short(frames[n], 110)
        if (name in seen) continue
        seen[name] = 1
        under[name] += count
    }
}

END {
    if (!total) { print "no samples"; exit 1 }
    table("share of each thread name", threads)
    table("system calls, by thread", calls)
    table("functions that ran (the kernel's have no path)", ran)
    table("functions of Extol, with all that they called", under)
}
