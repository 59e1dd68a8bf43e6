#!/usr/bin/env bash
# Checks that the library compiles for other systems and processors, and runs the command as a
# static program (musl).
#
#   scripts/targets.sh             all of it
#   scripts/targets.sh --check     the library alone, for one Linux with 32 bits, macOS and Windows
#   scripts/targets.sh --run       uses volumes elsewhere: a program (scripts/targets/elsewhere.rs)
#                                  runs for other processors, emulated, and for Windows, by Wine;
#                                  e2fsck checks what it leaves, and an image of an archive has to
#                                  be the same everywhere
#   scripts/targets.sh --require   fails where something is missing; else that part is skipped
#
# Adds the standard libraries that are missing with rustup, which needs the network. The static
# program needs musl-gcc (scripts/install-deps.sh) and takes minutes to build; --run needs linkers
# and qemu-user-static, and Wine (scripts/install-deps.sh targets), and a minute for each target.
# Exit code: 0, or 1 if a check failed.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/heartbeat.sh

# With other pointers, another byte order, another C library.
linux=(i686-unknown-linux-gnu s390x-unknown-linux-gnu aarch64-unknown-linux-gnu
    riscv64gc-unknown-linux-gnu x86_64-unknown-linux-musl)
others=(aarch64-apple-darwin x86_64-unknown-freebsd x86_64-pc-windows-gnu)
few=(i686-unknown-linux-gnu aarch64-apple-darwin x86_64-pc-windows-gnu)
static=x86_64-unknown-linux-musl
# What needs no C compiler for the target. The crate io-uring has Linux's numbers for some
# processors only.
portable=check,encryption,formats,image,json,verity
has_io_uring='^(x86_64|aarch64|riscv64gc)-.*-linux-'

# What runs here, with the linker and what runs its programs.
run=("s390x-unknown-linux-gnu s390x-linux-gnu-gcc qemu-s390x-static -L /usr/s390x-linux-gnu"
    "i686-unknown-linux-gnu i686-linux-gnu-gcc qemu-i386-static -L /usr/i686-linux-gnu"
    "aarch64-unknown-linux-gnu aarch64-linux-gnu-gcc qemu-aarch64-static -L /usr/aarch64-linux-gnu"
    "x86_64-pc-windows-gnu x86_64-w64-mingw32-gcc wine")

check_only='' run_only='' require=''
for word in "$@"; do
    case $word in
        --check) check_only=1 ;;
        --run) run_only=1 ;;
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
        # (TLS needs a C compiler for the target.)
        [[ $target = *-windows-* ]] || [ -n "$check_only" ] ||
            check "$target" --no-default-features --features extol-block/network
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

# Makes the program for a target; says where it is.
build_elsewhere() { # TARGET [LINKER]
    local project=$CARGO_TARGET_DIR/elsewhere-project
    mkdir -p "$project"
    cp Cargo.lock "$project/"
    cat >"$project/Cargo.toml" <<TOML
[package]
name = "elsewhere"
version = "0.0.0"
edition = "2024"

[workspace]

[profile.dev]
opt-level = 1

[[bin]]
name = "elsewhere"
path = "$PWD/scripts/targets/elsewhere.rs"

[dependencies.extol]
path = "$PWD/crates/extol"
default-features = false
features = ["${portable//,/\", \"}"]
TOML
    local name=CARGO_TARGET_${1^^}_LINKER
    [ -z "${2:-}" ] || export "${name//-/_}=$2"
    cargo build --quiet --manifest-path "$project/Cargo.toml" --target "$1" >&2 &&
        find "$CARGO_TARGET_DIR/$1/debug" -maxdepth 1 \( -name elsewhere -o -name elsewhere.exe \)
}

# Runs it, and checks what it leaves. Its files are in the directory $work/TARGET.
use_elsewhere() { # TARGET PROGRAM [RUNNER...]
    local dir=$work/$1 program=$2 of_root=
    shift 2
    mkdir "$dir" && truncate -s 64M "$dir/disk.img" &&
        mke2fs -q -t ext4 -O fast_commit "$dir/disk.img" || return
    if [ "${1:-}" = wine ]; then
        of_root=Z:
        export WINEPREFIX=$work/wine WINEDEBUG=-all
        # (The first run makes its directory.)
        wine cmd /c exit >/dev/null 2>&1 || true
        x86_64-w64-mingw32-gcc -shared -o "$(dirname "$program")/bcryptprimitives.dll" \
            scripts/targets/bcryptprimitives.c -ladvapi32
    fi
    timeout 300 "$@" "$program" "$of_root$dir/disk.img" "$of_root$dir/new.img" \
        "$of_root$work/files.tar" >"$dir/said" 2>&1 || { cat "$dir/said" >&2; return 1; }
    local image
    for image in disk new; do
        e2fsck -fn "$dir/$image.img" >"$dir/fsck" 2>&1 || { cat "$dir/fsck" >&2; return 1; }
    done
    grep -q '^used' "$dir/said" && cmp "$dir/new.img" "$work/here/new.img"
}

run_elsewhere() {
    local entry target linker runner program
    tar -cf "$work/files.tar" --sort=name --format=pax docs scripts
    program=$(build_elsewhere x86_64-unknown-linux-gnu)
    mkdir -p "$work/here"
    truncate -s 64M "$work/here/disk.img"
    mke2fs -q -t ext4 "$work/here/disk.img"
    "$program" "$work/here/disk.img" "$work/here/new.img" "$work/files.tar" >/dev/null
    for entry in "${run[@]}"; do
        read -r target linker runner <<<"$entry"
        if ! command -v "$linker" >/dev/null || ! command -v "${runner%% *}" >/dev/null; then
            skip "$target" "$linker or ${runner%% *} is missing (scripts/install-deps.sh targets)"
        elif ! has_std "$target"; then
            skip "$target" "rustup cannot add its standard library"
        else
            local began=$SECONDS
            heartbeat "building and running for $target"
            # shellcheck disable=SC2086 # (words)
            if program=$(build_elsewhere "$target" "$linker") &&
                use_elsewhere "$target" "$program" $runner; then
                echo "$target: uses volumes ($(minutes $((SECONDS - began))))"
            else
                failed+=("$target: volumes")
            fi
            end_heartbeat
        fi
    done
}

if [ -n "$run_only" ]; then
    run_elsewhere
elif [ -n "$check_only" ]; then
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
