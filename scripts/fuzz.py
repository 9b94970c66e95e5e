#!/usr/bin/env python3
"""Feed mutated valid inputs to one entry point of the program for some time.

usage: fuzz.py {lock,facts,outputs,requirements,lists,matrix,logs,wheels,cli} [--minutes N] [--count N] [--seed S]

Inputs are trees, lines or words that the program accepts, with one to three changes, so that most pass the first check and reach the code
behind it. Each must give a result or a proper error (message and code): a traceback, ten seconds of processor time, 500 MB of memory, or
a value that does not survive a round trip is a finding. It is printed with its seed; `--seed S --count 1` reproduces it. Exit code 1 if
there are findings.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import io
import json
import os
import re
import resource
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import tomli_w
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fuzz_chance import BOOK, INJECTED, SAMPLES, WORDS, Chance
from fuzz_wheel import wheel

from cudnn_resolve.cli.main import main
from cudnn_resolve.cli.parser import Parser
from cudnn_resolve.diagnosis.diagnose import diagnose
from cudnn_resolve.diagnosis.match import Reader
from cudnn_resolve.errors import CudnnResolveError
from cudnn_resolve.evidence.link_check import Site, broken_links, explain
from cudnn_resolve.evidence.wheel import WheelDamage, read_wheel, summary
from cudnn_resolve.execution.environment import KINDS, Environment
from cudnn_resolve.execution.installable_wheel import read_wheel as read_for_installation
from cudnn_resolve.facts.codec import decode, encode
from cudnn_resolve.facts.output import read_output
from cudnn_resolve.host.link_site import wheel_declared, wheel_libraries
from cudnn_resolve.host.tables import open_book
from cudnn_resolve.host.wheel_archive import bad_wheel
from cudnn_resolve.index.remote_wheel import WheelError, read_contents, read_wheel_metadata
from cudnn_resolve.locking.read_pylock import read as read_lock
from cudnn_resolve.locking.write_pylock import write as write_lock
from cudnn_resolve.matrix.toml import decode as decode_toml
from cudnn_resolve.operations.package_set import subject_of_file
from cudnn_resolve.operations.verdict import machine_name, verdict_on
from cudnn_resolve.planning.from_lock import plan_of_lock
from cudnn_resolve.report import check as verdicts
from cudnn_resolve.report.doctor import markdown, show_diagnosis
from cudnn_resolve.report.document import DoctorDocument, document
from cudnn_resolve.report.text import clean
from cudnn_resolve.requirement.file import read_requirements
from cudnn_resolve.requirement.machine import machine_of
from tests.pages import text_of

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 10
MOST_BYTES = 500 << 20
MACHINES = [json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "tests/machines").glob("*.json"))]
LOCKS = [path.read_text("utf-8") for path in sorted((ROOT / "tests/golden").glob("*.pylock.toml"))]
OUTPUTS = [path.read_text("utf-8") for path in sorted((ROOT / "tests/outputs").iterdir())]
LISTS = [
    *(path.read_text("utf-8") for path in sorted((ROOT / "tests/lists").iterdir())),
    *LOCKS,
    "Package Version\n------- -------\ntorch 2.6.0\nnvidia-cudnn-cu12 9.1.0.70\n",
    '[{"name": "torch", "version": "2.6.0"}, {"name": "tensorflow", "version": "2.18.0"}]',
    '[{"name": "jax", "version": "0.5.2", "channel": "pypi"}, {"name": "python", "version": "3.11", "channel": "x", "build_string": "0"}]',
    '[[package]]\nname = "torch"\nversion = "2.6.0"\nmarkers = "python_version > \'3\'"\n[metadata]\nlock-version = "2.1"\n',
    '[metadata]\nlock_version = "4.5.0"\n[[package]]\nname = "torch"\nversion = "2.6.0"\ngroups = ["default"]\n',
]
TABLES = sorted(path for path in (ROOT / "matrices").rglob("*.toml") if path.stat().st_size < 400_000)
REQUIREMENTS = (
    *("torch==2.6.0", "numpy<2", "jax[cuda12]>=0.4", "transformers==4.36.2", "pandas; python_version >= '3.9'", "--pre", "-c limits.txt"),
    *("demo @ https://host.example/demo-1.0-py3-none-any.whl#sha256=" + "0" * 64, "./here", "-e .", "--hash=sha256:" + "a" * 64, "# words"),
    *(
        "numpy==1.26.4 \\",
        "    --hash=sha256:" + "a" * 64,
        "--extra-index-url https://user:pw@host.example/simple",
        "-r more.txt",
        "Flask[async]~=2.2",
    ),
)
MACHINE = ("--python-version", "3.11", "--driver", "550.54.15", "--gpu", "T4", "--os", "ubuntu22.04", "--glibc", "2.35")
SITE = Environment(python="/env/bin/python", version="3.11", prefix="/env", scheme={kind: f"/env/{kind}" for kind in KINDS})


class TooLongError(BaseException):
    """An input took too much time; a BaseException, so that nothing catches it on the way."""


def run(*words: str) -> str:
    """Run a command line and return its output; AssertionError for an unexpected failure."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
        gc.unfreeze()  # `main` expects to have the process to itself
        gc.collect()
    errors = err.getvalue()
    assert "error: internal error" not in errors, f"{shlex.join(words)}: {errors}"
    assert "s3cr3t" not in errors + out.getvalue(), f"{shlex.join(words)}: a password is shown"
    assert code in (0, 1, 2, 3), f"{shlex.join(words)}: exit code {code}"
    return out.getvalue()


