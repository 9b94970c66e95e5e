"""The command that installed packages in a log: its tool, packages and indexes, so that a remedy repeats it with one change."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from cudnn_resolve.diagnosis.model import Match, of_symptom
from cudnn_resolve.facts.distribution import OLDEST_OF_UV
from cudnn_resolve.matrix.row import Index

if TYPE_CHECKING:
    from cudnn_resolve.matrix.book import Book

_COMMAND, _INDEX = "context-install-command", "context-index-named"
BY_UV = ("uv-project", "uv-pip")
_OF_PROJECT = ("uv-project", "poetry", "pdm")
_TOOLS = (("uv pip", "uv-pip"), ("uv ", "uv-project"), ("poetry ", "poetry"), ("pdm ", "pdm"))
"""Start of a command, and the feature of its tool; others are pip's."""
_UV_PROJECT = ("uv-wheel", "uv-python-hint", "uv-glibc")
"""Symptoms in the wording of uv's lock file, which only commands for projects print."""
_POETRY = r"Unable to find installation candidates|will not be (?:satisfied|installable) for Python"
_PDM = r"project's requires-python|\bpdm\b|CandidateNotFound|No candidate is found for"
_PACKAGE = r"[A-Za-z0-9][\w.-]{0,79}(?:\[[\w,. -]{1,60}\])?(?:(?:===?|~=|>=|<=|!=|<|>)[\w.+!*,<>=~-]{1,80})?"
_LIMITED = r"'?[A-Za-z][\w.\[\],-]{0,79}(?:[=<>~!][\w.*,<>=!~+]{1,60})?'?"
ONE_INDEX = ("--index-url", "-i", "--default-index")
"""Options for the only index that is searched."""
_MORE = ("--extra-index-url", "--index", "--find-links", "-f")
_FILES = ("-r", "--requirement")
_FILE = r"[\w./\\-]{1,120}\.(?:txt|in)"
_LAST_WITHOUT_SETTINGS = (3, 6)
"""Last Python whose pip has no --config-settings; the last LightGBM for it has no wheel with OpenCL for Linux."""
_LIGHTGBM = r"--no-binary lightgbm --config-settings=cmake\.define\.USE_CUDA=ON lightgbm|--no-deps lightgbm"
# Options without a value, which a repeated command can leave out.
# fmt: off
_FLAGS = frozenset([
    "-U", "--upgrade", "--user", "--no-cache-dir", "--no-cache", "--pre", "-q", "-qq", "-v", "-vv", "--quiet", "--verbose",
    "--force-reinstall", "--no-deps", "-I", "--ignore-installed", "--no-build-isolation", "--break-system-packages",
    "--system", "--reinstall", "--refresh", "--prefer-binary", "--disable-pip-version-check", "-y", "--yes", "--no-input",
    "--frozen", "--locked", "--all-extras", "--dev", "--no-dev", "--no-root", "--no-warn-script-location",
    "--root-user-action=ignore",
])
# fmt: on
_PROMPT = re.compile(
    r"(?:[^\n]{0,120}[$#>%!] ?|RUN |#\d{1,3} \[[^\]\n]{1,80}\] RUN )?(?:sudo (?:-\w )?)?(?:[A-Z_]{2,40}=\S{0,80} ){0,4}(?:\S{1,200} -m )?"
)
"""What may stand before a command; a sentence that mentions one is none."""
_ENDS = re.compile(r"[;&|<>#]|\d>")
"""Start of what is not part of a command any more."""
_LONGEST = 790
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
    """Options that name indexes of the tables; other indexes are dropped."""
    is_known: bool = True
    """False if it names an index that is not in the tables."""

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
    command = next((match for match in reversed(matches) if match.symptom.id == _COMMAND and _is_command(match)), None)
    text = str(command.fields["command"]) if command is not None else ""
    feature = next((feature for start, feature in _TOOLS if text.startswith(start)), None) if text else _of_messages(matches)
    words = [word.strip("'\"") for word in re.split(r"\s+", text)][1:]
    named = _urls(words)
    known = tuple(word for option, url in named if _is_known(url, book) for word in (option, url))
    is_known = len(known) == 2 * len(named)
    asked = _asked(words) if is_known and len(text) < _LONGEST else None
    packages, files = asked if asked is not None else ((), ())
    return Installation(feature=feature, packages=packages, files=files, options=known or tuple(_named(matches, book)), is_known=is_known)


def by_uv(command: str, python: str, *, is_project: bool) -> str:
    """The same command with uv, whose environments have no pip; in a project a plain request is added to it, or uv would drop it again."""
    pip = re.escape(f"{python} -m pip ")
    place = "" if python == "python" else f" --python {python}"
    if is_project:
        command = re.sub(rf"{pip}install (?:-U )?(?=(?:{_LIMITED}(?: |$))+(?:&&|$))", "uv add ", command)
    return re.sub(rf"{pip}(install|uninstall|list|show|check|freeze)\b(?: -y\b)?", lambda hit: f"uv pip {hit[1]}{place}", command)


