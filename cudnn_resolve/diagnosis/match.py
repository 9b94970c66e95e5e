"""Search a log for the symptoms of the tables, line by line, in bounded memory."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import accumulate
from operator import eq, ge, gt, le, lt, ne
from typing import Any

from cudnn_resolve.diagnosis.log_lines import Index, Line, Scanner, joined
from cudnn_resolve.diagnosis.model import Match
from cudnn_resolve.diagnosis.normalize_log import decoded, formed, whole
from cudnn_resolve.diagnosis.quoted_text import EXECUTED_LINE, QUOTED_LINE
from cudnn_resolve.matrix.anchor import may_match, words_of
from cudnn_resolve.matrix.message import KINDS, expand, fields_of
from cudnn_resolve.matrix.symptom import Symptom
from cudnn_resolve.version import CodeTarget, Dotted

KEPT = 12
"""Number of first distinct matches kept per symptom; others are only counted."""
_LATEST = 3
_MOST_IN_LINE = 8
_IDLE = 4096
"""Number of line shapes with a symptom that are counted."""
_OFTEN = 300
"""Lines of one shape that are examined, since their numbers may differ."""
_ENOUGH = 5_000
"""Matches of a context symptom after which it is searched again only at the end of the log."""
_GLUED_LINES = 20_000
"""Up to this line, a line without a match is tried again joined with the next one, in case it was wrapped."""
_MAYBE = 5_000
_EVIDENCE = 320
_FAILED = frozenset({"context-failed", "context-bad-end", "context-alarm"})
"""Symptoms that only report a failure: such a line may still start a wrapped message."""


class Reader:
    """Reader of one log; afterwards `matches` and `counts` contain its symptoms by id."""

    def __init__(self, symptoms: Sequence[Symptom]) -> None:
        self.matches: defaultdict[str, list[Match]] = defaultdict(list)
        self.counts: dict[str, int] = {}
        self.latest: defaultdict[str, deque[Match]] = defaultdict(partial(deque, maxlen=_LATEST))
        """Last matches of each symptom, one per line."""
        self.lines = 0
        """Lines read."""
        self.is_one_message = False
        """True for a log of one message, wrapped or not."""
        self.quoted_from = 0
        """First line that is skipped as a diff, source code or help; 0 without one."""
        self._often: dict[bytes, int] = {}
        self._anchors, self._index = _by_anchor(tuple(symptoms))
        self._scanner = Scanner(self._index)
        self._numbers: list[int] = []
        """User's line numbers of a short log, which is normalized first."""

    def _number(self, line: int) -> int:
        return self._numbers[min(line, len(self._numbers)) - 1] if self._numbers else line

    def read(self, chunks: Iterable[bytes]) -> Reader:
        """Read all chunks; return the reader."""
        short, rest = whole(chunks)
        maybe: list[tuple[int, list[str]]] = []
        if short:
            form = formed(decoded(short))
            self._numbers, maybe, self.is_one_message, self.quoted_from = form.numbers, form.maybe, form.is_one, form.quoted_from
            rest = iter((form.text.encode("utf-8", "replace"),))
        for chunk in rest:
            for line in self._scanner.feed(chunk):
                self._line(line)
        for line in self._scanner.finish():
            self._line(line)
        self.lines = 0 if self._scanner.is_blank and not self.quoted_from else self._number(self._scanner.lines)
        self._numbers = []
        for number, pieces in maybe[:_MAYBE]:
            whole_text = "".join(pieces)
            breaks = tuple(accumulate(map(len, pieces[:-1])))
            self._look(Line(number, whole_text.encode("utf-8", "replace")), whole_text, across=breaks)
        return self

    def every(self) -> Iterator[Match]:
        """Iterate over all kept matches."""
        for found in self.matches.values():
            yield from found

    def of(self, name: str) -> list[Match]:
        """Kept matches of a symptom, one per line, in the order of the log."""
        every = {match.line: match for match in (*self.matches[name], *self.latest[name])}
        return [every[line] for line in sorted(every)]

    def last_line(self, *names: str) -> int:
        """The last line of some symptoms; 0 without any."""
        return max((match.line for name in names for match in self.latest[name]), default=0)

    def _line(self, line: Line) -> None:
        found, begun, is_specific = self._look(line, line.text)
        if is_specific:
            if self._enough(line):
                self._scanner.forget(line)
            return
        if line.number <= _GLUED_LINES and 40 <= len(line.text) < 400:
            following = line.following(1)
            if following and following[0][1] and self._look(line, line.text + following[0][1], across=(len(line.text),))[0]:
                return
        if not (begun or found) or self._enough(line):
            self._scanner.forget(line)

    def _enough(self, line: Line) -> bool:
        """True for a line whose shape was so frequent that further ones add nothing."""
        count = self._often.get(line.shape, 0) + 1
        if len(self._often) < _IDLE:
            self._often[line.shape] = count
        return count > _OFTEN

    def _look(self, line: Line, text: str, *, across: tuple[int, ...] = ()) -> tuple[bool, bool, bool]:
        """Return whether there is a match, whether a message over several lines may start, and whether more than a failure is reported.

        With `across`, the offsets at which lines were joined, only matches that span one of them count.
        """
        code = QUOTED_LINE.match(text)
        if code:
            if code["mended"] is not None:
                self.quoted_from = self.quoted_from or self._number(line.number)
            return False, False, False
        low = text.lower()
        found = begun = is_specific = False
        is_source = "-> " in low[:16] and EXECUTED_LINE.match(low) is not None
        tried: set[int] = set()
        near = dict.fromkeys(anchor for word in words_of(low.encode("utf-8", "replace")) for anchor in self._index.anchors(word))
        for anchor in (*near, *self._index.always):
            if anchor not in low:
                continue
            for symptom in self._anchors[anchor]:
                if id(symptom) in tried or (is_source and symptom.last):
                    continue
                tried.add(id(symptom))
                is_enough = self.counts.get(symptom.id, 0) > _ENOUGH and not line.is_late
                if symptom.role == "context" and (across or is_enough):
                    continue
                message = joined(line, symptom.span) if symptom.span > 1 and not across else text
                begun |= symptom.span > 1
                for fields, at in _find(symptom, message, low if message is text else message.lower(), across):
                    found = True
                    is_specific |= symptom.id not in _FAILED
                    self._keep(symptom, line, (message, at, across or ((len(text),) if message != text else ())), fields)
        return found, begun, is_specific

    def _keep(self, symptom: Symptom, line: Line, place: tuple[str, int, tuple[int, ...]], fields: dict[str, Any]) -> None:
        """Keep a match, with the user's line on which it starts if the message was joined from several."""
        text, at, breaks = place
        before = [position for position in breaks if position <= at]
        own = text[max(before, default=0) : min((position for position in breaks if position > at), default=len(text))]
        number = self._number(line.number) + (len(before) if len(breaks) > 1 or not before else 0)
        own = excerpt(line.head + own, 0) if breaks and not (before and len(breaks) == 1) else ""
        text, at = line.head + text, len(line.head) + at
        self.counts[symptom.id] = self.counts.get(symptom.id, 0) + 1
        kept, latest = self.matches[symptom.id], self.latest[symptom.id]
        match = Match(symptom=symptom, line=number, text=excerpt(text, at), own=own or None, fields=fields)
        if not latest or latest[-1].line != number:
            latest.append(match)
        if len(kept) < KEPT and all(match.fields != fields for match in kept):
            kept.append(match)


