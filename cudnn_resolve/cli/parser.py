"""argparse with the manners of this program: errors are `UsageError`, and a near miss is answered with the nearest word."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import NoReturn

from cudnn_resolve.errors import UsageError

_CHOICE = re.compile(r"argument (?P<option>[^:]+): invalid choice: '?(?P<value>[^']*)'? \(choose from (?P<choices>.*)\)")


class Parser(argparse.ArgumentParser):
    """A parser for one verb; `parse` raises UsageError (exit 2) where argparse would exit."""

    def __init__(self, *, prog: str, description: str) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=False)
        self.add_argument("-h", "--help", action="help", help="show this help")

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The options of a command line."""
        args, unknown = self.parse_known_args(list(argv))
        if unknown:
            self._refuse(unknown[0])
        return args

    def _refuse(self, word: str) -> NoReturn:
        option = word.partition("=")[0]
        if not option.startswith("-"):
            raise UsageError(f"{self.prog} does not take {option!r}", code="usage-argument", hint=self._see())
        near = nearest(option, (known for known in self._option_string_actions if known.startswith("--")))
        hint = f"did you mean {' or '.join(near)}?" if near else self._see()
        raise UsageError(f"{self.prog} has no option {option}", code="usage-option", hint=hint)

    def _see(self) -> str:
        return f"{self.prog} --help"

    def error(self, message: str) -> NoReturn:
        """Raise what argparse found as a UsageError."""
        found = _CHOICE.fullmatch(message)
        if found is None:
            raise UsageError(message.removeprefix("argument "), code="usage", hint=self._see())
        choices = [choice.strip().strip("'") for choice in found["choices"].split(",")]
        near = nearest(found["value"], choices)
        raise UsageError(
            f"{found['option']} cannot be {found['value']!r}: it is one of {', '.join(choices)}",
            code="usage-choice",
            hint=f"did you mean {' or '.join(near)}?" if near else self._see(),
        )


def nearest(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """At most three of `known` that `word` may have been meant as, the nearest first."""
    from difflib import get_close_matches  # only a wrong command line needs it

    folded = {name.casefold(): name for name in known}
    return tuple(folded[name] for name in get_close_matches(word.casefold(), folded, n=3, cutoff=0.6))