def for_pip(command: str, python: tuple[int, int] | None) -> str:
    """The same build of LightGBM with the pip of that Python."""
    if python is None or python > _LAST_WITHOUT_SETTINGS:
        return command
    return re.sub(
        _LIGHTGBM,
        lambda hit: f"--no-binary lightgbm --install-option=--{'cuda' if 'CUDA' in hit[0] else 'gpu'} 'lightgbm<4'",
        command,
    )


def _is_command(match: Match) -> bool:
    """True if a line is a command, whole, and not a sentence that mentions one."""
    before = match.text.partition(str(match.fields.get("command", "")))[0]
    return not match.text.endswith("...") and _PROMPT.fullmatch(before) is not None


def _of_messages(matches: Iterable[Match]) -> str | None:
    for match in matches:
        if match.symptom.id in _UV_PROJECT:
            return "uv-project"
        if match.symptom.id == "poetry-python":
            return "poetry" if re.search(_POETRY, match.text) else "pdm" if re.search(_PDM, match.text) else None
    return None


def _asked(words: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Requirements and files of requirements of a command; None if a word of it is not understood, so that it cannot be repeated."""
    verbs = [place for place, word in enumerate(words) if word in ("install", "add")]
    rest = iter(words[verbs[0] + 1 :] if verbs else ())
    packages, files = [], []
    for word in rest:
        if _ENDS.match(word):
            break
        name = word.partition("=")[0] if word.startswith("--") else word
        if name in (*ONE_INDEX, *_MORE):
            if name == word:
                next(rest, None)
        elif word in _FILES and re.fullmatch(_FILE, file := next(rest, "")):
            files.append(file)
        elif re.fullmatch(_PACKAGE, word.rstrip(";")):
            packages.append(word.rstrip(";"))
            if word.endswith(";"):
                break
        elif word not in _FLAGS:
            return None
    return tuple(packages), tuple(files)


def _urls(words: Sequence[str]) -> list[tuple[str, str]]:
    """Options for indexes, each with its address."""
    pairs = [(word, after) for word, after in zip(words, [*words[1:], ""], strict=False)]
    pairs += [(word.partition("=")[0], word.partition("=")[2]) for word in words if word.startswith("--") and "=" in word]
    return [(option, url) for option, url in pairs if option in (*ONE_INDEX, *_MORE)]


def _named(matches: Iterable[Match], book: Book) -> Iterable[str]:
    """Options for what pip prints: `Looking in indexes: …`."""
    for match in of_symptom(matches, _INDEX):
        urls = re.findall(_URL, match.text)
        is_page = "links" in match.text.casefold()
        option = "-f" if is_page else "--index-url" if len(urls) == 1 else "--extra-index-url"
        for url in filter(lambda url: _is_known(url, book), urls):
            yield from (option, url)


def of_ended_index(name: str, newest: tuple[int, int], own: tuple[int, int] | None, done: Installation, book: Book) -> dict[str, str]:
    """Fields for a package without a requested release, if the only named index has no build of it for the newest Pythons any more."""
    row = next((row for row in book.rows(Index) if [row.url.rstrip("/")] == [url.rstrip("/") for url in done.urls]), None)
    if row is None or book.framework_of(name) is None:
        return {}
    tags = {tag for build in book.builds_of(name) if build.index == row.id for tag in build.pythons}
    lines = sorted((3, int(tag[3:])) for tag in tags if re.fullmatch(r"cp3\d{1,2}", tag))
    lines = [line for line in lines if line >= OLDEST_OF_UV]
    if len(lines) < 2 or own in lines or lines[-1] >= newest:
        return {}
    settled = lines[-1] if own is not None and own > lines[-1] else lines[-2]  # which wheels of other packages are for, too
    only = {"from_index": f" --index-url {shlex.quote(row.url)}"} if {*done.packages} <= {*row.serves} else {}
    return {"line": f"3.{settled[1]}", "python_64": f"3.{settled[1]}", "python_range": f"3.{lines[0][1]} to 3.{lines[-1][1]}"} | only


def _is_known(url: str, book: Book) -> bool:
    """True for an index of the tables, or one beside it: from others nothing is to be installed because a log says so."""
    return re.fullmatch(_URL, url) is not None and "/.." not in url and any(url.startswith(parent_of(row.url)) for row in book.rows(Index))


def parent_of(url: str) -> str:
    """Address under which an index lies."""
    return f"{url.rstrip('/').rpartition('/')[0]}/"


def build_values(matches: Iterable[Match], done: Installation) -> dict[str, str]:
    """Fields for the package that could not be built, and what its command asked for: a name, or the sources of an editable one."""
    built = next(of_symptom(matches, "context-built"), None)
    if built is None:
        return {"build_asked": shlex.join(done.packages or ("PACKAGE",))}
    name = str(built.fields["built"])
    asked = ("-e", ".") if "building editable" in built.text else (name,)
    return {"built_package": shlex.quote(name), "build_asked": shlex.join(done.packages or asked)}
