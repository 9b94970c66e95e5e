"""Text that mentions errors although no program failed: source code, diffs, changelogs, help, passed tests."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_FAILED = r"(?:[\w.]{1,80}(?:Error|Exception)\b|Traceback|ERROR\b|FATAL\b|(?:fatal )?[Ee]rror:)"
"""Start of a failing program's message."""
QUOTED_LINE = re.compile(
    r"\s{0,80}(?:case [\w:]{1,80}:(?: {0,4}return\b| {0,4}$)|return [\"']|#define\s|// |cudaError_t\s"
    r"|(?:el)?if .{0,200}[\"'] in \w[\w.()]{0,80}:"
    r"|\[ {0,2}\d{1,3}%\] (?:Building|Linking) [\w ()]{1,40} \S{1,300}$|\[ {0,7}(?:RUN|OK|PASSED) {0,6}\]"
    r"|(?P<mended>(?:[-*+\u2022] {0,3}|\[\w{0,12} ?[Ff]ix\w{0,3}\]:? {0,2}|[0-9a-f]{7,40} (?:\([^)]{1,80}\) )?)"
    r"(?i:fix(?:e[sd]|ing)?|resolve[sd]?|avoid(?:s|ed)?|prevent(?:s|ed)?|work(?:ed|s)? around|suppress(?:es|ed)?|revert(?:s|ed)?)\b"
    r"|(?:[-*+\u2022] {0,3}|[0-9a-f]{7,40} (?:\([^)]{1,80}\) )?)?"
    r"(?:feat|fix|docs|chore|refactor|revert)(?:\([\w ./-]{1,40}\))?!?: {1,2}(?!ERROR|FATAL)"
    r"|\[(?:[Bb]ug ?)?[Ff]ix\w{0,3}\]|(?:Fixe[sd] (?:an?|the|issues?|bugs?|where|when))\s)"
    r"|(?:[\w./\\-]{1,200}\.py::.{1,400}? (?:PASSED|SKIPPED|XFAIL)|test_\w{1,200} \([\w.]{1,200}\) \.\.\. (?:ok|skipped)"
    r"|test [\w:]{1,300} \.\.\. (?:ok|ignored))\b|[\u2713\u2714\u221a] (?!Container )\S"
    r"|(?:\[?INFO\]?:? {0,2})?[Ss]kipp(?:ing|ed)\b.{0,30}\btests?\b"
    r"|(?:[-*+\u2022] {0,3})?(?i:if|when) you (?:see|get|encounter|hit|receive|run into)\b"
    rf"|(?:- )?run: (?!{_FAILED})\S"
    r"|(?:Step \d{1,3}/\d{1,3} : |#\d{1,4} \[[^\]]{1,60}\] )?RUN [\w./]|.{1,300}? \|\| \(?(?:echo [\"']|true\b|:$)"
    r"|[\w./-]{1,200}\.(?:(?:md|rst|toml|ya?ml):\d{1,6}:\S|\w{1,5}:\d{1,6}:(?: {2}|\t))"
    r"|# (?:HELP|TYPE) \w|(?:[$#] |\+{1,3} )?(?:(?:el)?if |while )?(?:! )?(?:[efz]|rip)?grep (?:-|[\"'])|echo [\"'].{0,300}[\"'] ?>&2"
    r"|(?:\d{1,6}[:-])? {0,40}(?:cudaError|CU(?:DA|DNN|BLAS)_)\w{1,80} {1,60}= {1,60}\d{1,6}(?:,|$)"
    r"|#\d{1,6} {2,}\S.{1,300}\babout (?:an?|\d{1,3}) \w{3,7} ago|[d-][rwxsStT-]{9}.{10,200}\.(?:md|txt|log|py|html|json)$"
    r"|\s{0,12}Return code {1,3}\d{1,3} - |Q\d{0,2}[:.] .{1,400}\?|\d{1,6}[:-] {0,60}(?:raise |return |# |// )"
    r"|ok \d{1,5} - |[\w$.]{1,80} > .{1,300} (?:PASSED|SKIPPED)$|TASK \[[^\]]{1,200}\] \*{3,200}(?:(?:ok|skipping|changed): |$))"
)
"""Single lines of source code, compilation, passed tests, and fixes in changelogs."""
EXECUTED_LINE = re.compile(r"\s{0,8}-{1,6}> {0,3}(?P<at>\d{1,6})(?: |$)")
"""Line of source code that a traceback of IPython marks as executed."""
MESSAGE_START = re.compile(
    r"\s|Traceback \(most|During handling|The above exception|[\w.]{0,80}(?:Error|Exception|Warning): |File \"|\S{1,40} exited with"
    r"|\d{4}[-/]\d\d[-/]\d\d[T ]|\d\d:\d\d:\d\d|[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d|[EWIF]\d{4} |[EWIF] (?:external|tensorflow|/)"
    r"|(?:W|E|Err|Get|Hit|Ign):(?:\d| )|>>>|\.\.\. |(?:\([\w.-]{1,40}\) )?(?:~?[$%] |[A-Z]:\\[^>\"<|]{0,80}>)"
    r"|[#+|=*-]{2}|[│╭╰|] |(?:ERROR|WARNING|INFO|FATAL|DEBUG)\b"
    r"|\[(?:ERROR|WARN|INFO|W:|E:)|(?:fatal |nvcc )?(?:error|warning)\s?:|In \[\d|Out\[\d|time=|\S{1,60}@\S{1,60}:"
    r"|[Ee]poch\b|kernel: |NVRM: "
    r"|[\w./-]{1,200}\.py::|test_\w{1,200} \(|(?:curl|wget|g?make|bash|sh|docker|git|ld|collect2)(?:\[\d{1,2}\])?: "
)
"""Start of a message that does not continue the preceding line."""
_NARROWEST = 40
_HUNK = re.compile(r"@@ -\d{1,7}(?:,(?P<old>\d{1,6}))? \+\d{1,7}(?:,(?P<new>\d{1,6}))? @@")
"""Header of a diff hunk, with its line counts of the old and the new file."""
_STRAY = 3
"""Wrapped lines of a hunk that may follow one another."""
_CHANGES = re.compile(
    r"(?:#{1,6} {1,4}(?:(?:version|release) )?\[?v?\d{1,4}\.\d{1,6}[^:]{0,60}|v\d{1,4}(?:\.\d{1,6}){1,3}(?: \(\d{4}-\d\d-\d\d\))?"
    r"|(?:#{1,6} {1,4})?(?:bug ?fixes|fixed|changes|change ?log|release notes|known issues|troubleshooting|faq"
    r"|common (?:errors|issues|problems)|(?:new )?features|enhancements|improvements|added|what'?s (?:changed|new)):?)\s{0,4}$",
    re.IGNORECASE,
)
"""Heading of a changelog, or of a list of known problems."""
_ITEM = re.compile(r"\s{0,4}[-*+\u2022] {1,4}(?!" + _FAILED + r")\S")
"""Item of such a list; a program's message is not one."""
_COMMIT = re.compile(r"commit [0-9a-f]{40}\b")
_OF_COMMIT = re.compile(r"(?:Author|AuthorDate|Commit|CommitDate|Date|Merge): |    |$")
_ONE_COMMIT = re.compile(r"(?=[a-f]{0,11}\d)(?=\d{0,11}[a-f])(?P<commit>[0-9a-f]{7,12}) (?:\([^)]{1,80}\) )?(?!" + _FAILED + r")\S")
"""Line of `git log --oneline`; several follow one another, each of another commit."""
_RUN = re.compile(r"(?:\[ RUN {6}\]|=== RUN {2,3}) ?(?P<test>\S{1,300})")
_RAN = re.compile(r"(?:\[ {0,7}(?P<how>OK|SKIPPED|FAILED) {0,6}\]|--- (?P<how2>PASS|SKIP|FAIL):) (?P<test>[^\s,(]{1,300})")
_HELP = re.compile(
    r"usage: \S|(?:(?:optional|positional|keyword|required) )?(?:usage|options|arguments|flags|commands)(?: \[options\])?:\s{0,4}$",
    re.IGNORECASE,
)
_WRONG_OPTION = re.compile(
    r"(?:.{0,80}(?:: |\] ))?(?:(?:unknown|unrecogni[sz]ed|invalid|illegal|unsupported|bad) .{0,20}(?:option|flag|argument|switch)"
    r"|no such option|flag provided but not defined)",
    re.IGNORECASE,
)
"""Message after which a program shows its usage because it was started wrongly."""
_BEFORE_USAGE = 7
"""Lines between such a message and the usage, at most."""
_HEAD_OF_OPTIONS = re.compile(r"[A-Za-z][\w ,/-]{1,60}:\s{0,4}$")
_FAILURE = re.compile(r"\s{0,12}" + _FAILED)
_FRAME = re.compile(r"\s{0,12}File \"[^\"]{1,400}\", line \d")
_SOURCE = re.compile(
    r"\s{0,80}(?:raise [\w.]{1,80}\([frb]{0,2}[\"']|throw (?:new )?[\w:.<>]{1,80}[({][\"']|catch ?\("
    r"|(?:std::)?(?:f|s|sn|v)?printf ?\((?:std(?:err|out), ?)?[\"']|print\([frb]{0,2}[\"']|(?:std::)?c(?:err|out|log) ?<<"
    r"|(?:V?LOG|T?O?R?C?H?_?CHECK|TORCH_WARN\w{0,8}|PADDLE_ENFORCE\w{0,20}|GGML_(?:ABORT|LOG_\w{1,8})|GTEST_SKIP|FAIL)\(.{0,200}[\"']"
    r"|(?:self\.|this\.)?_?(?:log|logger|logging|console|warnings)\.\w{1,12}\([frb]{0,2}[\"'`]"
    r"|except [\w.(), ]{1,120}(?: as \w{1,30})?:\s{0,4}$|assert .{1,300}, [frb]{0,2}[\"']"
    r"|\w[\w.]{0,60} = [frb]{0,2}[\"'].{0,400}[\"'][;,]?$)"
)
"""Source code that contains a failure message."""
_BLOCK = re.compile(
    r"\s{0,40}(?:(?:async )?def \w{1,80}\(.{0,400}|class \w{1,80}(?:\(.{0,200}\))?|(?:async )?for [\w, ()*]{1,80} in .{1,300}"
    r"|try|else|finally|except(?: [\w.(), ]{1,120}(?: as \w{1,30})?)?|(?:async )?with .{1,300}(?: as [\w, ()]{1,80}|\))"
    r"|(?:if|elif|while) (?:not )?[\w.]{1,80}(?:[(\[].{0,300}| (?:==|!=|<=?|>=?|is|in|not|and|or) .{1,300})?"
    r"):(?:\s{0,4}#.{0,200})?\s{0,4}$"
)
"""Start of a Python block, which is indented deeper."""
_OPENED = re.compile(r"(?:@[\w.]{1,80}\(|[A-Za-z_]\w{0,60}(?:: [\w\[\], .|]{1,100})? = [\w.]{0,60}[\[({])$")
"""Start of a Python list or call over several lines."""
_HEX, _BRACKETS = frozenset("0123456789abcdef"), frozenset("([{")
_IN_SOURCE = ('"', "'", "`", "<<", "except", "catch")
"""Strings one of which is in every line of source code: a cheap pre-check."""
_LONGEST_TEST = 5_000
_NUMBERED = re.compile(r" {2,12}(?P<at>\d{1,6})(?: |$)")
"""Line of source code beside an executed one, whose number ends in the same column."""
_RAISED = re.compile(r"\s{0,8}(?:\| {0,2})?E {2,}\S")
"""Exception of a failed test, as marked by pytest in the source code."""


