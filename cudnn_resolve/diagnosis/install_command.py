"""The command that installed packages in a log: its tool, packages and indexes, so that a remedy repeats it with one change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from cudnn_resolve.diagnosis.model import Match
    from cudnn_resolve.matrix.book import Book

_COMMAND, _INDEX = "context-install-command", "context-index-named"
_OF_PROJECT = ("uv-project", "poetry", "pdm")
_TOOLS = (("uv pip", "uv-pip"), ("uv ", "uv-project"), ("poetry ", "poetry"), ("pdm ", "pdm"))
"""Start of a command, and the feature of its tool; others are pip's."""
_UV_PROJECT = ("uv-wheel", "uv-python-hint", "uv-glibc")
"""Symptoms in the wording of uv's lock file, which only commands for projects print."""
_POETRY = r"Unable to find installation candidates|will not be (?:satisfied|installable) for Python"
_PDM = r"project's requires-python|\bpdm\b|CandidateNotFound|No candidate is found for"
_PACKAGE = r"[A-Za-z0-9][\w.-]{0,79}(?:\[[\w,. -]{1,60}\])?(?:(?:===?|~=|>=|<=|!=|<|>)[\w.+!*,<>=~-]{1,80})?"
ONE_INDEX = ("--index-url", "-i", "--default-index")
"""Options for the only index that is searched."""
_MORE = ("--extra-index-url", "--index", "--find-links", "-f")
_WITH_VALUE = ("-r", "-c", "-t", "-e", "--requirement", "--constraint", "--target", "--python", "-p", "--prefix", "--root", "--platform")
_URL = r"https://[\w./+~-]{1,200}"
_ADDERS = {"uv-project": "uv add", "poetry": "poetry add", "pdm": "pdm add", "uv-pip": "uv pip install"}


class Installation(Struct, frozen=True, kw_only=True):
    """What a log shows of the command that failed."""

    feature: str | None = None
    """Feature of its tool: `uv-project`, `uv-pip`, `poetry`, `pdm`; None for pip, or if it is unknown."""
    packages: tuple[str, ...] = ()
    """Requirements, as written."""
    files: tuple[str, ...] = ()
    """Files of requirements."""
    options: tuple[str, ...] = ()
    """Options that name indexes of the tables; others are configured, or unknown."""

    @property
    def urls(self) -> tuple[str, ...]:
        """Indexes that the command names."""
        return tuple(word for word in self.options if word.startswith("https://"))

    def command(self, python: str) -> str:
        """Command that installs packages in the same way."""
        return _ADDERS.get(self.feature or "", f"{python} -m pip install")

    def arguments(self, wanted: str, name: str) -> str:
        """Requirements of the command if the wanted package is one of them, or in its file, else only that one."""
        if self.files and not self.packages and self.feature in (None, "uv-pip"):
            return " ".join(f"-r {shlex.quote(file)}" for file in self.files)
        named = [re.split(r"[^\w.-]", package)[0].lower().replace("_", "-") for package in self.packages]
        every = self.packages if name in named and self.feature not in _OF_PROJECT else (wanted,)
        return " ".join(map(shlex.quote, every))

    def indexes(self) -> str:
        """Options that name indexes, with a space before them; empty without any."""
        return "".join(f" {shlex.quote(word)}" for word in self.options)


def installation(matches: Sequence[Match], book: Book) -> Installation:
    """The last install command of a log, or what its messages show of it."""
    command = next((match for match in reversed(matches) if match.symptom.id == _COMMAND), None)
    text = str(command.fields.get("command", "")) if command is not None else ""
    feature = next((feature for start, feature in _TOOLS if text.startswith(start)), None) if text else _of_messages(matches)
    words = [word.strip("'\"") for word in re.split(r"\s+", text)][1:]
    options = tuple(_options(words, book)) or tuple(_named(matches, book))
    files = tuple(after for word, after in pairwise(words) if word in ("-r", "--requirement") and _is_file(after))
    return Installation(feature=feature, packages=tuple(_packages(words)), files=files, options=options)


def _of_messages(matches: Iterable[Match]) -> str | None:
    for match in matches:
        if match.symptom.id in _UV_PROJECT:
            return "uv-project"
        if match.symptom.id == "poetry-python":
            return "poetry" if re.search(_POETRY, match.text) else "pdm" if re.search(_PDM, match.text) else None
    return None


def _is_file(word: str) -> bool:
    return re.fullmatch(r"[\w./\\-]{1,120}\.(?:txt|in)", word) is not None


def _packages(words: Sequence[str]) -> Iterable[str]:
    verbs = [place for place, word in enumerate(words) if word in ("install", "add")]
    for before, word in zip(words[verbs[0] :], words[verbs[0] + 1 :], strict=False) if verbs else ():
        if word in (";", "&&", "||", "|", "#"):
            return
        is_value = before in ONE_INDEX or before in _MORE or before in _WITH_VALUE
        if not is_value and not word.startswith("-") and re.fullmatch(_PACKAGE, word):
            yield word


def _options(words: Sequence[str], book: Book) -> Iterable[str]:
    """Options for indexes that the tables know: from others nothing is to be installed because a log says so."""
    pairs = [(word, after) for word, after in zip(words, [*words[1:], ""], strict=False)]
    pairs += [(word.partition("=")[0], word.partition("=")[2]) for word in words if word.startswith("--") and "=" in word]
    for option, url in pairs:
        if option in (*ONE_INDEX, *_MORE) and re.fullmatch(_URL, url) and _is_known(url, book):
            yield from (option, url)


def _named(matches: Iterable[Match], book: Book) -> Iterable[str]:
    """Options for what pip prints: `Looking in indexes: …`."""
    for match in matches:
        if match.symptom.id != _INDEX:
            continue
        urls = re.findall(_URL, match.text)
        is_page = "links" in match.text.casefold()
        option = "-f" if is_page else "--index-url" if len(urls) == 1 else "--extra-index-url"
        for url in filter(lambda url: _is_known(url, book), urls):
            yield from (option, url)


def _is_known(url: str, book: Book) -> bool:
    """True for an index of the tables, or one beside it."""
    return any(url.startswith(f"{row.url.rstrip('/').rpartition('/')[0]}/") for row in book.indexes())
