#!/usr/bin/env python3
"""Holds the rules of writing that rustfmt and clippy do not know. CONTRIBUTING.md has them in full.

    scripts/lint.py [PATH...]     default: all files of the tree, and the commits

words     Comments, identifiers, messages, scripts and pages speak in the terms of
          docs/design/glossary.md: none of the words below. scripts/lint-allow.txt has the
          exceptions, each with its reason.
columns   No line is longer than 100 columns. Exempt are rows of tables, lines with a URL in pages
          and comments, and in Rust a line with a string that cannot be broken: a raw string, or
          one without a blank.
commits   Subjects since commit 1aa8dae3 are `area: imperative phrase` of at most 72
          characters, and a body gives the reason.
bytes     Paths, and what the kernel says in /proc and /sys, are bytes: programs take none of it for
          text (to_str, to_string_lossy, read_to_string, display). Tests may, and what
          scripts/lint-allow.txt lets pass.
labels    An invariant is labelled `- FC-3: ...`, once in the whole tree, and a label that is
          referred to exists.

Each finding is a line `file:line: rule: what to write instead`; the exit code is 1 then.
"""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST = 100
SUBJECT = 72
# A string with so many blanks is a message, and not a name or a key.
SENTENCE = 3
SINCE = "1aa8dae344459244c21daaf44a14bf0e9f237ddb"

# What takes bytes for text, and what to write instead.
TEXT = {
    "to_str": "compare and split bytes (OsStr, Path, extol_proc::number); shown() for messages",
    "to_string_lossy": "compare and split bytes (OsStr, Path); shown() for messages",
    "display": "shown() (extol_proc::Shown), so that the name can be copied into a command line",
    "read_to_string": "extol_proc::read and its like, which give bytes",
}
PROGRAMS = ("crates/", "bench/src/", "testing/testkit/src/")
# What the command says of names.
MESSAGES = tuple(f"crates/{name}/" for name in ("block", "cli", "cli-common", "fuse", "proc"))

THING = "name the thing: thread, caller, process, request, writer, reader"
# Pattern of a whole word, and what to write instead. The first group is for prose alone.
PEOPLE = {
    r"(some|any|every|no)body|someone|everyone|anyone": THING,
    r"whoever|whomever|who|whom": THING + "; or 'that', 'which'",
    r"he|him|his|himself|she": "it, its: programs have no persons",
}
PRIVATE = {
    r"attendants?": "say what the process does (unmount helper)",
    r"clerks?|desks?": "queue worker, completion queue",
    r"crews?": "worker pool",
    r"crowds?": "concurrent syncers",
    r"farewells?": "exit report",
    r"ghosts?": "say what it is (stale entry, removed name)",
    r"keepers?": "batch leader, owner",
    r"judg(e|es|ed|ing|ment)": "policy, checker, decide",
    r"letters?": "message, character",
    r"luck|lucky": "say what decides",
    r"pledg(e|es|ed|ing)": "async sync request",
    r"seats?|seated": "batch waiter, slot",
    r"stirs?|stirred|stirring": "wake",
    r"tenders?": "watchdog, worker",
    r"troubles?": "error state, error",
    r"verdicts?": "result, outcome",
    r"witness(es|ed)?": "data checksum, evidence",
}

# Comments, strings and characters of Rust. What is between them is code.
RUST = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<raw>\bb?r(?P<hash>\#*)".*?"(?P=hash))
      | (?P<string>\bb?"(?:\\.|[^"\\])*"|"(?:\\.|[^"\\])*")
      | (?P<char>'(?:\\(?:u\{[^}]*\}|x..|.)|[^\\'\n])')""",
    re.S | re.X,
)
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
GIVEN = re.compile(r"^\s*(?://[!/]?)?\s*[-*] ([A-Z]{1,4})(-?)(\d+): ", re.M)
NAMED = re.compile(r"\b([A-Z]{2,4})-(\d+)\b")
# Looks like a label and is none.
NO_LABEL = {"AES", "BSD", "CRC", "CVE", "GPL", "IEEE", "ISO", "LGPL", "MD", "RFC", "SHA", "UTF"}