def quoted_lines(messages: Sequence[str]) -> set[int]:
    """Lines that are not messages of a failed program."""
    return {*_changed(messages), *_committed(messages), *_passed(messages), *_helped(messages), *_written(messages), *_numbered(messages)}


def _changed(messages: Sequence[str]) -> set[int]:
    """Lines of a diff or a changelog."""
    found: set[int] = set()
    old = new = stray = 0
    listed = False
    for at, message in enumerate(messages):
        hunk = _HUNK.match(message)
        if hunk:
            old, new, stray = int(hunk["old"] or 1), int(hunk["new"] or 1), 0
            found.add(at)  # the numbers are followed by a line of the file
        elif old > 0 or new > 0:
            mark = message[:1] or " "
            stray = 0 if mark in " +-\\" else stray + 1
            if stray and (stray > _STRAY or len(messages[at - 1]) < _NARROWEST or MESSAGE_START.match(message)):
                old = new = 0  # truncated: this line does not continue a wrapped one
                continue
            old -= mark in " -"
            new -= mark in " +"
            found.add(at)
        elif _CHANGES.match(message):
            listed = True
        elif listed and (_ITEM.match(message) or (at - 1 in found and message[:2].isspace())):
            found.add(at)
        elif message.strip():
            listed = False
    return found


