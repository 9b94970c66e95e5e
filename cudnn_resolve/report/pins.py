"""The packages of a plan as lines of requirements files, with the hashes of their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from cudnn_resolve.planning.model import PipAction, Plan
from cudnn_resolve.planning.preload import folder_actions
from cudnn_resolve.planning.step import wanted
from cudnn_resolve.report.text import clean


class Group(Struct, frozen=True, kw_only=True):
    """Packages that one call of pip installs."""

    index: str | None
    """Address of the index that they must come from; None = the configured one."""
    page: bool
    again: bool
    """True where they are laid down again."""
    hashed: bool
    lines: tuple[str, ...]
    words: tuple[str, ...]
    """The packages as words of a command line, without hashes."""

    @property
    def options(self) -> tuple[str, ...]:
        """What pip is told besides the file."""
        source = () if self.index is None else ("--find-links" if self.page else "--index-url", self.index)
        again = ("--force-reinstall",) if self.again else ()
        return ("--no-deps", *(("--require-hashes",) if self.hashed else ()), *again, *source)


def groups(plan: Plan, *, kept: bool = False) -> Iterator[Group]:
    """The packages to install by the index that they come from; `kept`: as for a fresh environment, those that are there, too."""
    yield from _groups([one for one in plan.pip if one.action != "remove" and (kept or one.action != "keep")], kept=kept)


def folder_groups(plan: Plan) -> Iterator[Group]:
    """The wheels for the folder of their own, likewise."""
    yield from _groups(folder_actions(plan.environment), kept=True)


def _groups(actions: Sequence[PipAction], *, kept: bool) -> Iterator[Group]:
    for index, page, again in dict.fromkeys((one.index, one.page, one.reinstall and not kept) for one in actions):
        members = [one for one in actions if (one.index, one.page, one.reinstall and not kept) == (index, page, again)]
        hashed = all(digest_of(one) for one in members)
        lines = tuple(pin_line(one, hashed=hashed) for one in members)
        words = tuple(clean(word) for one in members for word in wanted(one))
        yield Group(index=index, page=page, again=again, hashed=hashed, lines=lines, words=words)


def pin_line(action: PipAction, *, hashed: bool) -> str:
    """The line of one package."""
    text = " ".join(wanted(action))
    return clean(f"{text} --hash=sha256:{digest_of(action)}" if hashed else text)


def digest_of(action: PipAction) -> str | None:
    """The sha256 of the file that is to be installed, as far as it is known; a folder has none."""
    if action.file is None or (action.direct is not None and action.direct.folder is not None):
        return None
    return action.file.hashes.get("sha256")


def looks(plan: Plan) -> str:
    """A program for the target's interpreter that compares what is installed with the plan, and ends with status 1 where it differs."""
    pinned = {one.name: one.version for one in plan.pip if one.action != "remove"}
    gone = sorted(one.name for one in plan.pip if one.action == "remove")
    return _LOOK.replace("PINNED", _literal(pinned)).replace("GONE", repr(gone))


def _literal(pins: dict[str, str]) -> str:
    return "{" + ", ".join(f"{clean(name)!r}: {clean(version)!r}" for name, version in pins.items()) + "}"


_LOOK = """import sys
try:
    from importlib.metadata import PackageNotFoundError, version
except ImportError:
    from pkg_resources import DistributionNotFound as PackageNotFoundError, get_distribution
    def version(name):
        return get_distribution(name).version
wrong = []
for name, wanted in PINNED.items():
    try:
        found = version(name)
    except PackageNotFoundError:
        found = None
    if found != wanted and (found or "").partition("+")[0] != wanted.partition("+")[0]:
        wrong.append("{} is {}, not {}".format(name, found or "not there", wanted))
for name in GONE:
    try:
        wrong.append("{} {} is still there".format(name, version(name)))
    except PackageNotFoundError:
        pass
if wrong:
    sys.exit("not as planned: " + "; ".join(wrong))
"""
