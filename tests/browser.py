"""Pages in the system's Chromium: what they say on its console, whom they ask, what axe finds, and whether they fit the screen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from check_explorer import FLAGS

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SCREENS = [(width, scheme) for width in (360, 1600) for scheme in ("light", "dark")]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Chromium of the system."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path is not None, "no Chromium on this machine: apt-get install chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield found
        found.close()


class Seen(NamedTuple):
    """A page that was opened."""

    page: Page
    said: list[str]
    """On the console, and errors."""
    asked: list[str]
    """Every address that was asked for, without what follows `#`."""

    def faults(self, *impacts: str) -> list[tuple[str, str]]:
        """What axe finds, of these impacts or of any, each with the first place."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return [(one["id"], one["nodes"][0]["html"][:100]) for one in found if not impacts or one["impact"] in impacts]

    @property
    def width(self) -> int:
        """How wide the page is: wider than its screen where it must be scrolled sideways."""
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


@contextmanager
def seen(browser: Browser, address: str, width: int, scheme: Any) -> Iterator[Seen]:
    """A page on a screen of that width, light or dark."""
    context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    found = Seen(context.new_page(), [], [])
    found.page.on("console", lambda message: found.said.append(message.text))
    found.page.on("pageerror", lambda error: found.said.append(str(error)))
    found.page.on("request", lambda request: found.asked.append(request.url.partition("#")[0]))
    found.page.goto(address)
    yield found
    context.close()
