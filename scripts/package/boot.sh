#!/bin/bash
# Makes a directory with a Debian in it the root of these namespaces, and becomes its systemd.
# scripts/package-test.sh calls it.
#
#   unshare --mount --pid --cgroup --ipc --uts --fork scripts/package/boot.sh ROOT
set -euo pipefail

root=$1
mount --bind "$root" "$root"
cd "$root"
mount -t proc proc proc
mount --bind proc/sys proc/sys
mount -o remount,bind,ro proc/sys
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs -o mode=755 tmpfs dev
node() { mknod -m "$2" "dev/$1" "$3" "$4" "$5"; }
node null 666 c 1 3
node zero 666 c 1 5
node full 666 c 1 7
node random 666 c 1 8
node urandom 666 c 1 9
node tty 666 c 5 0
node fuse 666 c 10 229
node loop-control 660 c 10 237
for n in $(seq 0 255); do node "loop$n" 660 b 7 "$n"; done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
ln -s pts/ptmx dev/ptmx

mkdir -p .old
pivot_root . .old
cd /
exec chroot . /bin/bash -c 'umount -l /.old && rmdir /.old &&
    container=extol exec /lib/systemd/systemd --unit=basic.target --log-target=console \
        --show-status=no'
