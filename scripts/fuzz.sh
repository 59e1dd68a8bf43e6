#!/usr/bin/env bash
# Fuzzing: builds fuzz/ with the installed stable Rust, runs its targets one after the other, and
# closes with a table. What is found lies in target/fuzz/found, and the message says how to run it
# again.
#
#   scripts/fuzz.sh [--seconds N] [TARGET...]   N seconds for each target (60); default: all targets
#   scripts/fuzz.sh --ci [TARGET...]            minutes in all: every kept input, then a fixed
#                                               number of new ones
#   scripts/fuzz.sh --minimise [TARGET...]      packs fuzz/corpus/TARGET.tar.gz anew: the smallest
#                                               set that reaches what all inputs reach
#   scripts/fuzz.sh --unpack TARGET             prints the directory with the inputs of the archive
#
# New inputs gather in target/fuzz/corpus, so the next run goes on where this one ended; they get
# into the archive with --minimise. An input that found a bug is kept as it is: copy it from
# target/fuzz/found to fuzz/cases/TARGET/, under a name that says what it shows.
# `cargo test -p extol-hostile --test replay` runs the archives and the cases.
#
# Needs a C++ compiler for libFuzzer. Exit code: 0, 1 if a target found something, 2 for wrong
# arguments.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60 ci='' minimise='' unpack=''
targets=()
while [ $# -gt 0 ]; do
    case $1 in
        --seconds) seconds=$2; shift ;;
        --ci) ci=1 ;;
        --minimise) minimise=1 ;;
        --unpack) unpack=1 ;;
        -*) sed -n '2,20s/^# \?//p' "$0" >&2; exit 2 ;;
        *) targets+=("$1") ;;
    esac
    shift
done
# (Each target has an archive: a test looks after it.)
mapfile -t all < <(basename -s .tar.gz fuzz/corpus/*.tar.gz)
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")

out=${CARGO_TARGET_DIR:-target}/fuzz

# unpacked TARGET: the inputs of its archive, in a directory of its own that is made anew.
unpacked() {
    local dir=$out/unpacked/$1
    rm -rf "$dir"
    mkdir -p "$dir"
    tar -xzf "fuzz/corpus/$1.tar.gz" -C "$dir"
    echo "$dir"
}
# packed TARGET DIR: the same bytes for the same files.
packed() {
    find "$2" -type f -printf '%P\n' | LC_ALL=C sort |
        tar --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=u=rw,go=r -C "$2" -T - -c |
        gzip -9n >"fuzz/corpus/$1.tar.gz"
}
if [ -n "$unpack" ]; then
    for target in "${targets[@]}"; do unpacked "$target"; done
    exit 0
fi

# libFuzzer's coverage comes from a pass that stable Rust has; address sanitising would need
# nightly, and there is no unsafe code to sanitise. Assertions and overflow checks are on: see the
# profile in fuzz/Cargo.toml.
host=$(rustc -vV | sed -n 's/^host: //p')
echo "building the fuzzer of ${#all[@]} targets ..."
# (fuzz/ is no member of the workspace, so nothing else notices when its lock file is out of date.)
locked=()
if [ -n "$ci" ]; then
    locked=(--locked)
    # (Compiling takes longer than the few inputs.)
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=1
fi
CARGO_TARGET_DIR=$out RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing" \
    cargo build --release --quiet "${locked[@]}" --manifest-path fuzz/Cargo.toml --target "$host"
# fuzz TARGET ARGUMENT...: libFuzzer with this target.
fuzz() { EXTOL_FUZZ_TARGET=$1 "$out/$host/release/extol-fuzz" "${@:2}"; }

# Volumes take longer than bytes. In CI the number of inputs and the seed are fixed: a change is
# blamed for what it does, not for what a new input finds in what was there before. (Long runs look
# for that.)
limits_of() {
    if [ -z "$ci" ]; then echo "-max_total_time=$seconds"; return; fi
    local runs=60000
    case $1 in
        volume) runs=100 ;;
        check | tune | values) runs=900 ;;
        resize) runs=60 ;;
        fast_commit) runs=200 ;;
        fuse_request | nfs_request) runs=1800 ;;
        log | journal_log | partition_table | oci | identify) runs=7000 ;;
        vmdk | vhdx) runs=12000 ;;
        qcow2 | meta_file | tar | verity | fscrypt | casefold | nbd) runs=30000 ;;
    esac
    echo "-seed=1 -reload=0 -runs=$runs -max_total_time=120"
}

if [ -n "$minimise" ]; then
    for target in "${targets[@]}"; do
        new=$out/minimised/$target
        rm -rf "$new"
        mkdir -p "$new" "$out/corpus/$target"
        old=$(unpacked "$target")
        fuzz "$target" -set_cover_merge=1 -max_len=4200 "$new" "$old" "$out/corpus/$target" \
            2>/dev/null
        packed "$target" "$new"
        echo "$target: $(find "$new" -type f | wc -l) inputs"
    done
    exit 0
fi

rows=() failed=()
mkdir -p "$out/logs" "$out/found"
for target in "${targets[@]}"; do
    mkdir -p "$out/corpus/$target"
    kept=("$(unpacked "$target")")
    [ ! -d "fuzz/cases/$target" ] || kept+=("fuzz/cases/$target")
    log=$out/logs/$target.log
    read -ra limits <<<"$(limits_of "$target")"
    fuzz "$target" "${limits[@]}" -max_len=2200 -timeout=20 -rss_limit_mb=2048 \
        -print_final_stats=1 -artifact_prefix="$out/found/$target-" \
        "$out/corpus/$target" "${kept[@]}" >"$log" 2>&1 &
    pid=$!
    # Progress: libFuzzer's last line of it, on a terminal.
    while [ -t 1 ] && kill -0 "$pid" 2>/dev/null; do
        line=$(grep -a 'cov: ' "$log" 2>/dev/null | tail -1 | cut -c1-90) || true
        printf '\r\033[K%-15s %s' "$target" "$line"
        sleep 1
    done
    crashes=0
    wait "$pid" || crashes=1
    [ ! -t 1 ] || printf '\r\033[K'
    stat() { sed -n "s/^stat::$1: *//p" "$log" | tail -1; }
    last=$(grep -a 'cov: ' "$log" | tail -1 || true)
    count=$(find "$out/corpus/$target" "${kept[@]}" -type f | wc -l)
    edges=$(sed -n 's/.*cov: \([0-9]*\).*/\1/p' <<<"$last")
    row=$(printf '%-15s %12s %10s %8s %9s %8s' "$target" "$(stat number_of_executed_units)" \
        "$(stat average_exec_per_sec)" "$count" "${edges:--}" "$crashes")
    rows+=("$row")
    echo "$row"
    if [ "$crashes" -ne 0 ]; then
        failed+=("$target")
        grep -a -m1 -A3 'panicked at\|ERROR: libFuzzer' "$log" | head -8 || true
        input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -1)
        echo "again: EXTOL_INPUT=$(realpath "$input")" \
            "cargo test -p extol-hostile --test replay -- $target"
    fi
done

printf '\n%-15s %12s %10s %8s %9s %8s\n' target executions per/second inputs edges crashes
printf '%s\n' "${rows[@]}"
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}" >&2
    exit 1
fi
