"""The explorer in a real browser: what is clicked on, shared by its address, read on any screen, and said by `plan`, too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from check_explorer import check

from cudnn_resolve.operations.explorer import write_site
from tests.browser import SCREENS, chromium, seen

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.browser
MACHINE = "gpu=Tesla+T4&driver=535.104.05&python=3.11"
PAGES = {
    "index.html": ".lead",
    f"torch.html#{MACHINE}&open=2.6.0": "[data-release='2.15.0'].off",
    f"torch-tensorflow.html#{MACHINE}": "td.yes",
    "drivers.html": "table",
    "advisories.html": "article",
}
"""Addresses, and what each of them shows."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium of the system."""
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pages, with two releases of each framework in the joint maps."""
    folder = tmp_path_factory.mktemp("site")
    assert write_site(((), ()), str(folder), releases=2).bytes < 5_000_000
    return folder


@pytest.mark.parametrize(("width", "scheme"), SCREENS)
@pytest.mark.parametrize("address", PAGES)
def test_a_page_is_readable_everywhere_and_asks_nobody(browser: Browser, site: Path, address: str, width: int, scheme: str) -> None:
    with seen(browser, f"{site.as_uri()}/{address}", width, scheme) as found:
        assert found.said == []
        assert found.asked == [f"{site.as_uri()}/{address.partition('#')[0]}"]
        assert found.faults() == []
        assert found.page.locator(PAGES[address]).count() > 0
        assert found.width == width


def test_every_page_is_light(browser: Browser, site: Path) -> None:
    """So that it shows in under a second on a processor that is four times slower; times themselves depend on what else runs."""
    heavy = {}
    for path in sorted(site.glob("*.html")):
        with seen(browser, path.as_uri(), 1600, "light") as found:
            nodes = found.page.evaluate("document.getElementsByTagName('*').length")
        if nodes > 3_000 or path.stat().st_size > 600_000:
            heavy[path.name] = (nodes, path.stat().st_size)

    assert heavy == {}


def test_sources_are_listed_under_the_release_that_is_opened(browser: Browser, site: Path) -> None:
    with seen(browser, f"{site.as_uri()}/jax.html#open=0.4.38", 1600, "light") as found:
        detail = found.page.locator(".detail")
        cited = {one for text in detail.locator("ul small").all_inner_texts() for one in text.strip("[]").split(", ")}
        listed = detail.locator("ol li")

        assert cited == {str(number + 1) for number in range(listed.count())}
        assert all(address.startswith("https://") for address in listed.locator("a").evaluate_all("all => all.map(one => one.href)"))


def test_a_driver_that_cannot_be_read_is_said_to_be_left_out(browser: Browser, site: Path) -> None:
    with seen(browser, f"{site.as_uri()}/torch.html", 1600, "light") as found:
        field = found.page.locator("[name=driver]")
        field.fill("newest")

        assert found.page.locator("output").inner_text().startswith("“newest” is not a driver version such as 550.54.15 and is ignored.")
        assert field.get_attribute("aria-invalid") == "true"
        field.fill("535.104.05")
        assert field.get_attribute("aria-invalid") == "false"
        assert "ignored" not in found.page.locator("output").inner_text()


def test_a_click_shows_the_command_and_the_address_keeps_it(browser: Browser, site: Path) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"{site.as_uri()}/torch.html")
    page.select_option("[name=gpu]", "Tesla K80")
    page.get_by_role("button", name="2.15.0", exact=True).click()

    row = page.locator("[data-release='2.15.0']")
    assert row.locator(".verdict").inner_text().startswith("Does not run with Tesla K80: no code for compute capability 3.7")
    assert row.locator(".command").inner_text() == "cudnn-resolve plan -f torch==2.15.0 --gpu 'Tesla K80'"
    address = page.url
    page.goto("about:blank")
    page.goto(address)
    assert page.locator("[data-release='2.15.0'] .command").is_visible()
    assert page.locator("[name=gpu]").input_value() == "Tesla K80"
    page.locator("nav a", has_text="PyTorch and TensorFlow").click()
    assert page.locator("[name=gpu]").input_value() == "Tesla K80"
    page.locator("[data-pair]").first.click()
    assert "cudnn-resolve plan -f torch==" in page.locator("#panel pre").inner_text()
    context.close()


def test_pages_say_what_plan_says(browser: Browser, site: Path) -> None:
    assert check(browser.new_page(), site, 12, random.Random(3)) == []  # noqa: S311 - a sample
