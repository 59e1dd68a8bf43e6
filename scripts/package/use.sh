#!/bin/bash
# Uses Extol in a fresh Debian as the guide has it. scripts/package-test.sh runs it there, as root,
# with systemd as the first process.
#
#   use.sh package FILE   installs the package, uses all of it, removes it: nothing may be left
#   use.sh installed      uses what `make install PREFIX=/usr/local` has put there
set -euo pipefail
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C
page=/fstab-and-systemd.md

fail() {
    echo "package: $*" >&2
    exit 1
}
trap 'echo "package: line $LINENO failed: $BASH_COMMAND" >&2' ERR

# Writes to a mount, and reads it back from the volume when the mount is gone.
write() { echo hello >"$1/file" && grep -q hello "$1/file"; }
is_there() {
    local _
    # umount(8) does not wait for the daemon of an image.
    for _ in $(seq 100); do
        extol check "$1" >/dev/null 2>&1 && break
        sleep 0.1
    done
    e2fsck -fn "$1" >/dev/null 2>&1 || fail "e2fsck complains about $1"
    [ "$(extol cat "$1" /file)" = hello ] || fail "$1: the file is not there"
}

commands() { extol help | sed -nE 's/^  ([a-z]+) .*/\1/p' | grep -vx help; }

pages() {
    echo "  manual pages"
    local name text
    for name in extol $(commands | sed 's/^/extol-/') mount.extol; do
        text=$(man --warnings=w "$name" 2>&1) || fail "no page $name"
        # What groff warns of stands before the page.
        grep -q "^NAME" <<<"$text" && ! grep -qi "warning" <<<"${text%%NAME*}" ||
            fail "the page $name: ${text%%NAME*}"
    done
    [ "$(commands | wc -l)" -ge 20 ] || fail "extol help lists $(commands | wc -l) commands"
}

# Each relative link of an installed page leads to an installed file.
links() {
    echo "  links of the pages"
    local doc=/usr/share/doc/extol page target count=0
    while read -r page; do
        while read -r target; do
            case $target in http:* | https:* | mailto:* | \#*) continue ;; esac
            [ -e "${page%/*}/${target%%#*}" ] || fail "$page links to $target, which is not there"
            count=$((count + 1))
        done < <(grep -oE '\]\([^) ]+\)' "$page" | sed -E 's/^\]\(//; s/\)$//')
    done < <(find "$doc" -name '*.md')
    [ "$count" -ge 50 ] || fail "the pages in $doc have $count links"
}

