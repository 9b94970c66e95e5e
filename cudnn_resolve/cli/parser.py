"""argparse with the manners of this program: errors are `UsageError`, and a near miss is answered with the nearest word."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NoReturn

from cudnn_resolve.errors import UsageError

_CHOICE = r"argument (?P<option>[^:]+): invalid choice: '?(?P<value>[^']*)'? \(choose from (?P<choices>.*)\)"


_RARE = frozenset(
    {"--constraint", "--group", "--platform", "--glibc", "--prefer", "--driver-policy", "--pre", "--strict-pins", "--channel", "--matrix"}
    | {"--allow-break", "--reinstall-package", "--extra-index-url", "--find-links", "--index-strategy", "--exclude-newer", "--no-binary"}
    | {"--only-binary", "--no-variant-indexes", "--installer", "--no-hashes", "--break-system-packages", "--no-validate", "--restart"}
    | {"--bundle-dir", "--force", "--no-color", "--help", "--help-all"}
)
"""Options that only `help COMMAND` shows, where there are many."""
_MANY = 20
_FORMATTER = partial(argparse.HelpFormatter, max_help_position=32)
"""One line for an option and its help, where there is room."""
_CHECKER = partial(argparse.HelpFormatter, width=80)
"""What argparse tries options on as they are added. It has a width: to ask for that of the terminal, `shutil` is imported, 2 ms."""


class _Once(argparse.Action):
    """The value of an option that is given once; UsageError where it is given again with another one."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        """Keep the value."""
        del parser
        before = getattr(namespace, self.dest, self.default)
        if option is not None and before not in (self.default, values):
            hint = "say it once"
            raise UsageError(f"{option} is given twice, with {before!r} and with {values!r}", code="usage-repeated", hint=hint)
        setattr(namespace, self.dest, values)


class _HelpAll(argparse.Action):
    """Print the help with every option."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: str | None = None) -> None:
        """Print it, and end as `--help` does."""
        del namespace, values, option
        assert isinstance(parser, Parser)
        parser.whole = True
        parser.print_help()
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser for one verb; `parse` raises UsageError (exit 2) where argparse would exit.

    Its help shows the options that matter most, or the `whole` of them.
    """

    def __init__(self, *, prog: str, description: str, whole: bool = False) -> None:
        super().__init__(prog=prog, description=description, allow_abbrev=False, add_help=False, formatter_class=_CHECKER)
        self.whole = whole
        self.register("action", None, _Once)
        self.register("action", "store", _Once)
        self.add_argument("-h", "--help", action="help", help="show this help")
        self.add_argument("--help-all", action=_HelpAll, nargs=0, help="show every option")

    def format_help(self) -> str:
        """The usage, the options by their groups, and where the rest stands."""
        whole = self.whole or len(self._actions) <= _MANY
        if self.formatter_class is _CHECKER:
            self.formatter_class = _FORMATTER
        formatter = self._get_formatter()
        words: dict[int | str | None, str] = {"*": "[{} ...]", "?": "[{}]"}
        taken = " ".join(words.get(one.nargs, "{}").format(one.metavar or one.dest) for one in self._get_positional_actions())
        formatter.add_text(f"usage: {self.prog} [OPTIONS] {taken}".rstrip())
        formatter.add_text(self.description)
        for group in self._action_groups:
            shown = [one for one in group._group_actions if whole or _RARE.isdisjoint(one.option_strings)]  # noqa: SLF001 - no other way
            if any(one.help != argparse.SUPPRESS for one in shown):
                formatter.start_section(group.title)
                formatter.add_text(group.description if whole else None)
                formatter.add_arguments(shown)
                formatter.end_section()
        formatter.add_text(self.epilog)
        formatter.add_text(None if whole else f"`{self.prog.replace(' ', ' help ', 1)}` shows every option.")
        return formatter.format_help()

    def parse(self, argv: Sequence[str]) -> argparse.Namespace:
        """The options of a command line."""
        args, unknown = self.parse_known_args(list(argv))
        options = [word for word in unknown if word.startswith("-") and word != "-"]
        if options or (unknown and not hasattr(args, "packages")):
            self._refuse((options or unknown)[0])
        if unknown:  # argparse reads the words before the first option only
            args.packages = [*args.packages, *unknown]
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
        found = re.fullmatch(_CHOICE, message)
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
    return tuple(folded[name] for name in get_close_matches(word.casefold(), folded, n=3, cutoff=0.7))
