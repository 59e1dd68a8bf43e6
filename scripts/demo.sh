#!/usr/bin/env bash
# The demonstration behind `make demo`: a volume is made, mounted, filled from several threads with
# an fsync after every file, looked at, unmounted, and checked by e2fsck. Without FUSE the same
# happens through the library.
#
#   DEMO_IMAGE=demo.img DEMO_DIR=demo-mnt DEMO_FILES=4000 DEMO_THREADS=8 scripts/demo.sh
#   DEMO_EXTOL=PATH    with this extol: nothing is installed or built
#
# Needs what scripts/install-deps.sh demo installs. Exit code: 0, or that of the first step that
# fails.
set -euo pipefail
cd "$(dirname "$0")/.."

image=${DEMO_IMAGE:-demo.img}
dir=${DEMO_DIR:-demo-mnt}
files=${DEMO_FILES:-4000}
threads=${DEMO_THREADS:-8}
extol=${DEMO_EXTOL:-${CARGO_TARGET_DIR:-target}/quick/extol}
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

if [ -t 1 ]; then bold=$'\033[1m' plain=$'\033[0m'; else bold='' plain=''; fi
say() { printf '\n%s%s%s\n' "$bold" "$*" "$plain"; }

if [ -z "${DEMO_EXTOL:-}" ]; then
    scripts/install-deps.sh demo
    say "Building (the first time takes one to two minutes on two processors) ..."
    # Cargo shows its progress: a bar on a terminal, else a line for each crate.
    cargo build --profile quick -p extol-cli
fi

if [ ! -e "$image" ]; then
    say "Making a volume of 1 GiB in $image"
    "$extol" mkfs -q -L demo "$image" 1G
fi

if [ ! -w /dev/fuse ] || [ ! -r /dev/fuse ]; then
    say "There is no usable /dev/fuse here, so the library does the work without a mount"
    cargo run --profile quick -p extol --example demo_library -- "$image" "$files" "$threads"
    say "Checking with e2fsck -fn"
    e2fsck -fn "$image"
    say "What happened"
    cat <<EOF
$threads threads wrote $files small files to the volume in $image, each with its own fsync, through
the library crate, without the kernel. e2fsck found nothing to complain about.

What to try next: a machine with /dev/fuse (modprobe fuse, or docker run --device /dev/fuse
--cap-add SYS_ADMIN), or your own program with the crate: crates/extol/examples.
EOF
    exit 0
fi

mkdir -p "$dir"
cleanup() {
    if mountpoint -q "$dir"; then
        "$extol" umount "$dir" || fusermount3 -u "$dir" || true
    fi
    rmdir "$dir" 2>/dev/null || true
}
trap cleanup EXIT

say "Mounting $image on $dir"
"$extol" mount "$image" "$dir"
grep -F "$(cd "$dir" && pwd -P)" /proc/mounts

# (Also for two runs within a second.)
work=$dir/demo-$(date +%s)-$$
say "Writing $files files from $threads threads, an fsync after each"
mkdir "$work"
start=$(date +%s.%N)
pids=()
for t in $(seq "$threads"); do
    (
        mkdir "$work/$t"
        for n in $(seq $((files / threads))); do
            printf '%s\n' "file $n of thread $t" | dd of="$work/$t/$n" conv=fsync status=none
        done
    ) &
    pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid"; done
end=$(date +%s.%N)
count=$(find "$work" -type f | wc -l)
rate=$(awk -v n="$count" -v a="$start" -v b="$end" \
    'BEGIN { printf "%.1f s, %d files per second", b - a, n / (b - a) }')
echo "$count files in $rate"

say "What the journal did: extol stat $dir"
# The first part; the times are behind it.
"$extol" stat "$dir" | sed '/^$/q'

say "Unmounting"
"$extol" umount "$dir"

say "Checking with e2fsck -fn"
e2fsck -fn "$image"

say "What happened"
cat <<EOF
Extol mounted an ext4 volume in user space. $threads threads wrote $count small files, each with its
own fsync ($rate; starting a program per file takes most of that). Every change went through the
journal; after the unmount e2fsck found nothing to complain about, and Linux can mount the same
file:

  sudo mount -o loop $image /mnt
        the same volume, by the kernel
  $extol mount $image DIR; $extol stat DIR
        mount it again; kill -9 the daemon under load, mount, and look what is there
  $extol log $image
        the journal, block by block
  $extol info $image
        size, features and state
  $extol put $image README.md /
        copy files without mounting
EOF