def _committed(messages: Sequence[str]) -> Iterator[int]:
    """Lines of `git log`, in its long or its one-line form."""
    within, before = False, ""
    for at, message in enumerate(messages):
        within = (message[:7] == "commit " and _COMMIT.match(message) is not None) or (within and _OF_COMMIT.match(message) is not None)
        commit = _ONE_COMMIT.match(message) if message[:1] in _HEX else None
        follows = commit is not None and before not in ("", commit["commit"])
        if within or follows:
            yield at
        if follows:
            yield at - 1
        before = commit["commit"] if commit else ""


def _passed(messages: Sequence[str]) -> Iterator[int]:
    """Output of passed tests of GoogleTest or Go, if no other test ran at the same time."""
    began, name, running = -1, "", set[str]()
    for at, message in enumerate(messages):
        if message[:1] not in "[=-":
            continue
        run, ran = _RUN.match(message), _RAN.match(message)
        if run:
            began, name = at, "" if running else run["test"]
            running.add(run["test"].partition("/")[0])  # the rest of the name is a subtest
        elif ran:
            if ran["test"] == name and ran["how"] != "FAILED" and ran["how2"] != "FAIL" and at - began <= _LONGEST_TEST:
                yield from range(began, at + 1)
            name = ""
            running.discard(ran["test"].partition("/")[0])