def _find(symptom: Symptom, text: str, low: str, across: tuple[int, ...]) -> Iterator[tuple[dict[str, Any], int]]:
    """Find the first matching pattern of a symptom in a text, with its fields and offsets; `low` is the text in lower case."""
    for source, literals in zip(symptom.pattern, symptom.literals, strict=True):
        if not may_match(literals, low):
            continue
        pattern, kinds = _compiled(source)
        count = 0
        for match in pattern.finditer(text):
            if across and not any(match.start() < at < match.end() for at in across):
                continue
            fields = _fields(match.groupdict(), kinds)
            if fields is not None and all(holds(comparison, fields) for comparison in symptom.when):
                yield fields, match.start()
                count += 1
            if count >= _MOST_IN_LINE:
                break
        if count:
            return


@cache
def _compiled(source: str) -> tuple[re.Pattern[str], Mapping[str, str]]:
    """Compile a pattern when a line first has all that it needs, with the kinds of its fields, which differ between patterns."""
    return re.compile(expand(source)), fields_of(source)


def _fields(groups: Mapping[str, str | None], kinds: Mapping[str, str]) -> dict[str, Any] | None:
    """Values of the fields of a match; None if one of them cannot be parsed."""
    out = {}
    for name, text in groups.items():
        if text is None:
            continue
        try:
            out[name] = KINDS[kinds.get(name, "text")].take(text)
        except ValueError:
            return None
    return out