def written(name: str, text: str | bytes) -> str:
    """Write a file in the folder of the run, and return its path."""
    raw = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    Path(name).parent.mkdir(parents=True, exist_ok=True)
    Path(name).write_bytes(raw)
    return name


def fuzz_lock(chance: Chance) -> None:
    """A lock: read, written and read again, planned for a machine, checked."""
    text = chance.choice(LOCKS)
    text = tomli_w.dumps(_toml(chance.changed(decode_toml(text)))) if chance.random() < 0.9 else chance.mangled(text)
    lock = read_lock(text)
    again = read_lock(write_lock(lock))
    assert [(entry.name, entry.version) for entry in again.packages] == [(entry.name, entry.version) for entry in lock.packages]
    plan_of_lock(lock, "/project", decode(json.dumps(chance.choice(MACHINES))), BOOK)
    if chance.random() < 0.1:
        run("plan", written("pylock.toml", text), "--facts", written("facts.json", json.dumps(chance.choice(MACHINES))))
        run("lock", "--check", "--offline", "--no-facts")


def fuzz_facts(chance: Chance) -> None:
    """The facts of a machine: read, written and read again, diagnosed, planned for."""
    tree = chance.changed(json.loads(json.dumps(chance.choice(MACHINES))))
    text = json.dumps(tree) if chance.random() < 0.9 else chance.mangled(json.dumps(tree))
    facts = decode(text)
    assert decode(json.dumps(encode(facts))) == facts
    machine_of(facts, BOOK)
    _check_output(diagnose(None, facts, BOOK))
    if chance.random() < 0.05:
        path = written("facts.json", text)
        run(
            "plan",
            "-f",
            chance.choice(("torch", "tensorflow", "jax")),
            "--facts",
            path,
            "--offline",
            *chance.choice(((), ("--format", "json"))),
        )


def fuzz_outputs(chance: Chance) -> None:
    """Output of another program about a machine."""
    text = chance.choice(OUTPUTS)
    if text.startswith("{") and chance.random() < 0.7:
        text = json.dumps(chance.changed(json.loads(text)))
    else:
        lines = text.split("\n")
        for at in chance.choices(range(len(lines)), k=chance.choice((1, 2, 5))):
            lines[at] = chance.mangled(lines[at])
        text = "\n".join(lines)
    read_output(text)
    if chance.random() < 0.3:
        out = run("detect", "--facts", written("said", text), "--format", kind := chance.choice(("text", "json")))
        assert kind == "json" or "\x1b" not in out


def fuzz_lists(chance: Chance) -> None:
    """A lock or list of another program: judged for a machine, with the verdict in every format."""
    text = chance.choice(LISTS)
    if text.startswith(("{", "[{")) and chance.random() < 0.8:
        text = json.dumps(chance.changed(json.loads(text)))
    elif text.startswith(("version:", "name:")) and chance.random() < 0.8:
        text = yaml.dump(chance.changed(yaml.load(text, Loader=yaml.BaseLoader)))  # noqa: S506 - our own
    elif "\n[[package" not in f"\n{text}" or chance.random() < 0.2:
        text = chance.mangled(text)
    else:
        text = tomli_w.dumps(_toml(chance.changed(decode_toml(text))))
    facts = decode(json.dumps(chance.choice(MACHINES)))
    machine = machine_of(facts, BOOK)
    name = chance.choice(("-", "\udcff", chance.text().encode("utf-8", "replace").decode() or "x"))
    found = (verdict_on(subject_of_file(name, text, BOOK, machine), BOOK, machine, machine_name(facts, None)),)
    assert "\x1b" not in text_of(verdicts.show_verdicts, found, width=80, verbose=1)
    assert not re.search(r"\x1b|<(?!br>)|^(?![|#*\dN-]|$)", verdicts.markdown(found), re.MULTILINE)
    for line in verdicts.github(found).removesuffix("\n").split("\n"):
        assert re.fullmatch(r"::(?:error|warning|notice) ?(?:file=[^:,]*,line=\d+,)?(?:title=\w+)?::[^\r\n\x1b]*", line), line
    json.loads(verdicts.sarif(found, "1.0").encode())
    ET.fromstring(verdicts.junit(found).encode())  # noqa: S314 - our own


