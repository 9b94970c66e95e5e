"""`cudnn-resolve validate`: the stack at work, on every GPU, or what can be checked without one."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from msgspec.structs import replace

from cudnn_resolve.cli.options import Options, add_output_options, options_of
from cudnn_resolve.cli.printing import emit, say, style_of, tell, width_of
from cudnn_resolve.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from cudnn_resolve.facts.model import Facts, InstalledFramework
    from cudnn_resolve.matrix.book import Book
    from cudnn_resolve.validation.model import Validation
    from cudnn_resolve.validation.run import Known, Wish


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `validate`."""
    group = parser.add_argument_group("what is tested")
    group.add_argument(
        "--python", metavar="PATH", help="the interpreter whose environment is meant (default: the active one, else this one)"
    )
    group.add_argument("-f", "--framework", metavar="NAME", action="append", help="only this framework, `torch`; repeatable (default: all)")
    group.add_argument("--gpu", metavar="N", help="only this GPU, as programs count them from 0 (default: every one)")
    group.add_argument("--full", action="store_true", help="every type in both layouts, instead of each class with each type once")
    group.add_argument("--require-gpu", action="store_true", help="fail where there is no GPU, instead of skipping")
    group.add_argument("--lock", metavar="FILE", help="what is installed and what loads must be what this lock pins")
    group.add_argument("--plan", metavar="FILE", help="the same of a plan that `plan --format json` wrote; - reads standard input")
    group.add_argument("--record", metavar="FILE", help="as --lock, and what passes on a GPU is written into the lock")
    add_output_options(parser, ("text", "json", "junit"))
    parser.epilog = "Exit codes: 0 passed, or skipped without a GPU; 1 failed, or skipped with --require-gpu."


def run(args: argparse.Namespace) -> int:
    """Print the checks; 1 where one failed."""
    options = options_of(args)
    validation = validated(args)
    emit(_rendered(validation, options), options)
    return ExitCode.NO if validation.status == "failed" else ExitCode.OK


def validated(args: argparse.Namespace) -> Validation:
    """What was found on this machine, by the words of a command line; a lock of `--record` is written."""
    from cudnn_resolve.cli.validate_lock import held_lock, pinned_of, write_record

    options, wish = options_of(args), wish_of(args)
    if args.plan and (args.lock or args.record):
        hint = "leave one of them out"
        raise UsageError("--plan and a lock both say what must be there", code="usage-contradiction", hint=hint)
    held = held_lock(args.lock, args.record)
    if args.plan:
        from cudnn_resolve.cli.validate_plan import pinned_by_plan

        wish = replace(wish, pinned=pinned_by_plan(args.plan))
    facts = _facts(options)
    if held is not None:
        wish = replace(wish, pinned=pinned_of(held, facts))
    found = validation_of(options, wish, facts)
    if held is not None and held.record:
        write_record(held, found, options, facts.python.version)
    return found


def wish_of(args: argparse.Namespace) -> Wish:
    """What the options ask for; UsageError for a GPU that is no number."""
    from cudnn_resolve.validation.run import Wish

    gpu = args.gpu
    if gpu is not None and not (gpu.isascii() and gpu.isdigit() and len(gpu) < 5):
        raise UsageError(
            f"--gpu {gpu!r} is not the number of a GPU", code="option-gpu", hint="programs count GPUs from 0: --gpu 0 is the first"
        )
    return Wish(
        frameworks=tuple(map(_framework, args.framework or ())),
        gpu=None if gpu is None else int(gpu),
        require_gpu=args.require_gpu,
        everything=args.full,
    )


def _framework(word: str) -> str:
    """The framework that a word names, by its own name in the tables; UsageError for one that nobody knows."""
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.requirement.derive import parse_target

    return parse_target(word, open_book(())).framework


def _facts(options: Options) -> Facts:
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.probe.probe import detect

    return detect(LinuxHost(), options.python)


def validation_of(options: Options, wish: Wish, facts: Facts) -> Validation:
    """What was found on this machine, with the causes of what failed as `doctor` sees them."""
    from cudnn_resolve.host.linux import LinuxHost
    from cudnn_resolve.host.tables import open_book
    from cudnn_resolve.validation.run import validate, with_causes

    book = open_book(())
    found = validate(LinuxHost(), facts, wish, _known(book), lambda text: _show(text, options))
    return with_causes(found, lambda text: explained(text, facts, book))


def _show(text: str, options: Options) -> None:
    """Nothing; what is being done, a line for each with -v, else on the last line of a terminal."""
    if options.verbose > options.quiet:
        say(text, options, least=1)
    else:
        tell(text, options)


def explained(text: str, facts: Facts, book: Book) -> str:
    """The cause of a failure by its last words, and what helps; "" where they tell none."""
    from cudnn_resolve.diagnosis.diagnose import diagnose
    from cudnn_resolve.diagnosis.read import Reader

    reader = Reader(book.symptoms()).read([text.encode("utf-8", "replace")])
    findings = diagnose(reader, facts, book).findings
    told = (one for one in findings if one.severity != "info" and any(line.source == "log" for line in one.evidence))
    finding = next(told, None)
    if finding is None:
        return ""
    command = next((f": `{one.command}`" if one.command else f": {one.text}" for one in finding.remedy), "")
    return f"{finding.summary} ({finding.cause}){command}"


def _known(book: Book) -> Known:
    """What the matrix knows of cards and builds."""
    from cudnn_resolve.validation.run import Known
    from cudnn_resolve.version import Capability

    return Known(
        architecture=lambda capability: book.architecture(Capability.parse(capability)) if capability else None,
        peak=lambda name: book.peak(name) if name else None,
        cudnn_built=lambda installed: _cudnn_built(book, installed),
        framework=lambda name: book.framework_of(name) or name,
    )


def _cudnn_built(book: Book, installed: InstalledFramework) -> str | None:
    """What the builds of that release and package were compiled against, where they agree."""
    name = book.framework_of(installed.name)
    if name is None:
        return None
    version = installed.version.partition("+")[0]
    builds = [one for one in book.framework(name).builds if one.version == version and one.package == installed.name and one.cudnn]
    found = {one.cudnn.text for one in builds if one.cudnn and installed.variant in (None, one.variant)}
    return found.pop() if len(found) == 1 else None


def _rendered(validation: Validation, options: Options) -> str:
    if options.format == "json":
        from cudnn_resolve.report.json import render as render_json
        from cudnn_resolve.report.validation_json import encode_validation

        return render_json(encode_validation(validation))
    if options.format == "junit":
        from cudnn_resolve.report.junit import render as render_junit

        return render_junit(validation)
    from cudnn_resolve.report.validation import render

    return render(validation, style=style_of(options), width=width_of(options), verbose=options.verbose > 0)
