#!/bin/bash
# A volume on Ceph: starts a real cluster on this host (a monitor, a manager, three OSDs in files),
# makes an image, exports it by qemu-nbd, mounts it with Extol, works, kills an OSD, works on, kills
# the server, works on, and checks.
#
#   sudo scripts/ceph-test.sh [EXTOL]
#
# EXTOL is the program (target/release/extol). Debian's packages: ceph-mon ceph-mgr ceph-osd
# ceph-common qemu-utils qemu-block-extra e2fsprogs. No cluster of the machine is touched: all is
# in a directory of its own, on ports of the loopback, and gone afterwards.
#
# Exit codes: 0 all is there, 1 something is not, 2 a program is missing.
set -euo pipefail
extol=$(realpath "${1:-target/release/extol}")
for program in ceph ceph-mon ceph-mgr ceph-osd monmaptool rbd qemu-nbd e2fsck uuidgen "$extol"; do
    command -v "$program" >/dev/null || { echo "missing: $program" >&2; exit 2; }
done
dir=$(mktemp -d /var/tmp/extol-ceph.XXXXXX)
declare -A pids=()

end() {
    if mountpoint -q "$dir/mnt"; then
        umount -l "$dir/mnt" || true
    fi
    for name in "${!pids[@]}"; do
        kill -KILL "${pids[$name]}" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    if [ "${KEEP:-}" ]; then echo "kept: $dir"; else rm -rf "$dir"; fi
}
trap end EXIT

start() { # NAME COMMAND...
    local name=$1
    shift
    "$@" >"$dir/$name.log" 2>&1 &
    pids[$name]=$!
}

kill_now() { # NAME
    kill -KILL "${pids[$1]}"
    wait "${pids[$1]}" 2>/dev/null || true
    unset "pids[$1]"
}

ended() { # NAME
    wait "${pids[$1]}"
    unset "pids[$1]"
}

wait_for() { # WHAT SECONDS COMMAND...
    local what=$1 until=$((SECONDS + $2))
    shift 2
    until "$@" >/dev/null 2>&1; do
        if [ $SECONDS -ge $until ]; then
            echo "not in time: $what" >&2
            tail -n 5 "$dir"/*.log >&2
            exit 1
        fi
        sleep 0.5
    done
}

say() { echo "$((SECONDS)) s: $*"; }

# --- the cluster ---------------------------------------------------------------------------------
fsid=$(uuidgen)
mkdir "$dir/mnt" "$dir/mon" "$dir/mgr"
cat >"$dir/ceph.conf" <<CONF
[global]
fsid = $fsid
mon host = [v2:127.0.0.1:23300,v1:127.0.0.1:26789]
public addr = 127.0.0.1
cluster addr = 127.0.0.1
auth cluster required = none
auth service required = none
auth client required = none
osd pool default size = 3
osd pool default min size = 2
osd crush chooseleaf type = 0
osd objectstore = bluestore
bluestore block size = 2147483648
osd memory target = 939524096
osd heartbeat grace = 6
osd heartbeat interval = 2
mon osd min down reporters = 1
mon allow pool size one = true
run dir = $dir
admin socket = $dir/\$name.asok
log file = $dir/\$name.ceph.log
mon data = $dir/mon
mgr data = $dir/mgr
osd data = $dir/osd.\$id
crash dir = $dir
CONF
export CEPH_CONF=$dir/ceph.conf
monmaptool --create --fsid "$fsid" --addv a '[v2:127.0.0.1:23300,v1:127.0.0.1:26789]' \
    "$dir/monmap" >/dev/null
ceph-mon -i a --mkfs --monmap "$dir/monmap"
start mon ceph-mon -f -i a
wait_for "the monitor" 30 timeout 5 ceph -s
start mgr ceph-mgr -f -i x
for id in 0 1 2; do
    uuid=$(uuidgen)
    [ "$(ceph osd new "$uuid")" = $id ]
    mkdir "$dir/osd.$id"
    ceph-osd -i $id --mkfs --osd-uuid "$uuid" >"$dir/mkfs.$id.log" 2>&1
    start osd.$id ceph-osd -f -i $id
done
osds_up() { timeout 5 ceph osd stat 2>/dev/null | grep -q "$1 up"; }
wait_for "three OSDs" 60 osds_up 3
timeout 60 ceph osd pool create rbd 8 8 >/dev/null 2>&1
timeout 60 rbd create --size 1G --image-feature layering,exclusive-lock rbd/disk
say "$(ceph --version | cut -d' ' -f1-3), three OSDs, an image"

# --- the server and the mount --------------------------------------------------------------------
serve() {
    rm -f "$dir/sock" "$dir/nbd.pid"
    start server qemu-nbd --persistent --shared=4 --discard=unmap -k "$dir/sock" \
        --pid-file "$dir/nbd.pid" -f raw "rbd:rbd/disk:conf=$CEPH_CONF"
    wait_for "the server" 30 test -s "$dir/nbd.pid"
}
work() { # ROUND
    mkdir "$dir/mnt/$1"
    for nr in $(seq 60); do
        head -c $((nr * 3001)) /dev/urandom >"$dir/mnt/$1/$nr"
        sync "$dir/mnt/$1/$nr"
    done
    (cd "$dir/mnt/$1" && sha256sum -- *) >"$dir/$1.sums"
}
known() { # ROUND...
    for round in "$@"; do
        (cd "$dir/mnt/$round" && sha256sum --quiet -c "$dir/$round.sums")
    done
}
serve
uri="nbd+unix:///?socket=$dir/sock&settle=5"
"$extol" mkfs -q "$uri"
start mount "$extol" mount -f "$uri" "$dir/mnt"
wait_for "the mount" 60 mountpoint -q "$dir/mnt"
work one
say "worked on it"

kill_now osd.1
work two
wait_for "the cluster to see two OSDs" 90 osds_up 2
work three
say "worked on without an OSD"

# The server dies with what it has not flushed; the next one takes over the image's lock.
(work four) &
worker=$!
sleep 0.3
kill_now server
serve
wait $worker
say "worked on with another server"

"$extol" umount "$dir/mnt"
ended mount
start mount "$extol" mount -f -o ro "$uri" "$dir/mnt"
wait_for "the second mount" 60 mountpoint -q "$dir/mnt"
known one two three four
"$extol" umount "$dir/mnt"
ended mount
"$extol" check "$uri"
kill_now server
rbd export --no-progress rbd/disk "$dir/image"
e2fsck -fn "$dir/image" >"$dir/e2fsck.log" 2>&1 || { head -c 2000 "$dir/e2fsck.log"; exit 1; }
say "all is there, and clean"
