"""The pages of the explorer, of rows that would break them."""

from __future__ import annotations

import json
import re

import pytest
from msgspec.structs import replace

from cudnn_resolve.host.tables import open_book
from cudnn_resolve.report.explorer import Joint, Look, pages
from cudnn_resolve.resolution.joint_map import BuildReach, Pair, Shared, gpus

BOOK = open_book()
LOOK = Look(style="body{}", script="let x", version="1.0")
DRIVERS = ("525.60.13", *(None for _ in gpus(BOOK)))


def made() -> dict[str, str]:
    builds = {name: next(one for one in BOOK.framework(name).builds if one.cuda) for name in ("torch", "jax")}
    reaches = {name: [BuildReach(build=build, pythons={"3.11": DRIVERS})] for name, build in builds.items()}
    first, second = (builds[name].version for name in ("torch", "jax"))
    shared = Shared(cuda="12.4", cudnn="9.3.0.75", builds=("a", "b"), overrides=("</script><b>",), drivers=DRIVERS)
    joint = Joint(first="torch", second="jax", pairs={(first, second): Pair(shared={"3.11": shared})})
    return pages(BOOK, reaches, [joint, replace(joint, second="torch", pairs={(first, first): Pair(why="<i>")})], LOOK)


def test_there_is_a_page_of_everything() -> None:
    assert set(made()) == {"index.html", "torch.html", "jax.html", "torch-jax.html", "torch-torch.html", "drivers.html", "advisories.html"}


def test_what_a_click_shows_is_no_part_of_the_page_before() -> None:
    body, _, data = made()["torch.html"].partition('<script type="application/json"')

    assert '<td class=cuda title="9.0">' in body
    assert "<ul>" not in body
    assert "\\u003cli>\\u003cb>torch 1.0.0" in data


def test_a_cell_says_in_words_what_it_shows() -> None:
    page = made()["torch-jax.html"]

    assert "share an environment with cuDNN 9.3.0.75, overriding pins of wheels" in page
    assert '<td class="yes c9 left">' in page
    assert "cannot share an environment" in made()["torch-torch.html"]


def test_no_text_of_a_row_ends_the_script() -> None:
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', made()["torch-jax.html"])

    assert held is not None
    (row,) = json.loads(held[1])["rows"].values()
    assert row[0][0][5] == ["</script><b>"]


@pytest.mark.slow
def test_links_are_those_of_sources() -> None:
    links = {link for page in made().values() for link in re.findall(r'href="([^"]*)"', page.replace("\\", ""))}

    assert all(link.startswith("https://") or link.split("#")[0] in made() for link in links)
    assert not [link for link in links if re.search(r"\s|[,;:]$", link)]


def test_of_bounds_for_one_reason_the_lowest_is_told() -> None:
    (jax,) = (one for one in BOOK.framework("jax").builds if one.version == "0.4.38" and one.variant == "cuda12")
    page = pages(BOOK, {"jax": [BuildReach(build=jax, pythons={"3.11": DRIVERS})]}, [], LOOK)["jax.html"]

    assert re.findall(r"needs (dm-haiku\S+):", page.replace("&lt;", "<")) == ["dm-haiku<0.0.14"]


def test_a_source_is_told_once_and_cited_by_its_number() -> None:
    held = re.search(r'<script type="application/json" id="data">(.*?)</script>', made()["torch.html"])

    assert held is not None
    data = json.loads(held[1])
    (shown, numbers) = data["details"]["1.0.0"]
    assert len(data["sources"]) == len(set(data["sources"])) > max(numbers)
    assert {int(one) for cited in re.findall(r"\[([\d, ]+)\]", shown) for one in cited.split(",")} == set(range(1, len(numbers) + 1))
    assert "torch" in data["sources"][numbers[0]]


def test_no_name_of_a_row_is_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    architecture = BOOK.architecture
    monkeypatch.setattr(BOOK, "architecture", lambda one: replace(row, name="<img>") if (row := architecture(one)) else None)
    assert "&lt;img&gt;" in made()["torch.html"]
    assert not [name for name, page in made().items() if "<img>" in page]
