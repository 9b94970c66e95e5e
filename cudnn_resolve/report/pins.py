"""Render the packages of a plan as lines of requirements files, with the hashes of their files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import Struct

from cudnn_resolve.planning.model import PipAction, Plan
from cudnn_resolve.planning.preload import folder_actions
from cudnn_resolve.planning.step import pip_arguments
from cudnn_resolve.report.text import clean


class Group(Struct, frozen=True, kw_only=True):
    """Packages that one call of pip installs."""

    options: tuple[str, ...]
    """Options of `pip install`."""
    hashed: bool
    lines: tuple[str, ...]
    words: tuple[str, ...]
    """The packages as words of a command line, without hashes."""


def groups(plan: Plan, *, fresh: bool = False) -> Iterator[Group]:
    """Group the packages to install by their index; for a `fresh` environment, kept packages are installed, too."""
    yield from _groups([action for action in plan.pip if action.action != "remove" and (fresh or action.action != "keep")], fresh=fresh)


def folder_groups(plan: Plan) -> Iterator[Group]:
    """Group the wheels that are unpacked into the separate folder."""
    yield from _groups(folder_actions(plan.environment), fresh=True)


def _groups(actions: Sequence[PipAction], *, fresh: bool) -> Iterator[Group]:
    members: dict[tuple[str | None, bool, bool], list[PipAction]] = {}
    for action in actions:
        members.setdefault((action.index, action.page, action.reinstall and not fresh), []).append(action)
    for (index, is_page, reinstall), found in members.items():
        hashed = all(digest_of(action) for action in found)
        lines = tuple(pin_line(action, hashed=hashed) for action in found)
        words = tuple(clean(word) for action in found for word in pip_arguments(action))
        source = () if index is None else ("--find-links" if is_page else "--index-url", index)
        flags = {"--no-deps": True, "--require-hashes": hashed, "--force-reinstall": reinstall}
        options = (*(flag for flag, is_given in flags.items() if is_given), *source)
        yield Group(options=options, hashed=hashed, lines=lines, words=words)


def pin_line(action: PipAction, *, hashed: bool) -> str:
    """The requirements line of one package."""
    text = " ".join(pip_arguments(action))
    return clean(f"{text} --hash=sha256:{digest_of(action)}" if hashed else text)


def digest_of(action: PipAction) -> str | None:
    """SHA-256 of the file to install; None if unknown, or for a project folder."""
    if action.file is None or (action.direct is not None and action.direct.folder is not None):
        return None
    return action.file.hashes.get("sha256")


def comparison_program(plan: Plan) -> str:
    """A program for the target interpreter that compares the installed versions with the plan and exits with status 1 if they differ."""
    pinned = {action.name: action.version for action in plan.pip if action.action != "remove"}
    removed = sorted(action.name for action in plan.pip if action.action == "remove")
    return _COMPARE.replace("PINNED", _literal(pinned)).replace("REMOVED", repr(removed))


def _literal(pins: dict[str, str]) -> str:
    return "{" + ", ".join(f"{clean(name)!r}: {clean(version)!r}" for name, version in pins.items()) + "}"


_COMPARE = """import sys
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
        wrong.append("{} is {}, not {}".format(name, found or "not installed", wanted))
for name in REMOVED:
    try:
        wrong.append("{} {} is still installed".format(name, version(name)))
    except PackageNotFoundError:
        pass
if wrong:
    sys.exit("the environment does not match the plan: " + "; ".join(wrong))
"""
