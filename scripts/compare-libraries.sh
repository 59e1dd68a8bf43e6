#!/usr/bin/env bash
# Extol as a library beside others that read ext4, on one image of 2 GB with 30,000 files in the
# page cache: listing it with the attributes of all files, reading and hashing all contents, and
# copying all files out. docs/performance-libraries.md has what it measured.
#
#   sudo scripts/compare-libraries.sh [-r ROUNDS] [-d DIR] [-x DIR] [CONTENDER...]
#
#   -r ROUNDS   how often each contender does each job, in turns (3)
#   -d DIR      where the image is made, and kept for the next run (target/compare)
#   -x DIR      where files are copied to: a tmpfs (/dev/shm)
#   CONTENDER   only these: extol.rs ext4-view rust-fs-ext4 fuse2fs linux extol.py dissect
#               pytsk3 extol.c ext2fs extol.command debugfs
#
# Builds, into target/compare, a program for each library from scripts/compare-libraries; those in
# Rust with the profile `release` of a project that sets none, and what extol's own scripts build
# with PROFILE (quick). What all contenders of a job found is compared: names, attributes and
# contents. Contents are compared with the files that the image was made of, too.
#
# Needs root (for mounts), cargo, a C compiler, python3 with venv, GNU time, e2fsprogs with fuse2fs,
# the headers of libext2fs and zlib (Debian: libext2fs-dev, zlib1g-dev), and the network for crates
# and for packages of Python.
#
# Exit codes: 0 measured, 1 something failed or contents differ, 2 wrong arguments.
set -euo pipefail
cd "$(dirname "$0")/.."
export LC_ALL=C PATH="$PATH:/usr/sbin:/sbin"
shopt -s inherit_errexit

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target PROFILE=${PROFILE:-quick}
sources=$PWD/scripts/compare-libraries
built=$target/compare
rounds=3 dir=$built out=/dev/shm
usage() { sed -n '2,/^set -/p' "$0" | sed '$d; s/^# \?//' >&2; exit 2; }
while getopts r:d:x: option; do
    case $option in
        r) rounds=$OPTARG ;;
        d) dir=$OPTARG ;;
        x) out=$OPTARG ;;
        *) usage ;;
    esac
done
shift $((OPTIND - 1))
[[ $rounds =~ ^[1-9][0-9]*$ ]] || usage
all=(extol.rs ext4-view rust-fs-ext4 fuse2fs linux extol.py dissect pytsk3 extol.c ext2fs
    extol.command debugfs)
