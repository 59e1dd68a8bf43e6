#!/bin/sh
# Works on an ext4 image as an ordinary user, without fusermount3 and without a mount that other
# users see: the daemon and the command have a user namespace and a mount table of their own, in
# which this user is root.
#
#   extol-in-user-namespace.sh IMAGE COMMAND [ARGUMENT ...]
#
# COMMAND finds the volume in the directory $MNT. Its exit code is that of the script, unless the
# unmount fails. Needs Linux 4.18 and user namespaces for ordinary users (sysctl
# kernel.unprivileged_userns_clone, user.max_user_namespaces, and on Ubuntu
# kernel.apparmor_restrict_unprivileged_userns). EXTOL names the program, EXTOL_OPTIONS more mount
# options.
set -eu

if [ $# -lt 2 ]; then
    echo "usage: $0 IMAGE COMMAND [ARGUMENT ...]" >&2
    exit 1
fi
if [ -z "${EXTOL_IN_NAMESPACE:-}" ]; then
    EXTOL_IN_NAMESPACE=1 exec unshare --user --map-root-user --mount -- "$0" "$@"
fi

image=$1
shift
extol=${EXTOL:-extol}
MNT=$(mktemp -d)
export MNT
unset EXTOL_IN_NAMESPACE
trap 'rmdir "$MNT"' EXIT
"$extol" mount -o "nosuid,nodev${EXTOL_OPTIONS:+,$EXTOL_OPTIONS}" "$image" "$MNT"
code=0
"$@" || code=$?
# Waits until everything is on the disk.
"$extol" umount "$MNT" || exit
exit "$code"
