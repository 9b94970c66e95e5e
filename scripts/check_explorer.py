#!/usr/bin/env python3
"""Compare what the pages of `matrix html` show in a browser with the results of `plan --offline`.

    scripts/check_explorer.py SITE [--draw N] [--seed S]

N cells are drawn: releases on machines with a GPU, a driver and a Python, and pairs of releases, half of them for a Python alone and half
on such a machine. A page says that a release or pair runs, that it does not, or, for a pair, that only the command can tell; for a pair
without a GPU the cuDNN and the Python are compared, too. Exit code 1 if a page disagrees with `plan`. Needs the extra `browser`.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlencode

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cudnn_resolve

if TYPE_CHECKING:
    from playwright.sync_api import Page

FLAGS = ("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-sync")
_READ = "JSON.parse(document.getElementById('data').textContent)"
_CHOICES = "name => [...document.querySelector(name).options].map(one => one.value).filter(Boolean)"


class Cell(NamedTuple):
    """One cell as shown by a page."""

    targets: list[str]
    machine: dict[str, Any]
    kind: str
    """`yes`, `off`, or `ask`."""
    cudnn: str | None
    python: str | None


def main() -> int:
    """Draw cells, compare them, and print counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site", type=Path)
    parser.add_argument("--draw", type=int, default=200, metavar="N")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        page = browser.new_page()
        page.set_default_timeout(300_000)  # for a busy machine
        wrong = check(page, args.site, args.draw, random.Random(args.seed))  # noqa: S311 - a sample
        browser.close()
    return 1 if wrong else 0


def check(page: Page, site: Path, draw: int, chance: random.Random) -> list[str]:
    """Compare drawn cells, print counts, and return the differences."""
    files = sorted(file for file in site.glob("*.html") if file.stem not in ("index", "drivers", "advisories"))
    counted: Counter[str] = Counter()
    wrong = []
    for _ in range(draw):
        cell = read_cell(page, chance.choice(files), chance)
        plan = cudnn_resolve.plan(cell.targets, offline=True, platform="linux_x86_64", **cell.machine)
        counted[f"page {cell.kind}, plan {plan.status}"] += 1
        differs = cell.kind != "ask" and (cell.kind == "yes") != (plan.status == "ok")
        if not differs and cell.kind == "yes" and cell.cudnn is not None and "gpu" not in cell.machine:
            assert plan.stack is not None
            differs = (plan.stack.cudnn, plan.facts.python.version or cell.python) != (cell.cudnn, cell.python)
        if differs:
            wrong.append(f"{cell}: plan says {plan.status}, {plan.stack}")
            print(wrong[-1], file=sys.stderr)
    print(", ".join(f"{count} x {what}" for what, count in sorted(counted.items())), f"; {len(wrong)} wrong")
    return wrong


def read_cell(page: Page, file: Path, chance: random.Random) -> Cell:
    """Read a random cell of a page for a random machine."""
    page.goto("about:blank")
    page.goto(file.as_uri())
    data: dict[str, Any] = page.evaluate(_READ)
    gpus, pythons = page.evaluate(_CHOICES, "[name=gpu]"), page.evaluate(_CHOICES, "[name=python]")
    drivers = [*{driver for profile in data["profiles"] for driver in profile if driver}, "470.57", "535.104.05", "560", "615"]
    row = chance.choice(sorted(data["rows"]))
    is_pair = "alone" in data
    machine: dict[str, Any] = {} if is_pair and chance.random() < 0.3 else {"python_version": chance.choice(pythons[1:6])}
    if not is_pair or chance.random() < 0.5:
        machine |= {"gpu": chance.choice(gpus), "driver": chance.choice(sorted(drivers))}
    state = {"python" if name == "python_version" else name: value for name, value in machine.items()}
    page.goto("about:blank")
    page.goto(f"{file.as_uri()}#{urlencode(state)}")
    if not is_pair:
        off = page.evaluate("v => document.querySelector(`[data-release='${v}']`).classList.contains('off')", row)
        return Cell([data["targets"][row]], machine, "off" if off else "yes", None, None)
    found = page.evaluate("key => {const judged = judgePair(key, picked()); return [judged.kind, judged.answer]}", row)
    targets = [f"{package}=={version}" for package, version in zip(data["packages"], row.split(), strict=True)]
    return Cell(targets, machine, found[0], found[1] and found[1][3], found[1] and found[1][0])


if __name__ == "__main__":
    sys.exit(main())