completions() {
    echo "  completions"
    # As an interactive shell does it: the loader finds the file by the command's name.
    local found
    found=$(bash -c '
        . /usr/share/bash-completion/bash_completion
        _completion_loader extol || [ $? -eq 124 ]
        complete -p extol >/dev/null
        COMP_WORDS=(extol mou) COMP_CWORD=1
        _extol extol mou extol
        printf "%s\n" "${COMPREPLY[@]}"')
    grep -qx mount <<<"$found" || fail "bash completes mou to: $found"
}

# An image by root, by mount helpers, and by an ordinary user.
by_hand() {
    echo "  mounts by hand"
    mkdir -p /srv/mnt
    extol mkfs -q /srv/disk.img 64M
    extol mount /srv/disk.img /srv/mnt
    write /srv/mnt
    extol sync /srv/mnt
    extol umount /srv/mnt
    is_there /srv/disk.img
    local type
    for type in extol fuse.extol; do
        extol rm /srv/disk.img /file
        mount -t "$type" -o noatime /srv/disk.img /srv/mnt
        findmnt -nt fuse.extol /srv/mnt | grep -q noatime || fail "mount -t $type"
        write /srv/mnt
        umount /srv/mnt
        is_there /srv/disk.img
    done
    rm /srv/disk.img
    su user -c 'cd && mkdir mnt && extol mkfs -q -E root_owner my.img 64M &&
        extol mount my.img mnt && echo hello >mnt/file && extol umount mnt && rmdir mnt'
    is_there /home/user/my.img
    rm /home/user/my.img
}

# The lines of the guide.
from_fstab() {
    echo "  mounts from fstab"
    grep -E '^/[^ ]+ +/[^ ]+ +fuse\.extol ' "$page" >/etc/fstab
    [ "$(wc -l </etc/fstab)" -ge 3 ] || fail "no lines for fstab in $page"
    local source dir type options rest image owner
    while read -r source dir type options rest; do
        image=$source owner=root
        [[ $source != /dev/* ]] || image=/srv/device.img
        [[ ,$options, != *,user,* ]] || owner=user
        mkdir -p "$dir"
        extol mkfs -q -E "root_owner=$(id -u "$owner"):$(id -g "$owner")" "$image" 64M
        chown "$owner:" "$image" "$dir"
        if [ "$image" != "$source" ]; then
            loop=$(losetup --find --show "$image")
            mknod "$source" b 7 "${loop#/dev/loop}"
        fi
        if [[ ,$options, == *,noauto,* ]]; then
            su "$owner" -c "mount $dir"
        else
            mount -a
        fi
        findmnt -nt fuse.extol,fuseblk.extol,fuseblk "$dir" >/dev/null || fail "not mounted: $dir"
        su "$owner" -c "echo hello >$dir/file"
        su "$owner" -c "umount $dir"
        if [ "$image" != "$source" ]; then
            losetup -d "$loop"
            rm "$source"
        fi
        is_there "$image"
        # systemd makes a unit of the line.
        if [ "$owner" = root ] && [ "$image" = "$source" ]; then
            systemctl daemon-reload
            systemctl start "$(systemd-escape -p --suffix=mount "$dir")"
            findmnt -n "$dir" >/dev/null || fail "systemd has not mounted $dir"
            systemctl stop "$(systemd-escape -p --suffix=mount "$dir")"
            is_there "$image"
        fi
        rm "$image"
    done </etc/fstab
    : >/etc/fstab
    systemctl daemon-reload
}

# The unit, with the configuration in its head.
as_a_service() {
    echo "  the unit extol-mount@"
    local unit=/usr/lib/systemd/system/extol-mount@.service conf=/etc/extol/data.conf said
    [ -e "$unit" ] || unit=/usr/local/lib/systemd/system/extol-mount@.service
    said=$(systemd-analyze verify --man=no "$unit" 2>&1) || fail "$unit: $said"
    [ -z "$said" ] || fail "$unit: $said"
    mkdir -p /etc/extol
    sed -nE 's/^# .* ([A-Z]+=.*)$/\1/p' "$unit" >"$conf"
    # shellcheck source=/dev/null
    . "$conf"
    mkdir -p "${SOURCE%/*}" "$DIR"
    extol mkfs -q "$SOURCE" 64M
    systemctl daemon-reload
    systemctl enable --now --quiet extol-mount@data || {
        systemctl status --no-pager extol-mount@data
        fail "the unit does not start"
    }
    [ "$(systemctl is-active extol-mount@data)" = active ] || fail "the unit is not active"
    findmnt -n "$DIR" | grep -q "$OPTIONS" || fail "the unit has not mounted $DIR with $OPTIONS"
    write "$DIR"
    systemctl stop extol-mount@data
    ! findmnt -n "$DIR" >/dev/null || fail "the unit has not unmounted $DIR"
    is_there "$SOURCE"
    # What is mounted elsewhere ends the service as well.
    systemctl start extol-mount@data
    extol umount "$DIR"
    for _ in $(seq 100); do
        [ "$(systemctl is-active extol-mount@data)" != inactive ] || break
        sleep 0.1
    done
    [ "$(systemctl is-active extol-mount@data)" = inactive ] ||
        fail "an unmount from outside fails the unit"
    systemctl disable --quiet extol-mount@data
    rm -r "$SOURCE" /etc/extol
}

files() { find / -xdev ! -type d ! -path '/var/*' ! -path '/run/*' | sort; }
# (Pages that man has formatted are its own.)
names() { find / -xdev -name '*extol*' ! -path '/var/cache/man/*' | sort; }

id user >/dev/null 2>&1 || useradd -m user
case $1 in
    package)
        files >/run/before
        names >/run/names
        dpkg -i "$2" >/dev/null
        pages
        links
        completions
        by_hand
        from_fstab
        as_a_service
        dpkg --purge extol >/dev/null
        files | diff /run/before - || fail "the package left something"
        names | diff /run/names - || fail "the package left something"
        ;;
    installed)
        pages
        by_hand
        as_a_service
        ;;
esac
