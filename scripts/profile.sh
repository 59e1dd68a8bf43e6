#!/usr/bin/env bash
# Where the time of a benchmark goes: flame graphs, the largest functions, and which threads wait
# for which lock.
#
#   scripts/profile.sh [OPTIONS] -- BENCHMARK ARGUMENTS...        (as of extol-bench)
#   sudo scripts/profile.sh --name mount -- fsmark -t 8 -s 4096 -n 2000 --seconds 3 --rounds 1 \
#       --target mount -O fast_commit
#
#   --name NAME   what the files are called (default: the benchmark's name)
#   --out DIR     where they go (default: target/profile/NAME of this name)
#   --freq N      samples per second and processor (default 1999)
#   --top N       lines of each table (default 10)
#   --machine     sample all processes: the kernel's own threads, too (write-back, loop devices),
#                 and whatever else runs
#   --no-waits    no second run for the lock waits
#   --keep        keep the recordings of perf, which are large
#
# The programs are built with frame pointers in a target directory of their own (target/profile).
# Then the benchmark runs twice, each time with all that it starts: once under `perf record` (time
# on a processor), once with every wait in a futex traced (time asleep for a lock or a condition
# variable). Made are cpu.svg, waits.svg, and report.txt, which is also printed.
#
# Needs perf (Debian: apt-get install linux-perf) and, for kernel functions and waits, root. Exit
# code: 0, 1 if the benchmark or perf fails, 2 for wrong arguments or if something is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "profile.sh: $*" >&2; }
usage() { sed -n '2,24s/^# \?//p' "$0" >&2; exit 2; }

name='' out='' freq=1999 top=10 machine=() waits=1 keep=''
while [ $# -gt 0 ]; do
    case $1 in
        --name | --out | --freq | --top) [ $# -gt 1 ] || usage; declare "${1#--}=$2"; shift ;;
        --machine) machine=(-a) ;;
        --no-waits) waits='' ;;
        --keep) keep=1 ;;
        --) shift; break ;;
        *) usage ;;
    esac
    shift
done
[ $# -ge 1 ] || usage
[[ $freq =~ ^[1-9][0-9]*$ && $top =~ ^[1-9][0-9]*$ ]] || usage

# What is missing is said before anything is built.
if ! perf --version >/dev/null 2>&1; then
    say "perf is missing (Debian: apt-get install linux-perf;" \
        "elsewhere the package of the running kernel's tools)"
    exit 2
fi
if [ "$(id -u)" -ne 0 ]; then
    paranoid=$(cat /proc/sys/kernel/perf_event_paranoid 2>/dev/null || echo 4)
    if [ "$paranoid" -gt 2 ]; then
        say "this kernel lets only root sample (kernel.perf_event_paranoid is $paranoid)"
        exit 2
    fi
    if [ ${#machine[@]} -gt 0 ]; then say "--machine needs root"; exit 2; fi
    if [ -n "$waits" ]; then
        say "not root: no lock waits, and no functions of the kernel"
        waits=''
    fi
fi
futex=syscalls:sys_enter_futex
if [ -n "$waits" ] && ! perf list "$futex" 2>/dev/null | grep -q sys_enter_futex; then
    say "this kernel has no tracepoints of system calls: no lock waits"
    waits=''
fi

base=${CARGO_TARGET_DIR:-target}/profile
name=${name:-$1}
out=${out:-$base/of/$name}
mkdir -p "$out"
inferno=$base/tools/bin
program=$base/profiling/extol-bench

RUSTFLAGS="${RUSTFLAGS:-} -C force-frame-pointers=yes" CARGO_TARGET_DIR=$base \
    cargo build --profile profiling --quiet -p extol-cli -p extol-bench
if [ ! -x "$inferno/inferno-flamegraph" ]; then
    say "installing inferno into $base/tools"
    CARGO_TARGET_DIR=$base/tools/build cargo install --quiet --locked --root "$base/tools" inferno \
        --bin inferno-collapse-perf --bin inferno-flamegraph
    rm -rf "$base/tools/build"
fi

recorded=()
# Recordings go, however this ends. (The benchmark unmounts and removes what it made itself, also
# when it is interrupted.)
# shellcheck disable=SC2329
clean() { [ -n "$keep" ] || rm -f ${recorded[@]+"${recorded[@]}"} "$out/stacks"; }
trap clean EXIT

# record FILE PERF-OPTIONS...: runs the benchmark below perf, which says nothing unless it fails.
record() {
    local file=$1
    shift
    recorded+=("$file")
    if ! perf record -q "$@" -o "$file" -- "$program" "${bench[@]}" \
        >"$out/bench.txt" 2>"$out/perf.log"; then
        say "perf record, or the benchmark below it, failed:"
        tail -n 5 "$out/perf.log" "$out/bench.txt" >&2
        exit 1
    fi
    # Samples that perf could not keep up with are missing in what follows.
    grep -i 'lost\|overload' "$out/perf.log" >&2 || true
}

bench=("$@")
say "sampling: extol-bench ${bench[*]}"
record "$out/cpu.data" -F "$freq" --call-graph fp ${machine[@]+"${machine[@]}"}
perf script --no-inline -i "$out/cpu.data" 2>/dev/null |
    "$inferno/inferno-collapse-perf" >"$out/stacks" 2>/dev/null
title="extol-bench ${bench[*]}"
"$inferno/inferno-flamegraph" --title "$title" --subtitle "time on a processor" \
    "$out/stacks" >"$out/cpu.svg"
{
    echo "$title"
    awk -v top="$top" -f scripts/profile/names.awk -f scripts/profile/shares.awk "$out/stacks"
} >"$out/report.txt"

if [ -n "$waits" ]; then
    say "tracing waits: extol-bench ${bench[*]}"
    # FUTEX_WAIT and FUTEX_WAIT_BITSET, private or not. Only the beginning of a wait needs a stack.
    record "$out/waits.data" -m 4096 --user-callchains \
        -e "$futex"/call-graph=fp/ \
        --filter 'op == 0 || op == 9 || op == 128 || op == 137' \
        -e syscalls:sys_exit_futex/call-graph=no/
    {
        printf '\nwaits for locks and condition variables (another run)\n'
        perf script --no-inline -F comm,tid,time,event,ip,sym -i "$out/waits.data" 2>/dev/null |
            awk -v top="$top" -v stacks="$out/stacks" \
                -f scripts/profile/names.awk -f scripts/profile/waits.awk
    } >>"$out/report.txt"
    "$inferno/inferno-flamegraph" --title "$title" --subtitle "time asleep in a futex" \
        --countname us "$out/stacks" >"$out/waits.svg"
fi
rm -f "$out/perf.log"
cat "$out/report.txt"
say "made $(cd "$out" && echo "$PWD"): $(cd "$out" && echo *.svg report.txt)"
