# What scripts/nfs-beside-linux.sh runs in the guest, with ROUNDS, SECONDS and DELAYS set.
# shellcheck shell=sh disable=SC2154
failed() { echo "failed: $*"; }
ip link set lo up
mkdir -p /var/tmp /run /export
# knfsd brings its lock manager, which wants to tell a portmapper of itself: any will do that
# answers yes.
cat >/portmap.pl <<'P'
socket(S, 2, 1, 0); setsockopt(S, 1, 2, pack('i', 1));
bind(S, pack('S n a4 x8', 2, 111, "\x7f\0\0\1")) or die "bind: $!"; listen(S, 9);
while (accept(C, S)) {
    if (fork) { close C; next }
    while (sysread(C, $head, 4) == 4) {
        $len = unpack('N', $head) & 0x7fffffff; $call = '';
        while (length $call < $len) { sysread(C, $call, $len - length $call, length $call) or exit }
        syswrite(C, pack('N*', 0x80000000 | 28, unpack('N', $call), 1, 0, 0, 0, 0, 1));
    }
    exit;
}
P
perl /portmap.pl &
cat >/handle.pl <<'P'
open(F, '+<', '/proc/fs/nfsd/filehandle') or die "filehandle: $!";
syswrite(F, "client /export 64\n") or die "filehandle: $!";
sysread(F, $text, 999); $text =~ s/^\\x//; $text =~ s/\s//g; print $text;
P
cat >/rate.pl <<'P'
local $/; $_ = <>; print $1 if /"rate":\s*\{[^}]*"median":\s*([0-9.]+)/;
P
mount -t nfsd nfsd /proc/fs/nfsd || failed "no nfsd"
echo "-4" >/proc/fs/nfsd/versions; echo "+3" >/proc/fs/nfsd/versions
echo "tcp 2049" >/proc/fs/nfsd/portlist || failed "portlist"

begin() {
    case $1 in
    knfsd)
        mke2fs -q -F -t ext4 -O fast_commit -E lazy_itable_init=0 /dev/vda || failed mke2fs
        mount -t ext4 /dev/vda /export || failed mount
        # Writable, synchronous, root as it is, any port, no check of subtrees, fsid=0.
        echo "nfsd 127.0.0.1 2147483647 client" >/proc/net/rpc/auth.unix.ip/channel
        echo "client /export 2147483647 9218 65534 65534 0" >/proc/net/rpc/nfsd.export/channel
        echo 'client 1 \x00000000 2147483647 /export' >/proc/net/rpc/nfsd.fh/channel
        echo 8 >/proc/fs/nfsd/threads || failed threads
        server="127.0.0.1:2049,handle=$(perl /handle.pl)"
        ;;
    extol)
        mke2fs -q -F -t ext4 -O fast_commit -E lazy_itable_init=0 /dev/vda || failed mke2fs
        rm -f /tmp/said
        extol export -f -o no_root_squash --listen 127.0.0.1:2050 /dev/vda >/tmp/said 2>&1 &
        pid=$!
        while ! grep -q "exported at" /tmp/said 2>/dev/null; do
            kill -0 $pid 2>/dev/null || { failed "extol: $(cat /tmp/said)"; break; }
            usleep 20000
        done
        server=127.0.0.1:2050
        ;;
    esac
}
end() {
    case $1 in
    knfsd)
        echo 0 >/proc/fs/nfsd/threads
        date +%s >/proc/net/rpc/nfsd.fh/flush
        date +%s >/proc/net/rpc/nfsd.export/flush
        for n in 1 2 3 4 5 6 7 8 9; do umount /export 2>/dev/null && break; sleep 1; done
        echo "tcp 2049" >/proc/fs/nfsd/portlist 2>/dev/null
        ;;
    extol)
        kill $pid
        wait $pid || failed "extol: $(tail -n 3 /tmp/said)"
        ;;
    esac
}
load() {
    case $1 in
    fs_mark_4) echo "fsmark -t 4 -s 4096 -D 64 -k" ;;
    dbench_2) echo "dbench --clients 2" ;;
    dbench_10) echo "dbench --clients 10" ;;
    varmail_16) echo "varmail" ;;
    esac
}

for round in $(seq "$ROUNDS"); do
    for name in fs_mark_4 dbench_2 dbench_10 varmail_16; do
        for delay in $DELAYS; do
            order="knfsd extol"
            [ $((round % 2)) -eq 1 ] || order="extol knfsd"
            for side in $order; do
                begin $side
                # shellcheck disable=SC2046
                extol-bench $(load $name) --target "server:$server,delay_us=$delay" --rounds 1 \
                    --seconds "$SECONDS" --volume 1G --json >/tmp/json 2>/tmp/error ||
                    failed "$name $side: $(tail -n 2 /tmp/error)"
                rate=$(perl /rate.pl /tmp/json)
                echo "run $name $delay $side ${rate:-0}"
                end $side
            done
        done
    done
done