def table(words):
    """One pattern for all, and the advice for a match."""
    whole = re.compile("|".join(f"(?:{pattern})" for pattern in words), re.I)
    each = [(re.compile(pattern, re.I), advice) for pattern, advice in words.items()]
    return whole, lambda word: next(advice for rx, advice in each if rx.fullmatch(word))


PROSE, prose_advice = table({**PEOPLE, **PRIVATE})
PROSE = re.compile(rf"\b(?:{PROSE.pattern})\b", re.I)
NAME, name_advice = table({**dict(list(PEOPLE.items())[:2]), **PRIVATE})


class Lint:
    def __init__(self, allowed):
        self.allowed, self.found = allowed, []
        self.given, self.named = {}, []

    def tell(self, file, line, rule, what):
        self.found.append((file, line, f"{rule}: {what}"))

    def word(self, file, line, word, advice):
        if (file, word.lower()) not in self.allowed:
            self.tell(file, line, "words", f'"{word}": {advice}')

    def prose(self, file, start, text, labels=True):
        for match in PROSE.finditer(text):
            line = start + text.count("\n", 0, match.start())
            self.word(file, line, match.group(), prose_advice(match.group()))
        if labels and file.endswith((".rs", ".md")):
            self.labels(file, start, text)

    def labels(self, file, start, text):
        spans = set()
        for match in GIVEN.finditer(text):
            line = start + text.count("\n", 0, match.start(1))
            spans.add(match.start(1))
            label = "".join(match.groups())
            if not match.group(2):
                advice = f"{match.group(1)}-{match.group(3)}, with a prefix of its own"
                self.tell(file, line, "labels", f"{label}: write {advice}")
                continue
            first = self.given.setdefault(label, (file, line))
            if first != (file, line):
                self.tell(file, line, "labels", f"{label} is given in {first[0]}:{first[1]}, too")
        for match in NAMED.finditer(text):
            if match.start() not in spans and match.group(1) not in NO_LABEL:
                line = start + text.count("\n", 0, match.start())
                self.named.append((file, line, match.group()))

    def code(self, file, start, text):
        if not NAME.search(text):
            return
        for name in WORD.finditer(text):
            for part in PART.findall(name.group()):
                if NAME.fullmatch(part):
                    line = start + text.count("\n", 0, name.start())
                    self.word(file, line, part, f"{name_advice(part)} (in {name.group()})")

    def rust(self, file, text):
        """Comments and code, and the lines with a string that cannot be broken."""
        end, line, whole = 0, 1, set()
        comment, began = [], 0
        # Comments of consecutive lines are one text, so that a label's list is seen as such.
        for match in RUST.finditer(text):
            between = text[end : match.start()]
            self.code(file, line, between)
            line += between.count("\n")
            end = match.end()
            piece = match.group()
            if match.lastgroup == "comment" or match.group("comment"):
                if comment and between.strip() == "" and between.count("\n") == 1:
                    comment.append(piece)
                else:
                    self.prose(file, began, "\n".join(comment))
                    comment, began = [piece], line
            elif piece.count(" ") >= SENTENCE:
                self.prose(file, line, piece, labels=False)
            for number, part in enumerate(piece.split("\n"), line):
                if match.group("raw") or (match.group("string") and " " not in part.strip(" \\")):
                    whole.add(number)
            line += piece.count("\n")
        self.code(file, line, text[end:])
        self.prose(file, began, "\n".join(comment))
        return whole

    def bytes(self, file, text):
        """Code that takes bytes for text, up to the tests at the end of a file."""
        if not file.startswith(PROGRAMS) or re.search(r"/(tests|examples)[/.]", file):
            return
        text = text.split("#[cfg(test)]")[0]
        for number, line in enumerate(text.split("\n"), 1):
            for call in re.findall(r"\b(to_str|to_string_lossy|read_to_string|display)\(", line):
                if call == "display" and not file.startswith(MESSAGES):
                    continue
                if not line.lstrip().startswith("//") and (file, call) not in self.allowed:
                    self.tell(file, number, "bytes", f"{call}: {TEXT[call]}")

    def columns(self, file, text, whole):
        page = file.endswith(".md")
        for number, line in enumerate(text.split("\n"), 1):
            if len(line) <= MOST or number in whole:
                continue
            bare = re.sub(r"^\s*(//[!/]?|#)?\s*", "", line)
            if (page or bare != line.strip()) and (bare.startswith("|") or "://" in line):
                continue
            if page and line.startswith("|"):
                continue
            self.tell(file, number, "columns", f"{len(line)} columns: break it at {MOST}")

    def file(self, file):
        try:
            text = (ROOT / file).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError):
            return
        whole = set()
        if file.endswith(".rs"):
            whole = self.rust(file, text)
            self.bytes(file, text)
        elif not file.startswith("scripts/lint"):
            self.prose(file, 1, text)
        self.columns(file, text, whole)

    def references(self):
        prefixes = {re.sub(r"-?\d+$", "", label) for label in self.given}
        for file, line, label in self.named:
            if label not in self.given:
                known = label.split("-")[0] in prefixes
                what = "has no such number" if known else "is no label of this tree"
                self.tell(file, line, "labels", f"{label} {what}: name one that is given")


