#!/usr/bin/env bash
# Installs what building, testing and the demo need, and only what is missing. Debian and its
# relatives.
#
#   scripts/install-deps.sh          everything for `make test`
#   scripts/install-deps.sh demo     what `make demo` needs
#   scripts/install-deps.sh package  what `make package` and its test need
#   scripts/install-deps.sh targets  what `scripts/targets.sh --run` needs beside that
#
# Needs root or sudo, and the network, if something is missing. Exit code: 0, or 1 if something
# cannot be installed.
set -euo pipefail

# program:package
demo=(mke2fs:e2fsprogs e2fsck:e2fsprogs debugfs:e2fsprogs fusermount3:fuse3 mount:mount cc:gcc)
tests=(fuse2fs:fuse2fs losetup:mount setfacl:acl setfattr:attr fio:fio dbench:dbench
       postmark:postmark c++:g++ tar:tar gzip:gzip setpriv:util-linux unshare:util-linux git:git
       python3:python3-minimal tmux:tmux fuser:psmisc strace:strace fish:fish zsh:zsh sfdisk:fdisk
       genext2fs:genext2fs bsdtar:libarchive-tools xz:xz-utils zstd:zstd umoci:umoci skopeo:skopeo
       sgdisk:gdisk parted:parted blkid:util-linux mkfs.xfs:xfsprogs mkfs.btrfs:btrfs-progs
       mkfs.vfat:dosfstools mkntfs:ntfs-3g mkfs.f2fs:f2fs-tools mksquashfs:squashfs-tools
       mkfs.minix:util-linux mkfs.nilfs2:nilfs-tools
       cryptsetup:cryptsetup-bin pvcreate:lvm2 img2simg:android-sdk-libsparse-utils
       qemu-img:qemu-utils qemu-io:qemu-utils qemu-nbd:qemu-utils
       nbdkit:nbdkit nbdcopy:libnbd-bin openssl:openssl
       mtree:mtree-netbsd matchpathcon:selinux-utils fsverity:fsverity repquota:quota
       nfs-ls:libnfs-utils valgrind:valgrind pkg-config:pkgconf musl-gcc:musl-tools)
# The guest (testing/guest), whose programs are those of the host.
if [ "$(uname -m)" = x86_64 ]; then
    tests+=(qemu-system-x86_64:qemu-system-x86 busybox:busybox-static)
fi
package=(dpkg-shlibdeps:dpkg-dev mmdebstrap:mmdebstrap)
targets=(qemu-s390x-static:qemu-user-static wine:wine wine:wine64
         x86_64-w64-mingw32-gcc:gcc-mingw-w64-x86-64-posix
         s390x-linux-gnu-gcc:gcc-s390x-linux-gnu s390x-linux-gnu-gcc:libc6-dev-s390x-cross
         i686-linux-gnu-gcc:gcc-i686-linux-gnu i686-linux-gnu-gcc:libc6-dev-i386-cross
         aarch64-linux-gnu-gcc:gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc:libc6-dev-arm64-cross)

case ${1:-} in
    demo) wanted=("${demo[@]}") ;;
    package) wanted=("${demo[@]}" "${package[@]}") ;;
    targets) wanted=("${demo[@]}" "${targets[@]}") ;;
    *) wanted=("${demo[@]}" "${package[@]}" "${tests[@]}") ;;
esac

PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
packages=()
for pair in "${wanted[@]}"; do
    if ! command -v "${pair%%:*}" >/dev/null; then
        packages+=("${pair#*:}")
    fi
done

# (Debian's Python has virtual environments in a package of its own.)
if [ -z "${1:-}" ] && ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    packages+=(python3-venv)
fi

if [ ${#packages[@]} -gt 0 ]; then
    mapfile -t packages < <(printf '%s\n' "${packages[@]}" | sort -u)
    if ! command -v apt-get >/dev/null; then
        echo "missing: ${packages[*]} (Debian's names); please install them" >&2
        exit 1
    fi
    sudo=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "missing: ${packages[*]}; install them as root" >&2
            exit 1
        fi
        sudo=(sudo)
    fi
    echo "installing ${packages[*]}"
    export DEBIAN_FRONTEND=noninteractive
    install=("${sudo[@]}" env DEBIAN_FRONTEND=noninteractive
        apt-get install -y -qq --no-install-recommends)
    if ! "${install[@]}" "${packages[@]}" >/dev/null 2>&1; then
        # The package lists are old or missing.
        "${sudo[@]}" apt-get update -qq
        "${install[@]}" "${packages[@]}" >/dev/null
    fi
fi

if ! command -v cargo >/dev/null; then
    echo "Rust is missing: install it from https://rustup.rs and try again" >&2
    exit 1
fi
# rustfmt and clippy are components; a minimal toolchain lacks them.
if [ "${1:-}" != demo ] && command -v rustup >/dev/null; then
    cargo fmt --version >/dev/null 2>&1 || rustup component add rustfmt
    cargo clippy --version >/dev/null 2>&1 || rustup component add clippy
fi
# Not optimised: each runs for seconds, and compiling them takes longer.
tool() {
    if ! cargo "$1" --version >/dev/null 2>&1; then
        echo "installing cargo-$1"
        cargo install --locked --debug --quiet "cargo-$1"
    fi
}
[ "${1:-}" = demo ] || tool deb
[ -n "${1:-}" ] || tool deny
if [ -z "${1:-}" ] && [ "$(uname -m)" = x86_64 ]; then
    # (Only Debian has this package; a test that needs it says so.)
    "${0%/*}/guest.sh" || echo "tests in the guest will be skipped" >&2
fi
if [ -z "${1:-}" ]; then
    # (This package, too.)
    "${0%/*}/newest-e2fsprogs.sh" || echo "the comparison with a newer e2fsck will be skipped" >&2
fi
