"""The text of a wheel table: what releases say alike is written once, and read back whole."""

from __future__ import annotations

import sys
from datetime import date

from harvest_table import Table
from harvest_text import expanded, rendered

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


def made(*versions: str) -> Table:
    release = [
        {"version": version, "requires_python": ">=3.8", "tags": ["py3-none-any"], "metadata": number + 1}
        for number, version in enumerate(versions)
    ]
    metadata = [{"id": number + 1, "requires": ["numpy", f"own=={version}"]} for number, version in enumerate(versions)]
    return Table(package="toy", release=release, metadata=metadata)


def test_what_releases_say_alike_is_written_once() -> None:
    written = tomllib.loads(rendered(made("1.0", "1.1", "1.2"), "2026-01-01"))

    assert written["lines"] == ["numpy"]
    assert written["files"] == [{"id": 1, "requires_python": ">=3.8", "tags": ["py3-none-any"]}]
    assert [row["files"] for row in written["release"]] == [1, 1, 1]
    assert written["metadata"][2]["requires"] == [0, "own==1.2"]


def test_what_was_written_is_read_back_whole() -> None:
    table = made("1.0", "1.1", "1.2")
    found = expanded(tomllib.loads(rendered(table, "2026-01-01")))

    assert (found["release"], found["metadata"]) == (table.release, table.metadata)
    alone = expanded(tomllib.loads(rendered(made("1.0"), "2026-01-01")))
    assert (alone["release"], "lines" in alone, "files" in alone) == (made("1.0").release, False, False)


def test_extras_that_a_requirement_names_are_not_listed() -> None:
    entry = {"id": 1, "requires": ["numpy", 'north; extra == "cuda"', "south; extra == 'x'"], "extras": ["all", "cuda"]}
    written = tomllib.loads(rendered(Table(package="toy", release=[], metadata=[entry]), "2026-01-01"))

    assert written["metadata"][0]["extras"] == ["all"]
    assert expanded(written)["metadata"] == [entry]


def test_tags_of_one_platform_are_one_text() -> None:
    tags = ["cp27-cp27mu-linux_x86_64", "cp312-cp312-linux_x86_64", "cp313-cp313t-linux_x86_64", "cp314-cp314-linux_aarch64", "sdist"]
    table = Table(package="toy", release=[{"version": "1.0", "tags": tags}], metadata=[])
    written = tomllib.loads(rendered(table, "2026-01-01"))

    assert written["release"][0]["tags"] == ["cp27-cp27mu cp312 cp313-cp313t-linux_x86_64", "cp314-cp314-linux_aarch64", "sdist"]
    assert expanded(written)["release"] == table.release


def test_a_new_release_moves_nothing() -> None:
    before, after = (rendered(made(*versions), "2026-01-01").splitlines() for versions in (("1.0", "1.1"), ("1.0", "1.1", "1.2")))

    assert set(before) <= set(after)


def test_neighbours_that_differ_in_version_and_day_alone_share_a_row() -> None:
    days = [date(2026, 1, number + 1) for number in range(22)]
    release = [{"version": f"1.{number}", "date": day, "tags": ["py3-none-any"], "metadata": 1} for number, day in enumerate(days)]
    table = Table(package="toy", release=[*release, {**release[-1], "version": "2.0", "metadata": 2}], metadata=[])
    written = tomllib.loads(rendered(table, "2026-01-01"))

    assert [len(row["version"]) if isinstance(row["version"], list) else row["version"] for row in written["release"]] == [20, 2, "2.0"]
    assert expanded(written)["release"] == table.release
