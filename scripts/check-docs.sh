#!/usr/bin/env bash
# Checks the documents: relative links and the headings that they name exist, so do files and
# functions that pages of today name, every picture is shown on a page, and README and performance
# page keep within their sizes. `make lint` runs it.
#
#   scripts/check-docs.sh
#
# Needs nothing but a checkout. Exit code: 0, or 1 with a line for each finding.
set -euo pipefail
cd "$(dirname "$0")/.."
# Bytes beyond ASCII are kept as they are.
export LC_ALL=C

failed=0
fail() {
    echo "$*" >&2
    failed=1
}

# Lines of a page outside of code blocks.
prose() {
    awk '/^[ \t]*```/ { code = !code; next } !code' "$1"
}

# The anchors of a page's headings, as repositories' web pages make them.
anchors() {
    prose "$1" | sed -nE 's/^#+ +//p' | sed -E 's/\[([^]]*)\]\([^)]*\)/\1/g' |
        tr '[:upper:]' '[:lower:]' | sed -E 's/[][!-,.\/:-@\\^`{-~]//g; s/ /-/g'
}

linked=$(mktemp)
trap 'rm -f "$linked"' EXIT
while read -r page; do
    [ -f "$page" ] || continue
    while read -r target; do
        case $target in
            http:* | https:* | mailto:*) continue ;;
        esac
        path=${target%%#*} anchor=
        [ "$path" = "$target" ] || anchor=${target#*#}
        file=$page
        [ -z "$path" ] || file=$(dirname "$page")/$path
        if [ ! -e "$file" ]; then
            fail "$page: link to $target: no such file"
            continue
        fi
        realpath --relative-to=. "$file" >>"$linked"
        if [ -n "$anchor" ] && ! anchors "$file" | grep -qxF -e "$anchor"; then
            fail "$page: link to $target: no such heading"
        fi
    done < <(prose "$page" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\(//; s/\)$//')
done < <(git ls-files --cached --others --exclude-standard -- '*.md')

# Files that pages name in code style, but for the history.
while IFS=: read -r page path; do
    [ -e "$path" ] || fail "$page: no such file: $path"
done < <(git ls-files --cached --others --exclude-standard -- '*.md' ':!docs/history' |
    xargs grep -oE '`(crates|testing|bench|scripts|fuzz|docs)/[A-Za-z0-9_./@-]*`' | tr -d '`' |
    sort -u)

# Functions in tables of steps: a cell with a file, then one with its functions.
while read -r file functions; do
    for name in ${functions//,/ }; do
        grep -qE "fn ${name##*::}\\b" "$file" || fail "architecture.md: $file has no function $name"
    done
done < <(sed -nE 's/^.*\| `([a-z0-9_\/-]+\.rs)` \| `([^|]*)` \|.*$/\1 \2/p' \
    docs/design/architecture.md | tr -d '`')

for picture in docs/pictures/*; do
    [ -e "$picture" ] || continue
    grep -qxF -e "$picture" "$linked" || fail "$picture: no page shows it"
done

while read -r page limit; do
    size=$(wc -c <"$page")
    [ "$size" -le "$limit" ] || fail "$page: $size bytes, at most $limit"
done <<'LIMITS'
README.md 8192
docs/performance.md 15360
LIMITS

exit "$failed"