def git(*words):
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout if done.returncode == 0 else None


def commits():
    """Findings in the subjects and bodies since the first that kept these rules."""
    if git("merge-base", "--is-ancestor", SINCE, "HEAD") is None:
        print(f"lint: commits: skipped, {SINCE[:8]} is not in the history of this clone")
        return []
    log = git("log", "--no-merges", "--format=%h%x1f%s%x1f%b%x1e", f"{SINCE}..HEAD") or ""
    found = []
    for entry in filter(str.strip, log.split("\x1e")):
        commit, subject, body = entry.strip("\n").split("\x1f")
        phrase = re.fullmatch(r"[a-z0-9_./-]+(?:, [a-z0-9_./-]+)*: ([a-z0-9].*[^.])", subject)
        if not phrase:
            what = f'"{subject}": write "area: imperative phrase", in small letters, without a dot'
        elif re.match(r"(?!embed|feed|need|seed|shed|speed|bring)\w+(ed|ing)\b", phrase.group(1)):
            what = f'"{subject}": begin the phrase with an imperative'
        elif len(subject) > SUBJECT:
            what = f'"{subject}": {len(subject)} characters, at most {SUBJECT}'
        elif not body.strip():
            what = f'"{subject}": give the reason in the body'
        else:
            continue
        found.append((f"commit {commit}", 1, f"commits: {what}"))
    return found


def entries(name):
    lines = (ROOT / "scripts" / name).read_text(encoding="utf-8").split("\n")
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def is_checked(file):
    if file.startswith(("docs/history/", "CHANGELOG", "fuzz/corpus/", "fuzz/cases/")):
        return False
    kinds = (".rs", ".sh", ".py", ".awk", ".toml", ".md")
    return file.endswith(kinds) or file in ("Makefile", ".ci/run")


def main(paths):
    allowed = {tuple(line.split()[:2]) for line in entries("lint-allow.txt")}
    lint = Lint(allowed)
    files = (git("ls-files", "-co", "--exclude-standard") or "").split("\n")
    for file in sorted(filter(is_checked, files)):
        lint.file(file)
    lint.references()
    found = lint.found
    if paths:
        found = [entry for entry in found if entry[0].startswith(tuple(paths))]
    else:
        found += commits()
    for file, line, what in sorted(found):
        print(f"{file}:{line}: {what}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
