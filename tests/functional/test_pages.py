"""Pages as users get them, in files and in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

import pytest

from tests.program import ROOT, run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MACHINE = ("--offline", "--driver", "550.54.15", "--gpu", "T4", "--python-version", "3.11")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
"""For a browser that may run as root, and that asks nobody on the network."""


def test_a_plan_as_a_page(tmp_path: Path) -> None:
    done = run("plan", "-f", "torch==2.6.0", "-f", "tensorflow==2.18.0", *MACHINE, "--format", "html", "-o", "plan.html", cwd=tmp_path)

    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert done.returncode == 0
    assert "<title>cudnn-resolve plan: torch==2.6.0, tensorflow==2.18.0</title>" in page
    assert "cuDNN: 9.3.0.75 chosen; torch 2.6.0 allows 9.1.0.70 to" in page
    assert "there is a plan" in page
    assert "Python 3.11, driver" in page


def test_a_conflict_as_a_page_has_the_bars_and_the_ways_out(tmp_path: Path) -> None:
    done = run("plan", "-f", "torch==2.6.0", "-f", "tensorflow==2.15.1", *MACHINE, "--format", "html", cwd=tmp_path)

    assert done.returncode == 1
    assert "there is no plan" in done.stdout
    assert "no version that everyone allows" in done.stdout
    assert "<pre>cudnn-resolve plan -f torch==2.3.1" in done.stdout


def test_why_as_a_picture_of_the_one_thing(tmp_path: Path) -> None:
    done = run("why", "cudnn", "-f", "torch==2.6.0", *MACHINE, "--format", "svg", cwd=tmp_path)

    drawn = ET.fromstring(done.stdout)  # noqa: S314 - our own
    assert done.returncode == 0
    assert drawn.attrib["aria-label"].startswith("cuDNN: 9.1.0.70 chosen")
    assert "driver:" not in drawn.attrib["aria-label"]


def test_a_picture_of_what_has_no_ranges_is_a_message(tmp_path: Path) -> None:
    done = run(
        "why", "cudnn", "-f", "torch==99", "--offline", "--machine", "colab-t4", "--python-version", "3.11", "--format", "svg", cwd=tmp_path
    )

    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no plan: the tables know no release of torch" in done.stderr
    assert "there is no picture" in done.stderr


def test_a_check_and_a_diagnosis_as_pages(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\nnvidia-cudnn-cu12==8.9.7.29\n")
    (tmp_path / "a.log").write_text("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n")

    checked = run("check", "requirements.txt", "--machine", "colab-t4", "--format", "html", cwd=tmp_path)
    judged = run("doctor", "a.log", "--no-facts", "--format", "html", cwd=tmp_path)

    assert (checked.returncode, judged.returncode) == (1, 1)
    assert "requirements.txt" in checked.stdout
    assert "will not run" in checked.stdout
    assert "error: cudnn_missing" in judged.stdout


def test_a_lock_as_a_page_goes_beside_the_lock(tmp_path: Path) -> None:
    done = run("lock", "-f", "torch==2.6.0", *MACHINE, "--format", "html", "-o", "-", cwd=tmp_path)

    assert done.returncode == 2
    assert "-o - and --format html would both go to standard output" in done.stderr


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of the system."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "no Chromium on this machine: apt-get install chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A page of each kind."""
    folder = tmp_path_factory.mktemp("pages")
    (folder / "requirements.txt").write_text("torch==2.6.0\nnvidia-cudnn-cu12==8.9.7.29\n")
    (folder / "a.log").write_text("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n")
    commands = {
        "plan": ("plan", "-f", "torch==2.6.0", "-f", "tensorflow==2.18.0", *MACHINE),
        "conflict": ("plan", "-f", "torch==2.6.0", "-f", "tensorflow==2.15.1", *MACHINE),
        "why": ("why", "nvidia-cudnn-cu12", "-f", "torch==2.6.0", *MACHINE),
        "check": ("check", "requirements.txt", "--machine", "colab-t4"),
        "doctor": ("doctor", "a.log", "--no-facts"),
        "validate": ("validate",),
    }
    for name, words in commands.items():
        run(*words, "--format", "html", "-o", f"{name}.html", cwd=folder)
    return {name: folder / f"{name}.html" for name in commands}


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1600])
@pytest.mark.parametrize("name", ["plan", "conflict", "why", "check", "doctor", "validate"])
def test_a_page_is_readable_everywhere(browser: Browser, pages: dict[str, Path], name: str, width: int, scheme: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))

    page.goto(pages[name].as_uri())
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    faults = [(one["id"], one["nodes"][0]["html"][:100]) for one in Axe().run(page).response["violations"]]

    assert said == []
    assert asked == [pages[name].as_uri()]
    assert faults == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    context.close()


@pytest.mark.browser
def test_a_page_is_used_by_keyboard(browser: Browser, pages: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(pages["plan"].as_uri())

    summary = page.locator("summary", has_text="packages")
    summary.focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    page.keyboard.type("cudnn")

    rows = page.locator("details[open] tr:visible")
    assert rows.count() >= 1
    assert all("cudnn" in (rows.nth(number).text_content() or "").lower() for number in range(rows.count()))
    page.close()


def test_the_ranges_of_a_page_are_none_of_the_json_of_a_plan(tmp_path: Path) -> None:
    done = run("plan", "-f", "torch==2.6.0", *MACHINE, "--format", "json", cwd=tmp_path)

    assert "ranges" not in json.loads(done.stdout)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documentation, built without a warning."""
    folder = tmp_path_factory.mktemp("site")
    environ = {**os.environ, "PYTHON": sys.executable}
    done = subprocess.run([ROOT / "scripts" / "docs", "-d", folder], capture_output=True, text=True, check=False, env=environ)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    return folder


@pytest.mark.browser
def test_the_generated_parts_of_the_site_are_there(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text("utf-8")

    assert "--driver-policy" in commands
    assert "generated:" not in commands
    assert "<svg" in (site / "index.html").read_text("utf-8")
    assert "cudnn-resolve/plan/1" in (site / "reference" / "json.html").read_text("utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "errors", "situations/colab", "reference/commands", "reference/python"])
def test_a_page_of_the_site_is_readable_and_asks_nobody(browser: Browser, site: Path, name: str, scheme: Any) -> None:
    from axe_playwright_python.sync_playwright import Axe

    context = browser.new_context(color_scheme=scheme, viewport={"width": 360, "height": 900})
    page = context.new_page()
    failed: list[str] = []
    asked: list[str] = []
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("request", lambda request: asked.append(request.url))

    page.goto((site / f"{name}.html").as_uri())
    faults = [one["id"] for one in Axe().run(page).response["violations"] if one["impact"] in ("serious", "critical")]

    assert failed == []
    assert [url for url in asked if not url.startswith("file:")] == []
    assert faults == []
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    context.close()
