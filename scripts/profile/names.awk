# Names of threads and functions, for tables.

# Threads of a kind differ by a number (`fuse-12`), and are one to us.
function plain(name) { gsub(/[0-9]+/, "N", name); return name }

# A function's name without its hash and the parameters of types, which make lines long and say
# little.
function short(name, most,    before) {
    sub(/::h[0-9a-f]+$/, "", name)
    sub(/_\[[a-z]\]$/, "", name)
    do {
        before = name
        gsub(/<[^<>]* as /, "<", name)
        gsub(/::<[^<>]*>/, "", name)
    } while (name != before)
    return length(name) > most ? substr(name, 1, most - 3) "..." : name
}