def _helped(messages: Sequence[str]) -> Iterator[int]:
    """Help text of a program."""
    within = asked = False
    for at, message in enumerate(messages):
        is_head = _HELP.match(message) is not None
        asked = asked or (is_head and ": " in message)
        is_head = is_head or (asked and _HEAD_OF_OPTIONS.match(message) is not None)
        is_failure = _FAILURE.match(message) is not None
        asked = asked and not is_failure
        within = not is_failure and (is_head or (within and (not message.strip() or message[:1].isspace())))
        if within and not (is_head and any(map(_WRONG_OPTION.match, messages[max(at - _BEFORE_USAGE, 0) : at]))):
            yield at


def _numbered(messages: Sequence[str]) -> Iterator[int]:
    """Source code around the executed lines in tracebacks of IPython."""
    block: list[tuple[int, re.Match[str]]] = []
    for at, message in enumerate((*messages, "")):
        line = EXECUTED_LINE.match(message) or _NUMBERED.match(message)
        before = block[-1][1] if block else None
        if before and (line is None or int(line["at"]) != int(before["at"]) + 1 or line.end("at") != before.end("at")):
            if any(each.re is EXECUTED_LINE for _, each in block):
                yield from (place for place, each in block if each.re is _NUMBERED)
            block = []
        if line is not None:
            block.append((at, line))


def _written(messages: Sequence[str]) -> Iterator[int]:
    """Source code, except that in tracebacks, which was executed."""
    framed, block, closed = False, -1, True
    for at, message in enumerate(messages):
        indent = len(message) - len(message.lstrip())
        closes = not closed and indent == block and message.lstrip()[:1] in (")", "]", "}")
        is_within = block >= 0 and not _RAISED.match(message) and (not message.strip() or indent > block or closes)
        closed = closed or closes
        if not is_within:
            opened = _OPENED.match(message) if message[-1:] in _BRACKETS else None
            is_block = opened is not None or (":" in message and _BLOCK.match(message) is not None)
            block, closed = (indent, opened is None) if is_block else (-1, True)
        is_source = any(word in message for word in _IN_SOURCE) and _SOURCE.match(message) is not None
        if (is_source or is_within or block >= 0) and not framed:
            yield at
        framed = _FRAME.match(message) is not None or (framed and (is_source or message[:4].isspace()))
