"""argparse adapted to this program: errors are `UsageError`, with suggestions for misspelled words."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from cudnn_resolve.errors import UsageError, did_you_mean

_CHOICE = r"argument (?P<option>[^:]+): invalid choice: '?(?P<value>[^']*)'? \(choose from (?P<choices>.*)\)"
_RARE = frozenset(
    {"--constraint", "--group", "--platform", "--glibc", "--prefer", "--driver-policy", "--pre", "--strict-pins", "--channel", "--matrix"}
    | {"--allow-break", "--reinstall-package", "--extra-index-url", "--find-links", "--index-strategy", "--exclude-newer", "--no-binary"}
    | {"--only-binary", "--no-variant-indexes", "--installer", "--no-hashes", "--break-system-packages", "--no-validate", "--restart"}
    | {"--bundle-dir", "--force", "--no-color", "--help", "--help-all"}
)
"""Options that only the full help shows, for commands with many options."""
_MANY = 20
_FORMATTER = partial(argparse.HelpFormatter, max_help_position=32)
"""Puts an option and its help on one line if possible."""


class _Once(argparse.Action):
    """Stores the value of an option; UsageError if it is repeated with another value."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        """Store the value."""
        del parser
        before = getattr(namespace, self.dest, self.default)
        if option is not None and before not in (self.default, values):
            hint = "give it once"
            raise UsageError(f"{option} is given twice, with {before!r} and {values!r}", code="usage-repeated", hint=hint)
        setattr(namespace, self.dest, values)


class _HelpAll(argparse.Action):
    """Prints the help with every option."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        """Print it, and exit like `--help`."""
        del namespace, values, option
        assert isinstance(parser, Parser)
        parser.whole = True
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """Parser of one verb; `parse` raises UsageError (exit code 2) where argparse would exit.

    Its help shows the most important options, with `whole` all of them.
    """

    def __init__(self, *, prog: str, description: str, whole: bool = False) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=False, formatter_class=_FORMATTER)
        self.whole = whole
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self.add_argument("-h", "--help", action="help", help="show this help")
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every option")

    def format_help(self) -> str:
        """Usage, options by group, and how to see the rest."""
        shows_all = self.whole or len(self._actions) <= _MANY
        formatter = self._get_formatter()
        patterns: dict[int | str | None, str] = {"*": "[{} ...]", "?": "[{}]"}
        positionals = " ".join(
            patterns.get(action.nargs, "{}").format(action.metavar or action.dest) for action in self._get_positional_actions()
        )
        formatter.add_text(f"usage: {self.prog} [OPTIONS] {positionals}".rstrip())
        formatter.add_text(self.description)
        for group in self._action_groups:
            shown = [action for action in group._group_actions if shows_all or _RARE.isdisjoint(action.option_strings)]  # noqa: SLF001 - there is no public way
            if any(action.help != argparse.SUPPRESS for action in shown):
                formatter.start_section(group.title)
                formatter.add_text(group.description if shows_all else None)
                formatter.add_arguments(shown)
                formatter.end_section()
        formatter.add_text(self.epilog)
        formatter.add_text(None if shows_all else f"`{self.prog.replace(' ', ' help ', 1)}` shows every option.")
        return formatter.format_help()

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse a command line."""
        args, unknown = self.parse_known_args(list(argv))
        options = [word for word in unknown if word.startswith("-") and word != "-"]
        if options or (unknown and not hasattr(args, "packages")):
            self._reject((options or unknown)[0])
        if unknown:  # argparse takes only the words before the first option
            args.packages = [*args.packages, *unknown]
        return args

    def _reject(self, word: str) -> NoReturn:
        option = word.partition("=")[0]
        if not option.startswith("-"):
            raise UsageError(f"{self.prog} does not take {option!r}", code="usage-argument", hint=self._see_help())
        near = nearest(option, (known for known in self._option_string_actions if known.startswith("--")))
        hint = did_you_mean(near) or self._see_help()
        raise UsageError(f"{self.prog} has no option {option}", code="usage-option", hint=hint)

    def _see_help(self) -> str:
        return f"{self.prog} --help"

    def error(self, message: str) -> NoReturn:
        """Raise an error of argparse as UsageError."""
        found = re.fullmatch(_CHOICE, message)
        if found is None:
            raise UsageError(message.removeprefix("argument "), code="usage", hint=self._see_help())
        choices = [choice.strip().strip("'") for choice in found["choices"].split(",")]
        near = nearest(found["value"], choices)
        raise UsageError(
            f"{found['option']} cannot be {found['value']!r}: it is one of {', '.join(choices)}",
            code="usage-choice",
            hint=did_you_mean(near) or self._see_help(),
        )


def nearest(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """At most three known words similar to `word`, nearest first."""
    from difflib import get_close_matches  # only a wrong command line needs it

    folded = {name.casefold(): name for name in known}
    return tuple(folded[name] for name in get_close_matches(word.casefold(), folded, n=3, cutoff=0.7))
