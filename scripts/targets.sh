#!/usr/bin/env bash
# Checks that the library compiles for other systems and processors, and runs the command as a
# static program (musl).
#
#   scripts/targets.sh             all of it
#   scripts/targets.sh --check     the library alone, for one Linux with 32 bits and for macOS
#   scripts/targets.sh --require   fails where a standard library or musl-gcc is missing; else that
#                                  part is skipped
#
# Adds the standard libraries that are missing with rustup, which needs the network. The static
# program needs musl-gcc (scripts/install-deps.sh) and takes minutes to build. Exit code: 0, or 1 if
# a check failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/heartbeat.sh

# With other pointers, another byte order, another C library.
linux=(i686-unknown-linux-gnu s390x-unknown-linux-gnu aarch64-unknown-linux-gnu
    riscv64gc-unknown-linux-gnu x86_64-unknown-linux-musl)
others=(aarch64-apple-darwin x86_64-unknown-freebsd)
few=(i686-unknown-linux-gnu aarch64-apple-darwin)
static=x86_64-unknown-linux-musl
# What needs no C compiler for the target. The crate io-uring has Linux's numbers for some
# processors only.
portable=check,encryption,formats,image,json,verity
has_io_uring='^(x86_64|aarch64|riscv64gc)-.*-linux-'

check_only='' require=''
for word in "$@"; do
    case $word in
        --check) check_only=1 ;;
        --require) require=1 ;;
        *) echo "unknown: $word (see the head of $0)" >&2; exit 2 ;;
    esac
done
# (Apart from that of the tests, which wait for each other's builds.)
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target/targets}
failed=() skipped=()
work=$(mktemp -d)
trap 'end_heartbeat; rm -rf "$work"' EXIT

skip() {
    skipped+=("$1")
    echo "$1: skipped: $2"
}

# True if the standard library for a target is there, or can be added.
has_std() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] ||
        timeout 60 rustup --quiet target add "$1" >/dev/null 2>&1
}

# check TARGET [ARGUMENT...]
check() {
    local began=$SECONDS
    if cargo check --quiet --locked -p extol --target "$@"; then
        echo "$1: ${4:-no features}: compiles ($(minutes $((SECONDS - began))))"
    else
        failed+=("$*")
    fi
}

check_all() {
    local target
    for target in "$@"; do
        if ! has_std "$target"; then
            skip "$target" "rustup cannot add its standard library"
            continue
        fi
        [ -n "$check_only" ] || check "$target" --no-default-features
        local with=$portable
        ! [[ $target =~ $has_io_uring ]] || with+=,io-uring
        check "$target" --no-default-features --features "$with"
    done
}

# Makes a volume with the static program, and looks into it. (Not by `set -e`, which has no effect
# in a condition.)
use_static() {
    local extol=$1 disk=$2/disk.img
    ! ldd "$extol" 2>/dev/null | grep -F '=>' &&
        truncate -s 64M "$disk" &&
        "$extol" mkfs "$disk" >/dev/null &&
        "$extol" put "$disk" Cargo.toml /copied &&
        [ "$("$extol" ls "$disk" /)" = $'copied\nlost+found' ] &&
        "$extol" cat "$disk" /copied | cmp - Cargo.toml &&
        "$extol" check "$disk" &&
        e2fsck -fn "$disk" >/dev/null 2>&1
}

run_static() {
    if ! command -v musl-gcc >/dev/null; then
        skip "the static program" "musl-gcc is missing (Debian: musl-tools)"
    elif [ "$(uname -sm)" != "Linux x86_64" ]; then
        skip "the static program" "it is one for Linux on x86_64"
    elif ! has_std "$static"; then
        skip "the static program" "rustup cannot add the standard library of $static"
    else
        heartbeat "building the static program"
        if cargo build --quiet --locked -p extol-cli --target "$static" &&
            use_static "$CARGO_TARGET_DIR/$static/debug/extol" "$work"; then
            echo "the static program makes, fills, lists and checks a volume"
        else
            failed+=("the static program")
        fi
        end_heartbeat
    fi
}

if [ -n "$check_only" ]; then
    check_all "${few[@]}"
else
    check_all "${linux[@]}" "${others[@]}"
    run_static
fi
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}" >&2
    exit 1
fi
[ -z "$require" ] || [ ${#skipped[@]} -eq 0 ]
