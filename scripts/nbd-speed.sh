#!/bin/sh
# Speed over the network: Extol on an NBD server in memory whose every request takes a time, beside
# Linux's ext4 on an emulated medium with the same time, and nbdcopy on the same server.
#
#   sudo scripts/nbd-speed.sh [PROGRAMS [MICROSECONDS...]]
#
# PROGRAMS is the directory of extol and extol-bench (target/release), which are built before. The
# delay filter of nbdkit knows whole milliseconds only, so the server is a plugin of a few lines
# (Debian: nbdkit, nbdkit-plugin-dev, libnbd-bin, gcc). A flush takes the time of one request, as a
# round trip does.
#
# Exit codes: 0 measured, 1 something failed.
set -eu
programs=${1:-target/release}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- 200 1000 5000
seconds=${SECONDS_EACH:-3}
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$dir"' EXIT

cat >"$dir/plugin.c" <<'SOURCE'
#include <stdlib.h>
#include <string.h>
#include <time.h>
#define NBDKIT_API_VERSION 2
#include <nbdkit-plugin.h>
#define THREAD_MODEL NBDKIT_THREAD_MODEL_PARALLEL
static int64_t size;
static long delay;
static char *disk;
static void wait_one(void) {
    struct timespec t = { delay / 1000000, delay % 1000000 * 1000 };
    nanosleep(&t, NULL);
}
static int config(const char *key, const char *value) {
    if (!strcmp(key, "mib")) size = atol(value) << 20;
    else if (!strcmp(key, "delay")) delay = atol(value);
    else return -1;
    return 0;
}
static int ready(void) { return (disk = calloc(1, size)) ? 0 : -1; }
static void *opened(int readonly) { return NBDKIT_HANDLE_NOT_NEEDED; }
static int64_t get_size(void *h) { return size; }
static int yes(void *h) { return 1; }
static int fua(void *h) { return NBDKIT_FUA_NATIVE; }
static int pread_(void *h, void *buf, uint32_t n, uint64_t at, uint32_t flags) {
    wait_one();
    memcpy(buf, disk + at, n);
    return 0;
}
static int pwrite_(void *h, const void *buf, uint32_t n, uint64_t at, uint32_t flags) {
    wait_one();
    memcpy(disk + at, buf, n);
    return 0;
}
static int zero(void *h, uint32_t n, uint64_t at, uint32_t flags) {
    wait_one();
    memset(disk + at, 0, n);
    return 0;
}
static int flush(void *h, uint32_t flags) {
    wait_one();
    return 0;
}
static struct nbdkit_plugin plugin = {
    .name = "delayed", .config = config, .get_ready = ready, .open = opened,
    .get_size = get_size, .can_multi_conn = yes, .can_fua = fua,
    .pread = pread_, .pwrite = pwrite_, .zero = zero, .flush = flush,
};
NBDKIT_REGISTER_PLUGIN(plugin)
SOURCE

serve() { # MIB MICROSECONDS
    rm -f "$dir/pid" "$dir/sock"
    nbdkit -f -U "$dir/sock" -P "$dir/pid" cc "$dir/plugin.c" mib="$1" delay="$2" &
    server=$!
    while [ ! -s "$dir/pid" ]; do
        kill -0 "$server" || exit 1
        sleep 0.1
    done
}

ended() {
    kill "$server"
    wait "$server" || true
    server=
}

timed() { # WORD BYTES COMMAND...
    word=$1 bytes=$2
    shift 2
    begin=$(date +%s%N)
    "$@" >/dev/null
    end=$(date +%s%N)
    echo "$word $((bytes / ((end - begin) / 1000))) MB/s"
}

uri="nbd+unix:///?socket=$dir/sock"
for delay in "$@"; do
    echo "== ${delay} us for each request"
    # (Memory that is not written takes none.)
    serve 5120 "$delay"
    medium="custom:latency=${delay}us,flush=${delay}us,depth=64"
    for threads in 1 8; do
        load="fsmark -O fast_commit -t $threads -s 4096 -n 2000 -D 64 --seconds $seconds"
        # shellcheck disable=SC2086  # words
        "$programs/extol-bench" $load --medium "$uri" --target library --target mount
        # shellcheck disable=SC2086
        "$programs/extol-bench" $load --medium "$medium" --target kernel --target library
    done
    ended
    # An export that is nearly all data, which nbdcopy reads to its end.
    serve 768 "$delay"
    head -c 700M /dev/urandom >"$dir/data"
    "$programs/extol" mkfs -q -O ^mmp "$uri"
    "$programs/extol" put "$uri" "$dir/data" /data
    rm "$dir/data"
    mkdir -p "$dir/mnt"
    for _ in 1 2 3; do
        timed nbdcopy $((768 << 20)) nbdcopy "$uri" null:
        timed library $((700 << 20)) "$programs/extol" cat -o ro "$uri" /data
        "$programs/extol" mount -o ro "$uri" "$dir/mnt"
        timed mount $((700 << 20)) dd if="$dir/mnt/data" bs=1M status=none
        "$programs/extol" umount "$dir/mnt"
    done
    ended
done
