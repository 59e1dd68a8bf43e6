#!/bin/sh
# The first process of the guest: loads the modules, runs the script, reports, and ends the guest.
#
# The host reads the second serial port. A line that begins with the byte 1 is the agent's ("ready",
# "end CODE", "busy DIRECTORY", "failed WHAT"); every other line is the script's. The first serial
# port is the console.
export PATH=/bin:/applets HOME=/ TERM=dumb
/bin/busybox mkdir -p /proc /sys /dev /tmp /mnt /etc /applets /run
/bin/busybox --install -s /applets
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /tmp
mkdir -p /dev/shm
# Programs of e2fsprogs look here for what is mounted.
ln -s /proc/mounts /etc/mtab
stty -F /dev/ttyS1 raw -echo 115200
exec </dev/null >/dev/ttyS1 2>&1

report() {
    printf '\001%s\n' "$*"
}
# Restarts, which ends QEMU. Everything that the drives were given is in their images by then.
stop() {
    sync
    reboot -f
}

while read -r module; do
    # What the kernel says stands on the console.
    if ! said=$(insmod "/modules/$module" 2>&1); then
        report "failed to load $module: $said"
        stop
    fi
done </modules/order
# Modules that a module asks for by name are there already, or are not to be had.
echo /bin/true >/proc/sys/kernel/modprobe

if [ -e /sys/class/net/eth0 ]; then
    ip link set lo up
    ip addr add 10.0.2.15/24 dev eth0
    ip link set eth0 up
fi

report ready
sh /script
code=$?
cd /
# What the script has left mounted is taken away, so that images are as after an orderly end.
for at in $(sed -n 's|^/dev/[^ ]* \([^ ]*\) .*|\1|p' /proc/mounts | tac); do
    umount "$at" || report "busy $at"
done
[ $code -eq 0 ] || dmesg >/dev/ttyS0
report "end $code"
stop
