# What failed in the output of a test program, and why: a line for each failed test, with the place
# and the first line of its panic. Other programs have one line: what they said last.
#
#   awk -v title=NAME -v code=EXIT_CODE -f scripts/why-failed.awk LOG
#
# Lines are cut at 180 characters.

function tell(name, why) {
    line = title ": " (name == "" ? "" : name ": ") why
    print (length(line) > 180 ? substr(line, 1, 177) "..." : line)
    told++
}

# libtest prints what a failed test has said behind a line with its name.
/^---- .* stdout ----$/ {
    if (test != "") tell(test, where == "" ? "failed" : where)
    test = $0
    sub(/^---- /, "", test)
    sub(/ stdout ----$/, "", test)
    where = ""
    next
}
test != "" && where == "" && / panicked at / {
    where = $0
    sub(/^.* panicked at /, "", where)
    wants = 1
    next
}
# The message stands on the next line.
wants && NF {
    where = where " " $0
    wants = 0
    tell(test, where)
    test = ""
}
# The list of failures ends what tests have said.
/^failures:$/ && test != "" {
    tell(test, where == "" ? "failed" : where)
    test = ""
}
NF { last = $0 }
END {
    if (test != "") tell(test, where == "" ? "failed" : where)
    if (!told) tell("", "exit code " code ": " last)
}
