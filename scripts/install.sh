#!/usr/bin/env bash
# Installs the command with its manual pages, completions, mount helpers and the unit, or takes all
# of that away again. `make install` and `make uninstall` call it, and so does scripts/package.sh.
#
#   scripts/install.sh install|uninstall
#   EXTOL=target/quick/extol   the program
#   PREFIX=/usr/local          where it goes
#   SBINDIR=/sbin              where mount(8) looks for its helpers, whatever PREFIX is
#   UNITDIR=PREFIX/lib/systemd/system
#   ZSHDIR=PREFIX/share/zsh/site-functions
#   DESTDIR=                   a root to put in front of all of them, for packages
#
# Exit code: 0, or that of the first step that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

prefix=${PREFIX:-/usr/local}
helpers=${SBINDIR:-/sbin}
units=${UNITDIR:-$prefix/lib/systemd/system}
bash=$prefix/share/bash-completion/completions
fish=$prefix/share/fish/vendor_completions.d
zsh=${ZSHDIR:-$prefix/share/zsh/site-functions}
man=$prefix/share/man
root=${DESTDIR:-}

put() {
    local mode=$1 from=$2 to=$root$3
    mkdir -p "${to%/*}"
    install -m "$mode" "$from" "$to"
}

# The pages of a command that is gone must not stay, so both ways begin with this. Directories are
# shared with other programs; they stay.
remove() {
    rm -f "$root$prefix/bin/extol" "$root$units/extol-mount@.service" "$root$bash/extol" \
        "$root$fish/extol.fish" "$root$zsh/_extol" \
        "$root$man/man1/extol.1" "$root$man"/man1/extol-*.1 \
        "$root$man"/man8/mount.{extol,fuse.extol}.8
    local helper
    for helper in mount.extol mount.fuse.extol; do
        # (One that another installation has put there stays.)
        if [ "$(readlink "$root$helpers/$helper" || true)" = "$prefix/bin/extol" ]; then
            rm -f "$root$helpers/$helper"
        fi
    done
}

case ${1:-} in
    uninstall) remove; exit 0 ;;
    install) ;;
    *) sed -n '2,14s/^# \?//p' "$0" >&2; exit 2 ;;
esac

extol=${EXTOL:-target/quick/extol}
if [ ! -x "$extol" ]; then
    echo "$extol is missing: run make first" >&2
    exit 1
fi
new=$(mktemp -d)
trap 'rm -rf "$new"' EXIT
"$extol" man "$new"
for shell in bash fish zsh; do "$extol" completions "$shell" >"$new/$shell"; done
sed "s|/usr/local/bin/extol|$prefix/bin/extol|" "docs/examples/extol-mount@.service" >"$new/unit"

remove
put 755 "$extol" "$prefix/bin/extol"
put 644 "$new/unit" "$units/extol-mount@.service"
put 644 "$new/bash" "$bash/extol"
put 644 "$new/fish" "$fish/extol.fish"
put 644 "$new/zsh" "$zsh/_extol"
for page in "$new"/man?/*; do put 644 "$page" "$man/${page#"$new/"}"; done
mkdir -p "$root$helpers"
for helper in mount.extol mount.fuse.extol; do
    if [ -e "$root$helpers/$helper" ] || [ -L "$root$helpers/$helper" ]; then
        echo "$root$helpers/$helper is there already, and stays" >&2
    else
        ln -s "$prefix/bin/extol" "$root$helpers/$helper"
    fi
done