contenders=("$@")
[ $# -gt 0 ] || contenders=("${all[@]}")
for name in "${contenders[@]}"; do
    [[ " ${all[*]} " == *" $name "* ]] || usage
done

say() { echo "compare-libraries: $*" >&2; }
die() { say "$*"; exit 1; }

build_rust() {
    local project=$built/rust name
    mkdir -p "$project"
    cp Cargo.lock "$project/Cargo.lock"
    {
        printf '[package]\nname = "compare"\nversion = "0.0.0"\nedition = "2024"\n\n[workspace]\n'
        printf '\n[dependencies]\ncrc32fast = "1"\next4-view = { version = "1", '
        printf 'features = ["std"] }\nrust-fs-ext4 = "0.8"\nextol = { path = "%s" }\n' \
            "$PWD/crates/extol"
        for name in extol ext4-view rust-fs-ext4 mounted; do
            printf '\n[[bin]]\nname = "read-%s"\npath = "%s/%s.rs"\n' "$name" "$sources" "$name"
        done
    } >"$project/Cargo.toml"
    cargo build --quiet --release --manifest-path "$project/Cargo.toml" \
        --target-dir "$built/build"
    bin=$built/build/release
}

build_python() {
    local venv=$built/venv
    [ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
    python=$venv/bin/python
    "$venv/bin/pip" install --quiet 'maturin>=1.9,<2' dissect.extfs pytsk3
    PATH=$venv/bin:$PATH "$venv/bin/pip" install --quiet --no-deps --no-build-isolation \
        --force-reinstall -C build-args="--profile $PROFILE --locked" bindings/python
}

build_c() {
    local private warnings=(-std=gnu11 -O2 -Wall -Wextra)
    scripts/libextol.sh >&2
    read -ra private <<<"$(cat "$target/libextol/private")"
    "${CC:-cc}" "${warnings[@]}" "$sources/libextol.c" -I"$target/libextol/include" \
        -o "$built/read-libextol" "$target/libextol/lib/libextol.a" "${private[@]}" -lz
    "${CC:-cc}" "${warnings[@]}" "$sources/libext2fs.c" -o "$built/read-libext2fs" \
        -lext2fs -lcom_err -lz
}

# The image, and beside it what it holds.
make_image() {
    [ ! -s "$image.hash" ] || return 0
    say "making $image"
    local tree=$scratch/tree
    "${python:-python3}" "$sources/tree.py" "$tree"
    rm -f "$image"
    mke2fs -q -t ext4 -d "$tree" "$image" 2560M
    "$bin/read-mounted" hash "$tree" >"$image.hash"
    rm -r "$tree"
}

mkdir -p "$dir"
image=$(realpath "$dir")/compare.img
scratch=$(mktemp -d "$out/compare-XXXXXX")
mnt=$scratch/mnt files=$scratch/files
clean() {
    ! mountpoint -q "$mnt" || umount "$mnt"
    rm -rf "$scratch"
}
trap clean EXIT
mkdir "$mnt"
[ "$(df --output=avail -B1M "$out" | tail -n 1)" -gt 3000 ] || die "$out has less than 3 GB free"
build_rust
build_python
build_c
cargo build --quiet --locked --profile "$PROFILE" -p extol-cli
profile_dir=$PROFILE
[ "$PROFILE" != dev ] || profile_dir=debug
extol=$target/$profile_dir/extol
make_image

# Runs a command, and leaves its processor time (user, system) and the most memory that it took, in
# KiB.
watched() { /usr/bin/time -f '%U %S %M' -o "$scratch/usage" "$@"; }

# The same for a job on a mount by fuse2fs, whose memory it is.
by_fuse2fs() { # JOB [DIRECTORY]
    watched fuse2fs -f -o ro "$image" "$mnt" >"$scratch/fuse2fs" 2>&1 &
    local server=$!
    until mountpoint -q "$mnt"; do
        kill -0 "$server" 2>/dev/null || die "fuse2fs: $(cat "$scratch/fuse2fs")"
        sleep 0.005
    done
    "$bin/read-mounted" "$1" "$mnt" "${@:2}"
    umount "$mnt"
    wait "$server"
}

by_linux() {
    mount -o ro,loop "$image" "$mnt"
    watched "$bin/read-mounted" "$1" "$mnt" "${@:2}"
    umount "$mnt"
}

# Does a job; prints what it found, if the contender tells. Fails with 3 if it cannot do it.
work() { # CONTENDER JOB [DIRECTORY]
    local name=$1 job=$2
    case $name in
        extol.rs) watched "$bin/read-extol" "$job" "$image" "${@:3}" ;;
        ext4-view | rust-fs-ext4) watched "$bin/read-$name" "$job" "$image" "${@:3}" ;;
        fuse2fs | linux) "by_$name" "${@:2}" ;;
        extol.py) watched "$python" "$sources/read.py" extol "$job" "$image" "${@:3}" ;;
        dissect | pytsk3) watched "$python" "$sources/read.py" "$name" "$job" "$image" "${@:3}" ;;
        extol.c) watched "$built/read-libextol" "$job" "$image" "${@:3}" ;;
        ext2fs) watched "$built/read-libext2fs" "$job" "$image" "${@:3}" ;;
        extol.command) watched "$extol" cp "$image" / "$3" ;;
        debugfs) watched debugfs -R "rdump / $3" "$image" 2>/dev/null ;;
    esac
}

measure() { # CONTENDER JOB
    local name=$1 job=$2 begin end want="$image.$2"
    if [ "$job" != extract ]; then
        # Commands only copy.
        case $name in extol.command | debugfs) return ;; esac
        begin=$(date +%s%N)
        work "$name" "$job" >"$scratch/said"
        end=$(date +%s%N)
    else
        want=$image.hash
        mkdir "$files"
        begin=$(date +%s%N)
        work "$name" extract "$files" >"$scratch/said"
        end=$(date +%s%N)
        "$bin/read-mounted" hash "$files" >"$scratch/said"
        rm -r "$files"
    fi
    # The first list says what the others have to find.
    [ -s "$want" ] || cp "$scratch/said" "$want"
    cmp -s "$want" "$scratch/said" ||
        die "$name, $job: found $(cat "$scratch/said"), not $(cat "$want")"
    echo "$name $job $(((end - begin) / 1000)) $(tail -n 1 "$scratch/usage")" >>"$scratch/times"
}

rm -f "$image.list"
for round in $(seq "$rounds"); do
    say "round $round of $rounds; load $(cut -d' ' -f1 /proc/loadavg)"
    cat "$image" >/dev/null
    for job in list hash extract; do
        for name in "${contenders[@]}"; do
            measure "$name" "$job"
        done
    done
done
python3 "$sources/report.py" <"$scratch/times"