def fuzz_requirements(chance: Chance) -> None:
    """A requirements file: read, and occasionally planned with."""
    lines = [chance.mangled(line) if chance.random() < 0.3 else line for line in chance.choices(REQUIREMENTS, k=chance.randrange(8))]
    text = chance.choice(("\n", "\n", "\r\n", "\\\n")).join(lines)
    list(read_requirements("r.txt", lambda path, _: (path, text if path == "r.txt" else "numpy<2\n")))
    if chance.random() < 0.1:
        written("more.txt", "numpy<2\n")
        written("limits.txt", "numpy>1\n")
        run("plan", "-f", "torch", "-r", written("r.txt", text), *MACHINE, "--offline", "--format", chance.choice(("text", "json")))


def fuzz_matrix(chance: Chance) -> None:
    """An overlay with some rows of a shipped table: refused with an explanation, or used."""
    source = chance.choice(TABLES)
    table = decode_toml(source.read_text("utf-8"))
    for name, rows in table.items():
        if isinstance(rows, list):
            table[name] = [chance.choice(rows)] if rows else []
    chance.changed(table[chance.choice([name for name, rows in table.items() if isinstance(rows, dict | list) and rows])])
    text = tomli_w.dumps(_toml(table)) if chance.random() < 0.9 else chance.mangled(tomli_w.dumps(_toml(table)))
    name = str(source.relative_to(ROOT / "matrices"))
    written(f"over/{name}", text)
    try:
        book = open_book(("over",))
        if name.startswith("symptom/"):
            sample = "\n".join(chance.choices(SAMPLES, k=3))
            _check_output(diagnose(Reader(book.symptoms()).read([sample.encode("utf-8", "replace")]), None, book))
        for verb in chance.sample(
            (("list",), ("show", "torch"), ("show", "cudnn", "9"), ("show", "gpu", "T4"), ("check",)), k=chance.random() < 0.1
        ):
            run("matrix", *verb, "--matrix", "over")
        if chance.random() < 0.03:
            run("plan", "-f", "torch", *MACHINE, "--offline", "--matrix", "over")
    finally:
        Path(f"over/{name}").unlink()


def fuzz_logs(chance: Chance) -> None:
    """A log of mangled messages, in any encoding and chunk size, with or without the facts of a machine."""
    lines = [chance.mangled(line) if chance.random() < 0.6 else line for line in chance.choices(SAMPLES, k=chance.randrange(12))]
    raw = chance.choice(("\n", "\r\n", "\r", "")).join(lines).encode(chance.choice(("utf-8", "utf-8", "utf-16", "latin-1")), "replace")
    raw = chance.choice((b"", b"", b"\0" * 5000)) + raw + chance.choice((b"", b"", chance.randbytes(400)))
    size = chance.choice((1, 7, 64, 4096, 1 << 20)) if len(raw) < 5000 else 4096
    reader = Reader(BOOK.symptoms()).read(raw[at : at + size] for at in range(0, len(raw), size))
    facts = None
    if chance.random() < 0.4:
        with contextlib.suppress(CudnnResolveError):
            facts = decode(json.dumps(chance.changed(json.loads(json.dumps(chance.choice(MACHINES))))))
    _check_output(diagnose(reader, facts, BOOK))
    if chance.random() < 0.1:
        run("doctor", written("log", raw), "--no-facts", "--format", chance.choice(("text", "json", "markdown")))


