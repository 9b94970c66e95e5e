#!/usr/bin/env python3
"""Feeds `doctor` with logs, facts and symptom tables that nobody would write, until the time is up.

usage: fuzz_doctor.py [--minutes N] [--seed S]

Each input must end in findings or in an error of the program's own (message, code, context), and within ten seconds of the processor.
What does not is printed with its seed, by which `--seed S --minutes 0` makes it again. Ends with 1 where anything was found.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shlex
import shutil
import signal
import string
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

HERE = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(HERE))

from cudnn_resolve.diagnosis.diagnose import diagnose  # noqa: E402
from cudnn_resolve.diagnosis.read import Reader  # noqa: E402
from cudnn_resolve.errors import CudnnResolveError  # noqa: E402
from cudnn_resolve.facts.codec import decode  # noqa: E402
from cudnn_resolve.host.tables import open_book  # noqa: E402
from cudnn_resolve.report.doctor import encode, markdown, render  # noqa: E402
from cudnn_resolve.report.text import Style  # noqa: E402

SECONDS = 10
BOOK = open_book()
SAMPLES = [sample for symptom in BOOK.symptoms() for sample in symptom.sample]
MACHINES = [json.loads(path.read_text("utf-8")) for path in sorted((HERE / "tests/machines").glob("*.json"))]
TABLES = sorted((HERE / "matrices/symptom").glob("*.toml"))
ODD = [
    "\0",
    "\x1b[31m",
    "\x1b]0;x\x07",
    "\r",
    "\r\n",
    "\u2028",
    "\ud800",
    "é",
    "中",
    "🙂",
    "{",
    "}",
    "{{",
    "%s",
    "$(id)",
    "`",
    "'",
    '"',
    "\\",
    "|",
]
WORDS = [*ODD, "libcudnn.so.8", "8904", "(9, 1, 0)", "sm_120", "99999999999999999999", "-1", "0x", "1e999", "..", "nan", "a" * 5000]


def text_of(chance: random.Random) -> str:
    """A word, a sample of a message, or a piece of one."""
    kind = chance.random()
    if kind < 0.5:
        return chance.choice(SAMPLES)
    if kind < 0.8:
        return chance.choice(WORDS)
    return "".join(chance.choices(string.printable, k=chance.randrange(60)))


def mangled(text: str, chance: random.Random) -> str:
    """A text with pieces cut, doubled, replaced or pumped up."""
    for _ in range(chance.randrange(4)):
        at, end = sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1)))
        how = chance.randrange(5)
        if how == 0:
            text = text[:at] + text[end:]
        elif how == 1:
            text = text[:at] + text[at:end] * chance.choice((2, 3, 200)) + text[end:]
        elif how == 2:
            text = text[:at] + text_of(chance) + text[end:]
        elif how == 3:
            digits = [chance.choice("0123456789") if one.isdigit() else one for one in text]
            text = "".join(digits)
        else:
            text = text[:at] + chance.choice(ODD) * chance.choice((1, 50)) + text[at:]
        text = text[:60_000]
    return text


def log(chance: random.Random) -> None:
    """A log of mangled messages, in any encoding and in pieces of any size, with the facts of a mangled machine or without."""
    lines = [mangled(text_of(chance), chance) for _ in range(chance.randrange(12))]
    raw = chance.choice(("\n", "\r\n", "\r", "")).join(lines).encode(chance.choice(("utf-8", "utf-16", "latin-1")), "replace")
    if chance.random() < 0.2:
        raw += chance.randbytes(chance.randrange(400))
    size = chance.choice((1, 7, 64, 4096, 1 << 20)) if len(raw) < 5000 else 4096
    reader = Reader(BOOK.symptoms()).read(raw[at : at + size] for at in range(0, len(raw), size))
    found = diagnose(reader, machine(chance) if chance.random() < 0.4 else None, BOOK)
    shown(found)
    typed(found)


def facts(chance: random.Random) -> None:
    """The facts of a machine with values that are none."""
    found = machine(chance)
    if found is not None:
        diagnosis = diagnose(None, found, BOOK)
        shown(diagnosis)
        typed(diagnosis)


def machine(chance: random.Random) -> Any:
    """Facts that could be read; None where they could not, and the program said so."""
    tree = json.loads(json.dumps(chance.choice(MACHINES)))
    for _ in range(chance.randrange(1, 6)):
        change(tree, chance)
    try:
        return decode(json.dumps(tree))
    except CudnnResolveError as error:
        explained(error)
        return None


def change(tree: Any, chance: random.Random) -> None:
    """One value of a tree, at any depth, becomes another one."""
    while True:
        keys = list(tree) if isinstance(tree, dict) else list(range(len(tree)))
        if not keys:
            return
        key = chance.choice(keys)
        if isinstance(tree[key], (dict, list)) and chance.random() < 0.85:
            tree = tree[key]
            continue
        how = chance.random()
        if how < 0.15:
            del tree[key]
        elif how < 0.6 and isinstance(tree[key], str):
            tree[key] = mangled(tree[key], chance)[:3000]
        else:
            tree[key] = chance.choice([None, True, -1, 10**20, 1.5, "", [], {}, [[]], {"a": []}, text_of(chance)])
        return


def tables(chance: random.Random) -> None:
    """A symptom table with a mangled row, over the shipped ones: refused with an explanation, or used."""
    source = chance.choice(TABLES)
    table = tomllib.loads(source.read_text("utf-8"))
    array = chance.choice([name for name in ("symptom", "cause", "remedy") if name in table])
    row = dict(chance.choice(table[array]))
    for _ in range(chance.randrange(1, 4)):
        change(row, chance)
    own = {name: table["source"][name] for name in table.get("source", {})}
    folder = Path(tempfile.mkdtemp(prefix="fuzz-doctor-"))
    try:
        (folder / "symptom").mkdir()
        written = toml({"origin": "authored", array: [row], "source": own})
        (folder / "symptom" / source.name).write_text(written, "utf-8", "replace")
        try:
            book = open_book((str(folder),))
            sample = "\n".join(chance.choice(SAMPLES) for _ in range(3))
            reader = Reader(book.symptoms()).read([sample.encode("utf-8", "replace")])
            shown(diagnose(reader, None, book))
        except CudnnResolveError as error:
            explained(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def toml(table: dict[str, Any]) -> str:
    """A table as TOML, good enough for what is in these."""
    lines = [f'origin = "{table["origin"]}"']
    for name, rows in table.items():
        if isinstance(rows, list):
            for row in rows:
                lines += ["", f"[[{name}]]", *(f"{key} = {value(one)}" for key, one in row.items() if one is not None)]
    for name, row in table["source"].items():
        lines += ["", f"[source.{name}]", *(f"{key} = {value(one)}" for key, one in row.items())]
    return "\n".join(lines) + "\n"


def value(one: Any) -> str:
    """A value as TOML."""
    if isinstance(one, bool):
        return str(one).lower()
    if isinstance(one, list):
        return "[" + ", ".join(value(each) for each in one if each is not None) + "]"
    if isinstance(one, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {value(each)}" for key, each in one.items() if each is not None) + " }"
    return json.dumps(one) if isinstance(one, str) else str(one)


def shown(diagnosis: Any) -> None:
    """The findings in every form; AssertionError where a form lets a terminal escape through or is no JSON."""
    json.dumps(encode(diagnosis))
    for text in (render(diagnosis, style=Style(), width=80), markdown(diagnosis)):
        assert "\x1b" not in text
        assert "\0" not in text


def typed(diagnosis: Any) -> None:
    """Nothing; AssertionError for a command with words of the input that a shell would run, ValueError for what is no line of one."""
    for command in (one.command for finding in diagnosis.findings for one in finding.remedy if one.command):
        shlex.split(command)
        bare = re.sub(r"'[^']*'", "", command.replace("'\"'\"'", ""))  # how shlex writes a quote within quotes
        assert "$(id)" not in bare, command
        assert "`" not in bare, command


def explained(error: CudnnResolveError) -> None:
    """Nothing; AssertionError for an error without a message or a code."""
    assert error.message
    assert error.code


def too_long(*_: object) -> None:
    """What the alarm does."""
    raise TimeoutError(f"more than {SECONDS} seconds")


KINDS: dict[str, Callable[[random.Random], None]] = {"log": log, "facts": facts, "tables": tables}


def main() -> int:
    """1 where an input was not borne."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=None, help="the first input; each one has a number of its own")
    args = parser.parse_args()
    seed = args.seed if args.seed is not None else time.time_ns() % 10**9 * 1000
    end = time.monotonic() + args.minutes * 60
    count: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    signal.signal(signal.SIGPROF, too_long)
    while True:
        chance = random.Random(seed)  # noqa: S311 - an input can be made again
        kind = chance.choices(list(KINDS), weights=(6, 3, 1))[0]
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        try:
            KINDS[kind](chance)
        except Exception:  # noqa: BLE001 - whatever it is, it is what is looked for
            signal.setitimer(signal.ITIMER_PROF, 0)
            lines = traceback.format_exc().splitlines()
            where = next((line.strip() for line in reversed(lines) if line.startswith("  File")), "")
            bad[f"{where}: {lines[-1][:160]}"] += 1
            if bad[f"{where}: {lines[-1][:160]}"] == 1:
                print(f"--- {kind}, --seed {seed}\n" + "\n".join(lines[-12:]), flush=True)
        signal.setitimer(signal.ITIMER_PROF, 0)
        count[kind] += 1
        seed += 1
        if time.monotonic() > end:
            break
    each = ", ".join(f"{number} {kind}" for kind, number in count.most_common())
    print(f"{sum(count.values())} inputs ({each}); {sum(bad.values())} not borne, {len(bad)} kinds of them")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
