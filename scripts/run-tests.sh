#!/usr/bin/env bash
# Runs all test programs of the workspace, four at a time: many of them wait for disks, mounts and
# clocks. What runs is what `cargo test --workspace --no-fail-fast` runs, with its "Running" and
# "test result:" lines, and the model besides; the output of a program comes in one piece when it
# has ended. Every half a minute a line says what is running. A table of what took how long closes,
# the longest first, and a line that says how many passed.
#
#   scripts/run-tests.sh [COMMAND...]   each COMMAND (quoted, one word) runs beside them like one
#                                       more program
#   scripts/run-tests.sh --list         prints what would run, and runs nothing
#   EXTOL_LANES=n                       n programs at a time instead of 4
#
# Exit code: 0, or 1 with the names of what failed.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
. scripts/heartbeat.sh

# These measure time, or count loop devices: they run one by one when all else has ended.
alone='^(testing/e2e/(bounds|commands)|bench/tests/medium)\.rs'
# What takes longest begins first, so that no lane waits for it at the end. A name that is missing
# here costs only time.
longest=(crates/extol/tests/resize testing/crashkit/tests/crash_states
    crates/extol/tests/encrypted crates/extol/tests/faults crates/image/src testing/e2e/interop
    testing/crashkit/tests/planted_bugs testing/e2e/stress testing/e2e/loads testing/e2e/pjdfstest
    testing/hostile/tests/storm crates/extol/src testing/e2e/bad_input crates/jbd2/tests/model
    crates/ondisk/tests/images testing/e2e/posix crates/extol/tests/random)

work=$(mktemp -d)
trap 'end_heartbeat; rm -rf "$work"' EXIT

# A job is a line "title <tab> directory <tab> command". Cargo says which test programs there are;
# its errors are its own. A title is the source's path (cargo has crates/cli/../../testing/e2e).
list() {
    local path='"manifest_path":"([^"]*)/Cargo.toml".*"src_path":"([^"]*)"'
    local program='"executable":"([^"]*)"' test='"profile":\{[^}]*"test":true[^}]*\}'
    local example='/crates\/extol\/Cargo.toml.*"kind":\["example"\]/' job='\2\t\1\t'"'\3'"
    cargo test --workspace --no-run --quiet --message-format=json-render-diagnostics "$@" \
        >"$work/cargo"
    {
        sed -En "s|.*$path.*$test.*$program.*|$job|p" "$work/cargo"
        # The library's examples, as a reader of the documentation would run them.
        sed -En "${example}s|.*$path.*$program.*|$job >/dev/null|p" "$work/cargo"
    } | sed "s|^$root/||; s|^[^/\t]*/[^/\t]*/\.\./\.\./||" | sort >>"$work/all"
}
[ "${1:-}" = --list ] || heartbeat "building the tests"
list --features extol-jbd2/model --test model
list
# Should cargo's list look different one day, "nothing ran" must not pass for success.
for must in crates/extol/src/lib.rs crates/extol/examples/read_file.rs \
    testing/e2e/interop/main.rs bench/tests/command.rs crates/jbd2/tests/model/main.rs; do
    if ! grep -q "^$must" "$work/all"; then
        echo "$must is not among the tests that cargo lists" >&2
        exit 1
    fi
done
if [ "${1:-}" = --list ]; then
    cut -f 1 "$work/all"
    exit
fi

for command in "$@"; do printf '%s\t%s\t%s\n' "$command" "$root" "$command"; done >"$work/jobs"
for name in "${longest[@]}"; do grep "^$name[./]" "$work/all" || true; done >>"$work/jobs"
printf '%s\t%s\t%s\n' "documentation of all crates" "$root" \
    "cargo test --workspace --no-fail-fast --doc" >>"$work/jobs"
cat "$work/all" >>"$work/jobs"
# Each once, at its first place.
awk '!seen[$0]++' "$work/jobs" | grep -vE "$alone" >"$work/together"
grep -E "$alone" "$work/all" >"$work/apart"

# Tests of libraries make many images and delete them again. In memory, where there is room for
# them, they do not wait for a disk, which none of them tests. (The kernel's own ext4 does
# more on a loop device over a disk than over memory, which one of them compares.)
memory=
if [ "$(df --output=avail -B 1G /dev/shm 2>/dev/null | tail -n 1)" -ge 8 ] 2>/dev/null; then
    memory=/dev/shm
fi
on_disk='^crates/(cli|extol/tests/encrypted)'

# Runs job number $2 of list $1, unless another lane has taken it.
run_job() {
    local mine=$work/$1.$2 title dir command rc=0 TIMEFORMAT='%R %U %S'
    mkdir "$mine" 2>/dev/null || return 0
    IFS=$'\t' read -r title dir command < <(sed -n "$2p" "$work/$1")
    if [[ -n $memory && $title == crates/* && ! $title =~ $on_disk ]]; then
        command="TMPDIR=$memory $command"
    fi
    printf '%s\t%s\n' "$SECONDS" "$title" >"$mine/running"
    {
        # (The shell has commands in the background ignore these signals, and their children too.)
        time {
            (cd "$dir" && eval "env --default-signal=HUP,INT,QUIT $command") \
                >"$mine/log" 2>&1 </dev/null
        }
    } 2>"$mine/time" || rc=$?
    rm "$mine/running"
    (
        flock 9
        printf '     Running %s (%s)\n' "$title" "${command//"$root/"/}"
        cat "$mine/log"
        [ "$rc" -eq 0 ] || printf '%s: exit code %s\n' "$title" "$rc" | tee -a "$work/failed"
        read -r real user system < <(tail -n 1 "$mine/time")
        printf '%8.1f %8.1f %8.1f  %s\n' "$real" "$user" "$system" "$title" >>"$work/times"
    ) 9>"$work/lock"
}
run_list() {
    local lane n lanes=()
    for lane in $(seq "$2"); do
        for n in $(seq "$(wc -l <"$work/$1")"); do run_job "$1" "$n"; done &
        lanes+=($!)
    done
    wait "${lanes[@]}"
}
all=$(cat "$work/together" "$work/apart" | wc -l)
# What is running, and since when.
running() {
    local done=0 list='' since title file
    [ ! -e "$work/times" ] || done=$(wc -l <"$work/times")
    for file in "$work"/*/running; do
        IFS=$'\t' read -r since title 2>/dev/null <"$file" || continue
        list+="${list:+, }$title ($(minutes $((SECONDS - since))))"
    done
    echo "$done of $all done; running: ${list:-nothing}"
}
heartbeat running
run_list together "${EXTOL_LANES:-4}"
run_list apart 1

end_heartbeat
ran=$(wc -l <"$work/times")
[ "$ran" -eq "$all" ] || echo "not all of them ran: $ran of $all" >>"$work/failed"
printf '\n    real     user   system  seconds of\n'
sort -rn "$work/times"
if [ -e "$work/failed" ]; then
    printf '\nfailed:\n%s\n' "$(cat "$work/failed")"
    printf '\n%s programs ran in %s: FAILED\n' "$ran" "$(minutes "$SECONDS")"
    exit 1
fi
printf '\n%s programs ran in %s: all passed\n' "$ran" "$(minutes "$SECONDS")"
