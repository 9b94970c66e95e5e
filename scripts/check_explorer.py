#!/usr/bin/env python3
"""Hold what the pages of `matrix html` say in a browser against what `plan` answers without a network.

    scripts/check_explorer.py SITE [--draw N] [--seed S]

N cells are drawn: releases on machines of a GPU, a driver and a Python, and pairs of releases, half of them on a Python alone and half on
such a machine. A page says that a release or a pair runs, that it does not, or of a pair that only the command tells; of a pair without
a GPU the cuDNN and the Python are compared, too. Exit code 1 where one says otherwise than `plan`. Needs the extra `browser`.
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


class Said(NamedTuple):
    """What a page says of one cell."""

    targets: list[str]
    machine: dict[str, Any]
    kind: str
    """`yes`, `off`, or `ask`."""
    cudnn: str | None
    python: str | None


def main() -> int:
    """Draw, ask both, and count."""
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
        page.set_default_timeout(300_000)  # a machine that others keep busy
        wrong = check(page, args.site, args.draw, random.Random(args.seed))  # noqa: S311 - a sample
        browser.close()
    return 1 if wrong else 0


def check(page: Page, site: Path, draw: int, chance: random.Random) -> list[str]:
    """What the pages say otherwise than `plan` of so many drawn cells; counts are printed."""
    files = sorted(one for one in site.glob("*.html") if one.stem not in ("index", "drivers", "advisories"))
    counted: Counter[str] = Counter()
    wrong = []
    for _ in range(draw):
        said = asked(page, chance.choice(files), chance)
        plan = cudnn_resolve.plan(said.targets, offline=True, platform="linux_x86_64", **said.machine)
        counted[f"page {said.kind}, plan {plan.status}"] += 1
        differs = said.kind != "ask" and (said.kind == "yes") != (plan.status == "ok")
        if not differs and said.kind == "yes" and said.cudnn is not None and "gpu" not in said.machine:
            assert plan.stack is not None
            differs = (plan.stack.cudnn, plan.facts.python.version or said.python) != (said.cudnn, said.python)
        if differs:
            wrong.append(f"{said}: plan says {plan.status}, {plan.stack}")
            print(wrong[-1], file=sys.stderr)
    print(", ".join(f"{count} x {what}" for what, count in sorted(counted.items())), f"; {len(wrong)} wrong")
    return wrong


def asked(page: Page, file: Path, chance: random.Random) -> Said:
    """What a page says of a drawn cell on a drawn machine."""
    page.goto("about:blank")
    page.goto(file.as_uri())
    data: dict[str, Any] = page.evaluate(_READ)
    gpus, pythons = page.evaluate(_CHOICES, "[name=gpu]"), page.evaluate(_CHOICES, "[name=python]")
    drivers = [one for one in {driver for profile in data["profiles"] for driver in profile} if one] + [
        "470.57",
        "535.104.05",
        "560",
        "615",
    ]
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
        return Said([data["targets"][row]], machine, "off" if off else "yes", None, None)
    found = page.evaluate("key => {const judged = judgePair(key, picked()); return [judged.kind, judged.answer]}", row)
    targets = [f"{package}=={version}" for package, version in zip(data["packages"], row.split(), strict=True)]
    return Said(targets, machine, found[0], found[1] and found[1][3], found[1] and found[1][0])


if __name__ == "__main__":
    sys.exit(main())
