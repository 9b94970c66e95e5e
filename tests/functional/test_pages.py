"""Pages as users get them, in files and in a real browser."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from tests.browser import SCREENS, chromium, seen
from tests.program import ROOT, run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

MACHINE = ("--offline", "--driver", "550.54.15", "--gpu", "T4", "--python-version", "3.11")


def test_a_plan_as_a_page(tmp_path: Path) -> None:
    done = run("plan", "-f", "torch==2.6.0", "-f", "tensorflow==2.18.0", *MACHINE, "--format", "html", "-o", "plan.html", cwd=tmp_path)

    page = (tmp_path / "plan.html").read_text(encoding="utf-8")
    assert done.returncode == 0
    assert "<title>cudnn-resolve plan: torch==2.6.0, tensorflow==2.18.0</title>" in page
    assert "cuDNN: 9.3.0.75 chosen; torch 2.6.0 allows 9.1.0.70 to" in page
    assert "there is a plan" in page
    assert "Python 3.11, driver" in page


@pytest.mark.slow
def test_a_conflict_as_a_page_has_the_bars_and_the_ways_out(tmp_path: Path) -> None:
    done = run("plan", "-f", "torch==2.6.0", "-f", "tensorflow==2.15.1", *MACHINE, "--format", "html", cwd=tmp_path)

    assert done.returncode == 1
    assert "there is no plan" in done.stdout
    assert "no common version" in done.stdout
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
    assert "there is no plan: the tables have no release of torch" in done.stderr
    assert "there is no picture" in done.stderr


def test_a_check_and_a_diagnosis_as_pages(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\nnvidia-cudnn-cu12==8.9.7.29\n")
    (tmp_path / "a.log").write_text("ImportError: libcudnn.so.9: cannot open shared object file: No such file or directory\n")

    checked = run("check", "requirements.txt", "--machine", "colab-t4", "--python-version", "3.11", "--format", "html", cwd=tmp_path)
    judged = run("doctor", "a.log", "--no-facts", "--format", "html", cwd=tmp_path)

    assert (checked.returncode, judged.returncode) == (1, 1)
    assert "requirements.txt" in checked.stdout
    assert "will not run" in checked.stdout
    assert "cuDNN: 8.9.7.29 chosen; torch 2.6.0 allows 9.1.0.70 to" in checked.stdout
    assert "error: cudnn_missing" in judged.stdout


@pytest.mark.slow
def test_a_lock_that_cannot_be_made_as_a_page_has_the_bars(tmp_path: Path) -> None:
    done = run("lock", "-f", "torch==2.6.0", "-f", "tensorflow==2.15.1", *MACHINE, "--format", "html", cwd=tmp_path)

    assert done.returncode == 1
    assert "there is no lock" in done.stdout
    assert "no common version" in done.stdout


def test_a_diagnosis_of_a_machine_as_a_page_has_what_its_frameworks_allow(tmp_path: Path) -> None:
    done = run("doctor", "--facts", str(ROOT / "tests/machines/workstation.json"), "--format", "html", cwd=tmp_path)

    assert "cuDNN: 8.9.7.29 chosen; " in done.stdout
    assert "tensorflow 2.15.1 allows" in done.stdout


def test_a_lock_as_a_page_goes_beside_the_lock(tmp_path: Path) -> None:
    done = run("lock", "-f", "torch==2.6.0", *MACHINE, "--format", "html", "-o", "-", cwd=tmp_path)

    assert done.returncode == 2
    assert "-o - and --format html would both print to standard output" in done.stderr


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of the system."""
    with chromium() as found:
        yield found


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
        "check": ("check", "requirements.txt", "--machine", "colab-t4", "--python-version", "3.11"),
        "doctor": ("doctor", "a.log", "--no-facts"),
        "validate": ("validate",),
        "fleet": ("fleet", "plan", "torch==2.6.0", "--offline", "--from", str(ROOT / "tests/machines/workstation.json")),
    }
    for name, words in commands.items():
        run(*words, "--format", "html", "-o", f"{name}.html", cwd=folder)
    lock = run("lock", "-f", "torch==2.6.0", "-f", "tensorflow==2.15.1", *MACHINE, "--format", "html", cwd=folder)
    (folder / "lock.html").write_text(lock.stdout, "utf-8")
    return {name: folder / f"{name}.html" for name in (*commands, "lock")}


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), SCREENS)
@pytest.mark.parametrize("name", ["plan", "conflict", "why", "check", "doctor", "validate", "lock", "fleet"])
def test_a_page_is_readable_everywhere(browser: Browser, pages: dict[str, Path], name: str, width: int, scheme: str) -> None:
    with seen(browser, pages[name].as_uri(), width, scheme) as found:
        found.page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")

        assert found.said == []
        assert found.asked == [pages[name].as_uri()]
        assert found.faults() == []
        assert found.width == width


@pytest.mark.browser
@pytest.mark.parametrize(("width", "shown", "hidden"), [(360, ".narrow svg", ".wide svg"), (1600, ".wide svg", ".narrow svg")])
def test_the_picture_that_fits_the_screen_is_shown(browser: Browser, pages: dict[str, Path], width: int, shown: str, hidden: str) -> None:
    with seen(browser, pages["plan"].as_uri(), width, "light") as found:
        drawn = found.page.locator(shown)

        assert not found.page.locator(hidden).is_visible()
        assert drawn.evaluate("one => one.getBoundingClientRect().right") <= width


@pytest.mark.browser
@pytest.mark.parametrize("name", ["fleet", "validate"])
def test_no_word_of_a_table_is_broken_into_letters_on_a_telephone(browser: Browser, pages: dict[str, Path], name: str) -> None:
    with seen(browser, pages[name].as_uri(), 360, "light") as found:
        cells = found.page.locator("table").first.locator("th, td")
        narrow = "all => all.filter(one => one.innerText.length > 3 && one.clientWidth < 30).map(one => one.innerText)"

        assert cells.evaluate_all(narrow) == []


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


DOCS = ROOT / "docs"


@pytest.mark.browser
@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1600, "light")])
@pytest.mark.parametrize("name", [str(path.relative_to(DOCS).with_suffix("")) for path in sorted(DOCS.rglob("*.md"))])
def test_a_page_of_the_site_is_readable_and_asks_nobody(browser: Browser, site: Path, name: str, width: int, scheme: str) -> None:
    with seen(browser, (site / f"{name}.html").as_uri(), width, scheme) as found:
        assert [url for url in found.asked if not url.startswith("file:")] == []
        assert found.said == []
        assert found.faults("serious", "critical") == []
        assert found.width == width
