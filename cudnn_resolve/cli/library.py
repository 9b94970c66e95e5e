"""The public functions of the package, as the verbs see them: words of the options in, JSON objects out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from cudnn_resolve.cli.options import Options, add_common_options
from cudnn_resolve.cli.parser import Parser


def detect(words: Mapping[str, Any]) -> dict[str, Any]:
    """The facts as `detect --format json` prints them."""
    from cudnn_resolve.cli.detect import facts_of
    from cudnn_resolve.facts.codec import encode

    return encode(facts_of(_options(words)))


def plan(words: Mapping[str, Any]) -> dict[str, Any]:
    """The plan as `plan --format json` prints it."""
    from cudnn_resolve.cli.plan import plan_of
    from cudnn_resolve.facts.codec import encode
    from cudnn_resolve.report.plan_json import encode_plan

    found = plan_of(_options(words))
    return encode_plan(found, encode(found.facts))


def doctor(words: Mapping[str, Any]) -> dict[str, Any]:
    """The findings as `doctor --format json` prints them."""
    from cudnn_resolve.cli.doctor import diagnose
    from cudnn_resolve.report.doctor import encode

    rest = {name: value for name, value in words.items() if name not in ("log", "no_facts")}
    return encode(diagnose(_options(rest), words.get("log"), no_facts=bool(words.get("no_facts"))))


def lock(words: Mapping[str, Any]) -> dict[str, Any]:
    """The lock, or what `--check` finds, as `lock --format json` prints it; messages are left out."""
    from cudnn_resolve.cli.lock import add_arguments, answer

    facts = words.get("facts")
    rest = {name: value for name, value in words.items() if not (name == "facts" and isinstance(facts, Mapping))}
    parser = Parser(prog="cudnn_resolve", description="")
    add_arguments(parser)
    args = parser.parse([part for name, value in rest.items() for part in _argument(name, value)])
    args.quiet = 1
    if isinstance(facts, Mapping):
        from cudnn_resolve.facts.codec import from_mapping

        args.given = from_mapping(facts, "the object given as `facts`")
    return answer(args)


def validate(words: Mapping[str, Any]) -> dict[str, Any]:
    """The checks as `validate --format json` prints them."""
    from cudnn_resolve.cli import validate as verb
    from cudnn_resolve.report.validation_json import encode_validation

    parser = Parser(prog="cudnn_resolve", description="")
    verb.add_arguments(parser)
    args = parser.parse([part for name, value in words.items() for part in _argument(name, value)])
    args.quiet = 1
    return encode_validation(verb.validated(args))


class Result(dict[str, Any]):
    """What `apply` gives: the object that `apply --format json` prints, which a notebook shows as a table."""

    def _repr_html_(self) -> str:
        from cudnn_resolve.report.html import render

        return render(self)


_WAYS = ("lock", "dry_run", "installer", "no_hashes", "break_system_packages", "no_validate", "restart", "undo")


def apply(words: Mapping[str, Any]) -> Result:
    """What `apply --format json` prints; a conflict is told by its status, `unsatisfiable`."""
    from cudnn_resolve.cli.applying import Ways
    from cudnn_resolve.cli.applying import apply as carry_out
    from cudnn_resolve.cli.applying import undo as put_back
    from cudnn_resolve.cli.notebook import restart
    from cudnn_resolve.cli.progress import Progress
    from cudnn_resolve.facts.codec import encode
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.report.apply import SCHEMA
    from cudnn_resolve.report.apply import encode as encode_result
    from cudnn_resolve.report.plan_json import encode_plan

    options = _options({name: value for name, value in words.items() if name not in _WAYS})
    ways = Ways(
        lock=words["lock"],
        has_targets=any(words[name] for name in ("framework", "requirement", "group")),
        dry_run=bool(words["dry_run"]),
        installer=words["installer"],
        trusted=bool(words["no_hashes"]),
        managed=bool(words["break_system_packages"]),
        validate=not words["no_validate"],
        restart=bool(words["restart"]),
        reporter=Progress(),
        words=_again(words),
    )
    if words["undo"] is not False:
        return Result(encode_result(put_back(options, ways, None if words["undo"] is True else int(words["undo"]))))
    done, plan = carry_out(options, ways)
    encoded = encode_plan(plan, encode(plan.facts)) if plan is not None else None
    if done is None:
        return Result({"schema": SCHEMA, "status": "unsatisfiable", "plan": encoded})
    if ways.restart:
        done = restart(done, LinuxHost())
    return Result(encode_result(done, encoded))


def _again(words: Mapping[str, Any]) -> tuple[str, ...]:
    """The words of a command line that asks for the same, for `apply --resume`."""
    kept = {name: value for name, value in words.items() if name not in ("lock", "dry_run", "restart", "undo")}
    said = [part for name, value in kept.items() if not isinstance(value, Mapping) for part in _argument(name, value)]
    return (*said, *([words["lock"]] if words["lock"] else []))


def _options(words: Mapping[str, Any]) -> Options:
    """The options that the command line would give for these words; UsageError as there."""
    from cudnn_resolve.cli.gather import gather_options

    facts = words.get("facts")
    rest = {name: value for name, value in words.items() if not (name == "facts" and isinstance(facts, Mapping))}
    parser = Parser(prog="cudnn_resolve", description="")
    add_common_options(parser)
    options = gather_options(parser.parse([part for name, value in rest.items() for part in _argument(name, value)]))
    if not isinstance(facts, Mapping):
        return options
    from cudnn_resolve.facts.codec import from_mapping

    return replace(options, given=from_mapping(facts, "the object given as `facts`"))


def _argument(name: str, value: Any) -> list[str]:
    """The words of the command line for one option; none for what is not said."""
    option = "--" + name.replace("_", "-")
    if value is None or value is False:
        return []
    if value is True:
        return [option]
    values = value if isinstance(value, (list, tuple)) else [value]
    return [f"{option}={one}" for one in values]
