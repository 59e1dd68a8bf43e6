#!/usr/bin/env bash
# Measures `extol export` beside Linux's NFS server (knfsd) on ext4 with fast_commit, both in the
# guest (testing/guest) on the same drive: the host's kernel seldom has a server, and its ext4 not
# the guest's. The client is that of extol-bench, in the guest, too.
#
#   scripts/nfs-beside-linux.sh [-o FILE] [-r ROUNDS] [-s SECONDS] [-d DELAY_US,...]
#
# Each run is on a fresh volume; the servers take turns. Prints a line for each run (load, delay,
# server, rate), and in the end the ratio of the medians. Software emulation makes processors slow
# and leaves the drive as it is: the ratio is that of a machine with slow processors. Needs what the
# guest needs, and perl. Exit code: 0, or 1 if a run failed.
set -euo pipefail
cd "$(dirname "$0")/.."
out=/dev/null rounds=3 seconds=4 delays=100,300,1000
while getopts o:r:s:d: option; do
    case $option in
    o) out=$OPTARG ;;
    r) rounds=$OPTARG ;;
    s) seconds=$OPTARG ;;
    d) delays=$OPTARG ;;
    *) exit 1 ;;
    esac
done
scripts/guest.sh
cargo build -q --profile quick -p extol-bench -p extol-cli -p extol-guest
work=$(mktemp -d /var/tmp/extol-nfs.XXXXXX)
trap 'rm -rf "$work"' EXIT
truncate -s 1G "$work/drive.img"
{
    echo "ROUNDS=$rounds SECONDS=$seconds DELAYS='${delays//,/ }'"
    cat scripts/nfs-beside-linux.guest.sh
} >"$work/script"
PATH=$PWD/${CARGO_TARGET_DIR:-target}/quick:$PATH "${CARGO_TARGET_DIR:-target}/quick/extol-guest" \
    -l 3000 -m nfsd -p extol -p extol-bench -p perl "$work/drive.img" <"$work/script" |
    tee "$out" | tee "$work/lines"
echo
echo "load, delay in us, knfsd, extol, ratio of the medians"
awk '
    $1 == "run" { key = $2 "," $3; keys[key]; n = ++count[key, $4]; rate[key, $4, n] = $5 }
    function median(key, side,    i, j, t, n, a) {
        n = count[key, side]
        for (i = 1; i <= n; i++) a[i] = rate[key, side, i]
        for (i = 1; i <= n; i++) for (j = i + 1; j <= n; j++)
            if (a[j] < a[i]) { t = a[i]; a[i] = a[j]; a[j] = t }
        return n % 2 ? a[(n + 1) / 2] : (a[n / 2] + a[n / 2 + 1]) / 2
    }
    END {
        for (key in keys) {
            linux = median(key, "knfsd"); ours = median(key, "extol")
            printf "%s %.1f %.1f %.2f\n", key, linux, ours, linux ? ours / linux : 0
        }
    }' "$work/lines" | sort
grep -q '^run' "$work/lines" && ! grep -q '^failed' "$work/lines"