def fuzz_wheels(chance: Chance) -> None:
    """A wheel: its evidence, its members and metadata as served by an index, what `apply` reads of it, and the link check."""
    content = wheel(chance)
    name = "sight-1.0-cp311-cp311-linux_x86_64.whl"
    path = os.path.abspath(written(name, content))
    refused: list[Exception] = []
    try:
        json.dumps(summary(read_wheel(io.BytesIO(content), tempfile.TemporaryFile)))
    except WheelDamage as error:
        refused.append(error)
    for read in (read_contents, lambda stream: read_wheel_metadata(stream, 1 << 20)):
        try:
            read(io.BytesIO(content))
        except WheelError as error:  # noqa: PERF203 - each independently
            refused.append(error)
    try:
        found = read_for_installation(path, "sight", "1.0", "0" * 64, SITE)
        libraries = tuple(wheel_libraries(path, "sight", "/env/lib", "x86_64", "."))
        packages = {"sight": ("1.0", wheel_declared(path, os.path.basename(found.info)))}
        site = Site(libraries=libraries, packages=packages, find=lambda _: (), look=lambda _: None)
        for link in broken_links(site):
            assert "\x1b" not in clean(explain(site, link, BOOK)[0])
    except CudnnResolveError as error:
        refused.append(error)
    if refused:
        raise bad_wheel(path, str(refused[0]))


def fuzz_cli(chance: Chance) -> None:
    """A command line: options of a verb with valid and nearly valid values."""
    verb = chance.choice(("plan", "plan", "why", "lock", "doctor", "matrix"))
    words = [verb, *_arguments(verb, chance), *_drawn_options(verb, chance)]
    if chance.random() < 0.5:
        at = chance.randrange(1, len(words) + 1)
        words[at : at + 1] = [chance.mangled(words[at])] if at < len(words) else [chance.text()]
    written("pylock.toml", LOCKS[0])
    written("log", "\n".join(SAMPLES[:20]))
    written("r.txt", "numpy<2\n")
    run(*words, *{"matrix": (), "doctor": ("--no-facts",)}.get(verb, ("--offline", *MACHINE)))


def _arguments(verb: str, chance: Chance) -> list[str]:
    """Return arguments of a verb."""
    if verb == "matrix":
        names = ("torch", "cudnn", "gpu", "driver", "cuda", "2.6", "T4", "550")
        return [chance.choice(("list", "show", "show", "show")), *chance.sample(names, k=chance.randrange(3))]
    if verb == "why":
        return [chance.choice(("numpy", "cuda", "torch", chance.text()))]
    if verb == "doctor":
        return ["log"]
    return (
        ["pylock.toml"]
        if verb == "plan" and chance.random() < 0.2
        else ["-f", chance.choice(("torch==2.6.0", "tensorflow", "jax[cuda12]"))]
    )


def _drawn_options(verb: str, chance: Chance) -> list[str]:
    """Return some options of a verb with values."""
    words = []
    for option, action in chance.sample(sorted(_options(verb).items()), k=chance.randrange(5)):
        words.append(option)
        if action.nargs != 0:
            words.append(chance.choice(list(action.choices) if action.choices else _values(option)))
    return words


def _options(verb: str) -> Mapping[str, argparse.Action]:
    from importlib import import_module

    parser = Parser(prog="fuzz", description="")
    import_module(f"cudnn_resolve.cli.{verb}").add_arguments(parser)
    left_out = {"--fix", "--yes", "-y", "--python", "--output", "-o"}  # they change something, or probe this machine
    actions = parser._actions  # noqa: SLF001 - not public in argparse
    return {name: action for action in actions for name in action.option_strings if name not in left_out}


def _values(option: str) -> tuple[str, ...]:
    """Return plausible values of an option."""
    known = {
        "--gpu": ("T4", "sm_90", "A100", "9.0"),
        "--driver": ("550.54.15", "535", "five", "999.99"),
        "--python-version": ("3.11", "3.6", "2.7", "3.99"),
        "--platform": ("linux_x86_64", "linux_aarch64", "win_amd64", "manylinux_2_28_x86_64"),
        "--glibc": ("2.35", "2.0", "2.12", "3"),
        "--os": ("ubuntu22.04", "ubunut22.04", "rocky9", "debian12"),
        "--cuda": ("12.4", ">=12,<13", "<11", ">=12 <13"),
        "--cudnn": ("9", "9.1", "8.9.7.29", "<"),
        "--index-url": ("https://user:s3cr3t@host.invalid/simple", "ftp://x", "/nowhere"),
        "--exclude-newer": ("2024-01-01", "1999-01-01", "soon", "2024-13-01"),
        "--facts": ("facts.json", "-", "/dev/null"),
        "-r": ("r.txt", "/dev/null", "."),
    }
    return (*known.get(option, ()), *WORDS)