@lru_cache(maxsize=2)
def _by_anchor(symptoms: tuple[Symptom, ...]) -> tuple[Mapping[str, Sequence[Symptom]], Index]:
    """Symptoms by anchor, and the index of anchors."""
    found: dict[str, list[Symptom]] = {}
    for symptom in symptoms:
        for anchor in symptom.anchor:
            found.setdefault(anchor, []).append(symptom)
    return found, Index(found)


def excerpt(text: str, at: int) -> str:
    """Excerpt of limited length around a match; the whole line if it fits."""
    if len(text) <= _EVIDENCE:
        return text.strip()
    start = 0 if at < _EVIDENCE // 2 else at - 60
    cut = text[start : start + _EVIDENCE].strip()
    return f"{'...' if start else ''}{cut}{'...' if start + _EVIDENCE < len(text) else ''}"


# --- comparisons of fields: `found < built`, `major found != major built`, `capability above targets` ---

_SIMPLE: dict[str, Callable[[Any, Any], bool]] = {"<": lt, "<=": le, "==": eq, "!=": ne, ">=": ge, ">": gt}


def holds(comparison: str, fields: Mapping[str, Any]) -> bool:
    """True if the comparison holds for these fields; False if one of them is missing."""
    words = comparison.split()
    left, words = _operand(words, fields)
    operator, words = words[0], words[1:]
    right, _ = _operand(words, fields)
    if left is None or right is None:
        return False
    try:
        if operator in _SIMPLE:
            return bool(_SIMPLE[operator](*_alike(left, right)))
        return _SETS[operator](left, right)
    except (TypeError, ValueError, AttributeError):
        return False


def _operand(words: list[str], fields: Mapping[str, Any]) -> tuple[Any, list[str]]:
    if words[0] == "major":
        value, rest = _operand(words[1:], fields)
        return getattr(getattr(value, "capability", value), "major", value), rest
    return fields.get(words[0]) if words[0].isidentifier() else words[0], words[1:]


def _alike(left: Any, right: Any) -> tuple[Any, Any]:
    """Convert both to one type: a literal in a row gets the type of the field."""
    if isinstance(left, Dotted) and isinstance(right, Dotted):
        length = min(len(left.parts), len(right.parts))
        return (left.parts[:length], right.parts[:length]) if length >= 2 else (left.parts, right.parts)
    if isinstance(right, str) and not isinstance(left, str):
        right = int(right) if isinstance(left, int) else CodeTarget.parse(right) if isinstance(left, CodeTarget) else type(left)(right)
    if isinstance(left, CodeTarget) and isinstance(right, CodeTarget):
        return left.capability, right.capability
    return left, right


_SETS: dict[str, Callable[[Any, Any], bool]] = {
    # Newer than the whole list, whose machine code does not run on it.
    "above": lambda gpu, targets: (
        not any(target.runs_on(gpu.capability) for target in targets if target.kind == "cubin")
        and gpu.capability > min(target.capability for target in targets)
    ),
    "below": lambda gpu, targets: gpu.capability < min(target.capability for target in targets),
    "among": lambda gpu, targets: any(target.runs_on(gpu.capability) for target in targets),
    "within": lambda value, many: value in many,
}