def _toml(value: Any) -> Any:
    """Return a tree without values that TOML cannot express."""
    if isinstance(value, dict):
        return {str(key).encode("utf-8", "replace").decode(): _toml(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_toml(item) for item in value if item is not None]
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _check_output(diagnosis: Any) -> None:
    """Render the findings; AssertionError for a terminal escape, or input that a shell would execute."""
    json.dumps(document(DoctorDocument, diagnosis))
    for text in (text_of(show_diagnosis, diagnosis, width=80), markdown(diagnosis)):
        assert "\x1b" not in text
        assert "\0" not in text
    for command in (remedy.command for finding in diagnosis.findings for remedy in finding.remedy if remedy.command):
        shlex.split(command)
        bare = re.sub(r"'[^']*'", "", command.replace("'\"'\"'", ""))  # shlex's form of a quote within quotes
        assert "$(id)" not in bare, command
        assert "`" not in bare, command
        if not command.startswith(STARTS):  # the log's own command is repeated, with its options
            assert not any(word.startswith(f"-{INJECTED}") for word in shlex.split(command)), command
        assert not re.search(rf"[;&|<>(]\s*{INJECTED}", re.sub(r'"[^"]*"', "", bare)), command


STARTS = ("docker ", "podman ", "nerdctl ", "singularity ", "apptainer ")
"""How commands that start a container begin."""
TARGETS: dict[str, Callable[[Chance], None]] = {
    "lock": fuzz_lock,
    "facts": fuzz_facts,
    "outputs": fuzz_outputs,
    "requirements": fuzz_requirements,
    "lists": fuzz_lists,
    "matrix": fuzz_matrix,
    "logs": fuzz_logs,
    "wheels": fuzz_wheels,
    "cli": fuzz_cli,
}


def one_input(target: str, seed: int) -> str | None:
    """Feed one input; return the finding, None if it was accepted, or "refused" if the program refused it."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    try:
        TARGETS[target](Chance(seed))
    except CudnnResolveError as error:
        return "refused" if error.message and error.code else f"an error without a message or a code: {error!r}"
    except (Exception, TooLongError):  # noqa: BLE001 - any exception is a finding
        signal.setitimer(signal.ITIMER_PROF, 0)
        return traceback.format_exc()
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    return f"{grown >> 20} MB of memory" if grown > MOST_BYTES else None


@contextlib.contextmanager
def in_folder() -> Iterator[None]:
    """Work in a temporary folder and home, with a time limit for each input."""

    def too_long(*_: object) -> None:
        raise TooLongError(f"more than {SECONDS} seconds")

    here, home = os.getcwd(), {name: os.environ.get(name) for name in ("HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME")}
    handler = signal.signal(signal.SIGPROF, too_long)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        os.chdir(folder)
        os.environ.update({"HOME": folder, "XDG_CACHE_HOME": f"{folder}/cache", "XDG_STATE_HOME": f"{folder}/state"})
        try:
            yield
        finally:
            os.chdir(here)
            signal.signal(signal.SIGPROF, handler)
            for name, value in home.items():
                os.environ.pop(name) if value is None else os.environ.update({name: value})


def command_line() -> int:
    """Return 1 if there are findings."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--count", type=int, default=None, help="stop after N inputs")
    parser.add_argument("--seed", type=int, default=None, help="number of the first input")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else time.time_ns() % 10**9 * 1000
    end = time.monotonic() + args.minutes * 60
    count: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    with in_folder():
        while time.monotonic() < end and sum(count.values()) != args.count:
            found = one_input(args.target, seed)
            count["refused" if found == "refused" else "found" if found else "accepted"] += 1
            if found and found != "refused":
                lines = found.strip().splitlines()
                where = next((line.strip() for line in reversed(lines) if line.startswith("  File")), "")
                kind = f"{where}: {lines[-1][:160]}"
                bad[kind] += 1
                if bad[kind] == 1:
                    text = "\n".join((f"--- {args.target} --seed {seed} --count 1", *lines[-14:]))
                    print(text.encode("utf-8", "backslashreplace").decode(), flush=True)
            seed += 1
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{args.target}: {sum(count.values())} inputs, {count['accepted']} accepted, {count['refused']} refused, "
        f"{sum(bad.values())} findings of {len(bad)} kinds; {peak} MB at most"
    )
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(command_line())
